//! `lens` without its feature `enable` is nothing: no dependency, no symbol, no byte of code.
//!
//! Each test builds this package as a program would and looks at what the compiler made of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use compile_out::FORMS;

/// How the mangled names of both crates contain them, in either scheme.
const SYMBOLS: &[&str] = &["4lens", "11lens_macros", "9lens_otlp"];
/// What every literal of a site begins with.
const LITERALS: &[&str] =
    &["proof.span", "proof.key", "proof.metric", "proof.event", "proof.preset", "proof.log"];

/// Runs cargo in a target directory of its own and returns its output and that directory.
fn cargo(target: &str, arguments: &[&str]) -> (String, PathBuf) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(target);
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).expect("text"), target)
}

fn program(target: &Path, profile: &str, name: &str) -> Vec<u8> {
    std::fs::read(target.join(profile).join(name)).expect("the program was built")
}

fn found(haystack: &[u8], needles: &[&'static str]) -> Vec<&'static str> {
    let holds = |needle: &&&str| haystack.windows(needle.len()).any(|at| at == needle.as_bytes());
    needles.iter().filter(holds).copied().collect()
}

#[test]
fn the_only_dependency_is_the_macro() {
    let (tree, _) = cargo(
        "tree",
        &["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{lib}"],
    );
    let crates: Vec<&str> = tree.lines().map(str::trim).collect();
    assert_eq!(crates, ["compile_out", "lens", "lens_macros"]);
}

#[test]
fn a_release_program_holds_no_symbol_and_no_literal_of_its_sites() {
    let (_, target) = cargo("release", &["build", "--locked", "--release"]);
    let instrumented = program(&target, "release", "instrumented");
    assert_eq!(found(&instrumented, SYMBOLS), [""; 0]);
    assert_eq!(found(&instrumented, LITERALS), [""; 0]);
    assert_eq!(
        found(&instrumented, &["instrumented_guard"]),
        ["instrumented_guard"],
        "symbols are there to be found"
    );

    // Without optimisation the calls are still there: what was looked for above can be found.
    let (_, target) = cargo("debug", &["build", "--locked"]);
    let unoptimised = program(&target, "debug", "instrumented");
    assert!(found(&unoptimised, SYMBOLS).contains(&"4lens"));
    assert!(!found(&unoptimised, LITERALS).is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_release_program_has_as_much_code_and_data_as_without_sites() {
    let (_, target) = cargo("release", &["build", "--locked", "--release"]);
    let sizes = |name| section_sizes(&program(&target, "release", name));
    let (bare, instrumented) = (sizes("bare"), sizes("instrumented"));
    for section in [".text", ".rodata", ".data", ".bss", ".tdata", ".tbss"] {
        let size = bare.get(section);
        assert!(section != ".text" || size.is_some_and(|size| *size > 0), "{bare:?}");
        assert_eq!(instrumented.get(section), size, "{section}");
    }
}

/// Sizes of the sections of a 64-bit ELF file by name.
#[cfg(target_os = "linux")]
fn section_sizes(file: &[u8]) -> BTreeMap<String, u64> {
    let number = |at: usize, len: usize| {
        file[at..at + len].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "a little-endian 64-bit program");
    let (table, entry) = (number(40, 8) as usize, number(58, 2) as usize);
    let (count, names) = (number(60, 2) as usize, number(62, 2) as usize);
    let header = |index: usize| table + index * entry;
    let names = number(header(names) + 24, 8) as usize;
    (0..count)
        .map(|index| {
            let name = &file[names + number(header(index), 4) as usize..];
            let len = name.iter().position(|byte| *byte == 0).expect("an end");
            let name = String::from_utf8_lossy(&name[..len]).into_owned();
            (name, number(header(index) + 32, 8))
        })
        .collect()
}

/// The functions of an assembly file by symbol, and which symbols are other names of one.
struct Assembly {
    bodies: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, String>,
}

impl Assembly {
    fn read(text: &str) -> Self {
        let (mut bodies, mut aliases) = (BTreeMap::new(), BTreeMap::new());
        let mut open: Option<(String, Vec<String>)> = None;
        for line in text.lines() {
            if let Some((name, body)) = &mut open {
                if line.trim_start().starts_with(".size") {
                    bodies.insert(std::mem::take(name), std::mem::take(body));
                    open = None;
                } else if !is_note(line) {
                    body.push(line.trim().to_owned());
                }
            } else if let Some(name) = line.strip_suffix(':').filter(|name| is_symbol(name)) {
                open = Some((name.to_owned(), Vec::new()));
            } else if let Some((name, of)) = line.split_once(" = ").or_else(|| set_directive(line))
            {
                aliases.insert(name.trim().to_owned(), of.trim().to_owned());
            }
        }
        Self { bodies, aliases }
    }

    /// What a symbol is in the end: equal functions have been merged by the compiler.
    fn resolve<'a>(&'a self, symbol: &'a str) -> &'a str {
        self.aliases.get(symbol).map_or(symbol, |of| self.resolve(of))
    }

    /// A function's instructions, with labels and constants numbered as they come.
    fn body(&self, symbol: &str) -> Vec<String> {
        let body = self.bodies.get(self.resolve(symbol));
        let body = body.unwrap_or_else(|| panic!("no function {symbol}"));
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        body.iter()
            .map(|line| {
                let is_part =
                    |character: char| character.is_alphanumeric() || "._$".contains(character);
                let mut out = String::new();
                let mut rest = line.as_str();
                while let Some(at) = rest.find(".L") {
                    let end = rest[at..]
                        .find(|character| !is_part(character))
                        .map_or(rest.len(), |len| at + len);
                    let next = numbers.len();
                    let number = *numbers.entry(rest[at..end].to_owned()).or_insert(next);
                    out.push_str(&format!("{}.L{number}", &rest[..at]));
                    rest = &rest[end..];
                }
                out + rest
            })
            .collect()
    }

    fn same(&self, left: &str, right: &str) -> bool {
        self.resolve(left) == self.resolve(right) || self.body(left) == self.body(right)
    }
}

fn is_symbol(name: &str) -> bool {
    !name.is_empty() && !name.starts_with([' ', '\t', '.', '#'])
}

/// Nothing that is executed.
fn is_note(line: &str) -> bool {
    let line = line.trim_start();
    [".cfi_", ".p2align", ".Lfunc_", ".loc", ".file", "#", "//"]
        .iter()
        .any(|note| line.starts_with(note))
}

fn set_directive(line: &str) -> Option<(&str, &str)> {
    line.trim_start().strip_prefix(".set ")?.split_once(", ")
}

fn assembly() -> Assembly {
    let (_, target) =
        cargo("assembly", &["rustc", "--locked", "--release", "--lib", "--", "--emit", "asm"]);
    let deps = std::fs::read_dir(target.join("release/deps")).expect("built");
    let newest = deps
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "s"))
        .max_by_key(|path| path.metadata().and_then(|file| file.modified()).expect("a time"));
    let text = std::fs::read_to_string(newest.expect("an assembly file")).expect("text");
    Assembly::read(&text)
}

#[test]
fn an_instrumented_function_is_the_same_machine_code_as_the_bare_one() {
    let assembly = assembly();
    let different: Vec<&str> = FORMS
        .iter()
        .filter(|form| !assembly.same(&format!("bare_{form}"), &format!("instrumented_{form}")))
        .copied()
        .collect();
    assert_eq!(different, [""; 0], "these forms leave something behind");
    // The comparison can tell two functions apart, even alike ones.
    assert!(!assembly.same("bare_future", "instrumented_traced_future"));
    assert!(!assembly.same("bare_guard", "instrumented_nested_guards"));
}

#[test]
fn instrumented_functions_give_what_bare_ones_give() {
    for value in [0, 1, 7, 8, 11, 40] {
        let bare = compile_out::run_all!(bare, value);
        assert_eq!(compile_out::run_all!(instrumented, value), bare, "{value}");
        assert_eq!(bare.len(), FORMS.len());
    }
}
