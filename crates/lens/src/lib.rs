//! Spans, metrics and logs that cost nothing when off.
//!
//! Libraries link this crate without features and write their sites against it; only a program turns on the
//! feature `enable`. Without it every item below still exists, holds no data and does nothing, and
//! `lens-macros` is the only dependency. With it, a site whose [`Group`] is off costs one relaxed load.
//!
//! # In libraries
//!
//! ```
//! use lens::{Group, InSpan, Span, managed_span};
//!
//! static FETCH: Group = Group::new("fetch");
//! const SIZE: &str = "example.size";
//!
//! fn parse(bytes: &[u8]) -> Result<usize, std::num::ParseIntError> {
//!     managed_span!(FETCH, "parse", SIZE = bytes.len() => "42".parse())
//! }
//!
//! async fn fetch() {
//!     let mut span = Span::start(&FETCH, "fetch");
//!     span.set(SIZE, 3);
//!     async { parse(b"42").ok() }.in_span(span).await;
//! }
//! ```
//!
//! # In applications
//!
//! Resolve a [`config::LensConfig`], call [`setup_telemetry`] once, keep the [`TelemetryHandle`] and shut it
//! down at the end.
//!
//! # Guarantees
//!
//! Instrumentation never panics, blocks or returns an error into its caller: it degrades and counts, and
//! [`TelemetryHandle::snapshot`] says what became of every ended span.

pub mod config;
pub mod env_vars;
pub mod instruments;
pub mod semconv;

mod log_record;
mod macros;
mod probe;
mod severity;
mod spool;

#[cfg(not(feature = "enable"))]
mod disabled;
#[cfg(not(feature = "enable"))]
pub use disabled::*;

#[cfg(feature = "enable")]
mod enabled;
#[cfg(feature = "enable")]
pub use enabled::*;

pub use lens_macros::trace_fn;
pub use probe::{Delivery, Probe};
pub use spool::{Leftover, PipelineState, Spool};

/// Whether this build contains telemetry at all (the feature `enable`).
pub const COMPILED_IN: bool = cfg!(feature = "enable");

/// What a span describes, seen from its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// Work inside one process.
    #[default]
    Internal,
    /// The handling of a remote request.
    Server,
    /// A request to a remote service, until its answer has been read.
    Client,
    /// The creation of a message that is handled later.
    Producer,
    /// The handling of a message made by a producer.
    Consumer,
}

/// What became of every span that ended, by count.
///
/// `ended == exported + rejected + dropped + spooled + queued` once producers pause; before that `queued` may briefly count
/// a span that is already on its way out, never the other way round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineSnapshot {
    /// Spans that ended while recording.
    pub ended: u64,
    /// Spans acknowledged by every exporter.
    pub exported: u64,
    /// Spans that a receiver refused.
    pub rejected: u64,
    /// Spans lost here, by reason (see [`semconv::drop_reason`]); only reasons that occurred.
    pub dropped: Vec<(&'static str, u64)>,
    /// Spans that are safe in a file and will be sent when the receiver is back, or by the next start.
    pub spooled: u64,
    /// Spans that wait for export or are in flight.
    pub queued: u64,
    /// Spans of dead processes that were delivered from here; they ended elsewhere.
    pub recovered: u64,
    /// Spans of dead processes that a receiver refused, or that could not be read.
    pub unrecovered: u64,
    /// Long-lived spans that are lost if the process ends inside them: there was no room for more start records.
    pub unrecorded: u64,
    /// Bytes of the buffer.
    pub buffer_bytes: u64,
    /// The share of the buffer that is in use, 0 to 1.
    pub buffer_fill: f64,
    /// Exports that failed or were refused.
    pub export_failures: u64,
}

impl PipelineSnapshot {
    /// Spans lost here for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }
}

/// Why telemetry did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// This process has already set telemetry up.
    AlreadySetUp,
    /// The program was built without the feature `enable`.
    NotCompiledIn,
    /// An exporter could not be made from its settings.
    Exporter {
        /// What is wrong with which setting.
        reason: String,
    },
    /// A thread of the pipeline could not be started.
    Thread {
        /// What the operating system said.
        reason: String,
    },
    /// There is no memory for the buffer.
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What the operating system said.
        reason: String,
    },
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AlreadySetUp => {
                formatter.write_str("telemetry is already set up in this process")
            }
            Self::NotCompiledIn => formatter
                .write_str("this program was built without telemetry (feature `enable` of lens)"),
            Self::Exporter { reason } => {
                write!(formatter, "the exporter cannot be built: {reason}")
            }
            Self::Thread { reason } => {
                write!(formatter, "a telemetry thread cannot be started: {reason}")
            }
            Self::Memory { bytes, reason } => {
                write!(formatter, "there is no memory for a buffer of {bytes} bytes: {reason}")
            }
        }
    }
}

impl std::error::Error for SetupError {}
