//! Test exports: whether what these settings send would arrive.

use std::time::Duration;

use lens::{Probe, SetupError, config::LensConfig};

use crate::{
    pipeline::{Process, lens_config},
    resolve::Resolved,
    run_id::RunId,
    semconv,
};

/// The strategy that draws.
const SAMPLED: &str = "sampled";
/// The instance as which test exports go out.
const NAME: &str = "doctor";

/// Sends one span, one metric and one log record, those of them that `settings` send over OTLP, and
/// says what became of each; see [`lens::probe()`]. The telemetry of this process is not touched.
///
/// # Errors
///
/// Those of [`lens::probe()`].
pub fn probe(settings: &Resolved, limit: Duration) -> Result<Vec<Probe>, SetupError> {
    lens::probe(&config(settings), limit)
}

/// What is odd about the export strategy of these settings: unknown, or one by which a process that
/// runs here would export nothing.
pub fn export_warning(settings: &Resolved) -> Option<String> {
    let config = config(settings);
    let (exports, warning) = lens::export_decision(&config);
    let (strategy, origin) = (&settings.export_strategy.value, settings.export_strategy.origin);
    match warning {
        Some(warning) => Some(warning),
        // Who was drawn is another for every process.
        None if exports || strategy.trim().eq_ignore_ascii_case(SAMPLED) => None,
        None => Some(format!(
            "by the export strategy {strategy:?} ({origin}) a process here, rank {} of {}, exports nothing",
            config.rank, config.world_size
        )),
    }
}

fn config(settings: &Resolved) -> LensConfig {
    let process = Process {
        server_name: Some(NAME),
        server_type: Some(semconv::value::ORCHESTRATOR),
        ..Process::default()
    };
    let run_id = settings.run_id.value.clone().unwrap_or_else(RunId::generate);
    lens_config(settings, process, &run_id)
}
