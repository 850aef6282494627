//! Every environment variable that Gym reads or hands to a child.
//!
//! Constants only: reading happens in [`crate::resolve`] from a map, never from here.
//! A Gym variable is looked up under [`GYM_OTEL_PREFIX`], then under [`LENS_PREFIX`].

/// Prefix of the variables that win over everything but the kill switches.
pub const GYM_OTEL_PREFIX: &str = "NEMO_GYM_OTEL_";
/// Prefix of the fallback variables, shared with other programs that use the same library.
pub const LENS_PREFIX: &str = "NEMO_LENS_";
/// Prefix of the standard OpenTelemetry variables.
pub const OTEL_PREFIX: &str = "OTEL_";

/// Declares a setting's variable under both prefixes.
macro_rules! under_both_prefixes {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])* pub const $name: &str = concat!("NEMO_GYM_OTEL_", stringify!($name));)*

        /// The same settings under [`LENS_PREFIX`], looked up second.
        pub mod lens {
            $($(#[$doc])* pub const $name: &str = concat!("NEMO_LENS_", stringify!($name));)*
        }
    };
}

under_both_prefixes! {
    /// Master switch.
    ENABLED
    /// `service.name` gets the instance's name as a suffix.
    SERVICE_NAME_PER_SERVER
    /// Which span groups are on.
    SPAN_GROUPS
    /// `otlp` or `console`.
    EXPORTER
    /// Traces.
    TRACES_ENABLED
    /// Metrics.
    METRICS_ENABLED
    /// The log bridge.
    LOGS_ENABLED
    /// CLIENT spans.
    INSTRUMENT_AIOHTTP
    /// Which processes export.
    EXPORT_STRATEGY
    /// For `single_rank`: which.
    EXPORT_RANK
    /// For `sampled`: the share.
    EXPORT_SAMPLE_RATE
    /// The rank-aware sampler.
    SAMPLER_ENABLED
    /// Id of the fleet.
    RUN_ID
    /// Who runs it.
    USER_ID
    /// Log records of long-lived spans.
    LIVE_EVENTS
    /// Model endpoints get trace context.
    PROPAGATE_TO_MODELS
    /// Hosts that get trace context.
    PROPAGATE_TO
    /// Memory profiling.
    MEMORY_PROFILING_ENABLED
    /// Seconds between memory samples.
    MEMORY_PROFILING_INTERVAL_SECONDS
    /// CPU sampling at span end.
    CPU_SAMPLING_ENABLED
    /// Seconds between CPU samples at least.
    CPU_MIN_RESAMPLE_INTERVAL_S
    /// Memory sampling at span end.
    MEMORY_SAMPLING_ENABLED
    /// Seconds between memory samples at least.
    MEMORY_MIN_RESAMPLE_INTERVAL_S
    /// GPU sampling.
    GPU_SAMPLING_ENABLED
    /// Seconds between GPU samples.
    GPU_SAMPLE_INTERVAL_S
    /// Directory of the crash-safe span ring.
    SPOOL_DIR
    /// Bytes of that ring.
    BUFFER_BYTES
    /// Bytes of files for what cannot be delivered.
    SPOOL_BYTES
}

/// Switches everything off.
pub const OTEL_SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
/// Base of `service.name`.
pub const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// `key=value,…` added to the resource.
pub const OTEL_RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// `otlp`, `console` or `none`.
pub const OTEL_TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
/// `otlp`, `console` or `none`.
pub const OTEL_METRICS_EXPORTER: &str = "OTEL_METRICS_EXPORTER";
/// `otlp`, `console` or `none`.
pub const OTEL_LOGS_EXPORTER: &str = "OTEL_LOGS_EXPORTER";
/// Which sampler decides.
pub const OTEL_TRACES_SAMPLER: &str = "OTEL_TRACES_SAMPLER";
/// The sampler's argument.
pub const OTEL_TRACES_SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Which propagators are used.
pub const OTEL_PROPAGATORS: &str = "OTEL_PROPAGATORS";
/// Where OTLP goes.
pub const OTEL_EXPORTER_OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// `grpc`, `http/protobuf` or `http/json`.
pub const OTEL_EXPORTER_OTLP_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// Secret: headers of every export.
pub const OTEL_EXPORTER_OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Milliseconds an export may take.
pub const OTEL_EXPORTER_OTLP_TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
/// `gzip` or `none`.
pub const OTEL_EXPORTER_OTLP_COMPRESSION: &str = "OTEL_EXPORTER_OTLP_COMPRESSION";
/// gRPC without TLS when the endpoint has no scheme.
pub const OTEL_EXPORTER_OTLP_INSECURE: &str = "OTEL_EXPORTER_OTLP_INSECURE";
/// File of the trusted certificates.
pub const OTEL_EXPORTER_OTLP_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
/// File of the client's key.
pub const OTEL_EXPORTER_OTLP_CLIENT_KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";
/// File of the client's certificate.
pub const OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
/// Milliseconds between two exports of spans.
pub const OTEL_BSP_SCHEDULE_DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";
/// Milliseconds an export of spans may take.
pub const OTEL_BSP_EXPORT_TIMEOUT: &str = "OTEL_BSP_EXPORT_TIMEOUT";
/// Spans that may wait.
pub const OTEL_BSP_MAX_QUEUE_SIZE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
/// Spans of one export at most.
pub const OTEL_BSP_MAX_EXPORT_BATCH_SIZE: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
/// Milliseconds between two exports of log records.
pub const OTEL_BLRP_SCHEDULE_DELAY: &str = "OTEL_BLRP_SCHEDULE_DELAY";
/// Milliseconds an export of log records may take.
pub const OTEL_BLRP_EXPORT_TIMEOUT: &str = "OTEL_BLRP_EXPORT_TIMEOUT";
/// Log records that may wait.
pub const OTEL_BLRP_MAX_QUEUE_SIZE: &str = "OTEL_BLRP_MAX_QUEUE_SIZE";
/// Log records of one export at most.
pub const OTEL_BLRP_MAX_EXPORT_BATCH_SIZE: &str = "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE";
/// Milliseconds between two exports of metrics.
pub const OTEL_METRIC_EXPORT_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// Milliseconds an export of metrics may take.
pub const OTEL_METRIC_EXPORT_TIMEOUT: &str = "OTEL_METRIC_EXPORT_TIMEOUT";
/// `cumulative`, `delta` or `lowmemory`.
pub const OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: &str =
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
/// `explicit_bucket_histogram` or `base2_exponential_bucket_histogram`.
pub const OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION: &str =
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION";
/// `trace_based`, `always_on` or `always_off`.
pub const OTEL_METRICS_EXEMPLAR_FILTER: &str = "OTEL_METRICS_EXEMPLAR_FILTER";
/// Which HTTP conventions the Python instrumentation follows.
pub const OTEL_SEMCONV_STABILITY_OPT_IN: &str = "OTEL_SEMCONV_STABILITY_OPT_IN";

/// Folder of a user's session on a memory file system.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Id of the Slurm job: the run id when none is given.
pub const SLURM_JOB_ID: &str = "SLURM_JOB_ID";
/// Weights & Biases entity.
pub const WANDB_ENTITY: &str = "WANDB_ENTITY";
/// Weights & Biases project.
pub const WANDB_PROJECT: &str = "WANDB_PROJECT";
/// Deployment environment.
pub const DEPLOYMENT_ENV: &str = "DEPLOYMENT_ENV";
/// Deployment environment, second choice.
pub const ENVIRONMENT: &str = "ENVIRONMENT";

/// A child's configuration, as text.
pub const GYM_CONFIG_DICT: &str = "NEMO_GYM_CONFIG_DICT";
/// The name of the instance that a child serves.
pub const GYM_CONFIG_PATH: &str = "NEMO_GYM_CONFIG_PATH";
/// A file with a child's configuration, where the text is too long for the environment.
pub const GYM_CONFIG_DICT_FILE: &str = "NEMO_GYM_CONFIG_DICT_FILE";
/// Descriptor of the pipe whose end tells a child that its supervisor is gone.
pub const GYM_LIFE_PIPE_FD: &str = "NEMO_GYM_LIFE_PIPE_FD";

/// Attributes of a span at most.
pub const OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT";
/// Length of a span's string attribute at most.
pub const OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT: &str = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT";
/// Events of a span at most.
pub const OTEL_SPAN_EVENT_COUNT_LIMIT: &str = "OTEL_SPAN_EVENT_COUNT_LIMIT";
/// Links of a span at most.
pub const OTEL_SPAN_LINK_COUNT_LIMIT: &str = "OTEL_SPAN_LINK_COUNT_LIMIT";
/// Attributes of anything at most.
pub const OTEL_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_ATTRIBUTE_COUNT_LIMIT";
/// Length of any string attribute at most.
pub const OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT: &str = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT";
/// Attributes of an event at most.
pub const OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT";
/// Attributes of a link at most.
pub const OTEL_LINK_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT";

/// The `_TRACES_`, `_METRICS_` and `_LOGS_` forms of the OTLP variables, in this order.
pub mod per_signal {
    macro_rules! forms {
        ($($(#[$doc:meta])* $name:ident)*) => {
            $($(#[$doc])* pub const $name: [&str; 3] = [
                concat!("OTEL_EXPORTER_OTLP_TRACES_", stringify!($name)),
                concat!("OTEL_EXPORTER_OTLP_METRICS_", stringify!($name)),
                concat!("OTEL_EXPORTER_OTLP_LOGS_", stringify!($name)),
            ];)*
        };
    }
    forms! {
        /// Where it goes, used as it is.
        ENDPOINT
        /// `grpc`, `http/protobuf` or `http/json`.
        PROTOCOL
        /// Secret: headers.
        HEADERS
        /// Milliseconds an export may take.
        TIMEOUT
        /// `gzip` or `none`.
        COMPRESSION
        /// gRPC without TLS when the endpoint has no scheme.
        INSECURE
        /// File of the trusted certificates.
        CERTIFICATE
        /// File of the client's key.
        CLIENT_KEY
        /// File of the client's certificate.
        CLIENT_CERTIFICATE
    }
}
/// Directories under which relative paths are looked for first.
pub const GYM_EXTRA_ROOTS: &str = "NEMO_GYM_EXTRA_ROOTS";
/// How often a rollout may fail before a resumed collection gives it up.
pub const GYM_MAX_ROLLOUT_ATTEMPTS: &str = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS";

/// No colours, when not empty.
pub const NO_COLOR: &str = "NO_COLOR";
/// The kind of terminal.
pub const TERM: &str = "TERM";
/// Where a Python server finds modules.
pub const PYTHONPATH: &str = "PYTHONPATH";
/// Python writes at once, so that its lines are seen when they are written.
pub const PYTHONUNBUFFERED: &str = "PYTHONUNBUFFERED";
/// Where `uv` keeps packages.
pub const UV_CACHE_DIR: &str = "UV_CACHE_DIR";
