//! The table.

use std::collections::BTreeMap;

use crate::plan::{OURS, Row, Section, Shape};
use crate::sample::{Sample, Spread};

/// Samples of every case, one of each round.
pub type Samples = BTreeMap<Vec<String>, Vec<Sample>>;

const LABEL_WIDTH: usize = 36;

fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        size if size >= 10_000.0 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

fn spread(samples: &[Sample], name: &str) -> String {
    Spread::of(samples, name).map_or_else(String::new, |spread| {
        format!("{} [{}..{}]", number(spread.median), number(spread.least), number(spread.most))
    })
}

fn middle(samples: &[Sample], name: &str) -> String {
    Spread::of(samples, name).map_or_else(String::new, |spread| number(spread.median))
}

fn allocations(samples: &[Sample]) -> String {
    match (Spread::of(samples, "allocations"), Spread::of(samples, "bytes")) {
        (Some(calls), Some(bytes)) => format!("{:.2} ({:.0})", calls.median, bytes.median),
        _ => String::new(),
    }
}

/// The figure by which ours is compared with others.
fn compared(shape: Shape) -> &'static str {
    match shape {
        Shape::Off => "net",
        Shape::Cost => "wall",
        Shape::Wire => "cpu_seconds_per_million",
        Shape::Load => "all_cpu",
    }
}

fn headings(shape: Shape) -> &'static [&'static str] {
    match shape {
        Shape::Off => &["ns over empty loop", "ns", "allocs (bytes)", "lens / this"],
        Shape::Cost => &[
            "caller wall ns",
            "caller CPU ns",
            "all threads CPU ns",
            "caller allocs (bytes)",
            "all allocs",
            "lens / this",
            "of all CPU",
        ],
        Shape::Wire => &["CPU s per 1M spans", "spans/s", "lost", "lens / this"],
        Shape::Load => &[
            "offered/s",
            "delivered/s",
            "lost %",
            "caller CPU ns",
            "all CPU ns",
            "worst call ms",
            "callers waited",
            "RSS + MB",
            "in 2nd half",
            "buffer, most %",
            "uncounted",
        ],
    }
}

/// The median of ours over that of another; nothing beside ours itself.
fn ratio(ours: &[Sample], this: &[Sample], name: &str) -> String {
    match (Spread::of(ours, name), Spread::of(this, name)) {
        (Some(ours), Some(this)) => format!("{:.2}", ours.median / this.median),
        _ => String::new(),
    }
}

fn cells(shape: Shape, samples: &[Sample], ours: &[Sample]) -> Vec<String> {
    let compared = ratio(ours, samples, compared(shape));
    match shape {
        Shape::Off => {
            vec![spread(samples, "net"), middle(samples, "wall"), allocations(samples), compared]
        }
        Shape::Cost => vec![
            spread(samples, "wall"),
            middle(samples, "thread"),
            middle(samples, "all"),
            allocations(samples),
            middle(samples, "all_allocations"),
            compared,
            ratio(ours, samples, "all"),
        ],
        Shape::Wire => vec![
            spread(samples, "cpu_seconds_per_million"),
            spread(samples, "spans_per_second"),
            middle(samples, "lost"),
            compared,
        ],
        Shape::Load => vec![
            spread(samples, "offered_per_second"),
            middle(samples, "delivered_live_per_second"),
            spread(samples, "lost_percent"),
            middle(samples, "producer_cpu"),
            middle(samples, "all_cpu"),
            spread(samples, "worst_call_millis"),
            middle(samples, "waits"),
            middle(samples, "resident_mb"),
            middle(samples, "later_growth_mb"),
            middle(samples, "most_fill_percent"),
            middle(samples, "uncounted"),
        ],
    }
}

fn is_ours(row: &Row) -> bool {
    row.label.starts_with(OURS)
}

/// A section as text, its columns as wide as they must be.
fn render_section(section: &Section, samples: &Samples) -> String {
    let of = |row: &Row| samples.get(&row.case).map_or(&[][..], Vec::as_slice);
    let ours = section.rows.iter().find(|row| is_ours(row)).map_or(&[][..], of);
    let mut lines = vec![(
        section.title,
        headings(section.shape).iter().map(|&text| text.to_owned()).collect(),
    )];
    for row in section.rows.iter().filter(|row| !of(row).is_empty()) {
        let against = if is_ours(row) || row.label == "empty loop" { &[][..] } else { ours };
        lines.push((row.label, cells(section.shape, of(row), against)));
    }
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|(_, cells): &(&str, Vec<String>)| cells.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings(section.shape).len()).map(width).collect();
    let mut out = format!("{}\n", section.title);
    for (at, (label, cells)) in lines.iter().enumerate() {
        let label = if at == 0 { "" } else { label };
        let mut line = format!("  {label:LABEL_WIDTH$}");
        for (cell, &width) in cells.iter().zip(&widths) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// All sections that have samples.
pub fn render(sections: &[Section], samples: &Samples) -> String {
    let measured =
        |section: &&Section| section.rows.iter().any(|row| samples.contains_key(&row.case));
    let sections: Vec<String> =
        sections.iter().filter(measured).map(|section| render_section(section, samples)).collect();
    sections.join("\n")
}
