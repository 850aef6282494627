//! Rollouts as rows: what percentiles, bands, stragglers, comparisons and policies work on.

mod document;
mod row;

pub use row::{Kept, RolloutRow};
