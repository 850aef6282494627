//! Rollouts that took much longer than the others of their prompt group.
//!
//! A rollout is held against the others of its group: their median, and how far they usually are from it (median absolute
//! deviation). Groups that vary much by nature have few stragglers that way, and one slow rollout of four does not move
//! what it is held against.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::row::RolloutRow;
use super::statistics::nearest_rank;
use crate::Band;

/// A deviation of a normal distribution is this many times its median absolute deviation.
const DEVIATION_OF_MEDIAN: f64 = 1.4826;

/// What makes a straggler: all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// It takes more than this many times the median of the others.
    pub factor: f64,
    /// It is further from that median than this many deviations of the others.
    pub deviations: f64,
    /// Rollouts that a group must have.
    pub min_group: usize,
    /// It takes at least this much longer than the median of the others.
    pub min_excess_nanos: u64,
}

impl Default for Rule {
    fn default() -> Self {
        Self { factor: 3.0, deviations: 5.0, min_group: 3, min_excess_nanos: 1_000_000 }
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// Index of its row.
    pub row: usize,
    /// Rollouts of its group.
    pub group: usize,
    /// Median duration of the others.
    pub typical_nanos: u64,
    /// How many times that it took.
    pub factor: f64,
    /// How much longer it took.
    pub excess_nanos: u64,
    /// The band that explains most of the excess.
    pub band: Band,
    /// What it spent there.
    pub band_nanos: u64,
    /// What the others spent there, median.
    pub band_typical_nanos: u64,
    /// Which part of the excess that is, 0 to 1.
    pub explains: f64,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stragglers {
    /// By what they took too long, most first.
    pub found: Vec<Straggler>,
    /// Groups that are large enough.
    pub groups: usize,
    /// Groups that are not.
    pub small_groups: usize,
    /// Rollouts that say no task, or have times that cannot be believed: they are in no group.
    pub without_group: usize,
}

/// Run, agent and task.
type Group<'a> = (&'a Arc<str>, &'a Arc<str>, i64);

/// Finds them. A prompt group is all rollouts of one task of one run by one agent.
pub fn stragglers(rows: &[RolloutRow], rule: &Rule) -> Stragglers {
    let mut groups: BTreeMap<Group<'_>, Vec<usize>> = BTreeMap::new();
    let mut all = Stragglers::default();
    for (at, row) in rows.iter().enumerate() {
        match row.task_index {
            Some(task) if !row.time_suspect => {
                groups.entry((&row.run, &row.agent, task)).or_default().push(at);
            }
            _ => all.without_group += 1,
        }
    }
    for members in groups.into_values() {
        if members.len() < rule.min_group.max(2) {
            all.small_groups += 1;
            continue;
        }
        all.groups += 1;
        of_group(rows, &members, rule, &mut all.found);
    }
    all.found.sort_by_key(|straggler| (Reverse(straggler.excess_nanos), straggler.row));
    all
}

fn of_group(rows: &[RolloutRow], members: &[usize], rule: &Rule, found: &mut Vec<Straggler>) {
    let mut sorted: Vec<u64> = members.iter().map(|&at| rows[at].duration_nanos()).collect();
    sorted.sort_unstable();
    let mut others: Vec<u64> = Vec::with_capacity(members.len());
    for &at in members {
        let own = rows[at].duration_nanos();
        // The median of the others without writing them down: most rollouts are none, and groups can be large.
        let place = sorted.partition_point(|other| *other < own);
        let middle = (sorted.len() - 1).div_ceil(2) - 1;
        let typical_nanos = sorted[middle + usize::from(middle >= place)];
        if own as f64 <= rule.factor * typical_nanos as f64 {
            continue;
        }
        others.clear();
        others.extend(sorted.iter().map(|other| other.abs_diff(typical_nanos)));
        others.remove(place);
        others.sort_unstable();
        let deviation = DEVIATION_OF_MEDIAN * nearest_rank(&others, 50) as f64;
        let excess_nanos = own.saturating_sub(typical_nanos);
        let is_straggler = excess_nanos as f64 > rule.deviations * deviation
            && excess_nanos >= rule.min_excess_nanos.max(1);
        if !is_straggler {
            continue;
        }
        let (band, band_nanos, band_typical_nanos) = explanation(rows, members, at);
        found.push(Straggler {
            row: at,
            group: members.len(),
            typical_nanos,
            factor: own as f64 / typical_nanos.max(1) as f64,
            excess_nanos,
            band,
            band_nanos,
            band_typical_nanos,
            // Less time elsewhere may make up for some of it.
            explains: ((band_nanos - band_typical_nanos) as f64 / excess_nanos as f64).min(1.0),
        });
    }
}

/// The band in which a rollout spent most beyond what the others usually do.
fn explanation(rows: &[RolloutRow], members: &[usize], at: usize) -> (Band, u64, u64) {
    let of_band = |band: Band| {
        let mut others: Vec<u64> = members
            .iter()
            .filter(|&&other| other != at)
            .map(|&other| rows[other].bands[band])
            .collect();
        others.sort_unstable();
        let typical = nearest_rank(&others, 50);
        (band, rows[at].bands[band].max(typical), typical)
    };
    let bands = Band::ALL.into_iter().filter(|band| *band != Band::Admission).map(of_band);
    bands.max_by_key(|(_, own, typical)| own - typical).unwrap_or((Band::Other, 0, 0))
}
