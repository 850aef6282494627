//! Two selections of rollouts against each other, band by band.
//!
//! Three things are asked of each band: whether rollouts of one side usually spend more than those of the other (Mann and
//! Whitney's test of ranks), whether they spend more on average (Welch's test of means), and whether more of them spend very
//! much (Fisher's test of how many are above the 95th percentile of both together). All are corrected for how much was
//! asked, so that a comparison of like with like is empty.

use std::sync::Arc;

use super::aggregate::Aggregate;
use super::row::RolloutRow;
use super::statistics::{
    Factorials, MeanDifference, Spread, corrected, mean_difference, rank_test,
};
use crate::Band;

/// A difference is told when it is less likely than this by chance.
pub const LEVEL: f64 = 0.01;
/// A shift that is in fewer than so many of a hundred pairs is told only when it is in the tail.
const LEAST_SHIFT: f64 = 0.06;
/// A mean that differs by less than this part of itself is told only when something else differs.
const LEAST_OF_MEAN: f64 = 0.05;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Wall clock without the wait for a slot.
    Duration,
    /// A band.
    Band(Band),
}

impl Measure {
    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Duration => "duration",
            Self::Band(band) => band.name(),
        }
    }

    fn of(self, row: &RolloutRow) -> u64 {
        match self {
            Self::Duration => row.duration_nanos(),
            Self::Band(band) => row.bands[band],
        }
    }
}

/// One measure on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Of what.
    pub measure: Measure,
    /// Nanoseconds in the rollouts of the first side.
    pub a: Spread,
    /// In those of the second.
    pub b: Spread,
    /// Of the means, nanoseconds.
    pub means: MeanDifference,
    /// In which part of pairs the rollout of the second side has more; equal ones count half.
    pub larger_in: f64,
    /// How likely a shift like this is by chance.
    pub shift_chance: f64,
    /// The 95th percentile of the side on which it is lower.
    pub high_nanos: u64,
    /// Which parts of the sides are above it.
    pub above: (f64, f64),
    /// How likely parts above the 95th percentile of both sides together that differ like this are by chance.
    pub tail_chance: f64,
}

impl Change {
    /// Rollouts of one side usually spend more.
    pub fn is_shift(&self) -> bool {
        self.shift_chance < LEVEL && (self.larger_in - 0.5).abs() >= LEAST_SHIFT
    }

    /// More rollouts of one side spend very much.
    pub fn is_tail(&self) -> bool {
        self.tail_chance < LEVEL
    }

    /// Rollouts of one side spend more on average.
    pub fn is_mean(&self) -> bool {
        self.means.chance < LEVEL
    }

    /// Whether it is worth telling.
    pub fn is_difference(&self) -> bool {
        let is_small = (self.larger_in - 0.5).abs() < LEAST_SHIFT && !self.is_tail();
        let of_mean = self.means.difference.abs() / self.a.mean.max(1.0);
        self.is_shift()
            || self.is_tail()
            || self.is_mean() && !(is_small && of_mean < LEAST_OF_MEAN)
    }

    /// How likely the least likely of what is told is by chance.
    pub fn chance(&self) -> f64 {
        self.shift_chance.min(self.tail_chance).min(self.means.chance)
    }
}

/// How many rollouts ended in some way.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeChange {
    /// How.
    pub outcome: Arc<str>,
    /// So many of the first side.
    pub a: usize,
    /// So many of the second.
    pub b: usize,
    /// How likely counts that differ like this are by chance.
    pub chance: f64,
}

/// Two selections.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The first, summed up.
    pub a: Aggregate,
    /// The second.
    pub b: Aggregate,
    /// Every measure that any rollout has, the duration first.
    pub measures: Vec<Change>,
    /// Every outcome that occurs.
    pub outcomes: Vec<OutcomeChange>,
}

impl Comparison {
    /// Of two selections.
    pub fn of(a: &[RolloutRow], b: &[RolloutRow]) -> Self {
        let (all_a, all_b) = (Aggregate::of(a), Aggregate::of(b));
        let factorials = Factorials::up_to(a.len() + b.len());
        let measures = std::iter::once(Measure::Duration).chain(Band::ALL.map(Measure::Band));
        let mut measures: Vec<Change> =
            measures.map(|measure| change(measure, a, b, &factorials)).collect();
        measures.retain(|change| change.a.max > 0 || change.b.max > 0);
        let mut outcomes = outcomes(&all_a, &all_b, &factorials);

        let chances = measures.iter_mut().flat_map(|change| {
            let Change { shift_chance, tail_chance, means, .. } = change;
            [shift_chance, tail_chance, &mut means.chance]
        });
        correct(chances.collect());
        correct(outcomes.iter_mut().map(|outcome| &mut outcome.chance).collect());
        Self { a: all_a, b: all_b, measures, outcomes }
    }

    /// What differs, by how much of the mean it is, most first; the duration before its bands.
    pub fn differences(&self) -> Vec<&Change> {
        let mut found: Vec<&Change> =
            self.measures.iter().filter(|change| change.is_difference()).collect();
        found.sort_by(|one, other| {
            let rank = |change: &Change| change.measure != Measure::Duration;
            let by = other.means.difference.abs().total_cmp(&one.means.difference.abs());
            rank(one).cmp(&rank(other)).then(by)
        });
        found
    }

    /// Outcomes that are more or less frequent.
    pub fn outcome_differences(&self) -> Vec<&OutcomeChange> {
        self.outcomes.iter().filter(|outcome| outcome.chance < LEVEL).collect()
    }

    /// Whether the sides do not differ.
    pub fn is_empty(&self) -> bool {
        self.differences().is_empty() && self.outcome_differences().is_empty()
    }
}

fn correct(mut chances: Vec<&mut f64>) {
    let mut values: Vec<f64> = chances.iter().map(|chance| **chance).collect();
    corrected(&mut values);
    for (chance, value) in chances.iter_mut().zip(values) {
        **chance = value;
    }
}

fn change(measure: Measure, a: &[RolloutRow], b: &[RolloutRow], factorials: &Factorials) -> Change {
    let values = |rows: &[RolloutRow]| -> Vec<u64> {
        rows.iter().filter(|row| !row.time_suspect).map(|row| measure.of(row)).collect()
    };
    let (mut a, mut b) = (values(a), values(b));
    let (spread_a, spread_b) = (Spread::of(&mut a), Spread::of(&mut b));
    let means = mean_difference(&a, &b);
    let (larger_in, shift_chance) = rank_test(&a, &b);
    let above =
        |values: &[u64], bound: u64| values.len() - values.partition_point(|value| *value <= bound);
    let both = Spread::of(&mut [a.as_slice(), b.as_slice()].concat()).p95;
    let (high_a, high_b) = (above(&a, both), above(&b, both));
    let tail_chance = factorials.chance_of_a_difference(high_a, a.len(), high_b, b.len());
    let high_nanos = spread_a.p95.min(spread_b.p95);
    let part = |values: &[u64]| above(values, high_nanos) as f64 / values.len().max(1) as f64;
    Change {
        measure,
        a: spread_a,
        b: spread_b,
        means,
        larger_in,
        shift_chance,
        high_nanos,
        above: (part(&a), part(&b)),
        tail_chance,
    }
}

fn outcomes(a: &Aggregate, b: &Aggregate, factorials: &Factorials) -> Vec<OutcomeChange> {
    let count = |all: &Aggregate, outcome: &Arc<str>| {
        all.outcomes.iter().find(|(known, _)| known == outcome).map_or(0, |(_, count)| *count)
    };
    let mut names: Vec<&Arc<str>> =
        a.outcomes.iter().chain(&b.outcomes).map(|(outcome, _)| outcome).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|outcome| {
            let (in_a, in_b) = (count(a, outcome), count(b, outcome));
            let chance = factorials.chance_of_a_difference(in_a, a.rollouts, in_b, b.rollouts);
            OutcomeChange { outcome: Arc::clone(outcome), a: in_a, b: in_b, chance }
        })
        .collect()
}
