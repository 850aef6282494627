//! Rollouts as rows: what percentiles, bands, stragglers, comparisons and policies work on.

mod row;

pub use row::{Kept, RolloutRow};
