//! Where the time of many rollouts went: by span name and process.
//!
//! Self time is a span's duration without what its children cover, so the self times of spans
//! that follow one another add up to the duration of their root.

use lens_store::trace::{Section, Traces};
use std::collections::HashMap;

use gym_telemetry::semconv;

use super::read::counted;
use super::report::share_text;
use super::text::{Align, Canvas, ProcessLabels, duration_text, table};

/// All spans of one name in one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRow {
    /// Name of the spans.
    pub name: String,
    /// Label of the process.
    pub process: String,
    /// Name of the instance.
    pub instance: String,
    /// How many.
    pub count: usize,
    /// Median duration (nearest rank).
    pub p50_nanos: u64,
    /// 95th percentile of the durations (nearest rank).
    pub p95_nanos: u64,
    /// Sum of the durations.
    pub total_nanos: u64,
    /// Sum of the self times.
    pub self_nanos: u64,
}

/// Where the time of some sections went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Most self time first.
    pub rows: Vec<SummaryRow>,
    /// How many rollouts were summed up.
    pub rollouts: usize,
    /// Their waits for a slot; part of the self time of their attempts.
    pub admission_nanos: u64,
}

/// Sums up these sections.
pub fn summarise(traces: &Traces, sections: &[Section]) -> Summary {
    let rollouts = || {
        sections.iter().flat_map(|section| {
            let rollouts = traces.traces[section.trace].rollouts.iter();
            rollouts.filter(|rollout| (section.first..section.end).contains(&rollout.node))
        })
    };
    Summary {
        rows: rows(traces, sections),
        rollouts: rollouts().count(),
        admission_nanos: rollouts().map(|rollout| rollout.admission_nanos).sum(),
    }
}

fn rows(traces: &Traces, sections: &[Section]) -> Vec<SummaryRow> {
    let nodes = || {
        sections.iter().flat_map(|section| {
            traces.traces[section.trace].tree.nodes[section.first..section.end].iter()
        })
    };
    let labels = ProcessLabels::new(nodes().map(|node| &*traces.spans[node.span].resource));
    let mut groups: HashMap<(&str, &str), (Vec<u64>, u64)> = HashMap::new();
    let mut instance_labels: HashMap<&str, &str> = HashMap::new();
    for node in nodes() {
        let span = &traces.spans[node.span];
        let resource = &span.resource;
        instance_labels.insert(&resource.instance, labels.of(resource));
        let group = groups.entry((&span.name, &resource.instance)).or_default();
        group.0.push(node.duration_nanos());
        group.1 += node.self_nanos;
    }
    let mut rows: Vec<SummaryRow> = groups
        .into_iter()
        .map(|((name, instance), (mut durations, self_nanos))| {
            durations.sort_unstable();
            SummaryRow {
                name: name.to_owned(),
                process: instance_labels[instance].to_owned(),
                instance: instance.to_owned(),
                count: durations.len(),
                p50_nanos: nearest_rank(&durations, 50),
                p95_nanos: nearest_rank(&durations, 95),
                total_nanos: durations.iter().sum(),
                self_nanos,
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        (b.self_nanos, &a.name, &a.instance).cmp(&(a.self_nanos, &b.name, &b.instance))
    });
    rows
}

/// The smallest value that at least `percent` of all values do not exceed.
pub fn nearest_rank(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The table as text, with its heading.
pub fn summary_table(summary: &Summary, canvas: &Canvas) -> String {
    let Summary { rows, rollouts, admission_nanos } = summary;
    let all_self: u64 = rows.iter().map(|row| row.self_nanos).sum();
    let header = [
        ("SPAN", Align::Left),
        ("PROCESS", Align::Left),
        ("COUNT", Align::Right),
        ("P50", Align::Right),
        ("P95", Align::Right),
        ("TOTAL", Align::Right),
        ("SELF", Align::Right),
        ("SHARE", Align::Right),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.name.clone(),
                row.process.clone(),
                row.count.to_string(),
                duration_text(row.p50_nanos),
                duration_text(row.p95_nanos),
                duration_text(row.total_nanos),
                duration_text(row.self_nanos),
                share_text(row.self_nanos, all_self),
            ]
        })
        .collect();
    let heading = format!(
        "where the time of {} went (self: time of a span that none of its children covers)",
        counted(*rollouts, "rollout", "rollouts")
    );
    let mut text = format!("{}\n\n{}", canvas.bold(&heading), table(canvas, &header, &cells, 0));
    if *admission_nanos > 0 {
        let wait = duration_text(*admission_nanos);
        let name = semconv::span::ROLLOUT_ATTEMPT;
        text.push_str(
            &canvas.dim(&format!("{wait} of the self time of {name} was waiting for a slot")),
        );
        text.push('\n');
    }
    text
}
