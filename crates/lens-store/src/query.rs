//! Questions about spans, in a part of TraceQL: which spans of which traces, and how many, how often and how long.
//!
//! A query is read once ([`Query::parse`]) and run over anything that has spans ([`Source`]), parts on disk as well as
//! spans that arrived a moment ago. Parts hand over spans that could be meant; what decides is one evaluator, over the
//! encoded spans of whole traces, so that an answer does not depend on where spans lie.
//!
//! # Guarantees
//!
//! * Reading and running end: nesting, size and patterns are bounded, and no input panics.
//! * What TraceQL has and this does not is refused by name and place, never ignored.
//! * Spans whose times cannot be believed are in no rate and no percentile; how many is told.

mod ast;
pub(crate) mod columns;
mod engine;
mod error;
mod lex;
mod metrics;
mod parse;
mod quantiles;
pub(crate) mod row;
mod search;
mod sources;
mod value;

#[cfg(test)]
mod tests;

pub use ast::{AttributeScope, Field, Metric, Query};
pub use columns::{Columns, Gathered};
pub use engine::{Filter, Looked, Measured, Part, Search, SearchOptions, Source};
pub use error::{Problem, QueryError};
pub use lex::duration;
pub use metrics::{Metrics, Point, Series, Window};
pub use quantiles::Method;
pub use row::Row;
pub use search::{Found, FoundSet, FoundSpan};
pub use sources::{Loaded, Stored};
pub use value::{Owned, Value};
