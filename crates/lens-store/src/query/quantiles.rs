//! Quantiles: exact while there are few numbers, then by a histogram whose answers are off by less than half a percent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers of one group that are all kept.
const MAX_EXACT: usize = 1_000_000;
/// Bits of a number below its highest that tell buckets apart: 128 buckets for each doubling.
const SUB_BITS: u32 = 7;

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
    Histogram(BTreeMap<i64, u64>, u64),
}

impl Default for Quantiles {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

impl Quantiles {
    /// Takes in a number; what is no number is left out.
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
            Self::Histogram(buckets, total) => {
                *buckets.entry(bucket(number)).or_insert(0) += 1;
                *total += 1;
            }
        }
    }

    /// Keeps the buckets of the numbers only.
    pub(crate) fn condense(&mut self) {
        if let Self::Exact(numbers) = self {
            let total = numbers.len() as u64;
            let mut buckets = BTreeMap::new();
            for number in numbers.drain(..) {
                *buckets.entry(bucket(number)).or_insert(0) += 1;
            }
            *self = Self::Histogram(buckets, total);
        }
    }

    /// Numbers that are all kept.
    pub(crate) fn kept(&self) -> usize {
        match self {
            Self::Exact(numbers) => numbers.len(),
            Self::Histogram(..) => 0,
        }
    }

    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Exact(_) => Method::Exact,
            Self::Histogram(..) => Method::Histogram,
        }
    }

    /// The smallest number that at least this share of all are not above; nothing of no numbers.
    pub(crate) fn at(&mut self, share: f64) -> Option<f64> {
        match self {
            Self::Exact(numbers) => {
                let rank = rank(share, numbers.len() as u64)? as usize;
                Some(*numbers.select_nth_unstable_by(rank, f64::total_cmp).1)
            }
            Self::Histogram(buckets, total) => {
                let mut left = rank(share, *total)?;
                for (bucket, count) in buckets {
                    if left < *count {
                        return Some(middle(*bucket));
                    }
                    left -= *count;
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
    }
}
