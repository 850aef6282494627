//! What a query finds, as tables.

use lens_store::query::{Found, FoundSet, Metric, Metrics, Owned, Series};
use lens_store::trace::{printable, timestamp};

use super::text::{Align, Canvas, duration_text, table};

/// One line for each set of spans that was found.
pub fn found_table(traces: &[Found], canvas: &Canvas) -> String {
    let sets = || traces.iter().flat_map(|found| found.sets.iter().map(move |set| (found, set)));
    let is_split = sets().any(|(_, set)| !set.by.is_empty());
    let mut header = vec![
        ("TRACE", Align::Left),
        ("ROOT", Align::Left),
        ("START (UTC)", Align::Left),
        ("DURATION", Align::Right),
        ("SPANS", Align::Right),
        ("FOUND", Align::Right),
    ];
    if is_split {
        header.push(("BY", Align::Left));
    }
    header.push(("FIRST OF THEM", Align::Left));
    let row = |(found, set): (&Found, &FoundSet)| {
        let mut row = vec![
            found.trace_id.clone(),
            printable(found.root_name.as_deref().unwrap_or("(root missing)")),
            timestamp::to_readable(found.start_nanos),
            duration_text(found.duration_nanos),
            found.spans.to_string(),
            set.matched.to_string(),
        ];
        if is_split {
            row.push(pairs(&set.by));
        }
        row.push(first(set));
        row
    };
    let rows: Vec<Vec<String>> = sets().map(row).collect();
    table(canvas, &header, &rows, header.len() - 1)
}

fn first(set: &FoundSet) -> String {
    let Some(span) = set.spans.first() else { return String::new() };
    let mut text = format!("{} {}", printable(&span.name), duration_text(span.duration_nanos));
    if !span.fields.is_empty() {
        text.push(' ');
        text.push_str(&pairs(&span.fields));
    }
    text
}

fn pairs(pairs: &[(String, Owned)]) -> String {
    let pair =
        |(name, value): &(String, Owned)| format!("{name}={}", printable(&value.to_string()));
    pairs.iter().map(pair).collect::<Vec<_>>().join(" ")
}

/// One line for each number: of each group, quantile and step.
pub fn metrics_table(
    metrics: &Metrics,
    metric: &Metric,
    has_steps: bool,
    canvas: &Canvas,
) -> String {
    let series = &metrics.series;
    let names: Vec<String> = series
        .first()
        .map(|series| series.by.iter().map(|(name, _)| name.to_uppercase()).collect())
        .unwrap_or_default();
    let has_quantiles = series.iter().any(|series| series.quantile.is_some());
    let mut header: Vec<(&str, Align)> =
        names.iter().map(|name| (name.as_str(), Align::Left)).collect();
    if has_steps {
        header.push(("FROM (UTC)", Align::Left));
    }
    if has_quantiles {
        header.push(("QUANTILE", Align::Right));
    }
    header.extend([("VALUE", Align::Right), ("SPANS", Align::Right)]);
    let number = |value: f64| {
        if metric.is_of_time() {
            duration_text(value.max(0.0).round() as u64)
        } else {
            short(value)
        }
    };
    let rows_of = |series: &Series| -> Vec<Vec<String>> {
        let begin: Vec<String> =
            series.by.iter().map(|(_, value)| printable(&value.to_string())).collect();
        let row = |point: &lens_store::query::Point| {
            let mut row = begin.clone();
            if has_steps {
                row.push(timestamp::to_readable(point.at_nanos));
            }
            row.extend(series.quantile.map(short));
            row.extend([number(point.value), series.spans.to_string()]);
            row
        };
        series.points.iter().map(row).collect()
    };
    let rows: Vec<Vec<String>> = series.iter().flat_map(rows_of).collect();
    table(canvas, &header, &rows, 0)
}

/// Up to four digits behind the point.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
