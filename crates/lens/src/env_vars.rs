//! Environment variables that OpenTelemetry and the lens family define.

/// Propagated context given to a child process.
pub const TRACEPARENT: &str = "TRACEPARENT";
/// Vendor context given to a child process.
pub const TRACESTATE: &str = "TRACESTATE";
/// Baggage given to a child process.
pub const BAGGAGE: &str = "BAGGAGE";

/// Kill switch for everything.
pub const OTEL_SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
/// `service.name`.
pub const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// Further resource attributes, `key=value,…`, percent-encoded.
pub const OTEL_RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Sampler by name.
pub const OTEL_TRACES_SAMPLER: &str = "OTEL_TRACES_SAMPLER";
/// Argument of the sampler.
pub const OTEL_TRACES_SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Propagators by name, comma separated.
pub const OTEL_PROPAGATORS: &str = "OTEL_PROPAGATORS";
/// Exporter of spans: `otlp`, `console`, `none`.
pub const OTEL_TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
/// Exporter of metrics: `otlp`, `console`, `none`.
pub const OTEL_METRICS_EXPORTER: &str = "OTEL_METRICS_EXPORTER";
/// Exporter of log records: `otlp`, `console`, `none`.
pub const OTEL_LOGS_EXPORTER: &str = "OTEL_LOGS_EXPORTER";

/// Common prefix of the OTLP exporter's variables; `TRACES_`, `METRICS_` or `LOGS_` may follow.
pub const OTEL_EXPORTER_OTLP: &str = "OTEL_EXPORTER_OTLP_";
/// Where to send.
pub const OTEL_EXPORTER_OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// `grpc`, `http/protobuf` or `http/json`.
pub const OTEL_EXPORTER_OTLP_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// `key=value,…`; secret.
pub const OTEL_EXPORTER_OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Milliseconds for one export with all its retries.
pub const OTEL_EXPORTER_OTLP_TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
/// `gzip` or `none`.
pub const OTEL_EXPORTER_OTLP_COMPRESSION: &str = "OTEL_EXPORTER_OTLP_COMPRESSION";
/// gRPC without TLS when the endpoint has no scheme.
pub const OTEL_EXPORTER_OTLP_INSECURE: &str = "OTEL_EXPORTER_OTLP_INSECURE";
/// PEM file of trusted certificates.
pub const OTEL_EXPORTER_OTLP_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
/// PEM file of the client's key.
pub const OTEL_EXPORTER_OTLP_CLIENT_KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";
/// PEM file of the client's certificate chain.
pub const OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
/// `cumulative` or `delta` or `lowmemory`.
pub const OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: &str =
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";

/// `explicit_bucket_histogram` or `base2_exponential_bucket_histogram`.
pub const OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION: &str =
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION";
/// `trace_based`, `always_on` or `always_off`.
pub const OTEL_METRICS_EXEMPLAR_FILTER: &str = "OTEL_METRICS_EXEMPLAR_FILTER";

/// Milliseconds between two exports of spans.
pub const OTEL_BSP_SCHEDULE_DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";
/// Milliseconds for one export.
pub const OTEL_BSP_EXPORT_TIMEOUT: &str = "OTEL_BSP_EXPORT_TIMEOUT";
/// Spans that may wait.
pub const OTEL_BSP_MAX_QUEUE_SIZE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
/// Spans in one export request.
pub const OTEL_BSP_MAX_EXPORT_BATCH_SIZE: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
/// Milliseconds between two exports of metrics.
pub const OTEL_METRIC_EXPORT_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// Milliseconds for one export of metrics.
pub const OTEL_METRIC_EXPORT_TIMEOUT: &str = "OTEL_METRIC_EXPORT_TIMEOUT";

/// Attributes on one span.
pub const OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT";
/// Length of one attribute value on a span.
pub const OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT: &str = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT";
/// Events on one span.
pub const OTEL_SPAN_EVENT_COUNT_LIMIT: &str = "OTEL_SPAN_EVENT_COUNT_LIMIT";
/// Links on one span.
pub const OTEL_SPAN_LINK_COUNT_LIMIT: &str = "OTEL_SPAN_LINK_COUNT_LIMIT";
/// Attributes on anything that has no limit of its own.
pub const OTEL_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_ATTRIBUTE_COUNT_LIMIT";
/// Length of one attribute value on anything that has no limit of its own.
pub const OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT: &str = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT";
/// Attributes on one event.
pub const OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT";
/// Attributes on one link.
pub const OTEL_LINK_ATTRIBUTE_COUNT_LIMIT: &str = "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT";

/// Rank of this process in a distributed job.
pub const RANK: &str = "RANK";
/// Processes of the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Rank of this process among those of its host.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// The rank as Slurm gives it.
pub const SLURM_PROCID: &str = "SLURM_PROCID";
/// Processes of the job as Slurm gives it.
pub const SLURM_NTASKS: &str = "SLURM_NTASKS";
/// The rank on this host as Slurm gives it.
pub const SLURM_LOCALID: &str = "SLURM_LOCALID";

/// Suffixes that follow a program's own prefix (`NEMO_GYM_OTEL_`, `NEMO_LENS_`).
pub mod suffix {
    /// Telemetry on or off.
    pub const ENABLED: &str = "ENABLED";
    /// Which groups of spans exist.
    pub const SPAN_GROUPS: &str = "SPAN_GROUPS";
    /// `otlp` or `console`.
    pub const EXPORTER: &str = "EXPORTER";
    /// Spans on or off.
    pub const TRACES_ENABLED: &str = "TRACES_ENABLED";
    /// Metrics on or off.
    pub const METRICS_ENABLED: &str = "METRICS_ENABLED";
    /// Log records on or off.
    pub const LOGS_ENABLED: &str = "LOGS_ENABLED";
    /// Open spans in log records: `auto`, `on` or `off`.
    pub const LIVE_EVENTS: &str = "LIVE_EVENTS";
    /// Which processes export.
    pub const EXPORT_STRATEGY: &str = "EXPORT_STRATEGY";
    /// For `single_rank`: which.
    pub const EXPORT_RANK: &str = "EXPORT_RANK";
    /// For `sampled`: the share.
    pub const EXPORT_SAMPLE_RATE: &str = "EXPORT_SAMPLE_RATE";
    /// The rank-aware sampler.
    pub const SAMPLER_ENABLED: &str = "SAMPLER_ENABLED";
    /// One id for all processes of a run.
    pub const RUN_ID: &str = "RUN_ID";
    /// Who runs it.
    pub const USER_ID: &str = "USER_ID";
}

/// Prefix of the lens family.
pub const NEMO_LENS: &str = "NEMO_LENS_";
/// Prefix of Gym, which wins over [`NEMO_LENS`].
pub const NEMO_GYM_OTEL: &str = "NEMO_GYM_OTEL_";

/// The GPUs that CUDA gives this process, by index or UUID.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Where programs are looked for.
pub const PATH: &str = "PATH";
/// Name of the host, as shells and container runtimes set it; that of the pod in Kubernetes.
pub const HOSTNAME: &str = "HOSTNAME";

/// What Slurm tells the processes of a job.
pub mod slurm {
    /// Id of the job; without it nothing else counts.
    pub const JOB_ID: &str = "SLURM_JOB_ID";
    /// Name of the job.
    pub const JOB_NAME: &str = "SLURM_JOB_NAME";
    /// Id of an array's job.
    pub const ARRAY_JOB_ID: &str = "SLURM_ARRAY_JOB_ID";
    /// Index in the array.
    pub const ARRAY_TASK_ID: &str = "SLURM_ARRAY_TASK_ID";
    /// Name of the cluster.
    pub const CLUSTER_NAME: &str = "SLURM_CLUSTER_NAME";
    /// Partition of the job, newer and older name.
    pub const PARTITION: [&str; 2] = ["SLURM_JOB_PARTITION", "SLURM_PARTITION"];
    /// Nodes of the job, newer and older name.
    pub const NODELIST: [&str; 2] = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"];
    /// Number of nodes, newer and older name.
    pub const NNODES: [&str; 2] = ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"];
    /// Number of tasks.
    pub const NTASKS: &str = "SLURM_NTASKS";
    /// How often the job was started again.
    pub const RESTART_COUNT: &str = "SLURM_RESTART_COUNT";
    /// Id of the step.
    pub const STEP_ID: &str = "SLURM_STEP_ID";
    /// Index of the node.
    pub const NODEID: &str = "SLURM_NODEID";
    /// Name of the node.
    pub const NODENAME: &str = "SLURMD_NODENAME";
    /// Rank of the task.
    pub const PROCID: &str = "SLURM_PROCID";
    /// Rank of the task on its node.
    pub const LOCALID: &str = "SLURM_LOCALID";
}

/// What Kubernetes sets, and what a pod's author hands on from its fields: there are no standard names for these, so
/// those of NeMo Lens come first and the usual ones second.
pub mod k8s {
    /// Set in every pod.
    pub const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
    /// `metadata.namespace`.
    pub const NAMESPACE: [&str; 3] = ["K8S_NAMESPACE", "POD_NAMESPACE", "MY_POD_NAMESPACE"];
    /// `metadata.name`.
    pub const POD_NAME: [&str; 3] = ["K8S_POD_NAME", "POD_NAME", "MY_POD_NAME"];
    /// `metadata.uid`.
    pub const POD_UID: [&str; 2] = ["K8S_POD_UID", "POD_UID"];
    /// `spec.nodeName`.
    pub const NODE_NAME: [&str; 3] = ["K8S_NODE_NAME", "NODE_NAME", "MY_NODE_NAME"];
    /// The container's name, which no field gives.
    pub const CONTAINER_NAME: [&str; 2] = ["K8S_CONTAINER_NAME", "CONTAINER_NAME"];
    /// The label of the job that owns the pod.
    pub const JOB_NAME: [&str; 2] = ["K8S_JOB_NAME", "JOB_NAME"];
}
