//! Spans read from console lines, and the trees they form.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// One span as its console line tells it.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub kind: String,
    pub line: Value,
}

impl Span {
    pub fn attribute(&self, key: &str) -> &Value {
        &self.line["attributes"][key]
    }

    pub fn process(&self) -> &str {
        self.line["resource"]["attributes"]["nemo.gym.server.name"].as_str().unwrap_or_default()
    }
}

/// Spans among the lines of a text; anything else is skipped.
pub fn parse(text: &str) -> Vec<Span> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["type"] == "span")
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            Span {
                name: text("name"),
                trace: text("trace_id"),
                id: text("span_id"),
                parent: line["parent_id"].as_str().map(str::to_owned),
                kind: text("kind"),
                line,
            }
        })
        .collect()
}

/// Spans by trace.
pub fn by_trace(spans: Vec<Span>) -> BTreeMap<String, Vec<Span>> {
    let mut traces: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for span in spans {
        traces.entry(span.trace.clone()).or_default().push(span);
    }
    traces
}

/// A trace as indented text: name, process and kind, children in the order they started.
pub fn render(spans: &[Span]) -> String {
    let known: HashMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let mut children: HashMap<&str, Vec<&Span>> = HashMap::new();
    let mut roots = Vec::new();
    for span in spans {
        match span.parent.as_deref() {
            Some(parent) if known.contains_key(parent) => {
                children.entry(parent).or_default().push(span);
            }
            Some(_) => roots.push((true, span)),
            None => roots.push((false, span)),
        }
    }
    let mut text = String::new();
    for (orphan, root) in roots {
        if orphan {
            text.push_str("(orphan) ");
        }
        write(root, 0, &children, &mut text);
    }
    text
}

fn write(span: &Span, depth: usize, children: &HashMap<&str, Vec<&Span>>, text: &mut String) {
    let indent = "  ".repeat(depth);
    text.push_str(&format!("{indent}{} [{} {}]\n", span.name, span.process(), span.kind));
    let mut below = children.get(span.id.as_str()).cloned().unwrap_or_default();
    below.sort_by_key(|child| child.line["start_time"].as_str().unwrap_or_default().to_owned());
    for child in below {
        write(child, depth + 1, children, text);
    }
}
