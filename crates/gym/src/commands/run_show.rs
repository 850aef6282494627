//! `gym run show`.

use lens_store::rollouts::Filter;
use lens_store::rollouts::runs::runs;
use serde_json::json;

use crate::args::RunShowArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Source};

/// Sums up one run.
pub fn run(
    args: &RunShowArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let filter = Filter { run: args.run.clone(), ..Filter::default() };
    let rows = source.rows(&filter)?;
    let found = runs(&rows);
    let [one] = found.as_slice() else {
        let missing = match source.is_empty()? {
            Some(nothing) => nothing,
            None => trace::NotFound::of_runs(
                args.run.as_deref(),
                &if found.is_empty() { runs(&source.rows(&Filter::default())?) } else { found },
            ),
        };
        printer.say(&source.sentence());
        render::error(printer, &missing.into());
        return Ok(ExitStatus::Negative);
    };
    let report = trace::Report::of(source, rows)?;
    if args.json {
        let mut document = trace::run_value(one);
        document["bands"] = json!(report.bands_value());
        document["read"] = source.read_value();
        printer.data(&document.to_string())?;
    } else {
        printer.data(&trace::run_text(one, &report, &trace::Canvas::of(printer)))?;
    }
    printer.say(&source.sentence());
    Ok(ExitStatus::Done)
}
