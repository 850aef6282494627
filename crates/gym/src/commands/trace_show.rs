//! `gym trace show`.

use crate::args::TraceShowArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Choice, Section, Source};

/// Draws traces as timelines.
pub fn run(
    args: &TraceShowArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    if let Some(nothing) = source.is_empty()? {
        render::error(printer, &nothing.into());
        return Ok(ExitStatus::Negative);
    }
    let filter = args.only.filter();
    let choice = Choice::of(args.rollout.as_deref(), args.trace.as_deref(), args.slowest);
    let chosen = match trace::choose(source, choice.unwrap_or(Choice::Obvious), &filter) {
        Ok(chosen) => chosen,
        Err(trace::Unanswered::Source(error)) => return Err(error.into()),
        Err(trace::Unanswered::NotFound(missing)) => {
            printer.say(&source.sentence());
            render::error(printer, &missing.into());
            return Ok(ExitStatus::Negative);
        }
    };
    let (traces, sections) = (chosen.traces, chosen.sections);
    let summed = if args.summary {
        let rows = source.rows(&filter)?;
        let traces = source.traces(rows.iter().map(|row| row.trace_id))?;
        let mut all: Vec<Section> = rows
            .iter()
            .filter_map(|row| traces.find_rollout(row.trace_id, row.root_span_id))
            .map(|(trace, rollout)| traces.section(trace, rollout))
            .collect();
        if all.is_empty() {
            all = sections.clone();
        }
        Some(trace::summarise(&traces, &all))
    } else {
        None
    };

    if args.json {
        let read = source.read_value();
        let document = trace::show_document(&traces, &sections, summed.as_ref(), &read);
        printer.data(&document.to_string())?;
    } else {
        let canvas = trace::Canvas::of(printer);
        let mut parts: Vec<String> =
            sections.iter().map(|section| trace::timeline(&traces, *section, &canvas)).collect();
        if let Some(summary) = &summed {
            parts.push(trace::summary_table(summary, &canvas));
        }
        printer.data(&parts.join("\n"))?;
    }
    printer.say(&source.sentence());
    if let Some(remark) = chosen.remark {
        printer.say(&remark);
    }
    Ok(ExitStatus::Done)
}
