//! The reference pages say what the code does.

mod api;
mod environment;
mod links;
mod metrics;
mod page;
mod source;
mod spans;

use std::{fmt::Write as _, fs, path::Path};

use gym_telemetry::{Row, env_vars, settings_table};

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";

fn page() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md")
}

fn table(rows: &[Row]) -> String {
    let mut out =
        String::from("| setting | default | variable | what it does |\n|---|---|---|---|\n");
    // Without a variable it is derived from another setting.
    for row in rows.iter().filter(|row| !row.variable.is_empty()) {
        let (name, value, variable) = (&row.name, &row.value, row.variable);
        writeln!(out, "| `{name}` | `{value}` | `{variable}` | {} |", row.about()).unwrap();
    }
    out
}

#[test]
fn every_setting_says_what_it_does() {
    for row in settings_table() {
        assert!(!row.about().is_empty(), "{}", row.name);
    }
}

/// Guarantees: the page cannot go stale. `UPDATE_DOCS=1` writes the table anew.
#[test]
fn the_reference_page_holds_the_settings_table() {
    let written = fs::read_to_string(page()).expect("the reference page");
    let (head, rest) = written.split_once(BEGIN).expect("the table's begin");
    let (old, tail) = rest.split_once(END).expect("the table's end");
    let new = table(&settings_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(page(), format!("{head}{BEGIN}{new}{END}{tail}")).expect("a writable page");
        return;
    }
    assert_eq!(old, new, "run this test once with UPDATE_DOCS=1");
    // The order of the layers is told by name.
    for prefix in [env_vars::GYM_OTEL_PREFIX, env_vars::LENS_PREFIX] {
        assert!(written.contains(&format!("`{prefix}*`")), "{prefix}");
    }
}
