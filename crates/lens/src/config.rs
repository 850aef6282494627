//! Resolved settings: what [`setup_telemetry`](crate::setup_telemetry) obeys, with nothing left to look up.
//!
//! Reading is pure: [`LensConfig::from_env_map`] takes the environment as a map. Programs with further layers
//! (a config file, their own prefix) fill the fields themselves.

mod endpoint;
mod export;
mod from_env;
mod live;
mod metrics;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::Value;

pub use endpoint::{Signal, default_endpoint, doubled_path, signal_url};
pub use export::{ExportCandidate, ExportSettings};
pub use from_env::{
    ConfigWarning, RESOURCE_ATTRIBUTES_EXPECTED, parse_bool, parse_headers,
    parse_resource_attributes,
};
pub use live::{LiveEvents, LiveSettings};
pub use metrics::{ExemplarFilter, HistogramAggregation, MetricSettings, TemporalityPreference};

/// Everything telemetry needs to know.
#[derive(Clone, Debug)]
pub struct LensConfig {
    /// Off: [`setup_telemetry`](crate::setup_telemetry) returns a handle that exports nothing.
    pub enabled: bool,
    /// `service.name`.
    pub service_name: String,
    /// Further resource attributes; they win over detected ones of the same key.
    pub resource_attributes: Vec<(String, Value)>,
    /// Groups and presets, comma separated, any case; `all` is every registered group except `tracing`.
    pub span_groups: String,
    /// Where spans go.
    pub traces_exporter: ExporterKind,
    /// Where metrics go.
    pub metrics_exporter: ExporterKind,
    /// Where log records go.
    pub logs_exporter: ExporterKind,
    /// OTLP settings of spans.
    pub traces_otlp: OtlpSettings,
    /// OTLP settings of metrics.
    pub metrics_otlp: OtlpSettings,
    /// OTLP settings of log records.
    pub logs_otlp: OtlpSettings,
    /// Which traces are recorded.
    pub sampler: Sampler,
    /// What crosses process boundaries.
    pub propagators: Propagators,
    /// How spans are gathered.
    pub batch: BatchSettings,
    /// How log records are gathered.
    pub log_batch: BatchSettings,
    /// How spans are told of while they are open.
    pub live: LiveSettings,
    /// What outlives the process.
    pub spool: SpoolSettings,
    /// Limits of one span.
    pub limits: SpanLimits,
    /// Time between two exports of metrics.
    pub metric_interval: Duration,
    /// Time budget of one export of metrics.
    pub metric_timeout: Duration,
    /// How metrics are aggregated.
    pub metrics: MetricSettings,
    /// Distinct attribute sets of one instrument; more go to one overflow point.
    pub metric_cardinality_limit: usize,
    /// `dl.rank`.
    pub rank: u32,
    /// `dl.world_size`.
    pub world_size: u32,
    /// The rank among those of this host.
    pub local_rank: u32,
    /// Which processes export.
    pub export: ExportSettings,
}

impl Default for LensConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            service_name: "unknown_service".to_owned(),
            resource_attributes: Vec::new(),
            span_groups: "default".to_owned(),
            traces_exporter: ExporterKind::Otlp,
            metrics_exporter: ExporterKind::Otlp,
            logs_exporter: ExporterKind::None,
            traces_otlp: OtlpSettings::for_signal(Signal::Traces),
            metrics_otlp: OtlpSettings::for_signal(Signal::Metrics),
            logs_otlp: OtlpSettings::for_signal(Signal::Logs),
            sampler: Sampler::default(),
            propagators: Propagators::default(),
            batch: BatchSettings::default(),
            log_batch: BatchSettings::for_logs(),
            live: LiveSettings::default(),
            spool: SpoolSettings::default(),
            limits: SpanLimits::default(),
            metric_interval: Duration::from_secs(10),
            metric_timeout: Duration::from_secs(30),
            metrics: MetricSettings::default(),
            metric_cardinality_limit: 2000,
            rank: 0,
            world_size: 1,
            local_rank: 0,
            export: ExportSettings::default(),
        }
    }
}

/// Where one signal goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExporterKind {
    /// Nowhere: the signal is off.
    None,
    /// An OTLP receiver.
    Otlp,
    /// JSON lines on stdout.
    Console,
    /// Kept for a test; see `lens-testing`.
    Memory,
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2, port 4317.
    Grpc,
    /// Protobuf over HTTP/1.1, port 4318.
    HttpProtobuf,
    /// JSON over HTTP/1.1, port 4318.
    HttpJson,
}

impl Protocol {
    /// The protocol by its name in `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "grpc" => Some(Self::Grpc),
            "http/protobuf" => Some(Self::HttpProtobuf),
            "http/json" => Some(Self::HttpJson),
            _ => None,
        }
    }

    /// The name in `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
            Self::HttpJson => "http/json",
        }
    }
}

/// One signal's OTLP settings. `Debug` prints header names without their values.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpSettings {
    /// The full address of this signal; with HTTP including its path (see [`signal_url`]).
    pub endpoint: String,
    /// gRPC or HTTP.
    pub protocol: Protocol,
    /// Sent with every request; secret.
    pub headers: Vec<(String, String)>,
    /// Budget of one export with all its retries.
    pub timeout: Duration,
    /// Compress bodies.
    pub gzip: bool,
    /// PEM file of trusted certificates instead of those that the machine trusts.
    pub certificate: Option<PathBuf>,
    /// PEM files of the client's certificate chain and key.
    pub client_identity: Option<(PathBuf, PathBuf)>,
}

impl OtlpSettings {
    /// The specification's defaults: gRPC to localhost.
    pub fn for_signal(signal: Signal) -> Self {
        Self {
            endpoint: signal_url(default_endpoint(Protocol::Grpc), Protocol::Grpc, signal),
            protocol: Protocol::Grpc,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            gzip: false,
            certificate: None,
            client_identity: None,
        }
    }
}

impl fmt::Debug for OtlpSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("OtlpSettings")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("header_names", &names)
            .field("timeout", &self.timeout)
            .field("gzip", &self.gzip)
            .field("certificate", &self.certificate)
            .field("client_identity", &self.client_identity)
            .finish()
    }
}

/// Which traces are recorded; the specification's samplers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Follow the parent's decision where there is a parent.
    pub parent_based: bool,
    /// The share of traces recorded at their root, 0.0 to 1.0, decided by trace id.
    pub ratio: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { parent_based: true, ratio: 1.0 }
    }
}

impl Sampler {
    /// The argument of `traceidratio`: a number from 0 to 1.
    pub fn parse_ratio(text: &str) -> Option<f64> {
        text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio))
    }

    /// A sampler by its name and argument in `OTEL_TRACES_SAMPLER(_ARG)`; an argument that
    /// [`Sampler::parse_ratio`] does not take is as good as none, which is 1.
    pub fn from_name(name: &str, argument: Option<&str>) -> Option<Self> {
        let ratio = || argument.and_then(Self::parse_ratio).unwrap_or(1.0);
        let name = name.trim().to_ascii_lowercase();
        let (parent_based, name) = match name.strip_prefix("parentbased_") {
            Some(rest) => (true, rest),
            None => (false, name.as_str()),
        };
        let ratio = match name {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => ratio(),
            _ => return None,
        };
        Some(Self { parent_based, ratio })
    }
}

/// What crosses process boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagators {
    /// `traceparent` and `tracestate`.
    pub trace_context: bool,
    /// `baggage`.
    pub baggage: bool,
}

impl Default for Propagators {
    fn default() -> Self {
        Self { trace_context: true, baggage: true }
    }
}

/// How spans are gathered before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Longest wait of an ended span before its export starts.
    pub schedule_delay: Duration,
    /// Spans that may wait; `None` leaves the bound to `max_queue_bytes`.
    pub max_queue_spans: Option<usize>,
    /// Bytes that may wait.
    pub max_queue_bytes: usize,
    /// Spans in one request; `None` leaves the bound to `max_batch_bytes`.
    pub max_batch_spans: Option<usize>,
    /// Bytes in one request.
    pub max_batch_bytes: usize,
    /// Budget of one export.
    pub export_timeout: Duration,
    /// Bytes of files for what cannot be delivered.
    pub max_spool_bytes: u64,
}

/// Where spans outlive a killed process and a receiver that is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Folder on a memory file system for the buffers of running processes; `None` keeps them in private memory.
    pub ring_folder: Option<PathBuf>,
    /// Folder for requests that cannot be delivered; `None` keeps them in the buffer.
    pub overflow_folder: Option<PathBuf>,
    /// Names this run's folders below both.
    pub run_id: String,
    /// Take over what dead processes left even where no group is on, so that nothing of its own is to be delivered.
    pub ships_dead: bool,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            schedule_delay: Duration::from_millis(1000),
            max_queue_spans: None,
            max_queue_bytes: 16 << 20,
            max_batch_spans: None,
            max_batch_bytes: 1 << 20,
            export_timeout: Duration::from_secs(30),
            max_spool_bytes: 256 << 20,
        }
    }
}

impl BatchSettings {
    /// Log records have a budget of their own, so that a storm of them cannot starve spans.
    pub fn for_logs() -> Self {
        Self { max_queue_bytes: 4 << 20, max_spool_bytes: 64 << 20, ..Self::default() }
    }
}

/// What one span may hold; more is dropped and counted on the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanLimits {
    /// Attributes on a span.
    pub attributes: usize,
    /// Characters of one string value, also inside an array; longer ones are cut.
    pub attribute_value_chars: usize,
    /// Events on a span.
    pub events: usize,
    /// Links on a span.
    pub links: usize,
    /// Attributes on an event.
    pub event_attributes: usize,
    /// Attributes on a link.
    pub link_attributes: usize,
}

impl SpanLimits {
    /// The specification's defaults.
    pub const DEFAULT: Self = Self {
        attributes: 128,
        attribute_value_chars: usize::MAX,
        events: 128,
        links: 128,
        event_attributes: 128,
        link_attributes: 128,
    };
}

impl Default for SpanLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
