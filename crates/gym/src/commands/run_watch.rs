//! `gym run watch`: rollouts that are under way.

use std::time::Duration;

use lens_store::live::{Counts, Row};
use serde::{Deserialize, Serialize};

use crate::args::RunWatchArgs;
use crate::commands::block_on;
use crate::exit::ExitStatus;
use crate::fleet::interrupted;
use crate::observe::Remote;
use crate::printer::Printer;
use crate::trace::{self, Canvas};

/// From the top of the screen, with nothing left of what was there.
const REDRAW: &str = "\x1b[H\x1b[2J";

/// What a `gym observe` says of what is under way.
#[derive(Debug, Deserialize, Serialize)]
struct InFlight {
    rollouts: Vec<Row>,
    counts: Counts,
}

pub fn run(args: &RunWatchArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let remote = Remote::of(&args.url)?;
    block_on(async {
        let mut every = tokio::time::interval(Duration::from_secs(args.every));
        loop {
            tokio::select! {
                stop = interrupted() => {
                    stop?;
                    return Ok(ExitStatus::Done);
                }
                _ = every.tick() => {}
            }
            let told: Result<InFlight, _> = remote.ask("in-flight", &[]).await;
            let mut told = told?;
            if let Some(run) = &args.run {
                told.rollouts.retain(|row| row.run.starts_with(run.as_str()));
            }
            show(&told, args, printer)?;
            if args.once {
                let is_idle = told.rollouts.is_empty();
                return Ok(if is_idle { ExitStatus::Negative } else { ExitStatus::Done });
            }
        }
    })
}

fn show(told: &InFlight, args: &RunWatchArgs, printer: &Printer) -> Result<(), anyhow::Error> {
    if args.json {
        printer.data(&serde_json::to_string(told)?)?;
        return Ok(());
    }
    let is_redrawn = !args.once && printer.width().is_some();
    let mut text = if is_redrawn { REDRAW.to_owned() } else { String::new() };
    if !told.rollouts.is_empty() {
        text.push_str(&trace::in_flight_table(&told.rollouts, &Canvas::of(printer)));
    }
    if !text.is_empty() {
        printer.data(&text)?;
    }
    printer.say(&trace::in_flight_sentence(&told.rollouts));
    Ok(())
}
