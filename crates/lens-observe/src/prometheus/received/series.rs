//! One series: its value, and how the next point changes it.

use lens_otlp::DecodeError;
use lens_otlp::view::metrics::{
    ExemplarView, ExponentialPointView, HistogramPointView, NumberPointView,
};

use super::super::names::Unit;
use super::super::page::{Exemplar, Page};
use super::number;
use super::powers::{Exponents, Powers};

/// More buckets than this are no histogram that anybody scrapes.
const MAX_BUCKETS: usize = 512;

/// Counts by explicit bounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Buckets {
    bounds: Vec<f64>,
    /// One more than bounds.
    counts: Vec<u64>,
    sum: Option<f64>,
}

/// What a series shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Explicit(Buckets),
    Exponential(Powers),
}

/// A data point, in the base unit.
#[derive(Debug)]
pub(super) struct Point {
    /// `None` when the sender says that the series has ended.
    pub value: Option<Value>,
    pub end_nanos: u64,
    pub exemplars: Vec<Exemplar>,
}

fn exemplars<'a>(
    found: impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>>,
    unit: Unit,
) -> Result<Vec<Exemplar>, DecodeError> {
    let mut out = Vec::new();
    for exemplar in found {
        let exemplar = exemplar?;
        let ids = (exemplar.trace_id.try_into(), exemplar.span_id.try_into());
        if let ((Ok(trace_id), Ok(span_id)), Some(value)) = (ids, exemplar.value) {
            let value = number::as_double(value) * unit.factor;
            out.push(Exemplar { trace_id, span_id, value, time_nanos: exemplar.time_nanos });
        }
    }
    Ok(out)
}

impl Point {
    pub(super) fn of_number(point: &NumberPointView<'_>, unit: Unit) -> Result<Self, DecodeError> {
        let value = point.value.map(|value| Value::Number(number::as_double(value) * unit.factor));
        let exemplars = exemplars(point.exemplars(), unit)?;
        Ok(Self { value, end_nanos: point.end_nanos, exemplars })
    }

    pub(super) fn of_histogram(
        point: &HistogramPointView<'_>,
        unit: Unit,
    ) -> Result<Self, DecodeError> {
        let bounds = point.bounds().take(MAX_BUCKETS);
        let mut bounds: Vec<f64> = bounds.map(|bound| number::scale(bound, unit.factor)).collect();
        let mut counts: Vec<u64> = point.buckets().take(MAX_BUCKETS + 1).collect();
        let is_sorted = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if counts.len() != bounds.len() + 1 || !is_sorted {
            // Without usable buckets there is still a count.
            bounds.clear();
            counts = vec![point.count];
        }
        // A last bound of infinity would name the last bucket twice.
        while bounds.last().is_some_and(|bound| !bound.is_finite()) {
            bounds.pop();
            let beyond = counts.pop().unwrap_or(0);
            if let Some(last) = counts.last_mut() {
                *last = last.saturating_add(beyond);
            }
        }
        let sum = point.sum.map(|sum| sum * unit.factor);
        let value = Some(Value::Explicit(Buckets { bounds, counts, sum }));
        let exemplars = exemplars(point.exemplars(), unit)?;
        Ok(Self { value, end_nanos: point.end_nanos, exemplars })
    }

    pub(super) fn of_exponential(
        point: &ExponentialPointView<'_>,
        unit: Unit,
    ) -> Result<Self, DecodeError> {
        let negative = point.negative()?.counts.iter().fold(0, |a: u64, b| a.saturating_add(*b));
        let mut powers = Powers {
            low: point.zero_count.saturating_add(negative),
            sum: point.sum.map(|sum| sum * unit.factor),
            ..Powers::default()
        };
        powers.add_buckets(&point.positive()?, point.scale, unit.factor);
        let exemplars = exemplars(point.exemplars(), unit)?;
        Ok(Self { value: Some(Value::Exponential(powers)), end_nanos: point.end_nanos, exemplars })
    }
}

fn add(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (either, None) | (None, either) => either,
    }
}

/// One series.
#[derive(Debug)]
pub(super) struct Series {
    value: Value,
    end_nanos: u64,
    /// At most one for each bucket.
    exemplars: Vec<Exemplar>,
}

impl Series {
    pub(super) fn new(value: Value, end_nanos: u64, exemplars: Vec<Exemplar>) -> Self {
        let mut series = Self { value, end_nanos, exemplars: Vec::new() };
        series.keep(exemplars);
        series
    }

    /// Lines that it takes.
    pub(super) fn samples(&self) -> usize {
        match &self.value {
            Value::Number(_) => 1,
            Value::Explicit(buckets) => buckets.counts.len() + 2,
            Value::Exponential(powers) => powers.counts.len() + 4,
        }
    }

    /// Takes the next point; false when it is no news: a sender that tries again sends the same interval.
    pub(super) fn advance(
        &mut self,
        value: Value,
        end_nanos: u64,
        exemplars: Vec<Exemplar>,
        is_delta: bool,
    ) -> bool {
        if end_nanos <= self.end_nanos && end_nanos != 0 {
            return false;
        }
        self.end_nanos = end_nanos;
        match (&mut self.value, value) {
            (Value::Number(sum), Value::Number(more)) if is_delta => *sum += more,
            (Value::Explicit(all), Value::Explicit(more))
                if is_delta && all.bounds == more.bounds =>
            {
                for (all, more) in all.counts.iter_mut().zip(more.counts) {
                    *all = all.saturating_add(more);
                }
                all.sum = add(all.sum, more.sum);
            }
            (Value::Exponential(all), Value::Exponential(more)) if is_delta => {
                all.merge(&more);
                all.sum = add(all.sum, more.sum);
            }
            (shown, value) => *shown = value,
        }
        self.keep(exemplars);
        true
    }

    /// Keeps the latest exemplar of each bucket.
    fn keep(&mut self, exemplars: Vec<Exemplar>) {
        for exemplar in exemplars {
            let bucket = self.bucket(exemplar.value);
            let known = self.exemplars.iter().position(|known| self.bucket(known.value) == bucket);
            match known {
                Some(at) => self.exemplars[at] = exemplar,
                None => self.exemplars.push(exemplar),
            }
        }
        let limit = self.samples();
        self.exemplars.truncate(limit);
    }

    fn bucket(&self, value: f64) -> i64 {
        match &self.value {
            Value::Number(_) => 0,
            Value::Explicit(buckets) => {
                buckets.bounds.partition_point(|bound| *bound < value) as i64
            }
            Value::Exponential(_) if value <= 0.0 => i64::MIN,
            Value::Exponential(_) => value.log2().ceil() as i64,
        }
    }

    pub(super) fn put(&self, page: &mut Page, labels: &str, exponents: Exponents) {
        match &self.value {
            Value::Number(value) => page.sample(labels, *value, self.exemplars.first()),
            Value::Explicit(Buckets { bounds, counts, sum }) => {
                self.put_histogram(page, labels, bounds, counts, *sum);
            }
            Value::Exponential(powers) => {
                let (bounds, counts) = powers.explicit(exponents);
                self.put_histogram(page, labels, &bounds, &counts, powers.sum);
            }
        }
    }

    fn put_histogram(
        &self,
        page: &mut Page,
        labels: &str,
        bounds: &[f64],
        counts: &[u64],
        sum: Option<f64>,
    ) {
        page.histogram(labels, bounds, counts, sum, |at| {
            let above = at.checked_sub(1).and_then(|at| bounds.get(at));
            let above = above.copied().unwrap_or(f64::NEG_INFINITY);
            let up_to = bounds.get(at).copied().unwrap_or(f64::INFINITY);
            let belongs = |exemplar: &&Exemplar| exemplar.value > above && exemplar.value <= up_to;
            self.exemplars.iter().find(belongs).copied()
        });
    }
}
