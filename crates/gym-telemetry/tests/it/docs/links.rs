//! Links between the pages.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::source::crates;

fn pages(dir: &Path, out: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).expect("a folder").flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            pages(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            out.push(path);
        }
    }
}

/// Anchor of a heading as it is made from its text.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Targets of links outside of code.
fn targets(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose
        .flat_map(|text| text.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let root = crates().join("..");
    let mut all: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root.join(name)).to_vec();
    pages(&root.join("docs"), &mut all);
    let (mut broken, mut seen) = (Vec::new(), 0);
    for page in &all {
        let text = fs::read_to_string(page).expect("a page");
        for target in targets(&text).into_iter().filter(|target| !target.contains("://")) {
            seen += 1;
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let goal =
                if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            let has_place = || {
                let goal = fs::read_to_string(&goal).unwrap_or_default();
                let mut headings = goal.lines().filter(|line| line.starts_with('#'));
                headings.any(|line| anchor(line.trim_start_matches('#').trim()) == place)
            };
            if !goal.exists() || !(place.is_empty() || has_place()) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(seen > 40, "read wrongly: {seen} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The index of the pages names each of them.
#[test]
fn every_page_is_in_the_index() {
    let docs = crates().join("../docs");
    let index = fs::read_to_string(docs.join("README.md")).expect("the index");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    for page in all {
        let name = page.strip_prefix(&docs).expect("below").to_string_lossy().into_owned();
        let is_listed = name.starts_with("adr/") || name == "README.md";
        assert!(is_listed || targets(&index).contains(&&*name), "{name} is not in docs/README.md");
    }
}

#[test]
fn the_code_of_the_page_on_servers_is_that_of_the_example() {
    let page = fs::read_to_string(crates().join("../docs/extending.md")).expect("the page");
    let example = fs::read_to_string(crates().join("gym/examples/calculator.rs")).expect("it");
    let quoted: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(quoted.len() > 2, "read wrongly: {quoted:?}");
    for code in quoted {
        assert!(example.contains(code.trim_end()), "not in the example:\n{code}");
    }
}
