//! The little statistics that comparing needs. No distribution is assumed of durations, which have long tails.

/// The smallest value that at least `percent` of all values do not exceed.
pub fn nearest_rank(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// How values lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Sum; not more than the type holds.
    pub total: u64,
    /// Sum by count.
    pub mean: f64,
    /// Nearest rank, as all below.
    pub p25: u64,
    /// Median.
    pub p50: u64,
    /// A quarter is higher.
    pub p75: u64,
    /// One of twenty is higher.
    pub p95: u64,
    /// One of a hundred is higher.
    pub p99: u64,
    /// Highest.
    pub max: u64,
}

impl Spread {
    /// Of these values, which are sorted for it.
    pub fn of(values: &mut [u64]) -> Self {
        values.sort_unstable();
        let total = values.iter().fold(0_u64, |sum, value| sum.saturating_add(*value));
        let mean = if values.is_empty() { 0.0 } else { mean(values) };
        let at = |percent| nearest_rank(values, percent);
        Self {
            total,
            mean,
            p25: at(25),
            p50: at(50),
            p75: at(75),
            p95: at(95),
            p99: at(99),
            max: values.last().copied().unwrap_or(0),
        }
    }
}

fn mean(values: &[u64]) -> f64 {
    values.iter().map(|value| *value as f64).sum::<f64>() / values.len() as f64
}

/// How far the means of two samples are from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanDifference {
    /// Mean of the second without that of the first.
    pub difference: f64,
    /// The bounds that hold it in 95 of 100 cases.
    pub bounds: (f64, f64),
    /// How likely means that differ like this are by chance (Welch's test).
    pub chance: f64,
}

/// Of samples that need not be alike in spread.
pub fn mean_difference(a: &[u64], b: &[u64]) -> MeanDifference {
    if a.len() < 2 || b.len() < 2 {
        let difference = if a.is_empty() || b.is_empty() { 0.0 } else { mean(b) - mean(a) };
        return MeanDifference { difference, bounds: (difference, difference), chance: 1.0 };
    }
    let variance_of_mean = |values: &[u64]| {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum();
        squares / (values.len() - 1) as f64 / values.len() as f64
    };
    let (difference, of_a, of_b) = (mean(b) - mean(a), variance_of_mean(a), variance_of_mean(b));
    let error = (of_a + of_b).sqrt();
    let half = 1.96 * error;
    let bounds = (difference - half, difference + half);
    if error == 0.0 {
        let chance = if difference == 0.0 { 1.0 } else { 0.0 };
        return MeanDifference { difference, bounds, chance };
    }
    let freedom = (of_a + of_b).powi(2)
        / (of_a.powi(2) / (a.len() - 1) as f64 + of_b.powi(2) / (b.len() - 1) as f64);
    let t = (difference / error).abs();
    // Student's t as the normal value that is as unlikely, on the careful side (Abramowitz and Stegun 26.7.8).
    let deviations =
        t * (1.0 - 1.0 / (4.0 * freedom)).max(0.0) / (1.0 + t * t / (2.0 * freedom)).sqrt();
    MeanDifference { difference, bounds, chance: two_sided(deviations) }
}

/// Mann and Whitney's test of two sorted samples: of a hundred pairs, how many have the larger value in `b` (equal ones
/// count half), and how likely a shift like this is by chance.
pub fn rank_test(a: &[u64], b: &[u64]) -> (f64, f64) {
    let (count_a, count_b) = (a.len() as f64, b.len() as f64);
    if a.is_empty() || b.is_empty() {
        return (0.5, 1.0);
    }
    // Pairs with the larger value in b, and the ties of all values.
    let (mut below, mut ties) = (0.0, 0.0);
    let (mut at_a, mut at_b) = (0, 0);
    while at_a < a.len() || at_b < b.len() {
        let value = match (a.get(at_a), b.get(at_b)) {
            (Some(a), Some(b)) => *a.min(b),
            (Some(value), None) | (None, Some(value)) => *value,
            (None, None) => break,
        };
        let same_a = a[at_a..].iter().take_while(|other| **other == value).count();
        let same_b = b[at_b..].iter().take_while(|other| **other == value).count();
        below += same_b as f64 * (at_a as f64 + same_a as f64 / 2.0);
        let same = (same_a + same_b) as f64;
        ties += same * (same * same - 1.0);
        at_a += same_a;
        at_b += same_b;
    }
    let pairs = count_a * count_b;
    let count = count_a + count_b;
    let variance = pairs / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)).max(1.0));
    let distance = ((below - pairs / 2.0).abs() - 0.5).max(0.0);
    let chance = if variance > 0.0 { two_sided(distance / variance.sqrt()) } else { 1.0 };
    (below / pairs, chance)
}

/// How likely a normal value is at least this far off its mean.
fn two_sided(deviations: f64) -> f64 {
    complementary_error(deviations / std::f64::consts::SQRT_2)
}

/// `erfc` for values that are not negative, to a millionth of itself (Chebyshev coefficients of Numerical Recipes).
fn complementary_error(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    (t * (sum - x * x).exp()).min(1.0)
}

/// Holm's correction: how likely each is by chance when so many were looked at.
pub fn corrected(chances: &mut [f64]) {
    let count = chances.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&one, &other| chances[one].total_cmp(&chances[other]));
    let mut highest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        highest = highest.max((chances[at] * (count - rank) as f64).min(1.0));
        chances[at] = highest;
    }
}

/// Logarithms of factorials.
pub struct Factorials(Vec<f64>);

impl Factorials {
    /// Up to that of `most`.
    pub fn up_to(most: usize) -> Self {
        let mut sum = 0.0;
        let next = |number: usize| {
            sum += (number.max(1) as f64).ln();
            sum
        };
        Self((0..=most).map(next).collect())
    }

    fn choose(&self, all: usize, some: usize) -> f64 {
        self.0[all] - self.0[some] - self.0[all - some]
    }

    /// Fisher's exact test, one-sided: `with` of `drawn` have something that `with_all` of `all` have; how likely that
    /// many or more have it by chance.
    pub fn chance_of_as_many(&self, with: usize, drawn: usize, with_all: usize, all: usize) -> f64 {
        let most = drawn.min(with_all);
        let least = (drawn + with_all).saturating_sub(all);
        let whole = self.choose(all, drawn);
        let one = |with: usize| {
            (self.choose(with_all, with) + self.choose(all - with_all, drawn - with) - whole).exp()
        };
        (with.max(least)..=most).map(one).sum::<f64>().min(1.0)
    }

    /// The same in both directions: twice the smaller.
    pub fn chance_of_a_difference(&self, a: usize, all_a: usize, b: usize, all_b: usize) -> f64 {
        let all = all_a + all_b;
        let more = self.chance_of_as_many(a, all_a, a + b, all);
        let fewer = self.chance_of_as_many(b, all_b, a + b, all);
        (2.0 * more.min(fewer)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_agree_with_tables() {
        let (a, b): (Vec<u64>, Vec<u64>) = ((1..=10).collect(), (6..=15).collect());
        let (larger, chance) = rank_test(&a, &b);
        assert!((larger - 0.875).abs() < 1e-9, "{larger}");
        assert!((chance - 0.005).abs() < 0.001, "{chance}");
        // Fisher's tea: 3 of 4 of 4 of 8.
        let tea = Factorials::up_to(8).chance_of_as_many(3, 4, 4, 8);
        assert!((tea - 17.0 / 70.0).abs() < 1e-12, "{tea}");
        assert!((two_sided(1.959_964) - 0.05).abs() < 1e-6);
        // t = 3.693 with 18 degrees of freedom.
        let means = mean_difference(&a, &b);
        assert!((means.difference - 5.0).abs() < 1e-9);
        assert!((0.00166..0.002).contains(&means.chance), "{means:?}");
    }

    #[test]
    fn a_sample_against_itself_is_chance() {
        let values: Vec<u64> = (0..50).map(|at| at / 3).collect();
        assert_eq!(rank_test(&values, &values), (0.5, 1.0));
        assert_eq!(mean_difference(&values, &values).chance, 1.0);
        assert_eq!(rank_test(&[7; 9], &[7; 4]), (0.5, 1.0));
    }

    #[test]
    fn many_looks_make_each_of_them_weaker() {
        let mut chances = [0.01, 0.04, 0.03];
        corrected(&mut chances);
        assert_eq!(chances, [0.03, 0.06, 0.06]);
    }
}
