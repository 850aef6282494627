//! The JSON forms of the views. Spans have the shape of console lines, so that what
//! `gym trace show --json` prints can be read again.

use lens_store::trace::{Node, Root, Section, Span, Traces, timestamp};
use serde_json::{Value, json};

use super::list::list_rows;
use super::read::ReadReport;
use super::summary::{Summary, SummaryRow};

/// What `gym trace list --json` prints.
pub fn list_document(traces: &Traces, read: &Value) -> Value {
    let rows: Vec<Value> = list_rows(traces)
        .map(|row| {
            json!({
                "trace_id": row.trace.trace_id.to_string(),
                "root": row.root_name,
                "rollout_ids": row.rollout_ids,
                "start_time": timestamp::to_rfc3339(row.trace.start_nanos),
                "duration_ms": millis(row.trace.duration_nanos()),
                "spans": row.trace.tree.nodes.len(),
                "processes": row.processes,
                "errors": row.errors,
                "orphans": row.orphans,
            })
        })
        .collect();
    json!({ "traces": rows, "read": read })
}

/// What `gym trace show --json` prints.
pub fn show_document(
    traces: &Traces,
    sections: &[Section],
    summary: Option<&Summary>,
    read: &Value,
) -> Value {
    let shown: Vec<Value> = sections
        .iter()
        .map(|section| {
            let trace = &traces.traces[section.trace];
            let rollouts: Vec<Value> = trace
                .rollouts
                .iter()
                .filter(|rollout| (section.first..section.end).contains(&rollout.node))
                .map(|rollout| {
                    json!({
                        "rollout_id": rollout.id.as_deref(),
                        "root_span_id":
                            traces.span(section.trace, rollout.node).raw.span_id.to_string(),
                        "duration_ms": millis(rollout.duration_nanos),
                        "admission_ms": millis(rollout.admission_nanos),
                    })
                })
                .collect();
            let spans: Vec<Value> = trace.tree.nodes[section.first..section.end]
                .iter()
                .map(|node| span_value(&traces.spans[node.span], node))
                .collect();
            json!({ "trace_id": trace.trace_id.to_string(), "rollouts": rollouts, "spans": spans })
        })
        .collect();
    let mut document = json!({ "traces": shown });
    if let Some(summary) = summary {
        document["summary"] = json!({
            "rollouts": summary.rollouts,
            "admission_ms": millis(summary.admission_nanos),
            "rows": summary.rows.iter().map(row_value).collect::<Vec<Value>>(),
        });
    }
    document["read"] = read.clone();
    document
}

fn row_value(row: &SummaryRow) -> Value {
    json!({
        "name": row.name,
        "process": row.instance,
        "count": row.count,
        "p50_ms": millis(row.p50_nanos),
        "p95_ms": millis(row.p95_nanos),
        "total_ms": millis(row.total_nanos),
        "self_ms": millis(row.self_nanos),
    })
}

fn span_value(span: &Span, node: &Node) -> Value {
    let mut value = json!({
        "type": "span",
        "name": &*span.name,
        "trace_id": span.raw.trace_id.to_string(),
        "span_id": span.raw.span_id.to_string(),
        "parent_id": span.parent_id.map(|id| id.to_string()),
        "kind": span.kind.name(),
        "start_time": timestamp::to_rfc3339(span.raw.start_nanos),
        "end_time": timestamp::to_rfc3339(span.end_nanos),
        "duration_ms": millis(span.duration_nanos()),
        "self_ms": millis(node.self_nanos),
        "depth": node.depth,
        "process": span.resource.instance,
        "status": { "status_code": span.status.as_str() },
        "attributes": span.attributes(),
        "events": span.events(),
        "links": span.links(),
        "resource": { "attributes": span.resource.attributes },
    });
    if let Some(description) = span.status_description() {
        value["status"]["description"] = json!(description);
    }
    if node.shift_nanos != 0 {
        value["clock_shift_ms"] = json!(
            millis(node.shift_nanos.unsigned_abs()) * if node.shift_nanos < 0 { -1.0 } else { 1.0 }
        );
    }
    if let Some(Root::ParentMissing(_)) = node.root {
        value["orphan"] = json!(true);
    }
    value
}

pub(super) fn report_value(report: &ReadReport) -> Value {
    json!({
        "files": report.files,
        "records": report.records,
        "spans": report.spans,
        "duplicates": report.duplicates,
        "metrics": report.metrics,
        "logs": report.logs,
        "other": report.other,
        "broken": report.broken,
        "first_broken": report.first_broken,
        "torn": report.torn,
    })
}

/// Milliseconds with the fraction that a float of this size can hold.
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
