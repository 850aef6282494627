//! `gym trace show`.

use crate::args::TraceShowArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Choice, Section};

/// Draws traces as timelines.
pub fn run(args: &TraceShowArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let trace::Reading { spans, report } = trace::read(&args.paths)?;
    let traces = trace::Traces::assemble(spans);
    if traces.traces.is_empty() {
        render::error(printer, &trace::nothing_found(&args.paths, &report).into());
        return Ok(ExitStatus::Negative);
    }
    let choice = match (&args.rollout, &args.trace, args.slowest) {
        (Some(id), ..) => Choice::Rollout(id),
        (_, Some(id), _) => Choice::Trace(id),
        (.., Some(count)) => Choice::Slowest(count),
        _ => Choice::Obvious,
    };
    let chosen = match trace::choose(&traces, choice) {
        Ok(chosen) => chosen,
        Err(missing) => {
            printer.say(&report.sentence());
            render::error(printer, &missing.into());
            return Ok(ExitStatus::Negative);
        }
    };
    let sections: Vec<Section> = chosen.sections;
    let summary = args.summary.then(|| {
        let rollouts = traces.rollouts().map(|(at, rollout)| traces.section(at, rollout));
        let mut all: Vec<Section> = rollouts.collect();
        if all.is_empty() {
            all = sections.clone();
        }
        trace::summarise(&traces, &all)
    });

    if args.json {
        printer.data(
            &trace::show_document(&traces, &sections, summary.as_ref(), &report).to_string(),
        )?;
    } else {
        let canvas = trace::Canvas::of(printer);
        let mut parts: Vec<String> =
            sections.iter().map(|section| trace::timeline(&traces, *section, &canvas)).collect();
        if let Some(summary) = &summary {
            parts.push(trace::summary_table(summary, &canvas));
        }
        printer.data(&parts.join("\n"))?;
    }
    printer.say(&report.sentence());
    if let Some(remark) = chosen.remark {
        printer.say(&remark);
    }
    Ok(ExitStatus::Done)
}
