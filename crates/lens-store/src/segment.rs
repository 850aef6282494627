//! Column files: what is written once and read for ever.
//!
//! A segment's spans lie in one Parquet file sorted by (trace id, start); beside it are one row per trace, one row per
//! rollout, and an index of trace ids. Every file opens as it lies in pandas, polars, DuckDB, Spark, Trino and
//! ClickHouse, so nothing in it needs this program, and Arrow is not part of this module's face.
//!
//! # Guarantees
//!
//! * What is read back equals what was written, field by field. A span that the columns cannot say (repeated keys,
//!   bytes, NaN inside of lists, fields that nobody knows) is kept as it came in the column `otlp` beside its columns.
//!   The order of attributes is not kept.
//! * A file that is damaged is an error of that file, never a panic.

mod bounds;
pub(crate) mod coded;
mod column;
mod encode;
mod file;
mod index;
mod intern;
mod ints;
mod json;
mod logs;
pub(crate) mod measure;
mod origins;
mod points;
mod read;
mod rebuild;
mod rollouts;
mod scan;
mod schema;
mod span_columns;
mod spans;
mod table;
mod traces;

pub use index::TraceIndex;
pub use logs::{read_logs, write_logs};
pub use points::{read_points, write_points};
pub use read::{SpanReader, Spans};
pub(crate) use rebuild::kind_number;
pub(crate) use rollouts::read_rollout_traces;
pub use rollouts::{read_rollouts, write_rollouts};
pub(crate) use scan::{any_json, status_of};
pub use spans::{SpanBuffers, SpanFacts, SpanOptions, SpanWriter, write_spans};
pub use traces::{TraceRow, read_traces, write_traces};

/// Why a column file cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The medium failed.
    #[error("cannot read or write a column file")]
    Io(#[from] std::io::Error),
    /// The bytes are no column file, or not one of this kind.
    #[error("a column file is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A column is missing, or has another type or values than it must have.
    #[error("a column file has no valid column {0}")]
    Column(&'static str),
    /// A span cannot be read.
    #[error("a span is malformed")]
    Span(#[from] lens_otlp::DecodeError),
    /// Rows came in another order than that of the file.
    #[error("rows are not in the order of the file")]
    Order,
}

impl From<parquet::errors::ParquetError> for SegmentError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Damaged(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
