//! Names that OpenTelemetry or lens itself defines.

/// Logical name of the service.
pub const SERVICE_NAME: &str = "service.name";
/// Version of the service.
pub const SERVICE_VERSION: &str = "service.version";
/// Unique id of the process.
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
/// `rust`.
pub const TELEMETRY_SDK_LANGUAGE: &str = "telemetry.sdk.language";
/// `lens`.
pub const TELEMETRY_SDK_NAME: &str = "telemetry.sdk.name";
/// Version of this crate.
pub const TELEMETRY_SDK_VERSION: &str = "telemetry.sdk.version";
/// Name of the host.
pub const HOST_NAME: &str = "host.name";
/// Id of the process.
pub const PROCESS_PID: &str = "process.pid";
/// Rank of this process in a distributed job.
pub const DL_RANK: &str = "dl.rank";
/// Number of processes of a distributed job.
pub const DL_WORLD_SIZE: &str = "dl.world_size";

/// Number of GPUs that this process may use.
pub const HOST_GPU_COUNT: &str = "host.gpu.count";

/// Where in a Slurm cluster a process runs. OpenTelemetry has no names for these: they are those of the NeMo Lens
/// documentation, and for what that leaves out the variable's own words.
pub mod slurm {
    /// Id of the job.
    pub const JOB_ID: &str = "slurm.job.id";
    /// Name of the job.
    pub const JOB_NAME: &str = "slurm.job.name";
    /// Id of the job that an array's tasks have in common.
    pub const ARRAY_JOB_ID: &str = "slurm.array.job_id";
    /// Index of the task in its array.
    pub const ARRAY_TASK_ID: &str = "slurm.array.task_id";
    /// Name of the cluster.
    pub const CLUSTER_NAME: &str = "slurm.cluster.name";
    /// Partition the job runs in.
    pub const PARTITION: &str = "slurm.partition";
    /// Nodes of the job, as Slurm abbreviates them.
    pub const NODELIST: &str = "slurm.nodelist";
    /// Number of nodes.
    pub const NNODES: &str = "slurm.nnodes";
    /// Number of tasks.
    pub const NTASKS: &str = "slurm.ntasks";
    /// How often the job was started again.
    pub const RESTART_COUNT: &str = "slurm.restart_count";
    /// Id of the step.
    pub const STEP_ID: &str = "slurm.step.id";
    /// Index of this node among those of the job.
    pub const NODE_ID: &str = "slurm.node.id";
    /// Name of this node.
    pub const NODE_NAME: &str = "slurm.node.name";
    /// Rank of this task among those of the step.
    pub const PROC_ID: &str = "slurm.procid";
    /// Rank of this task among those of its node.
    pub const LOCAL_ID: &str = "slurm.localid";
}

/// Where in a Kubernetes cluster a process runs.
pub mod k8s {
    /// Namespace of the pod.
    pub const NAMESPACE_NAME: &str = "k8s.namespace.name";
    /// Name of the pod.
    pub const POD_NAME: &str = "k8s.pod.name";
    /// Id of the pod.
    pub const POD_UID: &str = "k8s.pod.uid";
    /// Node the pod runs on.
    pub const NODE_NAME: &str = "k8s.node.name";
    /// Name of the container in its pod.
    pub const CONTAINER_NAME: &str = "k8s.container.name";
    /// Name of the job that owns the pod.
    pub const JOB_NAME: &str = "k8s.job.name";
}

/// Name of the event that records an error.
pub const EXCEPTION_EVENT: &str = "exception";
/// Type of the error.
pub const EXCEPTION_TYPE: &str = "exception.type";
/// What the error says.
pub const EXCEPTION_MESSAGE: &str = "exception.message";
/// Low-cardinality kind of failure.
pub const ERROR_TYPE: &str = "error.type";
/// Set on the data point that takes what exceeds the cardinality limit.
pub const METRIC_OVERFLOW: &str = "otel.metric.overflow";
/// What a log record is about, where there are too many targets for each to be a scope.
pub const LOG_TARGET: &str = "log.target";
/// Instrumentation scope of spans that come from `tracing`.
pub const TRACING_SCOPE: &str = "tracing";
/// Set on a span whose future was dropped before it was done.
pub const CANCELLED: &str = "nemo.gym.cancelled";
/// Set on a span that was ended by somebody else than its code, and the name of the event at its end.
pub const TRUNCATED: &str = "nemo.span.truncated";
/// What takes the place of a redacted value.
pub const REDACTED: &str = "[REDACTED]";
/// Attribute keys that are redacted unless others are named.
pub const DEFAULT_REDACT_KEYS: &[&str] =
    &["prompt", "input_text", "output_text", "text", "password", "token", "secret", "key"];

/// Header that carries the trace and parent ids.
pub const TRACEPARENT_HEADER: &str = "traceparent";
/// Header that carries vendor context.
pub const TRACESTATE_HEADER: &str = "tracestate";
/// Header that carries baggage.
pub const BAGGAGE_HEADER: &str = "baggage";

/// Log records about spans that are open.
pub mod live {
    /// Event: a span of a long-lived group is open; its time is the span's start.
    pub const OPEN_EVENT: &str = "gym.span.open";
    /// Event: it still is.
    pub const HEARTBEAT_EVENT: &str = "gym.heartbeat";
    /// Name of the span.
    pub const SPAN_NAME: &str = "nemo.span.name";
    /// Group of the span.
    pub const SPAN_GROUP: &str = "nemo.span.group";
    /// Id of its parent, 16 hex digits; a root has none.
    pub const SPAN_PARENT_ID: &str = "nemo.span.parent_id";
    /// Milliseconds since its start.
    pub const SPAN_AGE_MILLIS: &str = "nemo.span.age_ms";
    /// Name of the innermost span of its process that is open below it, the one that began last.
    pub const SPAN_STAGE: &str = "nemo.span.stage";
}

/// Why a span was dropped.
pub mod drop_reason {
    /// No room: the newest span goes.
    pub const BUFFER_FULL: &str = "buffer_full";
    /// One span larger than a whole buffer.
    pub const TOO_LARGE: &str = "too_large";
    /// The receiver could not be reached within the time budget.
    pub const EXPORT_FAILED: &str = "export_failed";
    /// Not delivered, and the files for what is not delivered are full.
    pub const SPOOL_FULL: &str = "spool_full";
    /// Ended after shutdown began.
    pub const SHUT_DOWN: &str = "shut_down";
}

/// Name of what is sent to see whether it arrives: span, metric, event and scope.
pub const PROBE: &str = "lens.probe";

/// Names of the pipeline's own metrics.
pub mod pipeline {
    /// Spans that ended.
    pub const SPANS_ENDED: &str = "lens.spans.ended";
    /// Spans acknowledged.
    pub const SPANS_EXPORTED: &str = "lens.spans.exported";
    /// Spans lost or refused, by reason.
    pub const SPANS_DROPPED: &str = "lens.spans.dropped";
    /// Spans that wait.
    pub const SPANS_QUEUED: &str = "lens.spans.queued";
    /// Spans that wait in files.
    pub const SPANS_SPOOLED: &str = "lens.spans.spooled";
    /// Share of the span buffer that is in use.
    pub const BUFFER_FILL: &str = "lens.buffer.fill";
    /// Seconds one export took.
    pub const EXPORT_DURATION: &str = "lens.export.duration";
    /// Exports that failed.
    pub const EXPORT_FAILURES: &str = "lens.export.failures";
    /// Trace contexts that could not be used.
    pub const PARENTS_REFUSED: &str = "lens.parents.refused";
    /// Log records that were made.
    pub const LOGS_ENDED: &str = "lens.logs.ended";
    /// Log records acknowledged.
    pub const LOGS_EXPORTED: &str = "lens.logs.exported";
    /// Log records lost or refused, by reason.
    pub const LOGS_DROPPED: &str = "lens.logs.dropped";
    /// Log records that wait.
    pub const LOGS_QUEUED: &str = "lens.logs.queued";
    /// Measurements that were not kept, by reason.
    pub const MEASUREMENTS_DROPPED: &str = "lens.measurements.dropped";
    /// The reason: NaN or infinite.
    pub const NOT_FINITE: &str = "not_finite";
    /// The reason: a receiver refused it.
    pub const REJECTED: &str = "rejected";
    /// Attribute with the signal of an export.
    pub const SIGNAL: &str = "signal";
    /// Attribute with the reason of a drop.
    pub const REASON: &str = "reason";
}

/// Metric names of the conventions for generative AI.
pub mod inference {
    /// Seconds of a request on the side that answers.
    pub const SERVER_REQUEST_DURATION: &str = "gen_ai.server.request.duration";
    /// Tokens of a request.
    pub const CLIENT_TOKEN_USAGE: &str = "gen_ai.client.token.usage";
}

/// Metric names of a training run.
pub mod rl {
    /// Divergence of the policy from its reference.
    pub const KL_DIVERGENCE: &str = "rl.kl_divergence";
    /// Loss of the policy.
    pub const POLICY_LOSS: &str = "rl.policy_loss";
    /// Loss of the value function.
    pub const VALUE_LOSS: &str = "rl.value_loss";
    /// Entropy of the policy.
    pub const ENTROPY: &str = "rl.entropy";
    /// Mean length of responses.
    pub const RESPONSE_LENGTH_MEAN: &str = "rl.response_length.mean";
    /// Norm of the gradient of an update.
    pub const GRAD_NORM: &str = "rl.grad_norm";
    /// Learning rate in force.
    pub const LEARNING_RATE: &str = "rl.learning_rate";
    /// Training throughput.
    pub const TOKENS_PER_SECOND: &str = "rl.tokens_per_sec";
    /// One generation phase.
    pub const GENERATION_DURATION: &str = "rl.generation.duration_ms";
    /// One collection of rollouts.
    pub const ROLLOUT_DURATION: &str = "rl.rollout.duration_ms";
}

/// Metadata of column files: version of their schema.
pub const FILE_VERSION: &str = "lens.schema_version";
/// Metadata of column files: the attribute keys that have columns of their own, as a JSON array.
pub const FILE_PROMOTED: &str = "lens.promoted";
