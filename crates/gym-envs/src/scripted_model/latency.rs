//! How long a reply takes: fixed, uniform, or log-normal with a heavy tail.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::random::Rng;

/// A distribution of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Latency {
    /// Always the same.
    Fixed {
        /// Milliseconds
        millis: f64,
    },
    /// Anything between two bounds.
    Uniform {
        /// Least milliseconds
        min_millis: f64,
        /// Most milliseconds
        max_millis: f64,
    },
    /// Log-normal: half of the replies take longer than the median, few take very long.
    Lognormal {
        /// Milliseconds that half of the replies exceed
        median_millis: f64,
        /// Standard deviation of the logarithm; 0.5 is mild, 1.5 has a heavy tail
        sigma: f64,
        /// Most milliseconds
        cap_millis: f64,
    },
}

/// A latency that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LatencyError {
    /// The form is unknown.
    #[error(
        "expected a number of milliseconds, `fixed:MS`, `uniform:MIN,MAX` or `lognormal:MEDIAN,SIGMA[,CAP]`, got {0:?}"
    )]
    Form(String),
    /// A number is negative, not finite, or out of order.
    #[error("`{0}` of the latency must be a finite number of at least {1}")]
    Range(&'static str, String),
}

impl Default for Latency {
    fn default() -> Self {
        Latency::Fixed { millis: 0.0 }
    }
}

const DEFAULT_SIGMA: f64 = 0.6;

impl Latency {
    /// Draws a duration.
    pub fn draw(self, rng: &mut Rng) -> Duration {
        let millis = match self {
            Latency::Fixed { millis } => millis,
            Latency::Uniform { min_millis, max_millis } => {
                min_millis + (max_millis - min_millis) * rng.unit()
            }
            Latency::Lognormal { median_millis, sigma, cap_millis } => {
                (median_millis * (sigma * rng.normal()).exp()).min(cap_millis)
            }
        };
        Duration::from_nanos((millis * 1e6) as u64)
    }

    fn checked(self) -> Result<Self, LatencyError> {
        let at_least = |name, value: f64, least: f64| {
            if value.is_finite() && value >= least {
                Ok(())
            } else {
                Err(LatencyError::Range(name, least.to_string()))
            }
        };
        match self {
            Latency::Fixed { millis } => at_least("ms", millis, 0.0)?,
            Latency::Uniform { min_millis, max_millis } => {
                at_least("min_ms", min_millis, 0.0)?;
                at_least("max_ms", max_millis, min_millis)?;
            }
            Latency::Lognormal { median_millis, sigma, cap_millis } => {
                at_least("median_ms", median_millis, 0.0)?;
                at_least("sigma", sigma, 0.0)?;
                at_least("cap_ms", cap_millis, 0.0)?;
            }
        }
        Ok(self)
    }
}

impl FromStr for Latency {
    type Err = LatencyError;

    fn from_str(text: &str) -> Result<Self, LatencyError> {
        let form = || LatencyError::Form(text.to_owned());
        let (kind, numbers) = text.trim().split_once(':').unwrap_or(("fixed", text));
        let numbers: Vec<f64> = numbers
            .split(',')
            .map(|number| number.trim().trim_end_matches("ms").trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| form())?;
        let latency = match (kind.trim(), numbers.as_slice()) {
            ("fixed", [millis]) => Latency::Fixed { millis: *millis },
            ("uniform", [min, max]) => Latency::Uniform { min_millis: *min, max_millis: *max },
            ("lognormal", [median, rest @ ..]) if rest.len() <= 2 => Latency::Lognormal {
                median_millis: *median,
                sigma: rest.first().copied().unwrap_or(DEFAULT_SIGMA),
                cap_millis: rest.get(1).copied().unwrap_or(median * 1000.0),
            },
            _ => return Err(form()),
        };
        latency.checked()
    }
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Table {
    Fixed {
        ms: f64,
    },
    Uniform {
        min_ms: f64,
        max_ms: f64,
    },
    Lognormal {
        median_ms: f64,
        #[serde(default = "default_sigma")]
        sigma: f64,
        cap_ms: Option<f64>,
    },
}

fn default_sigma() -> f64 {
    DEFAULT_SIGMA
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let latency = match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse(),
            Value::Number(millis) => {
                Latency::Fixed { millis: millis.as_f64().unwrap_or(f64::NAN) }.checked()
            }
            table => match Table::deserialize(table).map_err(D::Error::custom)? {
                Table::Fixed { ms } => Latency::Fixed { millis: ms },
                Table::Uniform { min_ms, max_ms } => {
                    Latency::Uniform { min_millis: min_ms, max_millis: max_ms }
                }
                Table::Lognormal { median_ms, sigma, cap_ms } => Latency::Lognormal {
                    median_millis: median_ms,
                    sigma,
                    cap_millis: cap_ms.unwrap_or(median_ms * 1000.0),
                },
            }
            .checked(),
        };
        latency.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(latency: &str) -> Vec<f64> {
        let latency: Latency = latency.parse().expect("latency");
        let mut all: Vec<f64> =
            (0..4000).map(|key| latency.draw(&mut Rng::new(key, 1)).as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn a_lognormal_has_its_median_a_heavy_tail_and_a_cap() {
        let all = many("lognormal:20,1.0,300");
        assert!((18.0..22.0).contains(&all[2000]), "median {}", all[2000]);
        assert!((190.0..=300.0).contains(&all[3980]), "p99.5 {}", all[3980]);
        assert_eq!(all[3999], 300.0);
    }

    #[test]
    fn a_uniform_stays_within_its_bounds() {
        let all = many("uniform:5,20");
        assert!(all[0] >= 5.0 && all[3999] <= 20.0 && (12.0..13.0).contains(&all[2000]));
    }

    #[test]
    fn every_form_reads() {
        let read =
            |json: &str| serde_json::from_str::<Latency>(json).map_err(|error| error.to_string());
        assert_eq!(read("3.5"), Ok(Latency::Fixed { millis: 3.5 }));
        assert_eq!(read("\"5 ms\""), Ok(Latency::Fixed { millis: 5.0 }));
        assert_eq!(read(r#"{"kind":"uniform","min_ms":1,"max_ms":2}"#), read("\"uniform:1,2\""));
        assert_eq!(
            read(r#"{"kind":"lognormal","median_ms":2,"cap_ms":9}"#),
            read("\"lognormal:2,0.6,9\"")
        );
    }

    #[test]
    fn a_latency_that_makes_no_sense_is_told() {
        let refused =
            |json: &str| serde_json::from_str::<Latency>(json).expect_err(json).to_string();
        assert!(refused("\"gauss:1\"").contains("got \"gauss:1\""));
        assert!(
            refused("-1").contains("`ms` of the latency must be a finite number of at least 0")
        );
        assert!(
            refused("\"uniform:5,1\"")
                .contains("`max_ms` of the latency must be a finite number of at least 5")
        );
        assert!(
            refused(r#"{"kind":"fixed","millis":3}"#)
                .contains("unknown field `millis`, expected `ms`")
        );
    }
}
