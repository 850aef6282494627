//! `gym telemetry`: what is on and why, what each span group costs, and how running processes do with it.

use gym_server::instance::Endpoint;
use serde_json::json;

use crate::args::TelemetryArgs;
use crate::commands::block_on;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::settings;
use crate::spool::Place;
use crate::telemetry::{Processes, cost, instances, processes, switches};
use crate::trace::Canvas;

pub fn run(args: &TelemetryArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let flags = settings::model_overrides(&args.model);
    let config = settings::load_data(&args.source, flags, printer)?;
    let place = Place::read(&config.resolved()?, args.dir.as_deref())?;
    let (host, port) = config.head_server();
    let head = Endpoint::gym("head_server", &host, port);
    let instances = block_on(async { Ok(instances(&head).await) })?;
    let found = Processes::look(&place.spool_dir, &instances);
    if args.json {
        let document = json!({
            "telemetry": switches::document(&place.settings),
            "groups": cost::document(&place.settings),
            "processes": processes::document(&found),
        });
        printer.data(&serde_json::to_string_pretty(&document)?)?;
    } else {
        let canvas = Canvas::of(printer);
        let parts = [
            switches::text(&place.settings, &canvas),
            cost::text(&place.settings, &canvas),
            processes::text(&found, &place.spool_dir, &canvas),
        ];
        printer.data(&parts.join("\n"))?;
    }
    Ok(ExitStatus::Done)
}
