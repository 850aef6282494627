//! `gym doctor`: whether telemetry arrives, and what to change when it does not.

use std::time::Duration;

use gym_telemetry::{environment, resolve, telemetry_config_from_global_config};

use crate::args::DoctorArgs;
use crate::doctor::{self, report};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::settings;
use crate::spool::Place;
use crate::trace::Canvas;

pub fn run(args: &DoctorArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let flags = settings::model_overrides(&args.model);
    let config = settings::load_data(&args.source, flags, printer)?.resolved()?;
    let block = telemetry_config_from_global_config(&config)?;
    let settings = resolve(&environment(), &block);
    let place = Place::of(&config, settings);
    let report = doctor::examine(&place, &block.warnings, Duration::from_secs(args.timeout))?;
    let text = if args.json {
        serde_json::to_string_pretty(&report::document(&report))?
    } else {
        report::text(&report, &Canvas::of(printer))
    };
    printer.data(&text)?;
    Ok(if report.is_delivered() { ExitStatus::Done } else { ExitStatus::Negative })
}
