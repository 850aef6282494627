//! `docs/reference/spans.md`: every span with its kind, group and attributes.

use std::fmt::Write as _;

use gym_telemetry::GymSpanGroup;

use super::{
    page::{Page, UNWRITTEN, kept, quoted},
    source::{Constant, all, constants, is_used, plain, read},
};

const KINDS: [&str; 3] = ["INTERNAL", "SERVER", "CLIENT"];
const RESERVED: &str = " Reserved: no code uses it yet.";
/// Their names are made of a request's method and route.
const MADE_NAMES: [(&str, &str); 2] = [
    ("`<METHOD> <route>`", "A request that a server handles; without a route the method alone."),
    ("`HTTP <METHOD>`", "A request to another server, with all its attempts."),
];

#[test]
fn the_page_of_spans_holds_every_name() {
    let gym = constants(&read("gym-telemetry/src/semconv.rs"));
    let lens = constants(&read("lens/src/semconv.rs"));
    let sources = all();
    let all: Vec<Constant> = gym.iter().chain(&lens).cloned().collect();
    let what = |one: &Constant| {
        let unused = if is_used(&one.name, &sources) { "" } else { RESERVED };
        plain(&one.doc, &all) + unused
    };
    let mut page = Page::open("spans.md");
    let old = page.rows();

    let mut spans = String::from(
        "| span | what it is | kind | group | attributes beside those of the rollout |\n|---|---|---|---|---|\n",
    );
    let named = gym
        .iter()
        .filter(|one| one.module == "span")
        .filter(|one| !one.name.ends_with("_PREFIX") && !one.name.starts_with("HTTP_"))
        .map(|one| (format!("`{}`", one.value), what(one)));
    let made = MADE_NAMES.map(|(name, what)| (name.to_owned(), what.to_owned()));
    for (name, what) in named.chain(made) {
        let [kind, group, attributes] = kept(&old, &name, 1);
        writeln!(spans, "| {name} | {what} | {kind} | {group} | {attributes} |").unwrap();
        assert!(kind == UNWRITTEN || KINDS.contains(&kind.as_str()), "{name}: kind {kind}");
        for group in quoted(&group) {
            assert!(GymSpanGroup::ALL_GROUPS.iter().any(|one| one.name() == group), "{group}");
        }
        for attribute in quoted(&attributes).filter(|quoted| !quoted.contains(' ')) {
            assert!(all.iter().any(|one| one.value == attribute), "{name}: {attribute}");
        }
    }

    let mut attributes = String::new();
    let mut section = None;
    for one in all.iter().filter(|one| one.module.is_empty()) {
        // Headers, scopes and what replaces a value are no keys; what Gym tells is told once.
        let is_told = attributes.contains(&format!("| `{}` |", one.value));
        if is_told
            || !one.value.contains(['.', '_'])
            || one.value.ends_with('.')
            || one.name == "SCOPE"
        {
            continue;
        }
        if section != Some(&one.section) {
            let title = if one.section.is_empty() { "lens" } else { &one.section };
            write!(attributes, "\n**{title}**\n\n| attribute | what it is |\n|---|---|\n").unwrap();
            section = Some(&one.section);
        }
        writeln!(attributes, "| `{}` | {} |", one.value, what(one)).unwrap();
    }
    page.set("spans", &spans);
    page.set("attributes", &attributes);
    page.holds();
}
