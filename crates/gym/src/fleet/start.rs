//! The way from a config to servers that answer.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, TcpListener, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gym_server::client::Patience;
use gym_server::config::{GlobalConfig, Instance, Program};
use gym_server::instance::{Endpoint, InstanceError};
use gym_server::program::{EXIT_PORT_TAKEN, keep_undelivered};
use gym_telemetry::semconv::span;
use gym_telemetry::{ChildEnv, TELEMETRY_KEY_NAME, env_vars};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::announce::{self, Progress};
use super::child::{Child, Output, command_for};
use super::handover::Handover;
use super::head::{self, Documents, ServerInstance};
use super::trace::{self, StartupTrace};
use super::{
    Fleet, FleetError, FleetOptions, endpoints, flush, memory, port_holder, probe, stop_children,
};
use crate::capacity::Capacity;
use crate::printer::Printer;

/// How long a server may take until it answers.
pub const START_LIMIT: Duration = Duration::from_secs(600);
const POLL_FIRST: Duration = Duration::from_millis(50);
const POLL_LONGEST: Duration = Duration::from_secs(1);
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const HEAD_NAME: &str = "the head server";
const LOG_DIR_KEY: &str = "nemo_gym_log_dir";

/// What has been started so far; stopped by whoever gives up.
struct Started {
    children: Vec<Child>,
    instances: Vec<ServerInstance>,
    exits: Arc<watch::Sender<()>>,
    closed_stdout: Arc<Notify>,
}

pub async fn run(
    config: GlobalConfig,
    options: FleetOptions,
    printer: &Printer,
) -> Result<Fleet, FleetError> {
    let began = lens::now_unix_nanos();
    let telemetry = gym_telemetry::telemetry_config_from_global_config(&config.resolved()?)?;
    let handed_over = gym_telemetry::configure_telemetry_env(Some(&telemetry));
    keep_undelivered(&config.resolved()?);
    gym_telemetry::init_telemetry(Some("orchestrator"), Some("orchestrator"), &[]);
    let telemetry_ready = lens::now_unix_nanos();
    let (run_id, child_env) = handed_over.unzip();
    let environment = Environment::new(child_env.as_ref(), config.instances(), printer);

    let trace = StartupTrace::open(options.config_loaded_nanos.map_or(began, |(from, _)| from));
    if let Some((_, loaded)) = options.config_loaded_nanos {
        trace.past_stage(span::STARTUP_LOAD_CONFIG, loaded);
    }
    trace.past_stage(span::STARTUP_INIT_TELEMETRY, telemetry_ready);

    let mut started = Started {
        children: Vec::new(),
        instances: Vec::new(),
        exits: Arc::new(watch::Sender::new(())),
        closed_stdout: Arc::default(),
    };
    let result = {
        let up = bring_up(&config, &options, printer, &environment, &trace, &mut started);
        tokio::select! {
            result = up => result,
            interrupt = interrupted() => interrupt.and(Err(FleetError::Interrupted)),
        }
    };
    trace.close(result.as_ref().err());
    let head = match result {
        Ok(head) => head,
        Err(error) => {
            stop_children(&mut started.children).await;
            flush().await;
            return Err(error);
        }
    };
    trace::active_servers(started.children.len());
    if options.announces {
        printer.say(&announce::ready_block(&started.instances));
        let (host, port) = config.head_server();
        printer.say(&format!("Head server: {}", Endpoint::gym(HEAD_NAME, &host, port).url()));
        printer.say(&Capacity::of(&config).line());
        if let Some(run_id) = &run_id {
            printer.say(&format!("Telemetry run id: {}", run_id.as_str()));
        }
    }
    let Started { children, exits, closed_stdout, .. } = started;
    let memory = memory::start(&config, &children);
    Ok(Fleet { config, children, exits, head, closed_stdout, memory, printer: printer.clone() })
}

/// Telemetry settings for the servers, by who serves.
struct Environment {
    own: Vec<(String, String)>,
    python: Vec<(String, String)>,
}

impl Environment {
    fn new(child_env: Option<&ChildEnv>, instances: &[Instance], printer: &Printer) -> Self {
        let Some(own) = child_env else { return Self { own: Vec::new(), python: Vec::new() } };
        let (python, warning) = own.for_foreign();
        let is_python = |instance: &Instance| matches!(instance.program, Program::Python { .. });
        if let Some(warning) = warning.filter(|_| instances.iter().any(is_python)) {
            printer.warn(&warning);
        }
        Self { own: own.iter().collect(), python: python.iter().collect() }
    }

    fn give(&self, command: &mut std::process::Command, program: &Program) {
        match program {
            Program::Python { .. } => command.envs(self.python.iter().cloned()),
            Program::Builtin | Program::Exec { .. } => command.envs(self.own.iter().cloned()),
        };
        match program {
            Program::Builtin => command.env(env_vars::GYM_LIFE_PIPE_FD, "0"),
            // Their guard watches the pipe, they have no stdin.
            Program::Python { .. } | Program::Exec { .. } => {
                command.env_remove(env_vars::GYM_LIFE_PIPE_FD)
            }
        };
    }
}

/// Resolves at Ctrl-C or SIGTERM.
pub async fn interrupted() -> Result<(), FleetError> {
    let listen = |kind| {
        signal(kind).map_err(|source| FleetError::System { action: "listen for signals", source })
    };
    let (mut interrupt, mut terminate) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn bring_up(
    config: &GlobalConfig,
    options: &FleetOptions,
    printer: &Printer,
    environment: &Environment,
    trace: &StartupTrace,
    started: &mut Started,
) -> Result<head::Server, FleetError> {
    config.require_instances()?;
    let resolved = config.resolved()?;
    let log_dir = match &options.log_dir {
        Some(dir) => Some(dir.clone()),
        None => resolved.get(LOG_DIR_KEY).and_then(|dir| dir.as_str()).map(Into::into),
    };
    if let Some(dir) = &log_dir {
        fs::create_dir_all(dir).map_err(|source| FleetError::Log { path: dir.clone(), source })?;
    }
    let model_limit = endpoints::timeout(&resolved)?;
    Patience::from_global(&resolved).map_err(FleetError::Patience)?;
    check_builtins(config)?;
    check_ports(config.instances())?;

    let stage = trace.stage(span::STARTUP_START_HEAD_SERVER);
    let (host, port) = config.head_server();
    let documents = Documents::new(&head_yaml(config));
    let head = start_head(&host, port, Arc::clone(&documents)).await?;
    stage.end();

    let stage = trace.stage(span::STARTUP_SPAWN_SERVERS);
    let output = Output {
        log_dir,
        forwards_stdout: options.forwards_stdout,
        forwards_stderr: options.forwards_stderr,
        printer: printer.clone(),
        on_closed_stdout: Arc::clone(&started.closed_stdout),
    };
    let handover = Handover::new(config.value())?;
    let mut starting = HashMap::new();
    for instance in config.instances() {
        let mut command = command_for(instance)?;
        let is_foreign = !matches!(instance.program, Program::Builtin);
        handover.give(&mut command, &instance.name, is_foreign)?;
        environment.give(&mut command, &instance.program);
        if is_foreign {
            give_foreign_settings(&mut command, config, &resolved);
        }
        let (server_span, context) = trace.server(&instance.name, instance.server_type.as_str());
        command.envs(context);
        let child = Child::spawn(instance, command, &output, Arc::clone(&started.exits))?;
        started.children.push(child);
        starting.insert(instance.name.clone(), server_span);
    }
    stage.end();
    let start_time =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    started.instances = config
        .instances()
        .iter()
        .zip(&started.children)
        .map(|(instance, child)| describe(instance, child.pid, start_time))
        .collect();
    documents.publish(&started.instances);

    let stage = trace.stage(span::STARTUP_WAIT_FOR_HEAD_SERVER);
    wait_for_head(&host, port).await?;
    stage.end();

    let stage = trace.stage(span::STARTUP_WAIT_FOR_SERVERS);
    wait_for_servers(config.instances(), started, starting, options, printer).await?;
    stage.end();
    drop(handover);

    if options.waits_for_models
        && let Some(limit) = model_limit
    {
        let stage = trace.stage(span::STARTUP_WAIT_FOR_MODEL_ENDPOINTS);
        let urls = endpoints::collect(&resolved);
        tokio::select! {
            answered = endpoints::wait(urls, limit, printer) => answered?,
            failure = first_death(started) => return Err(failure),
        }
        stage.end();
    }
    Ok(head)
}

/// Finds what a built-in server would refuse about its block, while the config can still be quoted.
fn check_builtins(config: &GlobalConfig) -> Result<(), FleetError> {
    for instance in config.instances().iter().filter(|i| matches!(i.program, Program::Builtin)) {
        let Err(error) = gym_envs::builtin::service(&config.instance_config(&instance.name)?)
        else {
            continue;
        };
        // Anything else is for the server to say.
        if let Ok(error) = error.downcast::<InstanceError>()
            && let InstanceError::Field { path, reason, .. } = *error
        {
            return Err(config.misfit(instance, &path, reason).into());
        }
    }
    Ok(())
}

/// Finds taken ports before anything is started, while their holder can be told from ours.
fn check_ports(instances: &[Instance]) -> Result<(), FleetError> {
    let mut owners: Vec<(&Instance, Vec<IpAddr>)> = Vec::new();
    for instance in instances.iter().filter(|instance| instance.port != 0) {
        let key = port_key(instance);
        let host = instance.host.trim_start_matches('[').trim_end_matches(']');
        let addresses = addresses(host);
        let clash = owners.iter().find(|(owner, of_owner)| {
            owner.port == instance.port
                && (owner.host == instance.host || share_an_address(of_owner, &addresses))
        });
        if let Some((first, _)) = clash {
            return Err(FleetError::SharedPort {
                first: first.name.clone(),
                second: instance.name.clone(),
                key,
                port: instance.port,
            });
        }
        owners.push((instance, addresses));
        if let Err(error) = TcpListener::bind((host, instance.port)) {
            return Err(bind_error(&instance.name, key, &instance.host, instance.port, error));
        }
    }
    Ok(())
}

/// The addresses of a host; none when it has none, which binding then says.
fn addresses(host: &str) -> Vec<IpAddr> {
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip()).collect()
}

/// Whether two servers with the same port on these addresses are in each other's way.
fn share_an_address(left: &[IpAddr], right: &[IpAddr]) -> bool {
    let covers = |one: &IpAddr, other: &IpAddr| {
        one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
    };
    left.iter().any(|one| right.iter().any(|other| covers(one, other) || covers(other, one)))
}

fn port_key(instance: &Instance) -> String {
    format!("{}.{}.{}.port", instance.name, instance.server_type, instance.implementation)
}

fn bind_error(
    needed_by: &str,
    key: String,
    host: &str,
    port: u16,
    source: std::io::Error,
) -> FleetError {
    let (needed_by, host) = (needed_by.to_owned(), host.to_owned());
    if source.kind() == std::io::ErrorKind::AddrInUse {
        FleetError::PortInUse { needed_by, key, host, port, holder: port_holder::find(port) }
    } else {
        FleetError::Bind { needed_by, host, port, source }
    }
}

async fn start_head(
    host: &str,
    port: u16,
    documents: Arc<Documents>,
) -> Result<head::Server, FleetError> {
    let listener = tokio::net::TcpListener::bind((host, port))
        .await
        .map_err(|error| bind_error(HEAD_NAME, "head_server.port".to_owned(), host, port, error))?;
    Ok(head::Server::spawn(listener, documents))
}

fn give_foreign_settings(
    command: &mut std::process::Command,
    config: &GlobalConfig,
    resolved: &serde_json::Value,
) {
    if let Some(dir) = resolved.get("uv_cache_dir").and_then(|dir| dir.as_str()) {
        command.env(env_vars::UV_CACHE_DIR, dir);
    }
    // A foreign program runs in its own directory, so what is relative to ours is said in full.
    if let Ok(roots) = std::env::join_paths(config.roots().dirs()) {
        command.env(env_vars::GYM_EXTRA_ROOTS, roots);
    }
}

fn describe(instance: &Instance, pid: u32, start_time: f64) -> ServerInstance {
    ServerInstance {
        config_path: Some(instance.name.clone()),
        dir_path: instance.program.dir().map(|dir| dir.display().to_string()),
        entrypoint: instance.entrypoint.clone(),
        host: Some(instance.host.clone()),
        name: Some(instance.implementation.clone()),
        pid: Some(pid),
        port: Some(instance.port),
        process_name: Some(instance.name.clone()),
        server_type: Some(instance.server_type.to_string()),
        start_time: Some(start_time),
        status: None,
        uptime_seconds: None,
        url: Some(instance.endpoint().url()),
    }
}

async fn wait_for_head(host: &str, port: u16) -> Result<(), FleetError> {
    let endpoint = Endpoint::gym(HEAD_NAME, host, port);
    let started = Instant::now();
    loop {
        let probed = probe::get(endpoint.host(), port, "/", PROBE_LIMIT).await;
        let Err(error) = probed else { return Ok(()) };
        if started.elapsed() > PROBE_LIMIT {
            let source = std::io::Error::other(error);
            return Err(FleetError::System { action: "reach the head server", source });
        }
        tokio::time::sleep(POLL_FIRST).await;
    }
}

async fn wait_for_servers(
    instances: &[Instance],
    started: &Started,
    mut starting: HashMap<String, lens::Span>,
    options: &FleetOptions,
    printer: &Printer,
) -> Result<(), FleetError> {
    let total = instances.len();
    let mut progress = options.announces.then(|| Progress::new(printer));
    let (answers, mut answered) = mpsc::channel(total.max(1));
    let mut polls = JoinSet::new();
    for instance in instances {
        let endpoint = instance.endpoint();
        let answers = answers.clone();
        polls.spawn(async move {
            poll_until_answer(&endpoint).await;
            let _ = answers.send(endpoint.name().to_owned()).await;
        });
    }
    let deadline = Instant::now() + START_LIMIT;
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    let waiting = |starting: &HashMap<String, lens::Span>| -> Vec<String> {
        let names = instances.iter().map(|instance| instance.name.clone());
        names.filter(|name| starting.contains_key(name)).collect()
    };
    while !starting.is_empty() {
        tokio::select! {
            Some(name) = answered.recv() => {
                if let Some(span) = starting.remove(&name) {
                    span.end();
                }
            }
            failure = first_death(started) => return Err(failure),
            _ = ticks.tick() => {
                if let Some(progress) = &mut progress {
                    let names = waiting(&starting);
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    progress.show(total - starting.len(), total, &names);
                }
            }
            () = tokio::time::sleep_until(deadline) => {
                return Err(FleetError::NotReady {
                    waiting: waiting(&starting),
                    seconds: START_LIMIT.as_secs(),
                });
            }
        }
    }
    // An answer on the port of a server that has just ended came from somebody else.
    match death(started) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Any HTTP answer will do.
async fn poll_until_answer(endpoint: &Endpoint) {
    let mut pause = POLL_FIRST;
    while probe::get(endpoint.host(), endpoint.port(), "/", PROBE_LIMIT).await.is_err() {
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(POLL_LONGEST);
    }
}

async fn first_death(started: &Started) -> FleetError {
    let mut exits = started.exits.subscribe();
    loop {
        if let Some(failure) = death(started) {
            return failure;
        }
        let _ = exits.changed().await;
    }
}

fn death(started: &Started) -> Option<FleetError> {
    let index = started.children.iter().position(|child| child.exit_status().is_some())?;
    let (child, instance) = (&started.children[index], &started.instances[index]);
    let port = instance.port.unwrap_or_default();
    if child.exit_status()?.code() == Some(i32::from(EXIT_PORT_TAKEN)) {
        let name = |field: &Option<String>| field.clone().unwrap_or_default();
        return Some(FleetError::PortInUse {
            needed_by: child.instance.clone(),
            key: format!(
                "{}.{}.{}.port",
                child.instance,
                name(&instance.server_type),
                name(&instance.name)
            ),
            host: name(&instance.host),
            port,
            holder: port_holder::find(port),
        });
    }
    Some(FleetError::DiedStarting { instance: child.instance.clone(), source: child.obituary() })
}

/// The merged config as the head server shows it: with the telemetry settings that hold,
/// so that a driver in another shell agrees with the fleet.
fn head_yaml(config: &GlobalConfig) -> String {
    let mut shown = config.value().clone();
    let settings = gym_telemetry::settings();
    if let Some(shown) = shown.as_object_mut()
        && (settings.is_enabled() || shown.contains_key(TELEMETRY_KEY_NAME))
    {
        shown.insert(TELEMETRY_KEY_NAME.to_owned(), settings.effective_block().into());
    }
    GlobalConfig::to_yaml(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_serves_two_hosts_and_an_open_host_covers_every_other() {
        let clash = |left: &str, right: &str| share_an_address(&addresses(left), &addresses(right));
        assert!(!clash("127.0.0.1", "127.0.0.2"));
        assert!(clash("127.0.0.1", "127.0.0.1"));
        assert!(clash("127.0.0.1", "localhost"));
        assert!(clash("0.0.0.0", "127.0.0.1") && clash("127.0.0.2", "0.0.0.0"));
        assert!(clash("::", "127.0.0.1") && !clash("0.0.0.0", "::1"));
    }
}
