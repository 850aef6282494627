//! `gym run list`.

use lens_store::rollouts::Filter;
use lens_store::rollouts::runs::runs;
use serde_json::{Value, json};

use crate::args::RunListArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Source};

/// Lists the runs, the latest first.
pub fn run(
    args: &RunListArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let runs = runs(&source.rows(&Filter::default())?);
    if args.json {
        let runs: Vec<Value> = runs.iter().map(trace::run_value).collect();
        let document = json!({ "runs": runs, "read": source.read_value() });
        printer.data(&document.to_string())?;
    } else if !runs.is_empty() {
        printer.data(&trace::runs_table(&runs, &trace::Canvas::of(printer)))?;
    }
    if runs.is_empty() {
        let missing = source.is_empty()?.unwrap_or(trace::NotFound::NoRollouts);
        render::error(printer, &missing.into());
        return Ok(ExitStatus::Negative);
    }
    printer.say(&source.sentence());
    Ok(ExitStatus::Done)
}
