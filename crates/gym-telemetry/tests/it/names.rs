//! Names are constants: nothing outside of the two name modules spells one.

use std::{
    fs,
    path::{Path, PathBuf},
};

const PATTERNS: &[&str] = &[
    "\"nemo.",
    "\"gym.",
    "\"http.",
    "\"url.",
    "\"server.",
    "\"error.",
    "\"gen_ai.",
    "\"lens.",
    "\"NEMO_",
    "\"OTEL_",
    "\"slurm.",
    "\"k8s.",
    "\"host.",
    "\"SLURM",
    "\"K8S_",
    "\"KUBERNETES_",
    "\"CUDA_",
    "\"PYTHON",
    "\"UV_",
    "\"NO_COLOR\"",
    "\"TERM\"",
];

/// The modules that define names.
const DEFINING: &[&str] = &[
    "gym-telemetry/src/semconv.rs",
    "gym-telemetry/src/env_vars.rs",
    "lens/src/semconv.rs",
    "lens/src/env_vars.rs",
    // What other producers write and nobody here emits.
    "lens-store/src/trace/foreign.rs",
];

/// Whole crates that only tests use.
const TEST_CRATES: &[&str] = &["lens-testing/"];

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    name == "tests"
        || name.ends_with("_tests")
        || path.ends_with("lens-store/src/trace/golden.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}

/// Lines of a source that spell a name, without comments and without its test module.
fn literals(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut lines = source.lines().enumerate().peekable();
    while let Some((nth, line)) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("#[cfg(test)]") {
            let opens_module = lines.peek().is_some_and(|(_, next)| {
                next.trim_start().starts_with("mod ") && next.contains('{')
            });
            if opens_module {
                break;
            }
        }
        let code = if trimmed.starts_with("//") { "" } else { line };
        if PATTERNS.iter().any(|pattern| code.contains(pattern)) {
            found.push((nth + 1, line.trim()));
        }
    }
    found
}

#[test]
fn attribute_metric_and_variable_names_are_spelt_only_where_they_are_defined() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates' directory");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).expect("the crates").flatten() {
        let src = entry.path().join("src");
        if src.is_dir() {
            sources(&src, &mut files);
        }
    }
    assert!(files.len() > 20, "looked in the wrong place: {}", crates.display());
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(crates).expect("below").to_string_lossy().into_owned();
        let exempt = DEFINING.contains(&name.as_str())
            || TEST_CRATES.iter().any(|prefix| name.starts_with(prefix))
            || is_test_file(&file);
        if exempt {
            continue;
        }
        let source = fs::read_to_string(&file).expect("a readable source");
        for (line, text) in literals(&source) {
            found.push(format!("crates/{name}:{line}: {text}"));
        }
    }
    assert!(
        found.is_empty(),
        "use a constant of gym_telemetry::semconv or gym_telemetry::env_vars:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_literal_is_found_in_code_and_not_in_comments_or_tests() {
    let source = "/// \"nemo.doc\"\nlet a = \"gym.rollout\";\n// \"OTEL_X\"\n\
                  #[cfg(test)]\nmod tests {\n    let b = \"http.route\";\n}\n";
    assert_eq!(literals(source), [(2, "let a = \"gym.rollout\";")]);
    assert_eq!(literals("#[cfg(test)]\nmod tests;\nenv(\"NEMO_X\")\n"), [(3, "env(\"NEMO_X\")")]);
}
