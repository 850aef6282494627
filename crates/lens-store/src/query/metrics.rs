//! Numbers of spans over time, by the values of fields.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::ast::{Function, Metric};
use super::columns::Gathered;
use super::quantiles::{Method, Quantiles};
use super::row::{Row, value};
use super::value::Owned;

/// Groups that are told apart; spans of more are counted.
pub(crate) const MAX_GROUPS: usize = 10_000;
/// Points of all groups.
const MAX_CELLS: usize = 1_000_000;
/// Shortest time that a rate is taken over where the window is open.
const LEAST_NANOS: u64 = 1_000_000_000;
/// Numbers of all groups that are kept for exact quantiles: 64 MB.
pub(crate) const MAX_KEPT: usize = 8_000_000;

/// Which time is looked at, and in what steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Starts of spans, Unix nanoseconds. A side that is open (0, `u64::MAX`) is where the first or last span is.
    pub range: Range<u64>,
    /// Length of a step; zero is one step for all.
    pub step_nanos: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { range: 0..u64::MAX, step_nanos: 0 }
    }
}

/// Numbers over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// One for each group, and each quantile, in the order of their values.
    pub series: Vec<Series>,
    /// Spans that were counted.
    pub spans: u64,
    /// Spans left out because their times cannot be believed.
    pub suspect: u64,
    /// Spans left out because they do not have the number that was asked for.
    pub without_number: u64,
    /// Spans left out because there are too many groups or steps.
    pub refused: u64,
}

/// Numbers of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What the group has in common.
    pub by: Vec<(String, Owned)>,
    /// Which quantile, where quantiles are asked for.
    pub quantile: Option<f64>,
    /// How quantiles were found; as rough as the roughest of its points.
    pub method: Option<Method>,
    /// Spans of the group.
    pub spans: u64,
    /// Its numbers, by time; steps without spans have none.
    pub points: Vec<Point>,
}

/// A number of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Begin of the step.
    pub at_nanos: u64,
    /// Spans per second for a rate, nanoseconds where the field is a time.
    pub value: f64,
}

/// Takes in spans.
pub(crate) struct Meter<'q> {
    metric: &'q Metric,
    window: &'q Window,
    /// First and last start of the spans that were taken in.
    seen: Option<(u64, u64)>,
    groups: HashMap<Vec<Owned>, BTreeMap<u64, Cell>>,
    cells: usize,
    kept: usize,
    metrics: Metrics,
}

/// Numbers of one step of one group.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    spans: u64,
    sum: f64,
    min: Option<f64>,
    max: Option<f64>,
    quantiles: Quantiles,
}

impl Cell {
    /// Takes in a span and the number of it that the function is of.
    #[inline]
    pub(crate) fn take(&mut self, number: Option<f64>, function: &Function) {
        self.spans += 1;
        let Some(number) = number else { return };
        match function {
            Function::Rate | Function::Count => {}
            Function::Sum(_) | Function::Average(_) => self.sum += number,
            Function::Min(_) => self.min = Some(self.min.map_or(number, |min| min.min(number))),
            Function::Max(_) => self.max = Some(self.max.map_or(number, |max| max.max(number))),
            Function::Quantile(..) => self.quantiles.add(number),
        }
    }

    /// Takes in durations; returns how many are none, being negative.
    pub(crate) fn take_durations(&mut self, nanos: &[i64], function: &Function) -> u64 {
        let spans = nanos.iter().filter(|nanos| **nanos >= 0).count() as u64;
        let numbers = || nanos.iter().filter(|nanos| **nanos >= 0).map(|nanos| *nanos as f64);
        match function {
            Function::Rate | Function::Count => self.spans += spans,
            Function::Quantile(..) => {
                self.spans += spans;
                self.quantiles.extend(numbers());
            }
            _ => numbers().for_each(|number| self.take(Some(number), function)),
        }
        nanos.len() as u64 - spans
    }

    /// Takes in what was counted elsewhere.
    pub(crate) fn merge(&mut self, other: Self) {
        let either = |one: Option<f64>, other: Option<f64>, of: fn(f64, f64) -> f64| match other {
            Some(other) => Some(one.map_or(other, |one| of(one, other))),
            None => one,
        };
        self.spans += other.spans;
        self.sum += other.sum;
        self.min = either(self.min, other.min, f64::min);
        self.max = either(self.max, other.max, f64::max);
        self.quantiles.merge(other.quantiles);
    }

    pub(crate) fn spans(&self) -> u64 {
        self.spans
    }

    /// Numbers that are all kept.
    pub(crate) fn kept(&self) -> usize {
        self.quantiles.kept()
    }

    pub(crate) fn condense(&mut self) {
        self.quantiles.condense();
    }
}

impl<'q> Meter<'q> {
    pub(crate) fn new(metric: &'q Metric, window: &'q Window) -> Self {
        Self {
            metric,
            window,
            seen: None,
            groups: HashMap::new(),
            cells: 0,
            kept: 0,
            metrics: Metrics::default(),
        }
    }

    /// Takes in a span; its start is believed when it is in this range.
    pub(crate) fn take(&mut self, row: &dyn Row, believed: &Range<u64>) {
        let start_nanos = row.start_nanos();
        if !self.window.range.contains(&start_nanos) {
            return;
        }
        if !believed.contains(&start_nanos) || row.has_bad_times() {
            self.metrics.suspect += 1;
            return;
        }
        let mut number = None;
        if let Some(field) = self.metric.function.field() {
            row.any(field, &mut |value| {
                number = value.number().filter(|number| !number.is_nan());
                number.is_some()
            });
            if number.is_none() {
                self.metrics.without_number += 1;
                return;
            }
        }
        let by = self.metric.by.iter().map(|field| value(field, row).unwrap_or(Owned::Nil));
        let key: Vec<Owned> = by.collect();
        let step = start_nanos - self.since_step(start_nanos);
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key)
            || self.cells >= MAX_CELLS
        {
            self.metrics.refused += 1;
            return;
        }
        let steps = self.groups.entry(key).or_default();
        let cell = match steps.entry(step) {
            std::collections::btree_map::Entry::Occupied(cell) => cell.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                self.cells += 1;
                place.insert(Cell::default())
            }
        };
        self.metrics.spans += 1;
        let (first, last) = self.seen.unwrap_or((start_nanos, start_nanos));
        self.seen = Some((first.min(start_nanos), last.max(start_nanos)));
        let before = cell.kept();
        cell.take(number, &self.metric.function);
        self.kept = (self.kept + cell.kept()).saturating_sub(before);
        self.bound_numbers();
    }

    /// Takes in what was counted by columns. There is one step only.
    pub(crate) fn take_all(&mut self, gathered: Gathered) {
        self.metrics.suspect += gathered.suspect;
        self.metrics.refused += gathered.refused;
        if let Some((first, last)) = gathered.seen {
            let (known_first, known_last) = self.seen.unwrap_or((first, last));
            self.seen = Some((known_first.min(first), known_last.max(last)));
        }
        for (group, cell) in gathered.groups() {
            self.metrics.spans += cell.spans();
            self.kept += cell.kept();
            let steps = self.groups.entry(group).or_default();
            let known = steps.entry(self.window.range.start).or_insert_with(|| {
                self.cells += 1;
                Cell::default()
            });
            known.merge(cell);
        }
        self.bound_numbers();
    }

    fn bound_numbers(&mut self) {
        if self.kept > MAX_KEPT {
            self.groups.values_mut().flat_map(BTreeMap::values_mut).for_each(Cell::condense);
            self.kept = 0;
        }
    }

    /// How far a time is into its step. Steps begin with the window, and where that is open at multiples of their length.
    fn since_step(&self, nanos: u64) -> u64 {
        let since_nanos = nanos - self.window.range.start;
        since_nanos.checked_rem(self.window.step_nanos).unwrap_or(since_nanos)
    }

    /// Begin of the only step, where there is one, and the length of steps.
    fn steps(&self) -> (Option<u64>, u64) {
        let Window { range, step_nanos } = self.window;
        if *step_nanos > 0 {
            return (None, *step_nanos);
        }
        let (first, last) = self.seen.unwrap_or_default();
        let start = if range.start == 0 { first } else { range.start };
        let is_open = range.start == 0 || range.end == u64::MAX;
        let end = if range.end == u64::MAX { last.saturating_add(1) } else { range.end };
        let length = end.saturating_sub(start).max(if is_open { LEAST_NANOS } else { 1 });
        (Some(start), length)
    }

    pub(crate) fn finish(mut self) -> Metrics {
        let steps = self.steps();
        let names: Vec<String> = self.metric.by.iter().map(super::ast::Field::name).collect();
        let mut groups: Vec<_> = self.groups.drain().collect();
        groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let quantiles: Vec<Option<f64>> = match &self.metric.function {
            Function::Quantile(_, shares) => shares.iter().copied().map(Some).collect(),
            _ => vec![None],
        };
        for (key, mut cells) in groups {
            for quantile in &quantiles {
                let is_rough =
                    cells.values().any(|cell| cell.quantiles.method() == Method::Histogram);
                let method = if is_rough { Method::Histogram } else { Method::Exact };
                self.metrics.series.push(Series {
                    by: names.iter().cloned().zip(key.iter().cloned()).collect(),
                    quantile: *quantile,
                    method: quantile.map(|_| method),
                    spans: cells.values().map(|cell| cell.spans).sum(),
                    points: points(&self.metric.function, steps, &mut cells, *quantile),
                });
            }
        }
        self.metrics
    }
}

fn points(
    function: &Function,
    (only, step_nanos): (Option<u64>, u64),
    cells: &mut BTreeMap<u64, Cell>,
    quantile: Option<f64>,
) -> Vec<Point> {
    let point = |(at_nanos, cell): (&u64, &mut Cell)| {
        let value = match function {
            Function::Rate => cell.spans as f64 / (step_nanos as f64 / 1e9),
            Function::Count => cell.spans as f64,
            Function::Sum(_) => cell.sum,
            Function::Average(_) => cell.sum / cell.spans as f64,
            Function::Min(_) => cell.min?,
            Function::Max(_) => cell.max?,
            Function::Quantile(..) => cell.quantiles.at(quantile?)?,
        };
        Some(Point { at_nanos: only.unwrap_or(*at_nanos), value })
    };
    cells.iter_mut().filter_map(point).collect()
}
