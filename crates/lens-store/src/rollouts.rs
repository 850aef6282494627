//! Rollouts as rows: what percentiles, bands, stragglers, comparisons and policies work on.

mod document;
mod row;
mod rows;

pub use row::{Kept, RolloutRow};
pub use rows::{is_time_suspect, row_of, rows_of, rows_of_spans};
