//! `gym env start`: runs a fleet until it is told to stop.

use std::time::Duration;

use crate::args::EnvStartArgs;
use crate::capacity::Capacity;
use crate::collect::CONCURRENCY_KEY;
use crate::commands::{HURRIED_FLUSH, block_on, flush_telemetry};
use crate::exit::ExitStatus;
use crate::fleet::{Fleet, FleetOptions, interrupted};
use crate::observe::Observer;
use crate::printer::Printer;
use crate::settings::{self, Ports};

const FINISHED: &str = "NeMo Gym finished!";
const SAME_SIGNAL: Duration = Duration::from_millis(500);

pub fn run(
    args: &EnvStartArgs,
    verbose: bool,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let from = lens::now_unix_nanos();
    let mut flags = settings::verbose_override(verbose);
    flags.extend(settings::model_overrides(&args.model));
    let observer = args.observe.as_deref().map(Observer::start).transpose()?;
    flags.extend(observer.iter().flat_map(Observer::overrides));
    let config = settings::load(&args.source, flags, Ports::Assign, printer)?;
    let wanted =
        config.get(CONCURRENCY_KEY).and_then(|count| usize::try_from(count.as_u64()?).ok());
    let options = FleetOptions {
        log_dir: args.log_dir.clone(),
        config_loaded_nanos: Some((from, lens::now_unix_nanos())),
        ..FleetOptions::default()
    };
    if let Some(warning) = wanted.and_then(|count| Capacity::of(&config).warning(count)) {
        printer.warn(&warning);
    }
    if let Some(observer) = &observer {
        observer.announce(&config, printer);
    }
    let ended = block_on(async {
        let fleet = Fleet::start(config, options, printer).await?;
        let failure = tokio::select! {
            failure = fleet.wait_for_failure() => Some(failure),
            interrupt = interrupted() => interrupt.err(),
            () = fleet.stdout_closed() => None,
        };
        // A second Ctrl-C does not wait for the servers; their pipes close with us. What comes at
        // once is the same one again: some senders signal the process and then its group.
        let again = async {
            tokio::time::sleep(SAME_SIGNAL).await;
            interrupted().await
        };
        let stopped = tokio::select! {
            _ = fleet.stop() => true,
            _ = again => {
                printer.warn("not waiting for the servers to stop; they end by themselves");
                flush_telemetry(HURRIED_FLUSH).await;
                false
            }
        };
        match failure {
            Some(failure) => Err(failure.into()),
            None if !stopped => Ok(ExitStatus::Interrupted),
            None => {
                printer.say(FINISHED);
                Ok(ExitStatus::Done)
            }
        }
    });
    // Whatever happened: the fleet has said its last by now.
    if let Some(observer) = observer {
        observer.stop(printer);
    }
    ended
}
