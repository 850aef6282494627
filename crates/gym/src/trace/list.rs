//! The table of traces.

use lens_store::trace::{Root, Status, Trace, Traces, timestamp};
use std::collections::BTreeSet;

use super::text::{Align, Canvas, duration_text, table};

/// One line of the table.
pub struct ListRow<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// Name of its first root.
    pub root_name: &'a str,
    /// Ids of its rollouts.
    pub rollout_ids: Vec<&'a str>,
    /// Processes with spans in it.
    pub processes: usize,
    /// Spans that failed.
    pub errors: usize,
    /// Roots whose parent was not found.
    pub orphans: usize,
}

/// The rows, earliest trace first.
pub fn list_rows(traces: &Traces) -> impl Iterator<Item = ListRow<'_>> {
    traces.traces.iter().map(|trace| {
        let spans = || trace.tree.nodes.iter().map(|node| &traces.spans[node.span]);
        let processes: BTreeSet<&str> = spans().map(|span| &*span.resource.process_key).collect();
        let root = trace.tree.nodes.first().map(|node| &traces.spans[node.span]);
        let mut rollout_ids: Vec<&str> =
            trace.rollouts.iter().filter_map(|rollout| rollout.id.as_deref()).collect();
        if rollout_ids.is_empty() {
            rollout_ids.extend(spans().find_map(|span| span.rollout_id.as_deref()));
        }
        ListRow {
            trace,
            root_name: root.map_or("", |span| &*span.name),
            rollout_ids,
            processes: processes.len(),
            errors: spans().filter(|span| span.status == Status::Error).count(),
            orphans: trace
                .tree
                .roots()
                .filter(|&root| trace.tree.nodes[root].root != Some(Root::Start))
                .count(),
        }
    })
}

/// The table as text.
pub fn list_table(traces: &Traces, canvas: &Canvas) -> String {
    let header = [
        ("TRACE", Align::Left),
        ("ROOT", Align::Left),
        ("ROLLOUT", Align::Left),
        ("START (UTC)", Align::Left),
        ("DURATION", Align::Right),
        ("SPANS", Align::Right),
        ("PROCESSES", Align::Right),
        ("ERRORS", Align::Right),
    ];
    let rows: Vec<Vec<String>> = list_rows(traces)
        .map(|row| {
            let rollouts = match row.rollout_ids.as_slice() {
                [] => "-".to_owned(),
                [one] => (*one).to_owned(),
                [first, rest @ ..] => format!("{first} +{}", rest.len()),
            };
            vec![
                row.trace.trace_id.to_string(),
                row.root_name.to_owned(),
                rollouts,
                timestamp::to_readable(row.trace.start_nanos),
                duration_text(row.trace.duration_nanos()),
                row.trace.tree.nodes.len().to_string(),
                row.processes.to_string(),
                if row.errors == 0 { "-".to_owned() } else { row.errors.to_string() },
            ]
        })
        .collect();
    // A prefix of a trace id is enough to show it.
    table(canvas, &header, &rows, 0)
}
