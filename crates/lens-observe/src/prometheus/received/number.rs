//! Numbers of data points as doubles.

use lens_otlp::metrics::Number;

pub(super) fn as_double(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Double(value) => value,
    }
}

/// A bound in another unit, without the noise of binary fractions: 50 ms is 0.05 s, not 0.050000000000000003.
pub(super) fn scale(bound: f64, factor: f64) -> f64 {
    if factor == 1.0 {
        return bound;
    }
    let scaled = bound * factor;
    format!("{scaled:.12e}").parse().unwrap_or(scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_in_another_unit_stay_short() {
        for (bound, factor, expected) in [
            (50.0, 1e-3, "0.05"),
            (2.5, 1e-3, "0.0025"),
            (0.025, 1e-3, "0.000025"),
            (3_600_000.0, 1e-3, "3600"),
            (3.0, 1024.0, "3072"),
            (0.1, 1.0, "0.1"),
            (f64::INFINITY, 1e-3, "inf"),
        ] {
            assert_eq!(scale(bound, factor).to_string(), expected);
        }
    }
}
