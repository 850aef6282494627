//! The main function of a server process.
//!
//! The configuration comes from two variables of the environment; the process ends on SIGTERM,
//! on SIGINT, and when the pipe that its supervisor holds is closed, so that nothing is left
//! behind by a supervisor that was killed. Telemetry goes to stdout, everything else to stderr.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use gym_telemetry::groups::STARTUP;
use gym_telemetry::{env_vars, metrics, semconv};
use lens::Span;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::agent::{self, AgentServer};
use crate::client::{ClientConfig, Listener, Patience, PoolLimits};
use crate::config::GlobalConfig;
use crate::http::{ServeOptions, Server, Service};
use crate::instance::{InstanceConfig, ServerType};
use crate::model::server::{self as model, ModelServer};
use crate::resources::{self, FromInstance, ResourcesServer};

/// Exit code of a server that found its port taken.
pub const EXIT_PORT_TAKEN: u8 = 98;
const EXIT_CONFIG: u8 = 2;
const DESCRIPTORS_WANTED: u64 = 65_535;
const STARTUP_ERROR: &str = "startup_error";
const FLUSH_MILLIS: u64 = 5000;

/// Runs a resources server as this process.
#[must_use]
pub fn serve_resources<S: ResourcesServer + FromInstance>() -> ExitCode {
    serve(|instance| Ok(resources::service(S::from_instance(instance)?, instance)))
}

/// Runs a model server as this process.
#[must_use]
pub fn serve_model<S: ModelServer + FromInstance>() -> ExitCode {
    serve(|instance| Ok(model::service(S::from_instance(instance)?, instance)))
}

/// Runs an agent as this process.
#[must_use]
pub fn serve_agent<S: AgentServer + FromInstance>() -> ExitCode {
    serve(|instance| Ok(agent::service(S::from_instance(instance)?, instance)))
}

/// Why a process cannot become the server it was asked to be.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

fn serve(make: impl FnOnce(&InstanceConfig) -> Result<Service, Cause>) -> ExitCode {
    with_instance(|instance| run_instance(instance, make))
}

/// Reads the instance that the environment names and runs it; an environment that names none is
/// said on stderr.
#[must_use]
pub fn with_instance(run: impl FnOnce(InstanceConfig) -> ExitCode) -> ExitCode {
    match instance_from_env() {
        Ok(instance) => run(instance),
        Err(error) => fail("the configuration of this server cannot be read", &*error),
    }
}

/// The instance that the environment names.
///
/// # Errors
///
/// When a variable is missing or the configuration in it is not valid.
pub fn instance_from_env() -> Result<InstanceConfig, Cause> {
    let variable = |name: &'static str| {
        std::env::var(name).map_err(|_| {
            Cause::from(format!("{name} is not set: servers are started by `gym env start`"))
        })
    };
    let path = variable(env_vars::GYM_CONFIG_PATH)?;
    let text = match std::env::var(env_vars::GYM_CONFIG_DICT_FILE) {
        Ok(file) if !file.is_empty() => std::fs::read_to_string(&file)
            .map_err(|error| Cause::from(format!("failed to read {file:?}: {error}")))?,
        _ => variable(env_vars::GYM_CONFIG_DICT)?,
    };
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(GlobalConfig::from_child_env(&text, &path, &environment)?)
}

/// Runs one instance as this process, until it is told to end.
#[must_use]
pub fn run_instance(
    instance: InstanceConfig,
    make: impl FnOnce(&InstanceConfig) -> Result<Service, Cause>,
) -> ExitCode {
    let started = Instant::now();
    keep_undelivered(&instance.global);
    gym_telemetry::init_telemetry(Some(&instance.name), Some(instance.server_type.as_str()), &[]);
    let code = run(&instance, make, started);
    gym_telemetry::shutdown_telemetry(FLUSH_MILLIS);
    code
}

/// Config key of the directory for what may be lost.
const CACHE_DIR_KEY: &str = "cache_dir";

/// The folder for telemetry that a process with this merged config cannot deliver.
#[must_use]
pub fn overflow_dir(global: &serde_json::Value) -> Option<std::path::PathBuf> {
    let cache = global.get(CACHE_DIR_KEY)?.as_str().filter(|dir| !dir.is_empty())?;
    Some(std::path::Path::new(cache).join(gym_telemetry::spool::OVERFLOW_FOLDER))
}

/// Lets this process keep telemetry that it cannot deliver; before telemetry starts.
pub fn keep_undelivered(global: &serde_json::Value) {
    if let Some(dir) = overflow_dir(global) {
        gym_telemetry::configure_overflow_dir(&dir);
    }
}

fn run(
    instance: &InstanceConfig,
    make: impl FnOnce(&InstanceConfig) -> Result<Service, Cause>,
    started: Instant,
) -> ExitCode {
    let parent = lens::Context::from_env(|name| std::env::var(name).ok());
    let mut startup = Span::build(&STARTUP, semconv::span::SERVER_STARTUP).parent(&parent).start();
    startup.set(semconv::SERVER_NAME, instance.name.clone());
    startup.set(semconv::SERVER_TYPE, instance.server_type.as_str());
    raise_descriptor_limit();
    let service = match make(instance) {
        Ok(service) => Arc::new(service),
        Err(error) => {
            startup.record_exception(STARTUP_ERROR, &error.to_string());
            return fail(&format!("{} cannot be set up", instance.name), &*error);
        }
    };
    let server = match Server::bind(&instance.host, instance.port) {
        Ok(server) => server,
        Err(error) => {
            startup.record_exception(STARTUP_ERROR, &error.to_string());
            let taken = error.port_is_taken();
            let code = fail(&format!("{} cannot start", instance.name), &error);
            return if taken { ExitCode::from(EXIT_PORT_TAKEN) } else { code };
        }
    };
    let (stop, stopped) = watch::channel(false);
    let watcher =
        std::thread::Builder::new().name("end-of-life".to_owned()).spawn(move || await_end(&stop));
    if let Err(error) = watcher {
        return fail(&format!("{} cannot start", instance.name), &error);
    }
    startup.end();
    metrics::SERVER_STARTUP_DURATION.record(
        started.elapsed().as_secs_f64() * 1e3,
        &[
            (semconv::SERVER_NAME, instance.name.clone().into()),
            (semconv::SERVER_TYPE, instance.server_type.as_str().into()),
        ],
    );
    match server.serve(service, &options(instance), stopped) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{} stopped", instance.name), &error),
    }
}

fn options(instance: &InstanceConfig) -> ServeOptions {
    let workers = shards(instance);
    ServeOptions {
        workers,
        client: client_config(&instance.global, workers),
        own: Some(instance.own_endpoint()),
        same_host_sockets: same_host_sockets(&instance.global),
        ..ServeOptions::default()
    }
}

/// Shards of a server: `num_workers`, or one, but for agents one on each of the first four cores,
/// because more than half of a fleet's work is theirs.
fn shards(instance: &InstanceConfig) -> usize {
    let is_default = !instance.block.contains_key("num_workers");
    if is_default && instance.server_type == ServerType::ResponsesApiAgents {
        return std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
    }
    instance.workers.max(1)
}

/// Config key that keeps servers of one host on TCP when it is `false`.
pub const SAME_HOST_SOCKETS_KEY: &str = "same_host_sockets";

fn same_host_sockets(global: &serde_json::Value) -> bool {
    global.get(SAME_HOST_SOCKETS_KEY).and_then(serde_json::Value::as_bool).unwrap_or(true)
}

/// How clients of a process with this merged config behave, each in one of `workers` shards.
#[must_use]
pub fn client_config(global: &serde_json::Value, workers: usize) -> ClientConfig {
    let settings = gym_telemetry::settings();
    ClientConfig {
        limits: PoolLimits::from_global(global).divided_by(workers),
        // The supervisor refuses times that are none.
        patience: Patience::from_global(global).unwrap_or_default(),
        listener: Some(Listener::new(gym_telemetry::mention)),
        propagate_to_models: settings.propagate_to_models.value,
        propagate_to: settings.propagate_to.value,
        client_spans: settings.instrument_aiohttp.value,
        same_host_sockets: same_host_sockets(global),
    }
}

/// Lets the process hold as many sockets as the reference does; a refusal is no failure.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS_WANTED, |max| max.min(DESCRIPTORS_WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Open files that a process may have once it has [raised its limit](raise_descriptor_limit);
/// `None` when there is no limit.
#[must_use]
pub fn descriptor_limit() -> Option<usize> {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = limit.maximum.map_or(DESCRIPTORS_WANTED, |max| max.min(DESCRIPTORS_WANTED));
    Some(usize::try_from(limit.current?.max(raised)).unwrap_or(usize::MAX))
}

/// Waits for a signal or for the end of the supervisor, then says so.
fn await_end(stop: &watch::Sender<bool>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime {
        runtime.block_on(async {
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = supervisor_gone() => {}
            }
        });
    }
    stop.send_replace(true);
}

/// Resolves when the supervisor's end of the life pipe, our stdin, is closed.
async fn supervisor_gone() {
    let is_life_pipe = std::env::var(env_vars::GYM_LIFE_PIPE_FD).is_ok_and(|fd| fd == "0");
    let stdin = is_life_pipe
        .then(|| rustix::io::dup(std::io::stdin()).ok())
        .flatten()
        .and_then(|stdin| pipe::Receiver::from_owned_fd(stdin).ok());
    let Some(receiver) = stdin else { return std::future::pending().await };
    let mut buffer = [0; 64];
    loop {
        if receiver.readable().await.is_err() {
            return;
        }
        match receiver.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

fn fail(what: &str, error: &(dyn std::error::Error + 'static)) -> ExitCode {
    let mut text = format!("error: {what}\n");
    let mut cause = Some(error);
    while let Some(error) = cause {
        text.push_str(&format!("  caused by: {error}\n"));
        cause = error.source();
    }
    // Nobody is left to tell when stderr is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(EXIT_CONFIG)
}
