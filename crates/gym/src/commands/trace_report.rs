//! `gym trace report`.

use crate::args::TraceReportArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace;

/// Says where the time of all rollouts in files went.
pub fn run(args: &TraceReportArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let trace::Reading { spans, report } = trace::read(&args.paths)?;
    let traces = trace::Traces::assemble(spans);
    if traces.traces.is_empty() {
        render::error(printer, &trace::nothing_found(&args.paths, &report).into());
        return Ok(ExitStatus::Negative);
    }
    let bands = trace::Report::of(&traces);
    if args.json {
        printer.data(&bands.document(&report).to_string())?;
    } else if !bands.is_empty() {
        printer.data(&bands.table(&trace::Canvas::of(printer)))?;
    }
    printer.say(&report.sentence());
    if bands.is_empty() {
        render::error(printer, &trace::NotFound::NoRollouts.into());
        return Ok(ExitStatus::Negative);
    }
    Ok(ExitStatus::Done)
}
