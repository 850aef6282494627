//! Counts by powers of two, which exponential histograms become.
//!
//! At a scale of 0 and above every power of two is a bound of the sender's, so nothing is lost but resolution; below,
//! and in another unit, a bucket counts as what its upper bound says. Scrapes need the same bounds each time, which a
//! sender that changes its scale does not have.

use lens_otlp::metrics::ExponentialBuckets;

/// Exponents beyond these are shown as these: 2^-40 is a trillionth.
const MIN_EXPONENT: i32 = -40;
const MAX_EXPONENT: i32 = 60;

/// Bucket `2^exponent` holds what is above the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Powers {
    /// Zero and below.
    pub low: u64,
    /// The smallest exponent; those after it follow.
    pub first: i32,
    pub counts: Vec<u64>,
    pub sum: Option<f64>,
}

impl Powers {
    /// Adds buckets whose values are multiplied with `factor`.
    pub(super) fn add_buckets(&mut self, buckets: &ExponentialBuckets, scale: i32, factor: f64) {
        let shift = factor.log2();
        for (at, count) in buckets.counts.iter().enumerate() {
            if *count > 0 {
                let upper = f64::from(buckets.offset) + at as f64 + 1.0;
                let exponent = upper * (-f64::from(scale)).exp2() + shift;
                // What is a whole number but for rounding is that number.
                let whole = (exponent - 1e-9).ceil();
                let whole = whole.clamp(f64::from(MIN_EXPONENT), f64::from(MAX_EXPONENT));
                self.add(whole as i32, *count);
            }
        }
    }

    fn add(&mut self, exponent: i32, count: u64) {
        if self.counts.is_empty() {
            self.first = exponent;
        }
        if exponent < self.first {
            let more = (self.first - exponent) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = exponent;
        }
        let at = (exponent - self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] = self.counts[at].saturating_add(count);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.low = self.low.saturating_add(other.low);
        for (at, count) in other.counts.iter().enumerate() {
            self.add(other.first + at as i32, *count);
        }
    }

    fn count(&self, exponent: i32) -> u64 {
        let at = usize::try_from(exponent - self.first).ok();
        at.and_then(|at| self.counts.get(at)).copied().unwrap_or(0)
    }

    /// Bounds and counts over a range that covers this.
    pub(super) fn explicit(&self, Exponents(range): Exponents) -> (Vec<f64>, Vec<u64>) {
        let (first, last) = range.unwrap_or((0, 0));
        // Below the first bucket that ever had a value there is what is zero or less.
        let (mut bounds, mut counts) = (vec![f64::from(first - 1).exp2()], vec![self.low]);
        for exponent in first..=last {
            bounds.push(f64::from(exponent).exp2());
            counts.push(self.count(exponent));
        }
        counts.push(0);
        (bounds, counts)
    }
}

/// The range of exponents that all series of a family are shown with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exponents(Option<(i32, i32)>);

impl Exponents {
    pub(super) fn cover(&mut self, powers: &Powers) {
        if powers.counts.is_empty() {
            return;
        }
        let (first, last) = (powers.first, powers.first + powers.counts.len() as i32 - 1);
        let (low, high) = self.0.unwrap_or((first, last));
        self.0 = Some((low.min(first), high.max(last)));
    }
}
