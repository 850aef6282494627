//! `gym trace stragglers`.

use lens_store::rollouts::stragglers::Rule;

use crate::args::TraceStragglersArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Source};

/// Names the rollouts that took much longer than the others of their task. None is an answer, too.
pub fn run(
    args: &TraceStragglersArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    if let Some(nothing) = source.is_empty()? {
        render::error(printer, &nothing.into());
        return Ok(ExitStatus::Negative);
    }
    let rows = source.rows(&args.only.filter())?;
    if rows.is_empty() {
        printer.say(&source.sentence());
        render::error(printer, &trace::no_rollouts(source, &args.only.filter())?.into());
        return Ok(ExitStatus::Negative);
    }
    let rule = Rule { factor: args.factor, ..Rule::default() };
    let found = trace::Found::among(source, rows, rule)?;
    if args.json {
        printer.data(&found.document(&source.read_value()).to_string())?;
    } else {
        printer.data(&found.text(&trace::Canvas::of(printer)))?;
    }
    printer.say(&source.sentence());
    Ok(ExitStatus::Done)
}
