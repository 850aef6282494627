//! `gym trace report`.

use lens_store::rollouts::filter::slowest_first;

use crate::args::TraceReportArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Source};

/// Says where the time of the rollouts in files went.
pub fn run(
    args: &TraceReportArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    if let Some(nothing) = source.is_empty()? {
        render::error(printer, &nothing.into());
        return Ok(ExitStatus::Negative);
    }
    let mut rows = source.rows(&args.only.filter())?;
    let report = match args.slowest {
        None => trace::Report::of(source, rows)?,
        Some(count) => {
            slowest_first(&mut rows);
            let rest = rows.split_off(count.min(rows.len()));
            let shared = trace::shared_of(source, &rows, &rest)?;
            trace::Report::of(source, rows)?.with_shared(shared)
        }
    };
    if args.json {
        printer.data(&report.document(&source.read_value()).to_string())?;
    } else if !report.is_empty() {
        printer.data(&report.table(&trace::Canvas::of(printer)))?;
    }
    printer.say(&source.sentence());
    if report.is_empty() {
        render::error(printer, &trace::no_rollouts(source, &args.only.filter())?.into());
        return Ok(ExitStatus::Negative);
    }
    Ok(ExitStatus::Done)
}
