//! The pages of promises and of names name tests that exist.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Paths on the page begin here.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `path::name` of every test that the page names, with the line that does.
fn named_tests(page: &str) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    for (nth, line) in page.lines().enumerate() {
        let Some(cell) = line.trim_end().trim_end_matches('|').rsplit(" | ").next() else {
            continue;
        };
        for token in cell.split('`').skip(1).step_by(2) {
            if let Some((file, name)) = token.split_once(".rs::") {
                found.push((nth + 1, file, name));
            }
        }
    }
    found
}

/// Whether a source has a test of this name: a function marked as one, or what a test program with a `main` of its own
/// prints as the harness does.
fn is_test(source: &str, name: &str) -> bool {
    let marked = |at: usize| {
        let line_start = source[..at].rfind('\n').unwrap_or(0);
        source[..line_start]
            .lines()
            .rev()
            .map(str::trim)
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
            .any(|line| line == "#[test]" || line.starts_with("#[tokio::test"))
    };
    let function = format!("fn {name}(");
    source.match_indices(&function).any(|(at, _)| marked(at))
        || source.contains(&format!("test {name} "))
}

#[test]
fn a_function_that_is_no_test_is_none() {
    let source = "#[test]\n/// Doc.\nfn a() {}\nfn b() {}\n    #[tokio::test]\n    async fn c() {}\n\"test d ... ok\"";
    assert!(["a", "c", "d"].iter().all(|name| is_test(source, name)));
    assert!(!is_test(source, "b"));
}

#[test]
fn every_test_that_the_page_names_exists() {
    let page = |name: &str| {
        fs::read_to_string(crates().join("../docs/reference").join(name)).expect("the page")
    };
    let (promises, names) = (page("conformance.md"), page("api.md"));
    let tests = [named_tests(&promises), named_tests(&names)].concat();
    assert!(tests.len() > 200, "read wrongly: {} tests", tests.len());
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    let mut missing = Vec::new();
    for (line, file, name) in tests {
        let source = sources.entry(file).or_insert_with(|| {
            fs::read_to_string(crates().join(format!("{file}.rs"))).unwrap_or_default()
        });
        let exists = is_test(source, name);
        if !exists {
            missing.push(format!("line {line}: {file}.rs::{name}"));
        }
    }
    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
}

#[test]
fn only_the_last_cell_of_a_row_names_tests() {
    let page = "| `a.rs::b` of x | here | `c/d.rs::e`, `f.rs::g` |\n| none | here | — |\n";
    assert_eq!(named_tests(page), [(1, "c/d", "e"), (1, "f", "g")]);
}

/// Guarantees: what this side promises, a test holds.
#[test]
fn every_promise_of_this_side_has_a_test() {
    let page =
        fs::read_to_string(crates().join("../docs/reference/conformance.md")).expect("the page");
    let bare: Vec<&str> = page.lines().filter(|line| line.contains("| here | — |")).collect();
    assert!(bare.is_empty(), "no test for:\n{}", bare.join("\n"));
}
