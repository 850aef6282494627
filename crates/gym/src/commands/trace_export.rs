//! `gym trace export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context;

use crate::args::TraceExportArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render;
use crate::trace::{self, Choice, Section, Source, counted};

/// Writes traces for other software.
pub fn run(
    args: &TraceExportArgs,
    source: &Source,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    if let Some(nothing) = source.is_empty()? {
        render::error(printer, &nothing.into());
        return Ok(ExitStatus::Negative);
    }
    let filter = args.only.filter();
    let choice = Choice::of(args.rollout.as_deref(), args.trace.as_deref(), args.slowest);
    let chosen = match choice {
        Some(choice) => trace::choose(source, choice, &filter),
        None if filter.is_empty() => Ok(trace::Chosen::everything(source.all()?)),
        None => trace::choose(source, Choice::Slowest(usize::MAX), &filter),
    };
    let chosen = match chosen {
        Ok(chosen) => chosen,
        Err(trace::Unanswered::Source(error)) => return Err(error.into()),
        Err(trace::Unanswered::NotFound(missing)) => {
            printer.say(&source.sentence());
            render::error(printer, &missing.into());
            return Ok(ExitStatus::Negative);
        }
    };
    let traces = &chosen.traces;
    let sections: &[Section] = &chosen.sections;
    let path = args.output.display();
    let count = if args.output.as_os_str() == "-" {
        write(traces, sections, args, io::stdout().lock())?
    } else {
        let file = File::create(&args.output).with_context(|| format!("cannot create {path}"))?;
        write(traces, sections, args, file).with_context(|| format!("cannot write {path}"))?
    };
    printer.say(&source.sentence());
    printer.say(&format!("wrote {} to {path}", counted(count, "span", "spans")));
    Ok(ExitStatus::Done)
}

fn write(
    traces: &trace::Traces,
    sections: &[Section],
    args: &TraceExportArgs,
    out: impl Write,
) -> io::Result<usize> {
    trace::export(traces, sections, args.format, &mut BufWriter::with_capacity(256 * 1024, out))
}
