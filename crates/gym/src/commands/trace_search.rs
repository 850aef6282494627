//! `gym trace search`.

use std::path::Path;

use anyhow::Context as _;
use gym_telemetry::semconv::span;
use lens_store::query::{Looked, Measured, Query, Search};

use crate::args::TraceSearchArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render::Advise as _;
use crate::trace::{self, Answer, Asked, Canvas, Source, counted};

/// Finds spans, or counts them.
pub fn run(args: &TraceSearchArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let query = Query::parse(&args.query)
        .context("the query cannot be read")
        .advise(|| advice(&args.query))?;
    Source::ask(&args.paths, printer, |source| answer(&query, args, source, printer))
}

fn answer(
    query: &Query,
    args: &TraceSearchArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    printer.say(&source.sentence());
    let asked = Asked {
        text: &args.query,
        last_nanos: args.last,
        limit: args.limit,
        step_nanos: args.step.unwrap_or(0),
    };
    match source.search(query, &asked)? {
        Answer::Measured(measured) => show_measured(&measured, query, args, printer),
        Answer::Found(search) => show_found(&search, args, printer),
    }
}

/// What to do about a query that cannot be read, which may be what it was to be asked of.
fn advice(query: &str) -> String {
    let is_url = query.starts_with("http://") || query.starts_with("https://");
    if is_url || Path::new(query).exists() {
        let name = span::ROLLOUT;
        return format!(
            "the query comes first: gym trace search '{{ name = \"{name}\" }}' {query}"
        );
    }
    "docs/reference/query.md describes the language".to_owned()
}

fn show_measured(
    measured: &Measured,
    query: &Query,
    args: &TraceSearchArgs,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let Measured { metrics, looked } = measured;
    if args.json {
        printer.data(&serde_json::to_string(measured)?)?;
    } else if let Some(metric) = query.metric()
        && !metrics.series.is_empty()
    {
        let has_steps = args.step.is_some();
        let canvas = Canvas::of(printer);
        printer.data(&trace::metrics_table(metrics, metric, has_steps, &canvas))?;
    }
    for (spans, why) in [
        (metrics.suspect, "whose times cannot be believed"),
        (metrics.without_number, "without the number"),
        (metrics.refused, "beyond the bound of groups and steps"),
    ] {
        if spans > 0 {
            printer.say(&format!("left out {}", plural(spans, why)));
        }
    }
    printer.say(&sentence(looked));
    Ok(if metrics.spans > 0 { ExitStatus::Done } else { ExitStatus::Negative })
}

fn show_found(
    search: &Search,
    args: &TraceSearchArgs,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    if args.json {
        printer.data(&serde_json::to_string(search)?)?;
    } else if !search.traces.is_empty() {
        printer.data(&trace::found_table(&search.traces, &Canvas::of(printer)))?;
    }
    if search.has_more {
        printer.say("there may be more, older ones");
    }
    printer.say(&sentence(&search.looked));
    Ok(if search.traces.is_empty() { ExitStatus::Negative } else { ExitStatus::Done })
}

fn plural(spans: u64, why: &str) -> String {
    let spans = usize::try_from(spans).unwrap_or(usize::MAX);
    format!("{} {why}", counted(spans, "span", "spans"))
}

fn sentence(looked: &Looked) -> String {
    let mut text = format!("looked at {}", plural(looked.spans, ""));
    text.truncate(text.trim_end().len());
    if looked.parts_skipped > 0 {
        let parts = looked.parts + looked.parts_skipped;
        text.push_str(&format!(" in {} of {parts} parts", looked.parts));
    }
    text
}
