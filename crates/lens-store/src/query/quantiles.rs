//! Quantiles: exact while there are few numbers, then by a histogram whose answers are off by less than half a percent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers of one group that are all kept.
const MAX_EXACT: usize = 1_000_000;
/// Bits of a number below its highest that tell buckets apart: 128 buckets for each doubling.
const SUB_BITS: u32 = 7;
/// Buckets of the numbers from 1 to 2^64: where nanoseconds and tokens are.
const NEAR: std::ops::Range<i64> = (1023 << SUB_BITS)..((1023 + 64) << SUB_BITS);
/// From so many numbers on those buckets are a table, which takes no more than two bytes a number.
const MANY: u64 = 1 << 15;

/// How an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// From all numbers.
    Exact,
    /// From the numbers' buckets.
    Histogram,
}

/// Numbers of one group.
#[derive(Clone, Debug)]
pub(crate) enum Quantiles {
    Exact(Vec<f64>),
    Histogram(Histogram),
}

/// How many numbers are in each bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    total: u64,
    /// Those of [`NEAR`], once there are many.
    near: Option<Box<[u64]>>,
    others: BTreeMap<i64, u64>,
}

impl Default for Quantiles {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

impl Histogram {
    #[inline]
    fn add(&mut self, bucket: i64, count: u64) {
        self.total += count;
        let place = self.near.as_deref_mut().and_then(|near| {
            // What is below is far above as a number without sign.
            near.get_mut(bucket.wrapping_sub(NEAR.start) as usize)
        });
        if let Some(place) = place {
            *place += count;
            return;
        }
        *self.others.entry(bucket).or_insert(0) += count;
        if self.total >= MANY && self.near.is_none() {
            self.make_table();
        }
    }

    #[cold]
    fn make_table(&mut self) {
        let mut near = vec![0; (NEAR.end - NEAR.start) as usize].into_boxed_slice();
        self.others.retain(|bucket, count| {
            let is_near = NEAR.contains(bucket);
            if is_near {
                near[(*bucket - NEAR.start) as usize] = *count;
            }
            !is_near
        });
        self.near = Some(near);
    }

    /// Buckets that have numbers, by these.
    fn buckets(&self) -> impl Iterator<Item = (i64, u64)> {
        let others = |range| self.others.range::<i64, _>(range).map(|(at, count)| (*at, *count));
        let near = self.near.iter().flat_map(|near| NEAR.zip(near.iter().copied()));
        let below = others((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(NEAR.end)));
        let above = others((std::ops::Bound::Included(NEAR.end), std::ops::Bound::Unbounded));
        // Where there is a table, the others below its end are below its begin.
        below.chain(near).chain(above).filter(|(_, count)| *count > 0)
    }
}

impl Quantiles {
    /// Takes in a number; what is no number is left out.
    #[inline]
    pub(crate) fn add(&mut self, number: f64) {
        if number.is_nan() {
            return;
        }
        match self {
            Self::Exact(numbers) => {
                numbers.push(number);
                if numbers.len() > MAX_EXACT {
                    self.condense();
                }
            }
            Self::Histogram(histogram) => histogram.add(bucket(number), 1),
        }
    }

    /// Takes in some numbers, all of which are some.
    pub(crate) fn extend(&mut self, numbers: impl Iterator<Item = f64>) {
        match self {
            Self::Exact(known) => {
                known.extend(numbers);
                if known.len() > MAX_EXACT {
                    self.condense();
                }
            }
            Self::Histogram(histogram) => {
                numbers.for_each(|number| histogram.add(bucket(number), 1));
            }
        }
    }

    /// Takes in the numbers of another part.
    pub(crate) fn merge(&mut self, mut other: Self) {
        if let (Self::Exact(numbers), Self::Exact(more)) = (&mut *self, &mut other) {
            numbers.append(more);
            if numbers.len() > MAX_EXACT {
                self.condense();
            }
            return;
        }
        self.condense();
        other.condense();
        if let (Self::Histogram(own), Self::Histogram(more)) = (self, &other) {
            more.buckets().for_each(|(bucket, count)| own.add(bucket, count));
        }
    }

    /// Keeps the buckets of the numbers only.
    #[cold]
    pub(crate) fn condense(&mut self) {
        if let Self::Exact(numbers) = self {
            let mut histogram = Histogram::default();
            histogram.make_table();
            numbers.iter().for_each(|number| histogram.add(bucket(*number), 1));
            if histogram.total < MANY {
                histogram.others = histogram.buckets().collect();
                histogram.near = None;
            }
            *self = Self::Histogram(histogram);
        }
    }

    /// Numbers that are all kept.
    pub(crate) fn kept(&self) -> usize {
        match self {
            Self::Exact(numbers) => numbers.len(),
            Self::Histogram(_) => 0,
        }
    }

    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Exact(_) => Method::Exact,
            Self::Histogram(_) => Method::Histogram,
        }
    }

    /// The smallest number that at least this share of all are not above; nothing of no numbers.
    pub(crate) fn at(&mut self, share: f64) -> Option<f64> {
        match self {
            Self::Exact(numbers) => {
                let rank = rank(share, numbers.len() as u64)? as usize;
                Some(*numbers.select_nth_unstable_by(rank, f64::total_cmp).1)
            }
            Self::Histogram(histogram) => {
                let mut left = rank(share, histogram.total)?;
                for (bucket, count) in histogram.buckets() {
                    if left < count {
                        return Some(middle(bucket));
                    }
                    left -= count;
                }
                None
            }
        }
    }
}

/// The place of a share among so many numbers, from 0.
fn rank(share: f64, total: u64) -> Option<u64> {
    let above = (share * total as f64).ceil() as u64;
    (total > 0).then(|| above.clamp(1, total) - 1)
}

/// The exponent and the first bits below it; buckets order as their numbers do.
#[inline]
fn bucket(number: f64) -> i64 {
    let magnitude = (number.abs().to_bits() >> (52 - SUB_BITS)) as i64;
    if number < 0.0 { -magnitude } else { magnitude }
}

fn middle(bucket: i64) -> f64 {
    let shift = 52 - SUB_BITS;
    let low = bucket.unsigned_abs() << shift;
    if low == 0 {
        return 0.0;
    }
    let number = f64::from_bits(low | 1 << (shift - 1));
    if bucket < 0 { -number } else { number }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_numbers_that_are_there() {
        let mut quantiles = Quantiles::default();
        assert_eq!(quantiles.at(0.5), None);
        (1..=10).rev().for_each(|number| quantiles.add(f64::from(number)));
        quantiles.add(f64::NAN);
        let at = [0.0, 0.1, 0.5, 0.91, 1.0].map(|share| quantiles.at(share).unwrap());
        assert_eq!(at, [1.0, 1.0, 5.0, 10.0, 10.0]);
    }

    #[test]
    fn more_than_a_million_numbers_become_a_histogram() {
        let mut quantiles = Quantiles::default();
        for number in 0..=MAX_EXACT {
            assert_eq!(quantiles.method(), Method::Exact);
            quantiles.add(number as f64);
        }
        assert_eq!((quantiles.method(), quantiles.kept()), (Method::Histogram, 0));
        let median = quantiles.at(0.5).unwrap();
        assert!((median / 500_000.0 - 1.0).abs() < 0.004, "{median}");
    }

    /// Guarantees: numbers inside and outside of the table keep their order.
    #[test]
    fn a_histogram_with_a_table_has_every_number_in_its_place() {
        let mut quantiles = Quantiles::default();
        let numbers = [-1e30, -3.0, 0.0, 0.25, 1.0, 1e9, 1.8e19, 1e25];
        let each = MANY as usize / numbers.len() + 1;
        for number in numbers {
            (0..each).for_each(|_| quantiles.add(number));
        }
        quantiles.condense();
        assert!(matches!(&quantiles, Quantiles::Histogram(made) if made.near.is_some()));
        for (nth, number) in numbers.iter().enumerate() {
            let share = (nth as f64 + 0.5) / numbers.len() as f64;
            let found = quantiles.at(share).unwrap();
            assert!((found - number).abs() <= number.abs() * 0.004, "{number} {found}");
        }
    }

    proptest! {
        #[test]
        fn a_histogram_is_off_by_less_than_half_a_percent(
            numbers in prop::collection::vec(-1e12_f64..1e12, 1..200),
            share in 0.0_f64..=1.0,
        ) {
            let mut exact = Quantiles::default();
            numbers.iter().for_each(|number| exact.add(*number));
            let mut rough = exact.clone();
            rough.condense();
            let (exact, rough) = (exact.at(share).unwrap(), rough.at(share).unwrap());
            prop_assert!((exact - rough).abs() <= exact.abs() * 0.004 + f64::MIN_POSITIVE);
        }

        #[test]
        fn parts_together_are_the_whole(
            numbers in prop::collection::vec(-1e12_f64..1e12, 1..200),
            cut in 0_usize..200,
            is_rough in any::<[bool; 2]>(),
            share in 0.0_f64..=1.0,
        ) {
            let of = |numbers: &[f64]| {
                let mut quantiles = Quantiles::default();
                numbers.iter().for_each(|number| quantiles.add(*number));
                quantiles
            };
            let (first, second) = numbers.split_at(cut.min(numbers.len()));
            let (mut merged, mut second) = (of(first), of(second));
            if is_rough[0] { merged.condense(); }
            if is_rough[1] { second.condense(); }
            merged.merge(second);
            let mut whole = of(&numbers);
            if is_rough != [false; 2] { whole.condense(); }
            prop_assert_eq!(merged.at(share), whole.at(share));
        }
    }
}
