//! The `telemetry:` block of a Gym config.
//!
//! Reading is forgiving where YAML and interpolation are loose (a boolean may come as the string
//! that an environment variable held) and strict where a mistake would pass silently: a value of
//! the wrong type is an error that names key, expectation and value.
//! Unknown keys, also those of older versions, load with a warning and have no effect.
//!
//! What the block *wrote* is kept apart from what is merely default ([`TelemetryConfig::written`]):
//! only the former is handed over to children.

pub(crate) mod read;

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::secret::{Secret, SecretUrl};

/// The key of the block in a merged config.
pub const TELEMETRY_KEY_NAME: &str = "telemetry";

/// Where spans, metrics and logs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exporter {
    /// To a collector.
    Otlp,
    /// One JSON object a line on stdout.
    Console,
    /// Nowhere: only a standard variable says so, and it switches the signal off.
    None,
}

impl Exporter {
    /// What a config may say.
    pub const EXPECTED: &str = "`otlp` or `console`";

    /// Reads what a config or one of Gym's variables may say.
    pub fn parse(text: &str) -> Option<Exporter> {
        match text.trim().to_ascii_lowercase().as_str() {
            "otlp" => Some(Exporter::Otlp),
            "console" => Some(Exporter::Console),
            _ => None,
        }
    }

    /// As written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Exporter::Otlp => "otlp",
            Exporter::Console => "console",
            Exporter::None => "none",
        }
    }
}

impl fmt::Display for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How OTLP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Protocol {
    /// gRPC, port 4317.
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf over HTTP, port 4318.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP, port 4318.
    #[serde(rename = "http/json")]
    HttpJson,
}

impl Protocol {
    /// What a config may say.
    pub const EXPECTED: &str = "`grpc`, `http/protobuf` or `http/json`";

    /// Reads what a config or a variable may say.
    pub fn parse(text: &str) -> Option<Protocol> {
        match text.trim().to_ascii_lowercase().as_str() {
            "grpc" => Some(Protocol::Grpc),
            "http/protobuf" => Some(Protocol::HttpProtobuf),
            "http/json" => Some(Protocol::HttpJson),
            _ => None,
        }
    }

    /// As written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Grpc => "grpc",
            Protocol::HttpProtobuf => "http/protobuf",
            Protocol::HttpJson => "http/json",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether long-lived spans announce themselves in log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LiveEvents {
    /// Where the receiver understands them.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl LiveEvents {
    /// What a config may say.
    pub const EXPECTED: &str = "`auto`, `on` or `off`";

    /// Reads what a config or a variable may say.
    pub fn parse(text: &str) -> Option<LiveEvents> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Some(LiveEvents::Auto),
            other => match parse_bool(other)? {
                true => Some(LiveEvents::On),
                false => Some(LiveEvents::Off),
            },
        }
    }

    /// As written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            LiveEvents::Auto => "auto",
            LiveEvents::On => "on",
            LiveEvents::Off => "off",
        }
    }
}

impl fmt::Display for LiveEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Periodic memory sampling of the host and of every server's process tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryProfilingConfig {
    /// Sample at all.
    pub enabled: bool,
    /// Seconds between samples, above 0.
    pub interval_seconds: f64,
}

impl Default for MemoryProfilingConfig {
    fn default() -> Self {
        MemoryProfilingConfig { enabled: false, interval_seconds: 1.0 }
    }
}

impl<'de> Deserialize<'de> for MemoryProfilingConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = serde_json::json!({ "memory_profiling": Value::deserialize(deserializer)? });
        let config = TelemetryConfig::from_block(&block).map_err(D::Error::custom)?;
        Ok(config.memory_profiling)
    }
}

/// The `telemetry:` block; [`Default`] is a block that says nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TelemetryConfig {
    /// Master switch.
    pub enabled: bool,
    /// `service.name`, before the instance's suffix.
    pub service_name: String,
    /// Append `/<instance>` to `service.name`.
    pub service_name_per_server: bool,
    /// Presets and group names, comma-separated, as the user wrote them.
    pub span_groups: String,
    /// Where everything goes.
    pub exporter: Exporter,
    /// Record spans.
    pub traces_enabled: bool,
    /// Record metrics.
    pub metrics_enabled: bool,
    /// Bridge log records.
    pub logs_enabled: bool,
    /// CLIENT spans; `traceparent` is sent either way. Alias `instrument_http_client`.
    pub instrument_aiohttp: bool,
    /// Base URL of the collector.
    pub otlp_endpoint: Option<SecretUrl>,
    /// How OTLP is carried.
    pub otlp_protocol: Option<Protocol>,
    /// `name=value,…` sent with every export.
    pub otlp_headers: Option<Secret>,
    /// Which processes export: `all_ranks`, `single_rank`, `sampled`, `first_rank_per_node` or the
    /// name of a registered one.
    pub export_strategy: String,
    /// For `single_rank`: which rank, −1 for the last.
    pub export_rank: i64,
    /// Id shared by every process of the fleet; generated when absent.
    pub run_id: Option<String>,
    /// Log records when a long-lived span opens.
    pub live_events: LiveEvents,
    /// Send trace context to model endpoints.
    pub propagate_to_models: bool,
    /// Hosts outside of the fleet that get trace context.
    pub propagate_to: Vec<String>,
    /// Memory sampling by the supervisor.
    pub memory_profiling: MemoryProfilingConfig,
    /// Sample the process's CPU at span ends.
    pub cpu_sampling_enabled: bool,
    /// Seconds between two CPU samples at least.
    pub cpu_min_resample_interval_s: f64,
    /// Sample the host's memory at span ends.
    pub memory_sampling_enabled: bool,
    /// Seconds between two memory samples at least.
    pub memory_min_resample_interval_s: f64,
    /// Sample GPUs in the background.
    pub gpu_sampling_enabled: bool,
    /// Seconds between GPU samples.
    pub gpu_sample_interval_s: f64,

    /// Keys that the block holds, also those it sets to their default.
    #[serde(skip)]
    pub written: BTreeSet<&'static str>,
    /// Keys that have no effect, one sentence each.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        TelemetryConfig {
            enabled: false,
            service_name: "nemo-gym".to_owned(),
            service_name_per_server: true,
            span_groups: "default".to_owned(),
            exporter: Exporter::Otlp,
            traces_enabled: true,
            metrics_enabled: true,
            logs_enabled: false,
            instrument_aiohttp: true,
            otlp_endpoint: None,
            otlp_protocol: None,
            otlp_headers: None,
            export_strategy: "all_ranks".to_owned(),
            export_rank: -1,
            run_id: None,
            live_events: LiveEvents::Auto,
            propagate_to_models: true,
            propagate_to: Vec::new(),
            memory_profiling: MemoryProfilingConfig::default(),
            cpu_sampling_enabled: false,
            cpu_min_resample_interval_s: 1.0,
            memory_sampling_enabled: false,
            memory_min_resample_interval_s: 1.0,
            gpu_sampling_enabled: false,
            gpu_sample_interval_s: 10.0,
            written: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }
}

impl TelemetryConfig {
    /// Whether the value under a key is another than in `other`.
    pub(crate) fn differs_from(&self, other: &TelemetryConfig, key: &str) -> bool {
        match key {
            "enabled" => self.enabled != other.enabled,
            "service_name" => self.service_name != other.service_name,
            "service_name_per_server" => {
                self.service_name_per_server != other.service_name_per_server
            }
            "span_groups" => self.span_groups != other.span_groups,
            "exporter" => self.exporter != other.exporter,
            "traces_enabled" => self.traces_enabled != other.traces_enabled,
            "metrics_enabled" => self.metrics_enabled != other.metrics_enabled,
            "logs_enabled" => self.logs_enabled != other.logs_enabled,
            "instrument_aiohttp" => self.instrument_aiohttp != other.instrument_aiohttp,
            "export_strategy" => self.export_strategy != other.export_strategy,
            "export_rank" => self.export_rank != other.export_rank,
            "live_events" => self.live_events != other.live_events,
            "propagate_to_models" => self.propagate_to_models != other.propagate_to_models,
            "propagate_to" => self.propagate_to != other.propagate_to,
            "memory_profiling.enabled" => {
                self.memory_profiling.enabled != other.memory_profiling.enabled
            }
            "memory_profiling.interval_seconds" => {
                self.memory_profiling.interval_seconds != other.memory_profiling.interval_seconds
            }
            "cpu_sampling_enabled" => self.cpu_sampling_enabled != other.cpu_sampling_enabled,
            "cpu_min_resample_interval_s" => {
                self.cpu_min_resample_interval_s != other.cpu_min_resample_interval_s
            }
            "memory_sampling_enabled" => {
                self.memory_sampling_enabled != other.memory_sampling_enabled
            }
            "memory_min_resample_interval_s" => {
                self.memory_min_resample_interval_s != other.memory_min_resample_interval_s
            }
            "gpu_sampling_enabled" => self.gpu_sampling_enabled != other.gpu_sampling_enabled,
            "gpu_sample_interval_s" => self.gpu_sample_interval_s != other.gpu_sample_interval_s,
            _ => false,
        }
    }
}

impl<'de> Deserialize<'de> for TelemetryConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Value::deserialize(deserializer)?;
        TelemetryConfig::from_block(&block).map_err(D::Error::custom)
    }
}

/// A `telemetry:` block that cannot be read.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryConfigError {
    /// A value is of the wrong type or out of range.
    #[error("`{key}`: expected {expected}, got {value}")]
    Value {
        /// Dotted key from the top of the config.
        key: String,
        /// What belongs there.
        expected: String,
        /// What is there, masked where the key is secret.
        value: String,
    },
}

/// Reads the optional block of a merged config whose interpolations are resolved.
///
/// # Errors
/// A value of the block is of the wrong type or out of range.
pub fn telemetry_config_from_global_config(
    config: &Value,
) -> Result<TelemetryConfig, TelemetryConfigError> {
    match config.get(TELEMETRY_KEY_NAME) {
        Some(block) => TelemetryConfig::from_block(block),
        None => Ok(TelemetryConfig::default()),
    }
}

/// `1 true yes on` and `0 false no off` in any case, blanks around them ignored.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// What [`parse_bool`] takes.
pub const BOOL_EXPECTED: &str = "one of 1, true, yes, on, 0, false, no, off";
