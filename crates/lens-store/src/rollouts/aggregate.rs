//! Where the time of many rollouts went.
//!
//! Rollouts whose times cannot be believed are counted and in no sum and no percentile. Rollouts whose spans were let go
//! count like all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::row::{Kept, RolloutRow};
use super::statistics::Spread;
use crate::Band;

/// One band over many rollouts.
#[derive(Clone, Debug, PartialEq)]
pub struct BandShare {
    /// Which.
    pub band: Band,
    /// Its part of all wall clocks, 0 to 1.
    pub share: f64,
    /// Nanoseconds of each rollout.
    pub nanos: Spread,
    /// Index of the row that has most of it.
    pub most_in: usize,
}

/// Many rollouts summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// All of them.
    pub rollouts: usize,
    /// Those whose times cannot be believed.
    pub time_suspect: usize,
    /// Those whose spans were let go.
    pub let_go: usize,
    /// Those with a span that was cut off.
    pub truncated: usize,
    /// Those whose engine told longer times than its calls took.
    pub timings_scaled: usize,
    /// Those with clocks that were corrected.
    pub clock_corrected: usize,
    /// Spans of all.
    pub spans: u64,
    /// Failed spans of all.
    pub errors: u64,
    /// Requests of all that were sent again.
    pub retries: u64,
    /// How they ended, most first; an empty name is one that has not ended.
    pub outcomes: Vec<(Arc<str>, usize)>,
    /// Classes of failures, most first.
    pub error_types: Vec<(Arc<str>, usize)>,
    /// Wall clocks: what the bands add up to.
    pub wall_nanos: Spread,
    /// Wall clocks without the waits for a slot.
    pub duration_nanos: Spread,
    /// Index of the row with the longest wall clock.
    pub longest: usize,
    /// The bands in which any of them spent time, in the order of tables.
    pub bands: Vec<BandShare>,
}

impl Aggregate {
    /// Of these rollouts.
    pub fn of(rows: &[RolloutRow]) -> Self {
        let believed: Vec<(usize, &RolloutRow)> =
            rows.iter().enumerate().filter(|(_, row)| !row.time_suspect).collect();
        let count = |is: fn(&RolloutRow) -> bool| rows.iter().filter(|row| is(row)).count();
        let sum = |of: fn(&RolloutRow) -> u32| rows.iter().map(|row| u64::from(of(row))).sum();
        let spread = |of: &dyn Fn(&RolloutRow) -> u64| {
            Spread::of(&mut believed.iter().map(|(_, row)| of(row)).collect::<Vec<u64>>())
        };
        // The first of several that have as much.
        let most = |of: &dyn Fn(&RolloutRow) -> u64| {
            let most = believed.iter().rev().max_by_key(|(_, row)| of(row));
            most.map_or(0, |(at, _)| *at)
        };
        let wall_nanos = spread(&|row| row.wall_nanos);
        let bands = Band::ALL
            .into_iter()
            .map(|band| BandShare {
                band,
                share: 0.0,
                nanos: spread(&|row| row.bands[band]),
                most_in: most(&|row| row.bands[band]),
            })
            .filter(|share| share.nanos.max > 0)
            .map(|share| BandShare {
                share: share.nanos.total as f64 / (wall_nanos.total as f64).max(1.0),
                ..share
            })
            .collect();
        Self {
            rollouts: rows.len(),
            time_suspect: rows.len() - believed.len(),
            let_go: count(|row| row.kept == Kept::LetGo),
            truncated: count(|row| row.is_truncated),
            timings_scaled: count(|row| row.timings_scaled),
            clock_corrected: count(|row| row.clock_corrected),
            spans: sum(|row| row.spans),
            errors: sum(|row| row.errors),
            retries: sum(|row| row.retries),
            outcomes: counted(rows.iter().map(|row| &row.outcome)),
            error_types: counted(
                rows.iter().map(|row| &row.error_type).filter(|class| !class.is_empty()),
            ),
            wall_nanos,
            duration_nanos: spread(&RolloutRow::duration_nanos),
            longest: most(&|row| row.wall_nanos),
            bands,
        }
    }
}

/// How often each occurs, most first.
fn counted<'a>(texts: impl Iterator<Item = &'a Arc<str>>) -> Vec<(Arc<str>, usize)> {
    let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    let mut counts: Vec<_> =
        counts.into_iter().map(|(text, count)| (Arc::clone(text), count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}
