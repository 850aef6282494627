//! `gym trace search`.

use std::path::Path;

use anyhow::Context as _;
use lens_store::query::{
    Loaded, Looked, Measured, Query, Search, SearchOptions, Source, Stored, Window,
};
use lens_store::store::{Clock as _, Store, SystemClock};

use crate::args::TraceSearchArgs;
use crate::commands::block_on;
use crate::exit::ExitStatus;
use crate::observe::Remote;
use crate::printer::Printer;
use crate::render::Advise as _;
use crate::trace::{self, Canvas, counted};

/// What makes a folder a store.
const MANIFEST: &str = "manifest.json";
/// Where a `gym observe` answers queries.
const SEARCH: &str = "search";

/// Finds spans, or counts them.
pub fn run(args: &TraceSearchArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let query = Query::parse(&args.query)
        .context("the query cannot be read")
        .advise(|| "docs/reference/query.md describes the language".to_owned())?;
    let now_nanos = SystemClock.now_nanos();
    if let [url] = args.paths.as_slice()
        && let Some(remote) = Remote::parse(&url.to_string_lossy(), None)
    {
        return ask_elsewhere(&query, &remote?, now_nanos, args, printer);
    }
    if let [path] = args.paths.as_slice()
        && path.join(MANIFEST).is_file()
    {
        let snapshot = open(path)?.snapshot();
        let stored = Stored::new(&snapshot, now_nanos);
        return ask(&query, &stored, now_nanos, args, printer);
    }
    let trace::Reading { spans, report } = trace::read(&args.paths)?;
    printer.say(&report.sentence());
    let loaded = Loaded::new(spans.into_iter().map(|span| span.raw).collect(), now_nanos);
    ask(&query, &loaded, now_nanos, args, printer)
}

fn open(path: &Path) -> Result<Store, anyhow::Error> {
    Store::open_read_only(path).with_context(|| format!("cannot open the store {}", path.display()))
}

fn ask<S>(
    query: &Query,
    source: &S,
    now_nanos: u64,
    args: &TraceSearchArgs,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error>
where
    S: Source<Error: std::error::Error + Send + Sync + 'static>,
{
    let range = args.last.map_or(0..u64::MAX, |last| now_nanos.saturating_sub(last)..u64::MAX);
    let window = Window { range: range.clone(), step_nanos: args.step.unwrap_or(0) };
    if let Some(measured) = query.measure(source, &window)? {
        return show_measured(&measured, query, args, printer);
    }
    let options = SearchOptions { starts: range, limit: args.limit, ..SearchOptions::default() };
    show_found(&query.search(source, &options)?, args, printer)
}

/// Asks a running `gym observe`.
fn ask_elsewhere(
    query: &Query,
    remote: &Remote,
    now_nanos: u64,
    args: &TraceSearchArgs,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let mut question = vec![("q", args.query.clone()), ("limit", args.limit.to_string())];
    if let Some(last) = args.last {
        question.push(("start_nanos", now_nanos.saturating_sub(last).to_string()));
    }
    if let Some(step) = args.step {
        question.push(("step_nanos", step.to_string()));
    }
    let question: Vec<(&str, &str)> =
        question.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if query.metric().is_some() {
        let measured = block_on(async { Ok(remote.ask(SEARCH, &question).await?) })?;
        return show_measured(&measured, query, args, printer);
    }
    let search: Search = block_on(async { Ok(remote.ask(SEARCH, &question).await?) })?;
    show_found(&search, args, printer)
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
