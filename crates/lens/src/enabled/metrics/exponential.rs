//! Histograms whose buckets grow by a constant factor, as fine as their number allows.
//!
//! A bucket `i` at a scale holds what is above `base^i` and not above `base^(i+1)`, where `base` is `2^(2^-scale)`.
//! Values too far apart for the buckets there are halve the resolution, as often as it takes in one step.

use lens_otlp::metrics::ExponentialBuckets;

/// Buckets of one sign at most.
const MAX_BUCKETS: i64 = 160;
/// As fine as it begins, and as coarse as all doubles need.
const MAX_SCALE: i32 = 20;
const MIN_SCALE: i32 = -10;

/// What was recorded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exponential {
    pub scale: i32,
    pub count: u64,
    pub sum: f64,
    pub zero_count: u64,
    pub min: f64,
    pub max: f64,
    pub positive: ExponentialBuckets,
    pub negative: ExponentialBuckets,
}

impl Default for Exponential {
    fn default() -> Self {
        Self {
            scale: MAX_SCALE,
            count: 0,
            sum: 0.0,
            zero_count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            positive: ExponentialBuckets::default(),
            negative: ExponentialBuckets::default(),
        }
    }
}

impl Exponential {
    /// Records a finite value.
    pub(super) fn record(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        if value == 0.0 {
            self.zero_count += 1;
            return;
        }
        let magnitude = value.abs();
        let is_negative = value < 0.0;
        let buckets = if is_negative { &self.negative } else { &self.positive };
        let at = index(magnitude, self.scale);
        let coarser = steps_to_fit(buckets, at).min((self.scale - MIN_SCALE) as u32);
        if coarser > 0 {
            self.scale -= coarser as i32;
            coarsen(&mut self.positive, coarser);
            coarsen(&mut self.negative, coarser);
        }
        let buckets = if is_negative { &mut self.negative } else { &mut self.positive };
        add(buckets, at >> coarser, 1);
    }
}

/// Power of two below a value above 0: `2^e < value <= 2^(e+1)`.
fn exponent(value: f64) -> i64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let (bits, bias) = if value < f64::MIN_POSITIVE {
        // A subnormal gets an exponent of its own when it is multiplied by 2^52.
        ((value * 4_503_599_627_370_496.0).to_bits(), 1023 + 52)
    } else {
        (value.to_bits(), 1023)
    };
    let exponent = (bits >> 52) as i64 - bias;
    if bits & FRACTION == 0 { exponent - 1 } else { exponent }
}

/// The bucket of a value above 0.
fn index(value: f64, scale: i32) -> i64 {
    let exponent = exponent(value);
    if scale <= 0 {
        return exponent >> -scale;
    }
    let (low, high) = (exponent << scale, ((exponent + 1) << scale) - 1);
    let factor = f64::from(1_u32 << scale) * std::f64::consts::LOG2_E;
    // The logarithm is not exact at the edges; powers of two are.
    let at = (value.ln() * factor).ceil() as i64 - 1;
    if value.to_bits() & ((1 << 52) - 1) == 0 && value >= f64::MIN_POSITIVE {
        high
    } else {
        at.clamp(low, high)
    }
}

/// How often the resolution must be halved for an index to fit.
fn steps_to_fit(buckets: &ExponentialBuckets, at: i64) -> u32 {
    if buckets.counts.is_empty() {
        return 0;
    }
    let first = i64::from(buckets.offset);
    let last = first + buckets.counts.len() as i64 - 1;
    let (mut low, mut high) = (first.min(at), last.max(at));
    let mut steps = 0;
    while high - low >= MAX_BUCKETS {
        (low, high) = (low >> 1, high >> 1);
        steps += 1;
    }
    steps
}

fn coarsen(buckets: &mut ExponentialBuckets, steps: u32) {
    let old = std::mem::take(buckets);
    let counts = old.counts.into_iter().zip(i64::from(old.offset)..);
    for (count, at) in counts.filter(|(count, _)| *count > 0) {
        add(buckets, at >> steps, count);
    }
}

fn add(buckets: &mut ExponentialBuckets, at: i64, count: u64) {
    let at = at as i32;
    if buckets.counts.is_empty() {
        buckets.offset = at;
    }
    if at < buckets.offset {
        let missing = (buckets.offset - at) as usize;
        buckets.counts.splice(0..0, std::iter::repeat_n(0, missing));
        buckets.offset = at;
    }
    let place = (at - buckets.offset) as usize;
    if place >= buckets.counts.len() {
        buckets.counts.resize(place + 1, 0);
    }
    buckets.counts[place] += count;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: &[f64]) -> Exponential {
        let mut histogram = Exponential::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    /// The bounds of the only bucket that holds something.
    fn bounds(histogram: &Exponential) -> (f64, f64) {
        let base = 2_f64.powf(2_f64.powi(-histogram.scale));
        let at = histogram.positive.offset;
        (base.powi(at), base.powi(at + 1))
    }

    #[test]
    fn bucket_holds_its_value() {
        for value in [1.5, 3.0, 1000.0, 0.1, 7e-5, 123_456.789] {
            let (low, high) = bounds(&recorded(&[value]));
            assert!(low <= value * 1.000_001 && value <= high * 1.000_001, "{low} {value} {high}");
            assert!(high / low < 1.000_01, "one value alone is told as finely as can be");
        }
    }

    #[test]
    fn power_of_two_is_the_upper_bound_of_its_bucket() {
        for scale in -3..=MAX_SCALE {
            for power in [-1074, -1022, -3, 0, 1, 10, 1023] {
                let value = if power == -1074 { f64::from_bits(1) } else { 2_f64.powi(power) };
                let expected = if scale > 0 {
                    (i64::from(power) << scale) - 1
                } else {
                    (i64::from(power) - 1) >> -scale
                };
                let found = index(value, scale);
                assert!(
                    (found - expected).abs() <= i64::from(power < -1022),
                    "2^{power} at {scale}"
                );
            }
        }
    }

    #[test]
    fn values_as_far_apart_as_can_be_fit_at_once() {
        let histogram = recorded(&[0.0, f64::from_bits(1), f64::MAX, -1.0, 1.0]);
        assert_eq!((histogram.count, histogram.zero_count), (5, 1));
        assert_eq!((histogram.min, histogram.max), (-1.0, f64::MAX));
        let positive = &histogram.positive;
        assert!(positive.counts.len() <= MAX_BUCKETS as usize, "{}", positive.counts.len());
        assert_eq!(positive.counts.iter().sum::<u64>(), 3);
        assert_eq!(histogram.negative.counts, [1]);
        assert_eq!(histogram.scale, -4, "2,098 powers of two in 160 buckets");
    }

    #[test]
    fn counts_survive_every_loss_of_resolution() {
        let values: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let histogram = recorded(&values);
        let counts = &histogram.positive.counts;
        assert_eq!(counts.iter().sum::<u64>(), 10_000);
        assert!(counts.len() > MAX_BUCKETS as usize / 2, "no coarser than it must be");
        assert_eq!(histogram.sum, 50_005_000.0);
    }
}
