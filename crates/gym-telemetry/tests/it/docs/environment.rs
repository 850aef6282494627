//! `docs/reference/environment.md`: every environment variable.

use std::fmt::Write as _;

use super::{
    page::Page,
    source::{Constant, constants, plain, read},
};

const HEAD: &str = "| variable | other forms | what it is |\n|---|---|---|\n";
const BOTH_PREFIXES: &str = "under_both_prefixes!";
const SIGNALS: [&str; 3] = ["TRACES", "METRICS", "LOGS"];

#[test]
fn the_page_of_variables_holds_every_constant_with_its_sentence() {
    let gym = constants(&read("gym-telemetry/src/env_vars.rs"));
    let lens = constants(&read("lens/src/env_vars.rs"));
    let all: Vec<Constant> = gym.iter().chain(&lens).cloned().collect();
    let row = |name: &str, forms: &[String], doc: &str| {
        let forms = if forms.is_empty() { "–".to_owned() } else { forms.join(", ") };
        format!("| `{name}` | {forms} | {} |\n", plain(doc, &all))
    };

    let (mut settings, mut standard, mut others) =
        (HEAD.to_owned(), HEAD.to_owned(), HEAD.to_owned());
    let mut told: Vec<&str> = Vec::new();
    for one in &all {
        let name = one.name.as_str();
        if one.module == BOTH_PREFIXES {
            let lens = format!("`NEMO_LENS_{name}`");
            settings.push_str(&row(&format!("NEMO_GYM_OTEL_{name}"), &[lens], &one.doc));
        }
        // Prefixes are no variables, and suffixes are those of the settings.
        let is_variable = one.module.is_empty() && !one.value.ends_with('_');
        if !is_variable || told.contains(&one.value.as_str()) {
            continue;
        }
        told.push(&one.value);
        let signal_forms: Vec<String> = gym
            .iter()
            .filter(|form| form.module.starts_with("per_signal"))
            .filter(|form| one.value == format!("OTEL_EXPORTER_OTLP_{}", form.name))
            .flat_map(|form| SIGNALS.map(|s| format!("`OTEL_EXPORTER_OTLP_{s}_{}`", form.name)))
            .collect();
        let table = if one.value.starts_with("OTEL_") { &mut standard } else { &mut others };
        write!(table, "{}", row(&one.value, &signal_forms, &one.doc)).unwrap();
    }
    for suffix in lens.iter().filter(|one| one.module == "suffix") {
        assert!(settings.contains(&format!("`NEMO_GYM_OTEL_{}`", suffix.value)), "{suffix:?}");
    }
    assert!(told.len() > 60, "read wrongly: {told:?}");

    let mut page = Page::open("environment.md");
    page.set("settings", &settings);
    page.set("standard", &standard);
    page.set("others", &others);
    page.holds();
}
