//! Spans as an indented text tree.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use lens_otlp::encode::StatusCode;

use crate::collected::CollectedSpan;

/// What a tree shows besides names.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions<'a> {
    /// Kinds other than INTERNAL.
    pub kinds: bool,
    /// `service.name`.
    pub services: bool,
    /// Status when it is set.
    pub status: bool,
    /// Events by name.
    pub events: bool,
    /// Attributes of these keys.
    pub attributes: &'a [&'a str],
}

/// Draws spans as one tree a root, children by start time. Ids and times are left out.
///
/// A span whose parent is not among the spans is a root marked with `^`.
pub fn render_tree(spans: &[CollectedSpan], options: &TreeOptions<'_>) -> String {
    let known: HashSet<(&str, &str)> =
        spans.iter().map(|span| (span.trace_id.as_str(), span.span_id.as_str())).collect();
    let mut children: HashMap<(&str, &str), Vec<&CollectedSpan>> = HashMap::new();
    let mut roots = Vec::new();
    for span in spans {
        match &span.parent_id {
            Some(parent) if known.contains(&(span.trace_id.as_str(), parent.as_str())) => {
                children.entry((&span.trace_id, parent)).or_default().push(span);
            }
            _ => roots.push(span),
        }
    }
    let by_start = |spans: &mut Vec<&CollectedSpan>| {
        spans.sort_by(|left, right| {
            (left.start_nanos, &left.name, &left.span_id).cmp(&(
                right.start_nanos,
                &right.name,
                &right.span_id,
            ))
        });
    };
    by_start(&mut roots);
    children.values_mut().for_each(by_start);

    let mut out = String::new();
    // A stack, so that deep trees need no deep recursion.
    let mut stack: Vec<(usize, &CollectedSpan)> =
        roots.into_iter().rev().map(|span| (0, span)).collect();
    while let Some((depth, span)) = stack.pop() {
        let _ = write!(out, "{:indent$}", "", indent = depth * 2);
        if depth == 0 && span.parent_id.is_some() {
            out.push_str("^ ");
        }
        put_line(&mut out, span, options);
        let below = children.get(&(span.trace_id.as_str(), span.span_id.as_str()));
        stack.extend(below.into_iter().flatten().rev().map(|child| (depth + 1, *child)));
    }
    out
}

fn put_line(out: &mut String, span: &CollectedSpan, options: &TreeOptions<'_>) {
    out.push_str(&span.name);
    if options.kinds && span.kind != "INTERNAL" {
        let _ = write!(out, " [{}]", span.kind);
    }
    if options.services {
        let _ = write!(out, " @{}", span.service());
    }
    if options.status && span.status != StatusCode::Unset {
        let _ = write!(out, " {}", span.status.as_str());
        if !span.status_message.is_empty() {
            let _ = write!(out, "({})", span.status_message);
        }
    }
    for key in options.attributes {
        if let Some(value) = span.attributes.get(*key) {
            let _ = write!(out, " {key}={value}");
        }
    }
    if options.events {
        for event in &span.events {
            let _ = write!(out, " !{}", event.name);
        }
    }
    out.push('\n');
}
