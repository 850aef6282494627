//! What one child process measured, and medians over several.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Outcome;

/// Figures by name.
#[derive(Clone, Debug, Default)]
pub struct Sample(BTreeMap<String, f64>);

impl Sample {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect()
    }

    /// The last line that a child printed.
    pub fn from_line(text: &str) -> Outcome<Self> {
        let line = text.lines().last().ok_or("a case printed nothing")?;
        let figures: BTreeMap<String, Option<f64>> = serde_json::from_str(line)?;
        // JSON has no number for what is not one.
        Ok(Self(
            figures.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect(),
        ))
    }
}

impl<'a> Extend<(&'a str, f64)> for Sample {
    fn extend<T: IntoIterator<Item = (&'a str, f64)>>(&mut self, figures: T) {
        for (name, value) in figures {
            self.insert(name, value);
        }
    }
}

impl<'a> FromIterator<(&'a str, f64)> for Sample {
    fn from_iter<T: IntoIterator<Item = (&'a str, f64)>>(figures: T) -> Self {
        let mut sample = Self::new();
        sample.extend(figures);
        sample
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The middle value; not a number when there is none.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

/// A figure over all rounds of a case.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(samples: &[Sample], name: &str) -> Option<Self> {
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.get(name)).collect();
        let sorted = sorted(&values);
        Some(Self { least: *sorted.first()?, median: median(&values), most: *sorted.last()? })
    }
}
