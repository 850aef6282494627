//! The command line of the Gym: fleets, collection, traces.
//!
//! One binary is supervisor, server and reader: `gym env start` spawns itself
//! once per built-in server, so a fleet needs nothing but this file.

mod allocator;
mod args;
mod capacity;
mod collect;
mod commands;
mod demo;
mod doctor;
mod env_test;
mod exit;
mod fleet;
mod limits;
mod observe;
mod printer;
mod render;
mod settings;
mod spool;
mod telemetry;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::exit::ExitStatus;
use crate::printer::Printer;

fn main() -> ExitCode {
    let printer = Printer::from_terminal();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return commands::absent::explain(&printer, &error, std::env::args().skip(1)).into();
        }
    };
    let printer = if cli.quiet { printer.quieted() } else { printer };
    match commands::dispatch(&cli, &printer) {
        Ok(code) => code,
        Err(error) => {
            let status = ExitStatus::of_error(&error);
            if status != ExitStatus::Done {
                render::error(&printer, &error);
            }
            status.into()
        }
    }
}
