//! Every attribute, span, event and metric name that Gym emits.
//!
//! Names of attributes and baggage entries are flat constants; [`span`], [`event`], [`metric`],
//! [`unit`] and [`value`] hold the rest, so that a call site reads `semconv::span::VERIFY`.
//! Names under `http.`, `url.`, `server.`, `network.`, `client.` and `error.` are those of the
//! stable OpenTelemetry HTTP conventions; `gen_ai.` those of the generative-AI conventions.

/// Instrumentation scope of Gym's spans and metrics.
pub const SCOPE: &str = "nemo.gym";

// --- the rollout: on every span of a rollout, and in baggage between Gym servers ---

/// Wire form of the rollout's id (`<task>-<rollout>`, `-a<n>` on later attempts).
pub const ROLLOUT_ID: &str = "nemo.gym.rollout.id";
/// Index of the input row.
pub const TASK_INDEX: &str = "nemo.gym.task.index";
/// Index of the repeat of a task.
pub const ROLLOUT_INDEX: &str = "nemo.gym.rollout.index";
/// Index of the dispatch of a rollout, 0 for the first.
pub const ATTEMPT_INDEX: &str = "nemo.gym.attempt.index";
/// Id of one `gym eval run`, 12 hex digits, kept when it is resumed.
pub const COLLECTION_ID: &str = "nemo.gym.collection.id";
/// How a rollout ended: one of [`value::outcome`].
pub const ROLLOUT_OUTCOME: &str = "nemo.gym.rollout.outcome";
/// Nanoseconds a rollout waited for a slot before it was dispatched.
pub const ADMISSION_WAIT_NANOS: &str = "nemo.gym.admission.wait_nanos";

/// The baggage entries that become attributes of every span started under them.
pub const PROMOTED_BAGGAGE: &[&str] =
    &[ROLLOUT_ID, TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, COLLECTION_ID];

/// Eight hex digits that differ between sessions; not the session's id, which is a secret.
pub const SESSION_MARK: &str = "nemo.gym.session.mark";
/// The rollout had another session with this server before.
pub const SESSION_CHANGED: &str = "nemo.gym.session.changed";

// --- the process ---

/// Name of the instance, e.g. `policy_model`.
pub const SERVER_NAME: &str = "nemo.gym.server.name";
/// `resources_servers`, `responses_api_models`, `responses_api_agents` or `orchestrator`.
pub const SERVER_TYPE: &str = "nemo.gym.server.type";
/// `service.name` without the instance's suffix.
pub const SERVICE_GROUP: &str = "nemo.gym.service_group";
/// Version of this software.
pub const GYM_VERSION: &str = "nemo.gym.version";
/// Id shared by every process of one fleet.
pub const RUN_ID: &str = "nemo.run.id";
/// Who runs it, when that was given.
pub const USER_ID: &str = "nemo.user.id";
/// OpenTelemetry resource attribute `service.name`.
pub const SERVICE_NAME: &str = "service.name";
/// OpenTelemetry resource attribute `service.version`.
pub const SERVICE_VERSION: &str = "service.version";
/// OpenTelemetry resource attribute `deployment.environment`.
pub const DEPLOYMENT_ENVIRONMENT: &str = "deployment.environment";
/// Weights & Biases entity.
pub const WANDB_ENTITY: &str = "wandb.entity";
/// Weights & Biases project.
pub const WANDB_PROJECT: &str = "wandb.project";
/// Id of a process.
pub const PROCESS_PID: &str = "process.pid";
/// Percent of one core that the process used, over the interval that ended with the span.
pub const CPU_PERCENT: &str = "nemo.gym.cpu.percent";
/// Index of a GPU, as `nvidia-smi` counts.
pub const GPU_INDEX: &str = "nemo.gym.gpu.index";
/// UUID of a GPU.
pub const GPU_UUID: &str = "nemo.gym.gpu.uuid";
/// How memory is counted: one of [`value::memory_type`].
pub const MEMORY_TYPE: &str = "memory.type";
/// Stage of a start-up.
pub const STARTUP_STAGE: &str = "nemo.gym.startup.stage";

// --- HTTP, stable conventions ---

/// Method, upper case.
pub const HTTP_REQUEST_METHOD: &str = "http.request.method";
/// The method as sent, when it is none of the known ones.
pub const HTTP_REQUEST_METHOD_ORIGINAL: &str = "http.request.method_original";
/// How many times a request was sent again; absent when it was sent once.
pub const HTTP_REQUEST_RESEND_COUNT: &str = "http.request.resend_count";
/// Bytes of a request body.
pub const HTTP_REQUEST_BODY_SIZE: &str = "http.request.body.size";
/// Bytes of a response body.
pub const HTTP_RESPONSE_BODY_SIZE: &str = "http.response.body.size";
/// Status code of the response.
pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
/// Template of the matched route.
pub const HTTP_ROUTE: &str = "http.route";
/// Absolute URL without query, fragment and credentials.
pub const URL_FULL: &str = "url.full";
/// Path of the request.
pub const URL_PATH: &str = "url.path";
/// `http` or `https`.
pub const URL_SCHEME: &str = "url.scheme";
/// Host that was called, or that answers.
pub const SERVER_ADDRESS: &str = "server.address";
/// Port that was called, or that answers.
pub const SERVER_PORT: &str = "server.port";
/// Address of the caller.
pub const CLIENT_ADDRESS: &str = "client.address";
/// Address of the other end of the socket.
pub const NETWORK_PEER_ADDRESS: &str = "network.peer.address";
/// Port of the other end of the socket.
pub const NETWORK_PEER_PORT: &str = "network.peer.port";
/// `1.1`, `2`, …
pub const NETWORK_PROTOCOL_VERSION: &str = "network.protocol.version";
/// The caller's `User-Agent`.
pub const USER_AGENT_ORIGINAL: &str = "user_agent.original";
/// Low-cardinality class of a failure: a status code or an error's type.
pub const ERROR_TYPE: &str = "error.type";

// --- HTTP, what the conventions do not name ---

/// Nanoseconds spent waiting for a pooled connection.
pub const HTTP_POOL_WAIT_NANOS: &str = "nemo.gym.http.pool_wait_nanos";
/// Nanoseconds spent connecting (0 on a kept-alive connection).
pub const HTTP_CONNECT_NANOS: &str = "nemo.gym.http.connect_nanos";
/// Nanoseconds from the request's last byte written to the response's first byte.
pub const HTTP_TIME_TO_FIRST_BYTE_NANOS: &str = "nemo.gym.http.time_to_first_byte_nanos";
/// Nanoseconds slept before an attempt.
pub const HTTP_BACKOFF_NANOS: &str = "nemo.gym.http.backoff_nanos";
/// Number of an attempt, 0 for the first.
pub const HTTP_ATTEMPT_INDEX: &str = "nemo.gym.http.attempt.index";
/// Why an attempt failed or was repeated: one of [`value::retry_reason`].
pub const HTTP_ATTEMPT_REASON: &str = "nemo.gym.http.retry_reason";
/// Instance that was called, when it is one of the fleet.
pub const HTTP_DESTINATION_SERVER_NAME: &str = "nemo.gym.http.destination.server.name";
/// Whether the peer is a Gym server, a model endpoint or a third party: [`value::destination`].
pub const HTTP_DESTINATION_KIND: &str = "nemo.gym.http.destination.kind";
/// The call was between Gym servers.
pub const HTTP_INTERNAL: &str = "nemo.gym.http.internal";
/// What an acquisition waited for: `total`, `per_host` or `unknown`.
pub const HTTP_POOL_QUEUE_CONSTRAINT: &str = "nemo.gym.http.connection_pool.queue_constraint";
/// How a queued acquisition ended: `ok` or `abandoned`.
pub const HTTP_POOL_ATTEMPT_OUTCOME: &str = "nemo.gym.http.connection_pool.attempt_outcome";
/// The caller went away or the work was dropped before it was done.
pub const CANCELLED: &str = "nemo.gym.cancelled";

// --- model calls ---

/// API shape of a model call: one of [`value::dialect`].
pub const MODEL_DIALECT: &str = "nemo.gym.model.dialect";
/// Nanoseconds the engine kept the request queued.
pub const MODEL_QUEUE_NANOS: &str = "nemo.gym.model.queue_nanos";
/// Nanoseconds the engine spent on prefill.
pub const MODEL_PREFILL_NANOS: &str = "nemo.gym.model.prefill_nanos";
/// Nanoseconds the engine spent on decode.
pub const MODEL_DECODE_NANOS: &str = "nemo.gym.model.decode_nanos";
/// Nanoseconds from the request to the first byte of the model's reply.
pub const MODEL_TIME_TO_FIRST_BYTE_NANOS: &str = "nemo.gym.model.time_to_first_byte_nanos";
/// What was asked of the model: [`value::OPERATION_CHAT`].
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// Who answers for the model: the implementation of the instance without `_model`.
pub const GEN_AI_PROVIDER_NAME: &str = "gen_ai.provider.name";
/// Which tokens were counted: one of [`value::token_type`].
pub const GEN_AI_TOKEN_TYPE: &str = "gen_ai.token.type";
/// Name of the requested model.
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// Name of the model that answered.
pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Why generation stopped, one entry a choice.
pub const GEN_AI_RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Input tokens.
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Output tokens.
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Seconds in the engine's queue, as vLLM exports them.
pub const GEN_AI_LATENCY_TIME_IN_QUEUE: &str = "gen_ai.latency.time_in_queue";
/// Seconds of prefill, as vLLM exports them.
pub const GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL: &str = "gen_ai.latency.time_in_model_prefill";
/// Seconds of decode, as vLLM exports them.
pub const GEN_AI_LATENCY_TIME_IN_MODEL_DECODE: &str = "gen_ai.latency.time_in_model_decode";

// --- the agent loop, concurrency, sandbox: shapes only ---

/// Model calls that an agent made.
pub const AGENT_STEPS: &str = "nemo.gym.agent.steps";
/// Tool calls that an agent made.
pub const AGENT_TOOL_CALLS: &str = "nemo.gym.agent.tool_calls";
/// Which semaphore a wait belongs to.
pub const CONCURRENCY_SITE: &str = "nemo.gym.concurrency.site";
/// Nanoseconds waited for a semaphore.
pub const CONCURRENCY_WAIT_NANOS: &str = "nemo.gym.concurrency.wait_nanos";
/// Sandbox provider.
pub const SANDBOX_PROVIDER: &str = "nemo.gym.sandbox.provider";
/// Exit code of a sandboxed command.
pub const SANDBOX_RETURN_CODE: &str = "nemo.gym.sandbox.return_code";
/// Class of a sandbox failure.
pub const SANDBOX_ERROR_TYPE: &str = "nemo.gym.sandbox.error_type";

// --- gym.job: the shape of a run ---

/// Rows read from the input.
pub const JOB_TASKS: &str = "nemo.gym.job.tasks";
/// Rollouts asked for.
pub const JOB_ROLLOUTS: &str = "nemo.gym.job.rollouts";
/// Rollouts that succeeded.
pub const JOB_ROLLOUTS_DONE: &str = "nemo.gym.job.rollouts_done";
/// Rollouts that failed.
pub const JOB_ROLLOUTS_FAILED: &str = "nemo.gym.job.rollouts_failed";
/// Rollouts that an earlier, resumed run had already collected.
pub const JOB_ROLLOUTS_SKIPPED: &str = "nemo.gym.job.rollouts_skipped";
/// Rollouts in flight at most.
pub const JOB_CONCURRENCY: &str = "nemo.gym.job.concurrency";

/// Span names.
pub mod span {
    /// A whole collection, driver side.
    pub const JOB: &str = "gym.job";
    /// The start of a fleet.
    pub const STARTUP: &str = "gym.startup";
    /// Child of [`STARTUP`]: configuration.
    pub const STARTUP_LOAD_CONFIG: &str = "load_config";
    /// Child of [`STARTUP`]: telemetry.
    pub const STARTUP_INIT_TELEMETRY: &str = "init_telemetry";
    /// Child of [`STARTUP`]: the head server.
    pub const STARTUP_START_HEAD_SERVER: &str = "start_head_server";
    /// Child of [`STARTUP`]: processes.
    pub const STARTUP_SPAWN_SERVERS: &str = "spawn_servers";
    /// Child of [`STARTUP`]: the head server answers.
    pub const STARTUP_WAIT_FOR_HEAD_SERVER: &str = "wait_for_head_server";
    /// Child of [`STARTUP`]: every instance answers.
    pub const STARTUP_WAIT_FOR_SERVERS: &str = "wait_for_servers";
    /// Child of [`STARTUP`]: model endpoints answer.
    pub const STARTUP_WAIT_FOR_MODEL_ENDPOINTS: &str = "wait_for_model_endpoints";
    /// One instance, from its spawn to its readiness.
    pub const STARTUP_SERVER: &str = "gym.startup.server";
    /// The start of a server, in the server itself.
    pub const SERVER_STARTUP: &str = "gym.server.startup";
    /// One dispatch of a rollout, driver side.
    pub const ROLLOUT_ATTEMPT: &str = "gym.rollout.attempt";
    /// A rollout in the agent's `/run`.
    pub const ROLLOUT: &str = "gym.rollout";
    /// The agent's `/v1/responses`.
    pub const AGENT_RESPONSES: &str = "gym.agent.responses";
    /// A model server's `/v1/responses`.
    pub const MODEL_RESPONSES: &str = "gym.model.responses";
    /// A model server's `/v1/chat/completions`.
    pub const MODEL_CHAT_COMPLETIONS: &str = "gym.model.chat_completions";
    /// A model server's `/v1/messages`.
    pub const MODEL_MESSAGES: &str = "gym.model.messages";
    /// A resources server's `/verify`.
    pub const VERIFY: &str = "gym.verify";
    /// Start of a sandbox.
    pub const SANDBOX_START: &str = "gym.sandbox.start";
    /// A command in a sandbox.
    pub const SANDBOX_EXEC: &str = "gym.sandbox.exec";
    /// CLIENT span of a `GET`.
    pub const HTTP_GET: &str = "HTTP GET";
    /// CLIENT span of a `POST`.
    pub const HTTP_POST: &str = "HTTP POST";

    /// Prefix of every span that Gym itself makes around its own work.
    pub const GYM_PREFIX: &str = "gym.";
    /// Prefix of the model spans; [`super::value::dialect`] follows.
    pub const MODEL_PREFIX: &str = "gym.model.";
    /// Prefix of the sandbox spans.
    pub const SANDBOX_PREFIX: &str = "gym.sandbox.";
    /// Prefix of CLIENT spans; the method follows.
    pub const HTTP_CLIENT_PREFIX: &str = "HTTP ";
}

/// Event names.
pub mod event {
    /// One attempt of a CLIENT span, stamped at its start.
    pub const HTTP_ATTEMPT: &str = "nemo.gym.http.attempt";

    // Of log records; those about open spans are lens's.

    /// Something that people are told, too: a retry, a refusal, a setting that is ignored.
    pub const NOTICE: &str = "gym.notice";
    /// A request is going to be sent again; told as it happens, where live events are on.
    pub const RETRY: &str = "gym.retry";
    /// A rollout that failed or took too long.
    pub const ROLLOUT_FAILED: &str = "gym.rollout.failed";
}

/// Metric names.
pub mod metric {
    /// Histogram, ms: agent `/run`.
    pub const ROLLOUT_DURATION: &str = "gym.rollout.duration_ms";
    /// Counter: rollouts by outcome.
    pub const ROLLOUT_COMPLETED: &str = "gym.rollout.completed_total";
    /// Up-down counter: rollouts that the driver has under way.
    pub const ROLLOUT_IN_FLIGHT: &str = "gym.rollout.in_flight";
    /// Histogram, ms: `/verify`.
    pub const VERIFY_DURATION: &str = "gym.verify.duration_ms";
    /// Gauge: share of verifications that completed.
    pub const VERIFY_SUCCESS_RATE: &str = "gym.verify.success_rate";
    /// Gauge: servers that the supervisor runs.
    pub const SERVERS_ACTIVE: &str = "gym.servers.active";
    /// Histogram, ms: start of a server.
    pub const SERVER_STARTUP_DURATION: &str = "gym.server.startup_duration_ms";
    /// Histogram, ms: one stage of a start.
    pub const SERVER_STARTUP_STAGE_DURATION: &str = "gym.server.startup_stage_duration_ms";
    /// Histogram, ms: a model call.
    pub const MODEL_CALL_DURATION: &str = "gym.model.call_duration_ms";
    /// Histogram, ms: first byte of a model call's reply.
    pub const MODEL_TIME_TO_FIRST_BYTE: &str = "gym.model.time_to_first_byte_ms";
    /// Histogram, ms: wait for a semaphore.
    pub const CONCURRENCY_QUEUE_WAIT: &str = "gym.concurrency.queue_wait_duration_ms";
    /// Histogram, ms: wait for a pooled connection.
    pub const HTTP_POOL_QUEUE: &str = "gym.http.connection_pool.queue_duration_ms";
    /// Observable counter: connections made.
    pub const HTTP_POOL_CONNECT_TOTAL: &str = "gym.http.connection_pool.connect_total";
    /// Counter: attempts repeated.
    pub const HTTP_RETRY_TOTAL: &str = "gym.http.retry_total";
    /// Counter: requests that ran out of time.
    pub const HTTP_TIMEOUT_TOTAL: &str = "gym.http.timeout_total";
    /// Histogram, s: a request on the server.
    pub const HTTP_SERVER_REQUEST_DURATION: &str = "http.server.request.duration";
    /// Up-down counter: requests that a server has under way.
    pub const HTTP_SERVER_ACTIVE_REQUESTS: &str = "http.server.active_requests";
    /// Histogram, By: request bodies.
    pub const HTTP_SERVER_REQUEST_BODY_SIZE: &str = "http.server.request.body.size";
    /// Histogram, By: response bodies.
    pub const HTTP_SERVER_RESPONSE_BODY_SIZE: &str = "http.server.response.body.size";
    /// Histogram, s: a request on the client.
    pub const HTTP_CLIENT_REQUEST_DURATION: &str = "http.client.request.duration";

    /// Up-down counter: sandboxes that run.
    pub const SANDBOX_ACTIVE: &str = "gym.sandbox.active";
    /// Histogram, ms: start of a sandbox.
    pub const SANDBOX_STARTUP_DURATION: &str = "gym.sandbox.startup_duration_ms";
    /// Histogram, ms: a command in a sandbox.
    pub const SANDBOX_EXEC_DURATION: &str = "gym.sandbox.exec_duration_ms";
    /// Counter: sandboxes whose making was tried again.
    pub const SANDBOX_CREATE_RETRY: &str = "gym.sandbox.create_retry_total";
}

/// Names of sampled metrics: of the process, its host and its servers.
pub mod sampled {
    /// Gauge, By: memory of a server's process tree.
    pub const SERVER_MEMORY_USAGE: &str = "gym.server.memory.usage";
    /// Gauge, By: the most that any sample of it showed.
    pub const SERVER_MEMORY_SAMPLED_PEAK: &str = "gym.server.memory.sampled_peak";
    /// Gauge: processes of a server.
    pub const SERVER_PROCESSES: &str = "gym.server.processes";
    /// Gauge, By: memory of the host in use.
    pub const HOST_MEMORY_USED: &str = "gym.host.memory_used";
    /// Gauge, By: memory of the host that can be had without swapping.
    pub const HOST_MEMORY_AVAILABLE: &str = "gym.host.memory_available";
    /// Gauge, By: memory of the host.
    pub const HOST_MEMORY_TOTAL: &str = "gym.host.memory_total";
    /// Gauge, MiB: memory of the host in use, read at the end of a span.
    pub const HOST_MEMORY_USED_MIB: &str = "gym.host.memory_used_mib";
    /// Gauge, MiB: memory of the host, read at the end of a span.
    pub const HOST_MEMORY_TOTAL_MIB: &str = "gym.host.memory_total_mib";
    /// Gauge, %: CPU of the process; 100 is one core.
    pub const PROCESS_CPU_PERCENT: &str = "gym.process.cpu.percent";
    /// Gauge, %: time in which a GPU computed.
    pub const GPU_UTILIZATION: &str = "gym.process.gpu.utilization_percent";
    /// Gauge, MiB: memory of a GPU in use.
    pub const GPU_MEMORY_USED: &str = "gym.process.gpu.memory_used_mib";
    /// Gauge, MiB: memory of a GPU.
    pub const GPU_MEMORY_TOTAL: &str = "gym.process.gpu.memory_total_mib";
}

/// Units of metrics, UCUM.
pub mod unit {
    /// Milliseconds.
    pub const MILLIS: &str = "ms";
    /// Seconds.
    pub const SECONDS: &str = "s";
    /// Bytes.
    pub const BYTES: &str = "By";
    /// Mebibytes.
    pub const MEBIBYTES: &str = "MiBy";
    /// A share of a hundred.
    pub const PERCENT: &str = "%";
    /// Processes.
    pub const PROCESS: &str = "{process}";
    /// A share of one.
    pub const RATIO: &str = "1";
    /// Rollouts.
    pub const ROLLOUT: &str = "{rollout}";
    /// Sandboxes.
    pub const SANDBOX: &str = "{sandbox}";
    /// Servers.
    pub const SERVER: &str = "{server}";
    /// Requests.
    pub const REQUEST: &str = "{request}";
    /// Connections.
    pub const CONNECTION: &str = "{connection}";
    /// Attempts.
    pub const ATTEMPT: &str = "{attempt}";
}

/// Values of attributes that come from a closed list.
pub mod value {
    /// The server type of the supervisor and the driver.
    pub const ORCHESTRATOR: &str = "orchestrator";

    /// [`super::MEMORY_TYPE`].
    pub mod memory_type {
        /// Pages in memory; what processes share counts for each of them.
        pub const RSS: &str = "rss";
        /// The same, with what processes share divided among them.
        pub const PSS: &str = "pss";
    }

    /// [`super::SANDBOX_ERROR_TYPE`].
    pub mod sandbox_error {
        /// It could not be made.
        pub const CREATE: &str = "create_failed";
        /// The command could not be started.
        pub const SPAWN: &str = "spawn_failed";
        /// The command could not be followed.
        pub const WAIT: &str = "wait_failed";
        /// The wall clock of the command was up.
        pub const TIMEOUT: &str = "timeout";
        /// The CPU time of the command was up.
        pub const CPU_LIMIT: &str = "cpu_limit";
        /// A signal ended the command.
        pub const SIGNAL: &str = "signal";
    }

    /// [`super::ROLLOUT_OUTCOME`].
    pub mod outcome {
        /// It has a result.
        pub const SUCCESS: &str = "success";
        /// Environment or model failed.
        pub const FAILURE: &str = "failure";
        /// It ran out of time.
        pub const TIMEOUT: &str = "timeout";
        /// It was given up.
        pub const CANCELLED: &str = "cancelled";
    }

    /// [`super::MODEL_DIALECT`].
    pub mod dialect {
        /// `/v1/responses`.
        pub const RESPONSES: &str = "responses";
        /// `/v1/chat/completions`.
        pub const CHAT_COMPLETIONS: &str = "chat_completions";
        /// `/v1/messages`.
        pub const MESSAGES: &str = "messages";
    }

    /// [`super::GEN_AI_OPERATION_NAME`] of every model call.
    pub const OPERATION_CHAT: &str = "chat";

    /// [`super::GEN_AI_TOKEN_TYPE`].
    pub mod token_type {
        /// What the model read.
        pub const INPUT: &str = "input";
        /// What it wrote.
        pub const OUTPUT: &str = "output";
    }

    /// [`super::HTTP_DESTINATION_KIND`].
    pub mod destination {
        /// An instance of the fleet.
        pub const GYM: &str = "gym";
        /// A model endpoint.
        pub const MODEL: &str = "model";
        /// Anything else.
        pub const EXTERNAL: &str = "external";
    }

    /// [`super::HTTP_ATTEMPT_REASON`].
    pub mod retry_reason {
        /// Nobody listens, or the host cannot be reached.
        pub const REFUSED: &str = "refused";
        /// The connection broke.
        pub const RESET: &str = "reset";
        /// No connection, first byte or next byte in time.
        pub const TIMEOUT: &str = "timeout";
        /// The name has no address.
        pub const RESOLVE: &str = "resolve";
        /// The status of the reply is that of a failure.
        pub const STATUS: &str = "status";
        /// The reply is not HTTP.
        pub const PROTOCOL: &str = "protocol";
        /// Nobody waits for the reply any longer.
        pub const CANCELLED: &str = "cancelled";
    }

    /// [`super::CONCURRENCY_SITE`].
    pub mod concurrency_site {
        /// Rows that wait until the driver has a rollout less under way.
        pub const DRIVER_ADMISSION: &str = "driver_admission";
        /// Calls that wait for `max_concurrent_requests` of an `openai_model`.
        pub const MODEL_REQUESTS: &str = "model_requests";
    }

    /// [`super::HTTP_POOL_QUEUE_CONSTRAINT`].
    pub mod queue_constraint {
        /// The limit of all connections.
        pub const TOTAL: &str = "total";
        /// The limit of one host.
        pub const PER_HOST: &str = "per_host";
        /// Neither is known.
        pub const UNKNOWN: &str = "unknown";
    }

    /// [`super::HTTP_POOL_ATTEMPT_OUTCOME`].
    pub mod attempt_outcome {
        /// A connection came.
        pub const OK: &str = "ok";
        /// The caller went away first.
        pub const ABANDONED: &str = "abandoned";
    }
}
