//! Names with their doc sentences, read from source: neither can be asked for at run time.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A `pub const NAME: &str`, or a name that a macro makes constants of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Modules and macro calls around it, joined by `::`.
    pub module: String,
    pub name: String,
    /// Empty for the argument of a macro.
    pub value: String,
    pub doc: String,
    /// What the last `// --- … ---` above it says.
    pub section: String,
}

pub fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file below `crates/`.
pub fn read(path: &str) -> String {
    fs::read_to_string(crates().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Sources of all crates by path, each up to its test module.
pub fn all() -> BTreeMap<String, String> {
    fn walk(dir: &Path, out: &mut BTreeMap<String, String>) {
        for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && path.file_stem().is_some_and(|stem| stem != "tests")
            {
                let text = fs::read_to_string(&path).expect("a readable source");
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let name = path.strip_prefix(crates()).expect("below").to_string_lossy();
                out.insert(name.into_owned(), code.to_owned());
            }
        }
    }
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(crates()).expect("the crates").flatten() {
        walk(&entry.path().join("src"), &mut out);
    }
    assert!(out.len() > 20, "looked in the wrong place: {}", crates().display());
    out
}

pub fn constants(source: &str) -> Vec<Constant> {
    let mut found = Vec::new();
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let (mut doc, mut section) = (String::new(), String::new());
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let (indent, line) = (line.len() - line.trim_start().len(), line.trim());
        if let Some(text) = line.strip_prefix("///") {
            doc = format!("{doc} {}", text.trim()).trim().to_owned();
            continue;
        }
        if let Some(text) = line.strip_prefix("// ---") {
            text.trim_end_matches('-').trim().clone_into(&mut section);
        }
        if line.starts_with("//") || line.starts_with("#[") {
            continue;
        }
        let module = || {
            let names = blocks.iter().map(|(_, name)| name.as_str());
            names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join("::")
        };
        let is_name = !line.is_empty() && line.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        if matches!(line, "}" | "};") {
            if blocks.last().is_some_and(|(at, _)| *at == indent) {
                blocks.pop();
            }
        } else if let Some(head) = line.strip_suffix('{') {
            let head = head.trim();
            let is_macro = head.ends_with('!');
            let name = head.strip_prefix("pub mod ").or(is_macro.then_some(head));
            blocks.push((indent, name.unwrap_or_default().to_owned()));
        } else if let Some((name, rest)) =
            line.strip_prefix("pub const ").and_then(|line| line.split_once(": &str ="))
        {
            let rest = if rest.is_empty() { lines.next().unwrap_or_default() } else { rest };
            if let Some(value) = literal(rest) {
                let (name, value, module) = (name.to_owned(), value.to_owned(), module());
                let section = section.clone();
                found.push(Constant { module, name, value, doc: doc.clone(), section });
            }
        } else if is_name && blocks.last().is_some_and(|(_, name)| name.ends_with('!')) {
            let (name, module) = (line.to_owned(), module());
            let section = section.clone();
            found.push(Constant { module, name, value: String::new(), doc: doc.clone(), section });
        }
        doc.clear();
    }
    found
}

pub fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What stands behind every use of a name as a word.
pub fn uses<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    code.match_indices(name).filter_map(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        (!before.ends_with(is_name) && !after.starts_with(is_name)).then_some((before, after))
    })
}

/// Whether code names a constant, beside the modules that define names.
pub fn is_used(name: &str, sources: &BTreeMap<String, String>) -> bool {
    let code = sources.iter().filter(|(path, _)| !path.ends_with("/semconv.rs"));
    code.into_iter().any(|(_, code)| uses(code, name).next().is_some())
}

/// The text of a string literal.
pub fn literal(code: &str) -> Option<&str> {
    let code = code.trim().trim_end_matches(';');
    code.strip_prefix('"')?.strip_suffix('"')
}

/// A doc sentence for a page: a link becomes the value of its constant, or the values of its module.
pub fn plain(doc: &str, all: &[Constant]) -> String {
    let mut out = String::new();
    let mut rest = doc;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((path, after)) = link.split_once("`]") else { break };
        let path = path.replace("super::", "").replace("crate::", "");
        let (module, last) = path.rsplit_once("::").unwrap_or(("", &path));
        let values: Vec<String> = all
            .iter()
            .filter(|one| {
                let is_constant = one.name == last && one.module.ends_with(module);
                (is_constant || one.module.ends_with(&path)) && !one.value.is_empty()
            })
            .map(|one| format!("`{}`", one.value))
            .collect();
        out.push_str(before);
        // A name that several modules have is told as the link writes it.
        match (values.len(), last.chars().any(|c| c.is_ascii_lowercase())) {
            (0, _) | (2.., false) => out.push_str(&format!("`{last}`")),
            _ => out.push_str(&values.join(", ")),
        }
        rest = after;
    }
    out + rest
}

#[test]
fn constants_are_read_with_module_section_and_sentence() {
    let source = "//! Top.\n/// A prefix.\npub const P: &str = \"X_\";\n// --- second ---\n\
                  macro_rules! forms {\n    ($($name:ident)*) => {\n    };\n}\nforms! {\n    \
                  /// Says\n    /// more.\n    NAME\n}\npub mod a {\n    /// Of [`super::P`], see \
                  [`other`].\n    pub const LONG: &str =\n        \"a.b\";\n}\n";
    let found = constants(source);
    let told: Vec<_> = found
        .iter()
        .map(|one| [&*one.module, &one.name, &one.value, &one.doc, &one.section])
        .collect();
    assert_eq!(
        told,
        [
            ["", "P", "X_", "A prefix.", ""],
            ["forms!", "NAME", "", "Says more.", "second"],
            ["a", "LONG", "a.b", "Of [`super::P`], see [`other`].", "second"],
        ]
    );
    assert_eq!(plain(&found[2].doc, &found), "Of `X_`, see `other`.");
    assert_eq!(plain("one of [`super::a`]", &found), "one of `a.b`");
}
