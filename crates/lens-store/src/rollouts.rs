//! Rollouts as rows: what percentiles, bands, stragglers, comparisons and policies work on.

pub mod aggregate;
pub mod compare;
mod document;
pub mod filter;
mod row;
mod rows;
pub mod runs;
pub mod shared;
pub mod statistics;
pub mod stragglers;

pub use aggregate::Aggregate;
pub use compare::Comparison;
pub use filter::Filter;
pub use row::{Kept, RolloutRow};
pub use rows::{is_time_suspect, row_of, rows_of, rows_of_spans};

#[cfg(test)]
mod tests;
