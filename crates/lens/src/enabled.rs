//! The face with telemetry.

mod attribute_set;
mod attributes;
mod clock;
mod console;
mod context;
mod current;
pub mod detect;
mod diagnosis;
mod diagnostics;
mod fields;
mod future;
mod group;
mod guard;
mod handle;
mod hex;
mod ids;
mod limited;
mod live;
#[cfg(feature = "log")]
mod log_bridge;
pub mod logs;
mod message;
pub mod metrics;
mod moment;
#[cfg(feature = "opentelemetry")]
mod opentelemetry_api;
mod otlp;
mod outcome;
mod pipeline;
mod plain_baggage;
mod probe;
mod process;
mod propagation;
mod raw;
mod recording;
mod recover;
mod resource;
mod sampling;
mod span;
mod span_end;
mod strategy;
mod thread;
#[cfg(feature = "tracing")]
mod tracing_layer;
mod truncated;
mod value;

pub use attribute_set::AttributeSet;
pub use attributes::AttributeValue;
pub use clock::now_unix_nanos;
pub use context::{Context, ContextGuard, SpanContext, promote_baggage_keys};
pub use future::{InContext, InSpan, ResultFuture, SpanFuture};
pub use group::{
    ALWAYS, Group, GroupSelection, Preset, is_span_group_enabled, register, resolve_groups,
};
pub use guard::SpanGuard;
pub use handle::{
    Exporters, TelemetryHandle, current_handle, setup_telemetry, setup_telemetry_with,
    setup_telemetry_with_exporters,
};
pub use ids::{SpanId, TraceId};
#[cfg(feature = "log")]
pub use log_bridge::LogBridge;
pub use metrics::reader::MetricExporter;
pub use moment::Moment;
#[cfg(feature = "opentelemetry")]
pub use opentelemetry_api::{OpenTelemetryProvider, OpenTelemetrySpan, OpenTelemetryTracer};
pub use pipeline::leftovers;
pub use pipeline::{ExportOutcome, InMemorySpans, SpanBatch, SpanExporter};
pub use probe::probe;
pub use recover::{pipelines, spools};
pub use span::{Span, SpanBuilder};
pub use span_end::on_span_end;
pub use strategy::{export_decision, register_export_strategy};
#[cfg(feature = "tracing")]
pub use tracing_layer::TracingLayer;
pub use truncated::begin_truncation;
pub use value::Value;

#[doc(hidden)]
pub mod __private {
    pub use super::future::{trace_block, trace_future};
    pub use super::guard::{call, function_guard};
    pub use super::outcome::{Outcome, RecordAny, RecordError, RecordOpaqueError};
}

/// Takes what libraries say through `tracing` and `log` from now on, as far as the features of those names are on and
/// the program has no subscriber or logger of its own: spans in group `tracing`, records of level INFO and worse.
pub fn install_bridges() {
    #[cfg(feature = "tracing")]
    TracingLayer::new(tracing_core::Level::INFO).install();
    #[cfg(feature = "log")]
    // A logger that is there already stays.
    let _ = LogBridge::new(log::LevelFilter::Info, None).install();
}

/// Locks a mutex whose data stays meaningful after a panic of another holder.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
