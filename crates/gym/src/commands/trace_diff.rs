//! `gym trace diff`.

use std::path::PathBuf;

use crate::args::TraceDiffArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render::{self, Advise};
use crate::trace::{self, Diff, Selection, Source};

/// Says what differs between two selections of rollouts.
pub fn run(args: &TraceDiffArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let parse = |typed: &str| Selection::parse(typed);
    let (a, b) = (parse(&args.a)?, parse(&args.b)?);
    let path = |own: &Option<String>, other: &Option<String>| {
        own.clone().or_else(|| other.clone()).map(PathBuf::from)
    };
    let (Some(path_a), Some(path_b)) = (path(&a.path, &b.path), path(&b.path, &a.path)) else {
        return Err(anyhow::anyhow!("neither side names a path"))
            .advise(|| "as in `gym trace diff logs@run=3f2a @run=88b1`".to_owned());
    };
    Source::ask(std::slice::from_ref(&path_a), printer, |source_a| {
        // What is named twice is read once.
        if path_a == path_b {
            return compare(args, [(&a, source_a), (&b, source_a)], printer);
        }
        Source::ask(std::slice::from_ref(&path_b), printer, |source_b| {
            compare(args, [(&a, source_a), (&b, source_b)], printer)
        })
    })
}

fn compare(
    args: &TraceDiffArgs,
    [(a, source_a), (b, source_b)]: [(&Selection, &Source); 2],
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let (rows_a, rows_b) = (source_a.rows(&a.filter)?, source_b.rows(&b.filter)?);
    for (typed, rows, source) in [(&args.a, &rows_a, source_a), (&args.b, &rows_b, source_b)] {
        if rows.is_empty() {
            let missing =
                source.is_empty()?.unwrap_or(trace::NotFound::NoneSelected(typed.clone()));
            render::error(printer, &missing.into());
            return Ok(ExitStatus::Negative);
        }
    }
    let diff = Diff::of([args.a.clone(), args.b.clone()], &rows_a, &rows_b);
    if args.json {
        printer.data(&diff.document().to_string())?;
    } else {
        printer.data(&diff.text(&trace::Canvas::of(printer)))?;
    }
    Ok(ExitStatus::Done)
}
