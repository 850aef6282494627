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

/// What follows [`GYM_OTEL_PREFIX`] or [`LENS_PREFIX`].
pub mod suffix {
    /// Master switch.
    pub const ENABLED: &str = "ENABLED";
    /// `service.name` gets the instance's name as a suffix.
    pub const SERVICE_NAME_PER_SERVER: &str = "SERVICE_NAME_PER_SERVER";
    /// Which span groups are on.
    pub const SPAN_GROUPS: &str = "SPAN_GROUPS";
    /// `otlp` or `console`.
    pub const EXPORTER: &str = "EXPORTER";
    /// Traces.
    pub const TRACES_ENABLED: &str = "TRACES_ENABLED";
    /// Metrics.
    pub const METRICS_ENABLED: &str = "METRICS_ENABLED";
    /// The log bridge.
    pub const LOGS_ENABLED: &str = "LOGS_ENABLED";
    /// CLIENT spans.
    pub const INSTRUMENT_AIOHTTP: &str = "INSTRUMENT_AIOHTTP";
    /// Which processes export.
    pub const EXPORT_STRATEGY: &str = "EXPORT_STRATEGY";
    /// For `single_rank`: which.
    pub const EXPORT_RANK: &str = "EXPORT_RANK";
    /// For `sampled`: the share.
    pub const EXPORT_SAMPLE_RATE: &str = "EXPORT_SAMPLE_RATE";
    /// The rank-aware sampler.
    pub const SAMPLER_ENABLED: &str = "SAMPLER_ENABLED";
    /// Id of the fleet.
    pub const RUN_ID: &str = "RUN_ID";
    /// Who runs it.
    pub const USER_ID: &str = "USER_ID";
    /// Log records of long-lived spans.
    pub const LIVE_EVENTS: &str = "LIVE_EVENTS";
    /// Model endpoints get trace context.
    pub const PROPAGATE_TO_MODELS: &str = "PROPAGATE_TO_MODELS";
    /// Hosts that get trace context.
    pub const PROPAGATE_TO: &str = "PROPAGATE_TO";
    /// Memory profiling.
    pub const MEMORY_PROFILING_ENABLED: &str = "MEMORY_PROFILING_ENABLED";
    /// Seconds between memory samples.
    pub const MEMORY_PROFILING_INTERVAL_SECONDS: &str = "MEMORY_PROFILING_INTERVAL_SECONDS";
    /// CPU sampling at span end.
    pub const CPU_SAMPLING_ENABLED: &str = "CPU_SAMPLING_ENABLED";
    /// Seconds between CPU samples at least.
    pub const CPU_MIN_RESAMPLE_INTERVAL_S: &str = "CPU_MIN_RESAMPLE_INTERVAL_S";
    /// Memory sampling at span end.
    pub const MEMORY_SAMPLING_ENABLED: &str = "MEMORY_SAMPLING_ENABLED";
    /// Seconds between memory samples at least.
    pub const MEMORY_MIN_RESAMPLE_INTERVAL_S: &str = "MEMORY_MIN_RESAMPLE_INTERVAL_S";
    /// GPU sampling.
    pub const GPU_SAMPLING_ENABLED: &str = "GPU_SAMPLING_ENABLED";
    /// Seconds between GPU samples.
    pub const GPU_SAMPLE_INTERVAL_S: &str = "GPU_SAMPLE_INTERVAL_S";
    /// Directory of the crash-safe span ring.
    pub const SPOOL_DIR: &str = "SPOOL_DIR";
}

/// Master switch, Gym's own name.
pub const ENABLED: &str = "NEMO_GYM_OTEL_ENABLED";
/// Id of the fleet, Gym's own name.
pub const RUN_ID: &str = "NEMO_GYM_OTEL_RUN_ID";
/// Directory of the crash-safe span ring.
pub const SPOOL_DIR: &str = "NEMO_GYM_OTEL_SPOOL_DIR";

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
/// Where OTLP traces go.
pub const OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Where OTLP metrics go.
pub const OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
/// Where OTLP logs go.
pub const OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT";
/// `grpc`, `http/protobuf` or `http/json`.
pub const OTEL_EXPORTER_OTLP_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// Protocol of traces.
pub const OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
/// Protocol of metrics.
pub const OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL";
/// Protocol of logs.
pub const OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL";
/// Secret: headers of every export.
pub const OTEL_EXPORTER_OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Secret: headers of trace exports.
pub const OTEL_EXPORTER_OTLP_TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
/// Secret: headers of metric exports.
pub const OTEL_EXPORTER_OTLP_METRICS_HEADERS: &str = "OTEL_EXPORTER_OTLP_METRICS_HEADERS";
/// Secret: headers of log exports.
pub const OTEL_EXPORTER_OTLP_LOGS_HEADERS: &str = "OTEL_EXPORTER_OTLP_LOGS_HEADERS";
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
/// Milliseconds between two exports of metrics.
pub const OTEL_METRIC_EXPORT_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// Milliseconds an export of metrics may take.
pub const OTEL_METRIC_EXPORT_TIMEOUT: &str = "OTEL_METRIC_EXPORT_TIMEOUT";
/// Which HTTP conventions the Python instrumentation follows.
pub const OTEL_SEMCONV_STABILITY_OPT_IN: &str = "OTEL_SEMCONV_STABILITY_OPT_IN";

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
