//! The one function that decides every telemetry setting.
//!
//! [`resolve`] is pure: it takes the environment as a map and the block, and says for every
//! setting what it is and who decided it. Start-up, hand-over to children and
//! `gym config show --origin` all read its answer, so they cannot disagree.
//!
//! Precedence, highest first: the kill switches (`OTEL_SDK_DISABLED`, `OTEL_*_EXPORTER=none`),
//! `NEMO_GYM_OTEL_*`, `NEMO_LENS_*`, other `OTEL_*`, the block, the default.
//! An empty or blank variable is unset. A Gym variable that cannot be read switches telemetry off
//! ([`Resolved::faults`]); a standard one is ignored ([`Resolved::ignored`]), as its specification
//! asks.

mod about;
mod layers;
mod otlp;
mod rows;
mod standard;

use std::{collections::BTreeMap, fmt};

use ::lens::config::BatchSettings;
use layers::Layers;
pub(crate) use otlp::lens_protocol;
pub use otlp::{Otlp, OtlpSignal, Signal};
pub use rows::{Row, settings_table};
pub use standard::Standard;

use crate::{
    config::{
        BOOL_EXPECTED, Exporter, LiveEvents, TelemetryConfig, parse_bool,
        read::{is_positive, split_list},
    },
    env_vars::{self, lens as lens_vars},
    origin::{Origin, Sourced},
    run_id::RunId,
    secret::Secret,
};

/// A variable whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The variable.
    pub variable: &'static str,
    /// What it holds, masked when secret.
    pub value: String,
    /// What belongs there.
    pub expected: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}, expected {}", self.variable, self.value, self.expected)
    }
}

/// One signal: whether it is recorded and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalSettings {
    /// Recorded and exported.
    pub enabled: Sourced<bool>,
    /// Where to; [`Exporter::None`] only together with `enabled == false`.
    pub exporter: Sourced<Exporter>,
}

/// Every telemetry setting with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Telemetry is on, unless there are [`Resolved::faults`]: ask [`Resolved::is_enabled`].
    pub enabled: Sourced<bool>,
    /// Base of `service.name`.
    pub service_name: Sourced<String>,
    /// Append `/<instance>`.
    pub service_name_per_server: Sourced<bool>,
    /// Presets and groups as written.
    pub span_groups: Sourced<String>,
    /// The exporter that Gym's own settings name; signals may differ.
    pub exporter: Sourced<Exporter>,
    /// Spans.
    pub traces: SignalSettings,
    /// Metrics.
    pub metrics: SignalSettings,
    /// Log records.
    pub logs: SignalSettings,
    /// CLIENT spans.
    pub instrument_aiohttp: Sourced<bool>,
    /// Which processes export.
    pub export_strategy: Sourced<String>,
    /// For `single_rank`.
    pub export_rank: Sourced<i64>,
    /// For `sampled`, 0 to 1.
    pub export_sample_rate: Sourced<f64>,
    /// The rank-aware sampler.
    pub sampler_enabled: Sourced<bool>,
    /// Id of the fleet; no value when it is still to be generated.
    pub run_id: Sourced<Option<RunId>>,
    /// Who runs it.
    pub user_id: Sourced<Option<String>>,
    /// Log records of long-lived spans.
    pub live_events: Sourced<LiveEvents>,
    /// Model endpoints get trace context.
    pub propagate_to_models: Sourced<bool>,
    /// Hosts that get trace context.
    pub propagate_to: Sourced<Vec<String>>,
    /// Memory profiling.
    pub memory_profiling_enabled: Sourced<bool>,
    /// Seconds between memory samples.
    pub memory_profiling_interval_seconds: Sourced<f64>,
    /// CPU sampling.
    pub cpu_sampling_enabled: Sourced<bool>,
    /// Seconds between CPU samples at least.
    pub cpu_min_resample_interval_s: Sourced<f64>,
    /// Memory sampling.
    pub memory_sampling_enabled: Sourced<bool>,
    /// Seconds between memory samples at least.
    pub memory_min_resample_interval_s: Sourced<f64>,
    /// GPU sampling.
    pub gpu_sampling_enabled: Sourced<bool>,
    /// Seconds between GPU samples.
    pub gpu_sample_interval_s: Sourced<f64>,
    /// Weights & Biases entity.
    pub wandb_entity: Sourced<Option<String>>,
    /// Weights & Biases project.
    pub wandb_project: Sourced<Option<String>>,
    /// Deployment environment.
    pub deployment_environment: Sourced<Option<String>>,
    /// Directory of the crash-safe span ring.
    pub spool_dir: Sourced<String>,
    /// Bytes of that ring.
    pub buffer_bytes: Sourced<u64>,
    /// Bytes of files for what cannot be delivered.
    pub spool_bytes: Sourced<u64>,
    /// Where OTLP goes and how, by signal.
    pub otlp: Otlp,
    /// The other standard variables.
    pub standard: Standard,
    /// Gym variables that cannot be read: telemetry is off.
    pub faults: Vec<Fault>,
    /// Standard variables that cannot be read: the next layer decided.
    pub ignored: Vec<Fault>,
    /// Sentences about settings that are used and will not do what was meant.
    pub cautions: Vec<String>,
}

/// Decides every setting from an environment and a block.
pub fn resolve(env: &BTreeMap<String, String>, block: &TelemetryConfig) -> Resolved {
    let mut at = Layers::new(env, block);

    let exporter = at.gym(
        [env_vars::EXPORTER, lens_vars::EXPORTER],
        Exporter::parse,
        Exporter::EXPECTED,
        ("exporter", block.exporter),
    );
    let traces = at.signal(
        [env_vars::TRACES_ENABLED, lens_vars::TRACES_ENABLED],
        ("traces_enabled", block.traces_enabled),
        env_vars::OTEL_TRACES_EXPORTER,
        &exporter,
    );
    let metrics = at.signal(
        [env_vars::METRICS_ENABLED, lens_vars::METRICS_ENABLED],
        ("metrics_enabled", block.metrics_enabled),
        env_vars::OTEL_METRICS_EXPORTER,
        &exporter,
    );
    let logs = at.signal(
        [env_vars::LOGS_ENABLED, lens_vars::LOGS_ENABLED],
        ("logs_enabled", block.logs_enabled),
        env_vars::OTEL_LOGS_EXPORTER,
        &exporter,
    );

    Resolved {
        enabled: enabled(&mut at),
        service_name: service_name(&mut at),
        service_name_per_server: at.switch(
            [env_vars::SERVICE_NAME_PER_SERVER, lens_vars::SERVICE_NAME_PER_SERVER],
            ("service_name_per_server", block.service_name_per_server),
        ),
        span_groups: at.text(
            [env_vars::SPAN_GROUPS, lens_vars::SPAN_GROUPS],
            ("span_groups", &block.span_groups),
        ),
        exporter,
        traces,
        metrics,
        logs,
        instrument_aiohttp: at.switch(
            [env_vars::INSTRUMENT_AIOHTTP, lens_vars::INSTRUMENT_AIOHTTP],
            ("instrument_aiohttp", block.instrument_aiohttp),
        ),
        export_strategy: at.text(
            [env_vars::EXPORT_STRATEGY, lens_vars::EXPORT_STRATEGY],
            ("export_strategy", &block.export_strategy),
        ),
        export_rank: at.gym(
            [env_vars::EXPORT_RANK, lens_vars::EXPORT_RANK],
            |text| text.trim().parse().ok(),
            "an integer",
            ("export_rank", block.export_rank),
        ),
        export_sample_rate: at.gym(
            [env_vars::EXPORT_SAMPLE_RATE, lens_vars::EXPORT_SAMPLE_RATE],
            |text| text.trim().parse().ok().filter(|rate| (0.0..=1.0).contains(rate)),
            "a number from 0 to 1",
            ("export_sample_rate", 1.0),
        ),
        sampler_enabled: at.switch(
            [env_vars::SAMPLER_ENABLED, lens_vars::SAMPLER_ENABLED],
            ("sampler_enabled", false),
        ),
        run_id: run_id(&mut at),
        user_id: at.maybe(&[env_vars::USER_ID, lens_vars::USER_ID]),
        live_events: at.gym(
            [env_vars::LIVE_EVENTS, lens_vars::LIVE_EVENTS],
            LiveEvents::parse,
            LiveEvents::EXPECTED,
            ("live_events", block.live_events),
        ),
        propagate_to_models: at.switch(
            [env_vars::PROPAGATE_TO_MODELS, lens_vars::PROPAGATE_TO_MODELS],
            ("propagate_to_models", block.propagate_to_models),
        ),
        propagate_to: at.gym(
            [env_vars::PROPAGATE_TO, lens_vars::PROPAGATE_TO],
            |text| Some(split_list(text)),
            "a comma-separated list",
            ("propagate_to", block.propagate_to.clone()),
        ),
        memory_profiling_enabled: at.switch(
            [env_vars::MEMORY_PROFILING_ENABLED, lens_vars::MEMORY_PROFILING_ENABLED],
            ("memory_profiling.enabled", block.memory_profiling.enabled),
        ),
        memory_profiling_interval_seconds: at.seconds(
            [
                env_vars::MEMORY_PROFILING_INTERVAL_SECONDS,
                lens_vars::MEMORY_PROFILING_INTERVAL_SECONDS,
            ],
            ("memory_profiling.interval_seconds", block.memory_profiling.interval_seconds),
        ),
        cpu_sampling_enabled: at.switch(
            [env_vars::CPU_SAMPLING_ENABLED, lens_vars::CPU_SAMPLING_ENABLED],
            ("cpu_sampling_enabled", block.cpu_sampling_enabled),
        ),
        cpu_min_resample_interval_s: at.seconds(
            [env_vars::CPU_MIN_RESAMPLE_INTERVAL_S, lens_vars::CPU_MIN_RESAMPLE_INTERVAL_S],
            ("cpu_min_resample_interval_s", block.cpu_min_resample_interval_s),
        ),
        memory_sampling_enabled: at.switch(
            [env_vars::MEMORY_SAMPLING_ENABLED, lens_vars::MEMORY_SAMPLING_ENABLED],
            ("memory_sampling_enabled", block.memory_sampling_enabled),
        ),
        memory_min_resample_interval_s: at.seconds(
            [env_vars::MEMORY_MIN_RESAMPLE_INTERVAL_S, lens_vars::MEMORY_MIN_RESAMPLE_INTERVAL_S],
            ("memory_min_resample_interval_s", block.memory_min_resample_interval_s),
        ),
        gpu_sampling_enabled: at.switch(
            [env_vars::GPU_SAMPLING_ENABLED, lens_vars::GPU_SAMPLING_ENABLED],
            ("gpu_sampling_enabled", block.gpu_sampling_enabled),
        ),
        gpu_sample_interval_s: at.seconds(
            [env_vars::GPU_SAMPLE_INTERVAL_S, lens_vars::GPU_SAMPLE_INTERVAL_S],
            ("gpu_sample_interval_s", block.gpu_sample_interval_s),
        ),
        wandb_entity: at.maybe(&[env_vars::WANDB_ENTITY]),
        wandb_project: at.maybe(&[env_vars::WANDB_PROJECT]),
        deployment_environment: at.maybe(&[env_vars::DEPLOYMENT_ENV, env_vars::ENVIRONMENT]),
        spool_dir: spool_dir(&at),
        buffer_bytes: at.gym(
            [env_vars::BUFFER_BYTES, lens_vars::BUFFER_BYTES],
            parse_bytes,
            BYTES_EXPECTED,
            ("buffer_bytes", BatchSettings::default().max_queue_bytes as u64),
        ),
        spool_bytes: at.gym(
            [env_vars::SPOOL_BYTES, lens_vars::SPOOL_BYTES],
            |text| text.trim().parse().ok(),
            BYTES_EXPECTED,
            ("spool_bytes", BatchSettings::default().max_spool_bytes),
        ),
        otlp: otlp::resolve(&mut at),
        standard: standard::resolve(&mut at),
        faults: std::mem::take(&mut at.faults),
        ignored: std::mem::take(&mut at.ignored),
        cautions: std::mem::take(&mut at.cautions),
    }
}

impl Resolved {
    /// Telemetry is on and every Gym variable could be read.
    pub fn is_enabled(&self) -> bool {
        self.enabled.value && self.faults.is_empty()
    }

    /// The one warning that says why telemetry is off although it was asked for.
    pub fn off_warning(&self) -> Option<String> {
        let asked_for = self.enabled.value
            || self
                .faults
                .iter()
                .any(|f| f.variable == env_vars::ENABLED || f.variable == lens_vars::ENABLED);
        if !asked_for || self.faults.is_empty() {
            return None;
        }
        let reasons: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        Some(format!("telemetry is off: {}", reasons.join("; ")))
    }

    /// One sentence for each standard variable that was ignored, and for each setting that cannot work.
    pub fn ignored_warnings(&self) -> Vec<String> {
        let ignored = self.ignored.iter().map(|fault| format!("{fault}; it is ignored"));
        ignored.chain(self.cautions.iter().cloned()).collect()
    }

    /// `service.name` of a process that serves an instance, or of one that does not.
    pub fn service_name_of(&self, server_name: Option<&str>) -> String {
        match server_name {
            Some(name) if self.service_name_per_server.value && !name.is_empty() => {
                format!("{}/{name}", self.service_name.value)
            }
            _ => self.service_name.value.clone(),
        }
    }

    /// The settings of a signal.
    pub fn signal(&self, signal: Signal) -> &SignalSettings {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
        }
    }
}

fn enabled(at: &mut Layers<'_>) -> Sourced<bool> {
    let killed =
        at.standard(&[env_vars::OTEL_SDK_DISABLED], parse_bool, BOOL_EXPECTED, None, false);
    let asked = at.switch([env_vars::ENABLED, lens_vars::ENABLED], ("enabled", at.block().enabled));
    if killed.value { Sourced::new(false, killed.origin) } else { asked }
}

/// `OTEL_SERVICE_NAME`, else `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, as specified there.
fn service_name(at: &mut Layers<'_>) -> Sourced<String> {
    if let Some(name) = at.variable(env_vars::OTEL_SERVICE_NAME) {
        return Sourced::new(name.trim().to_owned(), Origin::Variable(env_vars::OTEL_SERVICE_NAME));
    }
    if let Some(name) = at
        .variable(env_vars::OTEL_RESOURCE_ATTRIBUTES)
        .and_then(|text| standard::resource_attribute(text, crate::semconv::SERVICE_NAME))
    {
        return Sourced::new(name, Origin::Variable(env_vars::OTEL_RESOURCE_ATTRIBUTES));
    }
    let block = at.block();
    Sourced::new(block.service_name.clone(), at.block_origin("service_name"))
}

fn run_id(at: &mut Layers<'_>) -> Sourced<Option<RunId>> {
    for name in [env_vars::RUN_ID, lens_vars::RUN_ID] {
        if let Some(id) = at.variable(name).and_then(RunId::new) {
            return Sourced::new(Some(id), Origin::Variable(name));
        }
    }
    if let Some(id) = at.block().run_id.as_deref().and_then(RunId::new) {
        return Sourced::new(Some(id), Origin::Block);
    }
    if let Some(id) = at.variable(env_vars::SLURM_JOB_ID).and_then(RunId::new) {
        return Sourced::new(Some(id), Origin::Variable(env_vars::SLURM_JOB_ID));
    }
    Sourced::new(None, Origin::Generated)
}

/// The memory file system of every Linux.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
const BYTES_EXPECTED: &str = "a whole number of bytes";

fn spool_dir(at: &Layers<'_>) -> Sourced<String> {
    let given = at.maybe(&[env_vars::SPOOL_DIR, lens_vars::SPOOL_DIR, env_vars::XDG_RUNTIME_DIR]);
    Sourced::new(given.value.unwrap_or_else(|| SHARED_MEMORY.to_owned()), given.origin)
}

/// A buffer of no bytes would drop everything.
fn parse_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes > 0)
}

/// Headers of one export, for whoever sends them.
pub(crate) type Headers = Option<Secret>;

/// Whether a number of seconds can be waited; shared with the block's reader.
pub(crate) fn parse_seconds(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|seconds| is_positive(*seconds))
}
