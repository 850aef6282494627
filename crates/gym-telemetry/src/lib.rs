//! Gym's telemetry: the `telemetry:` block, span groups, metrics and the hand-over to children.
//!
//! One pure function, [`resolve()`], decides every setting from an environment and a block; everything
//! else asks it. A process calls [`init_telemetry`] once and [`shutdown_telemetry`] at its end; the
//! one that starts others calls [`configure_telemetry_env`] first and applies the [`ChildEnv`] to
//! each of them.
//!
//! # Guarantees
//!
//! * Nothing here fails a server: a setting that cannot be used is said once and telemetry is off.
//! * The process environment is never changed.
//! * Secrets are never printed: not by `Debug`, not in [`Resolved::rows`], not in a warning.
//! * In a build without telemetry (feature `enable` of `lens` is off) everything is there and does
//!   nothing.

pub mod concurrency;
mod config;
pub mod env_vars;
pub mod groups;
mod handover;
pub mod host_memory;
mod lifecycle;
pub mod metrics;
mod notice;
mod origin;
mod pipeline;
mod probe;
mod resolve;
mod run_id;
mod sampling;
pub mod secret;
pub mod semconv;
pub mod spool;
mod suggest;

pub use config::{
    BOOL_EXPECTED, Exporter, LiveEvents, MemoryProfilingConfig, Protocol, TELEMETRY_KEY_NAME,
    TelemetryConfig, TelemetryConfigError, parse_bool, telemetry_config_from_global_config,
};
pub use groups as GymSpanGroup;
pub use handover::ChildEnv;
pub use lens::{TelemetryHandle, is_span_group_enabled};
pub use lifecycle::{
    DEFAULT_SHUTDOWN_TIMEOUT_MILLIS, configure_overflow_dir, configure_telemetry_env, environment,
    get_telemetry, init_telemetry, is_active, is_telemetry_env_enabled,
    is_telemetry_metrics_enabled, memory_profiling_config_from_env, settings, shutdown_telemetry,
};
pub use notice::{NoticeSink, mention, notice, record_warning, set_notice_sink};
pub use origin::{Origin, Sourced};
pub use probe::{export_warning, probe};
pub use resolve::{
    Fault, Otlp, OtlpSignal, Resolved, Row, Signal, SignalSettings, Standard, resolve,
    settings_table,
};
pub use run_id::RunId;
