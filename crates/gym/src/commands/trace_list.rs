//! `gym trace list`.

use crate::args::TraceListArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace;

/// Lists the traces in files.
pub fn run(args: &TraceListArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let trace::Reading { spans, report } = trace::read(&args.paths)?;
    let traces = trace::Traces::assemble(spans);
    if args.json {
        printer.data(&trace::list_document(&traces, &report).to_string())?;
    } else if !traces.traces.is_empty() {
        printer.data(&trace::list_table(&traces, &trace::Canvas::of(printer)))?;
    }
    if traces.traces.is_empty() {
        render::error(printer, &trace::nothing_found(&args.paths, &report).into());
        return Ok(ExitStatus::Negative);
    }
    printer.say(&report.sentence());
    Ok(ExitStatus::Done)
}
