//! `gym trace list`.

use crate::args::TraceListArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Source};

/// Lists the traces in files.
pub fn run(
    args: &TraceListArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let nothing = source.is_empty()?;
    let listed = source.listed()?;
    if args.json {
        printer.data(&trace::list_document(listed.as_ref(), &source.read_value()).to_string())?;
    } else if nothing.is_none() {
        printer.data(&trace::list_table(listed.as_ref(), &trace::Canvas::of(printer)))?;
    }
    if let Some(nothing) = nothing {
        render::error(printer, &nothing.into());
        return Ok(ExitStatus::Negative);
    }
    printer.say(&source.sentence());
    Ok(ExitStatus::Done)
}
