//! `gym eval run`: collects rollouts, from servers of its own or from a fleet that runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gym_server::client::{Client, ClientConfig, Listener, Patience};
use gym_server::config::GlobalConfig;
use gym_server::instance::{Endpoint, ServerType};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::EvalRunArgs;
use crate::capacity::Capacity;
use crate::collect::{
    self, Cancel, Canceller, CollectSummary, FleetAgents, OptionsError, PreparedRun, Stop,
    cancellation,
};
use crate::commands::{HURRIED_FLUSH, block_on, flush_telemetry};
use crate::exit::ExitStatus;
use crate::fleet::head::CONFIG_PATH;
use crate::fleet::{Fleet, FleetError, FleetOptions, probe};
use crate::observe::Observer;
use crate::printer::Printer;
use crate::render::Advise as _;
use crate::settings::{self, Ports};

const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How often a driver looks whether its fleet is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many looks in a row must fail.
const FAILED_LOOKS: u32 = 3;
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
const JSON_KEY: &str = "json";

pub fn run(args: &EvalRunArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let from = lens::now_unix_nanos();
    // A connection for every rollout in flight.
    gym_server::program::raise_descriptor_limit();
    let mut flags = settings::model_overrides(&args.model);
    flags.extend(collect::overrides(args));
    let observer = args.observe.as_deref().map(Observer::start).transpose()?;
    flags.extend(observer.iter().flat_map(Observer::overrides));
    let ports = if args.no_serve { Ports::Keep } else { Ports::Assign };
    let config = settings::load(&args.source, flags, ports, printer)?;
    let json = args.json || config.get(JSON_KEY) == Some(true.into());
    if let Some(observer) = &observer {
        observer.announce(&config, printer);
    }
    let status = block_on(async {
        let ended = if args.no_serve {
            attached(&config, printer).await?
        } else {
            let options = FleetOptions {
                log_dir: args.log_dir.clone(),
                config_loaded_nanos: Some((from, lens::now_unix_nanos())),
                ..FleetOptions::default()
            };
            serving(config, options, printer).await?
        };
        ended.tell(json, printer)
    });
    // Whatever happened: the fleet has said its last by now.
    if let Some(observer) = observer {
        observer.stop(printer);
    }
    status
}

/// A run that came to its end, if not to its last rollout.
struct Ended {
    summary: CollectSummary,
    /// What happened to the servers meanwhile.
    failure: Option<anyhow::Error>,
}

impl Ended {
    fn tell(self, json: bool, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
        printer.say(&self.summary.text());
        if json {
            printer.data(&serde_json::to_string(&self.summary)?)?;
        }
        match self.failure {
            Some(failure) => Err(failure),
            None if self.summary.interrupted => Ok(ExitStatus::Interrupted),
            None if self.summary.failed > 0 || self.summary.not_kept > 0 => {
                Ok(ExitStatus::Negative)
            }
            None => Ok(ExitStatus::Done),
        }
    }
}

/// Collects from a fleet that somebody else runs.
async fn attached(config: &GlobalConfig, printer: &Printer) -> Result<Ended, anyhow::Error> {
    let (host, port) = config.head_server();
    let head = Endpoint::gym("head_server", &host, port);
    let fleet = config_of_fleet(&head, config).await?;
    let patience = patience(config, &fleet)?;
    let run = prepare(config, &fleet, printer)?;

    let block = gym_telemetry::telemetry_config_from_global_config(&fleet.resolved()?)?;
    gym_telemetry::configure_telemetry_env(Some(&block));
    // The driver's own folder: the fleet's may be on another machine.
    if let Ok(own) = config.resolved() {
        gym_server::program::keep_undelivered(&own);
    }
    let telemetry =
        gym_telemetry::init_telemetry(Some("driver"), Some("orchestrator"), &[]).is_some();

    let (canceller, cancel) = cancellation();
    let canceller = Arc::new(canceller);
    let signals = stop_on_signals(Arc::clone(&canceller), printer.clone())?;
    let mut at_once = cancel.clone();
    let mut failure: Option<FleetError> = None;
    let result = {
        let collecting = collect_from(run, &fleet, patience, telemetry, printer, cancel);
        tokio::pin!(collecting);
        loop {
            tokio::select! {
                result = &mut collecting => break result,
                gone = fleet_is_gone(&head), if failure.is_none() => {
                    failure = Some(gone);
                    canceller.stop(Stop::Gently);
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = at_once.reached(Stop::Now) => flush_telemetry(HURRIED_FLUSH).await,
        () = flush_telemetry(FLUSH_LIMIT) => {}
    }
    signals.abort();
    Ok(Ended { summary: result?, failure: failure.map(Into::into) })
}

/// Starts the servers of the config, collects, stops them.
async fn serving(
    config: GlobalConfig,
    options: FleetOptions,
    printer: &Printer,
) -> Result<Ended, anyhow::Error> {
    config.require_instances()?;
    let patience = patience(&config, &config)?;
    let run = prepare(&config, &config, printer)?;
    let fleet = Fleet::start(config, options, printer).await?;
    let telemetry = gym_telemetry::get_telemetry().is_some();

    let (canceller, cancel) = cancellation();
    let canceller = Arc::new(canceller);
    let signals = stop_on_signals(Arc::clone(&canceller), printer.clone())?;
    let mut at_once = cancel.clone();
    let mut failure: Option<FleetError> = None;
    let result = {
        let config = fleet.config().clone();
        let collecting = collect_from(run, &config, patience, telemetry, printer, cancel);
        tokio::pin!(collecting);
        loop {
            tokio::select! {
                result = &mut collecting => break result,
                died = fleet.wait_for_failure(), if failure.is_none() => {
                    failure = Some(died);
                    canceller.stop(Stop::Gently);
                }
            }
        }
    };
    tokio::select! {
        _ = fleet.stop() => {}
        // The servers end when their pipes close with us.
        () = at_once.reached(Stop::Now) => flush_telemetry(HURRIED_FLUSH).await,
    }
    signals.abort();
    Ok(Ended { summary: result?, failure: failure.map(Into::into) })
}

/// How long the driver goes on trying: as it was told itself, else as its fleet was.
fn patience(own: &GlobalConfig, fleet: &GlobalConfig) -> Result<Patience, FleetError> {
    let told = Patience::KEYS
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), own.get(key).or_else(|| fleet.get(key))?)))
        .collect();
    Patience::from_global(&serde_json::Value::Object(told)).map_err(FleetError::Patience)
}

fn prepare(
    config: &GlobalConfig,
    fleet: &GlobalConfig,
    printer: &Printer,
) -> Result<PreparedRun, anyhow::Error> {
    let options = collect::options(config, fleet, printer).map_err(OptionsError::into_inner)?;
    let agents: Vec<String> = agents(fleet).into_keys().collect();
    let run = PreparedRun::prepare(options, &agents, printer)?;
    if let Some(warning) = Capacity::of(fleet).warning(run.concurrency()) {
        printer.warn(&warning);
    }
    Ok(run)
}

async fn collect_from(
    run: PreparedRun,
    fleet: &GlobalConfig,
    patience: Patience,
    telemetry: bool,
    printer: &Printer,
    cancel: Cancel,
) -> Result<CollectSummary, anyhow::Error> {
    let client = Client::new(client_config(fleet, patience, printer));
    let parent = lens::Context::from_env(|name| fleet.environment().get(name).cloned());
    let dispatch = FleetAgents::new(client, agents(fleet));
    Ok(run.collect(dispatch, telemetry, &parent, printer, cancel).await?)
}

/// The driver's client behaves as those of its fleet's servers, but for its own patience.
fn client_config(fleet: &GlobalConfig, patience: Patience, printer: &Printer) -> ClientConfig {
    let teller = printer.clone();
    let listener = Some(Listener::new(move |line| teller.warn(line)));
    ClientConfig { patience, listener, ..gym_server::program::client_config(fleet.value(), 1) }
}

fn agents(fleet: &GlobalConfig) -> BTreeMap<String, Endpoint> {
    fleet
        .instances()
        .iter()
        .filter(|instance| instance.server_type == ServerType::ResponsesApiAgents)
        .map(|instance| (instance.name.clone(), instance.endpoint()))
        .collect()
}

/// Asks the head server for the config that its fleet runs with.
async fn config_of_fleet(
    head: &Endpoint,
    own: &GlobalConfig,
) -> Result<GlobalConfig, anyhow::Error> {
    let url = head.url();
    let (status, body) = probe::get(head.host(), head.port(), CONFIG_PATH, HEAD_LIMIT)
        .await
        .with_context(|| format!("no head server answers at {url}"))
        .advise(|| {
            "start a fleet with `gym env start`, name its head server with ++head_server.port=PORT, \
             or leave out --no-serve"
                .to_owned()
        })?;
    let text = serde_json::from_slice::<String>(&body)
        .ok()
        .filter(|_| status.is_success())
        .with_context(|| format!("what answers at {url} is no head server (status {status})"))
        .advise(|| {
            "name the head server with ++head_server.host=HOST ++head_server.port=PORT".to_owned()
        })?;
    Ok(GlobalConfig::from_yaml_text(&text, own.environment().clone())?)
}

/// Resolves when the head server has not been there for some time.
async fn fleet_is_gone(head: &Endpoint) -> FleetError {
    let mut failed = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match probe::connect(head.host(), head.port(), HEAD_LIMIT).await {
            Ok(()) => failed = 0,
            Err(error) => {
                failed += 1;
                if failed >= FAILED_LOOKS {
                    return FleetError::Gone { url: head.url(), source: error };
                }
            }
        }
    }
}

/// Ctrl-C or SIGTERM stops gently, a second one at once.
fn stop_on_signals(
    canceller: Arc<Canceller>,
    printer: Printer,
) -> Result<tokio::task::JoinHandle<()>, anyhow::Error> {
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for signals")?;
    Ok(tokio::spawn(async move {
        for stop in [Stop::Gently, Stop::Now] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stop == Stop::Gently {
                printer
                    .say("stopping; rollouts in flight get a moment, another Ctrl-C stops at once");
            }
            canceller.stop(stop);
        }
    }))
}
