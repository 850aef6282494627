//! Telemetry of this process: from its settings to its last flush.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lens::{SetupError, TelemetryHandle, Value};

use crate::{
    config::{MemoryProfilingConfig, TelemetryConfig},
    env_vars, groups,
    handover::ChildEnv,
    notice::notice,
    origin::Origin,
    pipeline::{Process, lens_config},
    resolve::{Resolved, resolve},
    run_id::RunId,
    sampling, semconv,
    spool::shortfall,
};

/// What [`shutdown_telemetry`] is given when nothing else is said.
pub const DEFAULT_SHUTDOWN_TIMEOUT_MILLIS: u64 = 5_000;

/// What this process knows. One lock: none of this is on a hot path.
struct State {
    block: Option<TelemetryConfig>,
    run_id: Option<RunId>,
    overflow_dir: Option<PathBuf>,
    settings: Option<Arc<Resolved>>,
    pipeline: Pipeline,
}

enum Pipeline {
    Untouched,
    /// Off, or it could not be started: not tried again.
    Off,
    Running(TelemetryHandle),
    /// The program that we are part of set it up, and ends it.
    Borrowed(TelemetryHandle),
    ShutDown,
}

/// Whether a pipeline runs. Read on every request, so it is no part of the locked state.
static ACTIVE: AtomicBool = AtomicBool::new(false);

static STATE: Mutex<State> = Mutex::new(State {
    block: None,
    run_id: None,
    overflow_dir: None,
    settings: None,
    pipeline: Pipeline::Untouched,
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn settings(&mut self) -> Arc<Resolved> {
        if let Some(settings) = &self.settings {
            return Arc::clone(settings);
        }
        let env = environment();
        let settings = Arc::new(match &self.block {
            Some(block) => resolve(&env, block),
            None => resolve(&env, &TelemetryConfig::default()),
        });
        self.settings = Some(Arc::clone(&settings));
        settings
    }

    /// The fleet's id: given, else generated once in this process.
    fn run_id(&mut self, settings: &Resolved) -> RunId {
        if let Some(id) = &settings.run_id.value {
            return id.clone();
        }
        self.run_id.get_or_insert_with(RunId::generate).clone()
    }
}

/// The environment as a map; what is not Unicode is no setting of ours.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Takes the block of this fleet, for this process and for its children.
///
/// Call it before any server is spawned. It stores the block as this process's layer
/// "`telemetry:` block" and returns the fleet's id with what children must be told; `None` when
/// telemetry is off.
pub fn configure_telemetry_env(block: Option<&TelemetryConfig>) -> Option<(RunId, ChildEnv)> {
    let mut state = state();
    state.block = block.cloned();
    state.settings = None;
    let settings = state.settings();
    warn(&settings);
    for warning in block.iter().flat_map(|block| &block.warnings) {
        notice(warning);
    }
    if !settings.is_enabled() {
        return None;
    }
    let run_id = state.run_id(&settings);
    let child_env = ChildEnv::new(&settings, &environment(), &run_id);
    Some((run_id, child_env))
}

/// Names the folder in which this process may keep what it cannot deliver; call it before
/// [`init_telemetry`]. Without it, such spans stay in the buffer.
pub fn configure_overflow_dir(dir: &Path) {
    state().overflow_dir = Some(dir.to_owned());
}

/// The settings of this process, with their origins; the run id is filled in once it is known.
pub fn settings() -> Resolved {
    let mut state = state();
    let mut settings = Resolved::clone(&state.settings());
    if settings.run_id.origin == Origin::Generated {
        settings.run_id.value.clone_from(&state.run_id);
    }
    settings
}

/// Starts telemetry in this process; call it once, further calls return the same handle.
///
/// Where the program has called [`lens::setup_telemetry`] itself, that is used, with its settings, and
/// [`shutdown_telemetry`] leaves its end to the program.
///
/// Never fails the server: what goes wrong is said once on stderr, and telemetry stays off.
/// `server_type` is one of the three server types, or `orchestrator`.
pub fn init_telemetry(
    server_name: Option<&str>,
    server_type: Option<&str>,
    resource_attributes: &[(String, Value)],
) -> Option<TelemetryHandle> {
    let mut state = state();
    match &state.pipeline {
        Pipeline::Running(handle) | Pipeline::Borrowed(handle) => return Some(handle.clone()),
        Pipeline::Off | Pipeline::ShutDown => return None,
        Pipeline::Untouched => {}
    }
    let settings = state.settings();
    warn(&settings);
    if !settings.is_enabled() {
        state.pipeline = Pipeline::Off;
        return None;
    }
    groups::register();
    lens::promote_baggage_keys(semconv::PROMOTED_BAGGAGE);
    let run_id = state.run_id(&settings);
    let overflow_dir = state.overflow_dir.clone();
    let overflow_dir = overflow_dir.as_deref();
    let process = Process { server_name, server_type, resource_attributes, overflow_dir };
    let config = lens_config(&settings, process, &run_id);
    let takes_spans = (config.span_groups.split(','))
        .any(|name| name.trim().eq_ignore_ascii_case(groups::name::TRACING));
    if takes_spans || config.logs_exporter != lens::config::ExporterKind::None {
        lens::install_bridges();
    }
    let started = lens::setup_telemetry(config);
    if let (Err(SetupError::AlreadySetUp), Some(handle)) = (&started, lens::current_handle()) {
        state.pipeline = Pipeline::Borrowed(handle.clone());
        ACTIVE.store(true, Ordering::Relaxed);
        return Some(handle);
    }
    match started {
        Ok(handle) => {
            let said = groups::resolve(&settings.span_groups);
            for warning in handle.warnings() {
                if !said.warnings().contains(&warning) {
                    notice(&warning);
                }
            }
            sampling::start(&settings, &environment());
            state.pipeline = Pipeline::Running(handle.clone());
            ACTIVE.store(true, Ordering::Relaxed);
            Some(handle)
        }
        Err(error) => {
            notice(&format!("telemetry is off: {error}"));
            state.pipeline = Pipeline::Off;
            None
        }
    }
}

/// Whether telemetry runs in this process: one relaxed load.
#[inline]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// This process's handle; `None` before [`init_telemetry`], when telemetry is off, and after
/// [`shutdown_telemetry`].
pub fn get_telemetry() -> Option<TelemetryHandle> {
    match &state().pipeline {
        Pipeline::Running(handle) | Pipeline::Borrowed(handle) => Some(handle.clone()),
        _ => None,
    }
}

/// Flushes and ends telemetry; further calls do nothing. Returns within the timeout.
///
/// Says in one line what was lost or waits, unless a supervisor says it for all its servers. Telemetry that the
/// program set up itself goes on.
pub fn shutdown_telemetry(timeout_ms: u64) {
    let (handle, overflow_dir) = {
        let mut state = state();
        let overflow_dir = state.overflow_dir.clone();
        match std::mem::replace(&mut state.pipeline, Pipeline::ShutDown) {
            Pipeline::Running(handle) => {
                ACTIVE.store(false, Ordering::Relaxed);
                (handle, overflow_dir)
            }
            Pipeline::Borrowed(_) => {
                ACTIVE.store(false, Ordering::Relaxed);
                return;
            }
            untouched => {
                state.pipeline = untouched;
                return;
            }
        }
    };
    sampling::stop();
    // What did not go well is told from the numbers, whichever flush it was.
    let _ = handle.shutdown(Duration::from_millis(timeout_ms));
    // A supervisor takes over what its servers leave, and says it for all of them.
    if !is_supervised()
        && let Some(text) = shortfall(&handle, overflow_dir.as_deref())
    {
        notice(&text);
    }
}

/// Whether telemetry is on for this process, by its environment and the stored block.
pub fn is_telemetry_env_enabled() -> bool {
    state().settings().is_enabled()
}

/// Whether metrics are on for this process.
pub fn is_telemetry_metrics_enabled() -> bool {
    let settings = state().settings();
    settings.is_enabled() && settings.metrics.enabled.value
}

/// Memory profiling as variables and the stored block say it, else as in `defaults`.
pub fn memory_profiling_config_from_env(defaults: &MemoryProfilingConfig) -> MemoryProfilingConfig {
    memory_profiling_config(&state().settings(), defaults)
}

pub(crate) fn memory_profiling_config(
    settings: &Resolved,
    defaults: &MemoryProfilingConfig,
) -> MemoryProfilingConfig {
    let mut config = defaults.clone();
    if settings.memory_profiling_enabled.origin != Origin::Default {
        config.enabled = settings.memory_profiling_enabled.value;
    }
    if settings.memory_profiling_interval_seconds.origin != Origin::Default {
        config.interval_seconds = settings.memory_profiling_interval_seconds.value;
    }
    config
}

/// Says what is wrong, once in a fleet: the supervisor has said it for those it started.
fn warn(settings: &Resolved) {
    if is_supervised() {
        return;
    }
    if let Some(warning) = settings.off_warning() {
        notice(&warning);
    }
    if settings.is_enabled() {
        for warning in settings.ignored_warnings() {
            notice(&warning);
        }
        for warning in groups::resolve(&settings.span_groups).warnings() {
            notice(warning);
        }
    }
}

/// Whether a supervisor of ours started this process: it holds the other end of a pipe.
fn is_supervised() -> bool {
    std::env::var_os(env_vars::GYM_LIFE_PIPE_FD).is_some()
}
