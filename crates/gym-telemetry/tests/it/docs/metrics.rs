//! `docs/reference/metrics.md`: every metric, as the code defines it.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    page::{Page, kept, quoted},
    source::{Constant, all, constants, is_name, literal, plain, read, uses},
};

/// Modules of names, with what makes a name of them a metric's.
const NAME_MODULES: [(&str, &str); 5] =
    [("metric", ""), ("sampled", ""), ("pipeline", "lens."), ("inference", ""), ("rl", "")];
const KINDS: [(&str, &str); 4] = [
    ("UpDownCounter", "up-down counter"),
    ("Counter", "counter"),
    ("Gauge", "gauge"),
    ("Histogram", "histogram"),
];
const NOTHING: &str = "nothing yet";
/// Instruments for programs of others.
const FOR_OTHERS: &str = "rl";

/// Where and how a metric is defined.
#[derive(Debug, Default)]
struct Definition {
    kind: Option<&'static str>,
    unit: Option<String>,
    about: Option<String>,
    bounds: Option<String>,
    /// Its static, if it has one.
    instrument: Option<String>,
}

/// Arguments of a call up to its closing parenthesis.
fn arguments(code: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut from) = (0, false, 0);
    let mut found = Vec::new();
    for (at, c) in code.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(code[from..at].trim());
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(code[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The text of an argument: a literal, or a variable that was given one.
fn text(code: &str, argument: &str) -> Option<String> {
    let given = code.split_once(&format!("let {argument} = \"")).map(|(_, rest)| rest);
    let told = given.and_then(|rest| rest.split('"').next());
    told.or(literal(argument)).map(str::to_owned)
}

fn unit(code: &str, argument: &str, names: &[Constant]) -> Option<String> {
    let last = argument.rsplit("::").next()?.to_ascii_uppercase();
    let named = names.iter().find(|one| one.module == "unit" && one.name == last);
    text(code, argument).or(named.map(|one| one.value.clone()))
}

fn definition(
    name: &Constant,
    sources: &BTreeMap<String, String>,
    names: &[Constant],
) -> Definition {
    for (path, code) in sources.iter().filter(|(path, _)| !path.ends_with("semconv.rs")) {
        let is_lens = path.starts_with("lens/");
        if is_lens != !matches!(&*name.module, "metric" | "sampled") {
            continue;
        }
        for (before, after) in uses(code, &name.name) {
            let head = before.trim_end_matches(|c: char| is_name(c) || c == ':').trim_end();
            let Some(head) = head.strip_suffix('(') else { continue };
            let given = arguments(after);
            if given.len() < 3 || !given[0].is_empty() {
                continue;
            }
            let kind = KINDS.iter().find(|(kind, _)| {
                ["new", "with_bounds", "observable"]
                    .iter()
                    .any(|how| head.ends_with(&format!("{kind}::{how}")))
            });
            let statement = head.rsplit(';').next().unwrap_or_default();
            let instrument = statement
                .rsplit_once("static ")
                .and_then(|(_, rest)| rest.split_once(':').map(|(name, _)| name.trim().to_owned()));
            return Definition {
                kind: kind.map(|(_, told)| *told),
                unit: unit(code, given[1], names),
                about: text(code, given[2]),
                bounds: head.ends_with("with_bounds").then(|| given[3].to_owned()),
                instrument,
            };
        }
    }
    Definition::default()
}

/// Whether code outside of tests records it.
fn is_recorded(module: &str, definition: &Definition, sources: &BTreeMap<String, String>) -> bool {
    let Some(instrument) = &definition.instrument else {
        return definition.kind.or(definition.about.as_deref()).is_some();
    };
    sources.values().any(|code| {
        uses(code, instrument).any(|(before, after)| {
            let is_own = module != FOR_OTHERS || before.ends_with("rl::");
            is_own && after.trim_start().starts_with('.')
        })
    })
}

/// Upper bounds by the name of their constant.
fn bounds(name: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let head = format!("const {name}: &[f64]");
    let code = sources.values().find_map(|code| code.split_once(&head)).expect("its bounds").1;
    let list = code.split_once("&[").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    list.split(',')
        .map(|number| number.trim().replace('_', ""))
        .filter(|number| !number.is_empty())
        .map(|number| number.trim_end_matches(".0").to_owned())
        .collect()
}

#[test]
fn the_page_of_metrics_holds_every_metric_as_it_is_defined() {
    let mut names = constants(&read("gym-telemetry/src/semconv.rs"));
    names.extend(constants(&read("lens/src/semconv.rs")));
    let sources = all();
    let mut page = Page::open("metrics.md");
    let old = page.rows();

    let mut table = String::from(
        "| metric | kind | unit | what | attributes | written by |\n|---|---|---|---|---|---|\n",
    );
    let mut histograms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for name in &names {
        let is_metric = NAME_MODULES
            .iter()
            .any(|(module, prefix)| name.module == *module && name.value.starts_with(prefix));
        if !is_metric {
            continue;
        }
        count += 1;
        let key = format!("`{}`", name.value);
        let found = definition(name, &sources, &names);
        let [mut attributes, mut writer] = kept(&old, &key, 3);
        if !is_recorded(&name.module, &found, &sources) && name.module != FOR_OTHERS {
            (attributes, writer) = ("–".to_owned(), NOTHING.to_owned());
        } else if writer == NOTHING {
            (attributes, writer) = ("?".to_owned(), "?".to_owned());
        }
        for attribute in quoted(&attributes) {
            assert!(names.iter().any(|one| one.value == attribute), "{key}: {attribute}");
        }
        // What has no instrument yet is told by its constant: `Counter: rollouts by outcome.`
        let (told_kind, told_about) = name.doc.split_once(": ").unwrap_or(("", &name.doc));
        let (told_kind, told_unit) = told_kind.split_once(", ").unwrap_or((told_kind, "–"));
        let kind = found.kind.map_or(told_kind.to_lowercase(), str::to_owned);
        let unit = found.unit.map_or(told_unit.to_owned(), |unit| format!("`{unit}`"));
        let about = found.about.unwrap_or(plain(told_about.trim_end_matches('.'), &names));
        writeln!(table, "| {key} | {kind} | {unit} | {about} | {attributes} | {writer} |").unwrap();
        if kind == "histogram" {
            let default = "DEFAULT_BOUNDS".to_owned();
            histograms.entry(found.bounds.unwrap_or(default)).or_default().push(key);
        }
    }
    assert!(count > 30, "read wrongly: {count}");

    let mut lists = String::from("| upper bounds | of |\n|---|---|\n");
    for (constant, metrics) in histograms {
        let numbers = bounds(&constant, &sources).join(", ");
        writeln!(lists, "| {numbers} | {} |", metrics.join(", ")).unwrap();
    }
    page.set("metrics", &table);
    page.set("bounds", &lists);
    page.holds();
}

#[test]
fn a_definition_is_read_from_its_call() {
    let names = constants(
        "pub mod metric {\n/// Gauge: x.\npub const X: &str = \"gym.x\";\n}\n\
         pub mod unit {\n/// Bytes.\npub const BYTES: &str = \"By\";\n}\n",
    );
    let sources = |code: &str| BTreeMap::from([("gym/src/a.rs".to_owned(), code.to_owned())]);
    let code = sources(
        "static A: Histogram = Histogram::with_bounds(\n    metric::X,\n    unit::BYTES,\n    \
         \"Size (all, of it)\",\n    BOUNDS,\n);\n",
    );
    let found = definition(&names[0], &code, &names);
    assert_eq!((found.kind, found.unit.as_deref()), (Some("histogram"), Some("By")));
    assert_eq!(found.about.as_deref(), Some("Size (all, of it)"));
    assert_eq!(found.bounds.as_deref(), Some("BOUNDS"));
    assert!(!is_recorded("metric", &found, &code));
    let used = sources("metrics::A\n    .record(1.0, &[]);");
    assert!(is_recorded("metric", &found, &used));
    let observed =
        sources("let told = \"Size\";\nGauge::observable(metric::X, bytes, told, || f());");
    let found = definition(&names[0], &observed, &names);
    assert_eq!((found.kind, found.unit.as_deref()), (Some("gauge"), Some("By")));
    assert!(is_recorded("metric", &found, &observed));
}
