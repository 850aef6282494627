//! Metrics that were received, as series with their latest values.
//!
//! Deltas are accumulated here, cumulative values are shown as they came. A series belongs to a process and goes when
//! that has not been heard from for a while, so that no scrape shows a process that is no more.

mod labels;
mod number;
mod powers;
mod series;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use lens_otlp::DecodeError;
use lens_otlp::view::metrics::{Data, MetricView};
use lens_otlp::view::{Attributes, resources};

use super::names::{self, Kind, Unit};
use super::page::Page;
use labels::{identity, join, labels, scope_labels};
use powers::Exponents;
use series::{Point, Series, Value};

const DELTA: u64 = 1;
/// Longest value of a label, and description.
const MAX_TEXT_CHARS: usize = 512;
/// Bytes of the labels of a series, and of a name.
const MAX_LABELS_BYTES: usize = 8 << 10;
const MAX_NAME_BYTES: usize = 256;
/// Bytes of labels for each sample that is allowed, on average.
const LABEL_BYTES_PER_SAMPLE: usize = 256;

/// Series of one name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    help: String,
    /// The range that buckets of exponential histograms have had, so that all series of the family have the same.
    exponents: Exponents,
    series: HashMap<String, Owned>,
}

#[derive(Debug)]
struct Owned {
    process: String,
    /// The metric's own name: in base units `used` in bytes and `used_mib` are one, and the first has the series.
    source: Box<str>,
    series: Series,
}

#[derive(Debug)]
struct Process {
    heard: Instant,
    /// Labels of `target_info`.
    info: String,
}

/// What became of points that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// As many samples as allowed are there already.
    pub full: u64,
    /// Another metric has the name, and is of another kind.
    pub conflicting: u64,
    /// Older than what is shown, or sent twice.
    pub outdated: u64,
    /// Of a kind that is not shown.
    pub unsupported: u64,
}

/// The series.
#[derive(Debug)]
pub(super) struct ReceivedMetrics {
    families: BTreeMap<String, Family>,
    processes: HashMap<String, Process>,
    size: Size,
    max_samples: usize,
    stale_after: Duration,
    refused: Refused,
}

/// What series take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    samples: usize,
    label_bytes: usize,
}

impl Size {
    fn of(labels: &str, series: &Series) -> Self {
        Self { samples: series.samples(), label_bytes: labels.len() }
    }

    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.label_bytes += other.label_bytes;
    }

    fn remove(&mut self, other: Self) {
        self.samples -= other.samples;
        self.label_bytes -= other.label_bytes;
    }

    fn fits(self, more: Self, max_samples: usize) -> bool {
        self.samples + more.samples <= max_samples
            && self.label_bytes + more.label_bytes <= max_samples * LABEL_BYTES_PER_SAMPLE
    }
}

/// What a point comes with.
struct Origin<'a> {
    process: &'a str,
    scope: &'a str,
}

impl ReceivedMetrics {
    pub(super) fn new(max_samples: usize, stale_after: Duration) -> Self {
        Self {
            families: BTreeMap::new(),
            processes: HashMap::new(),
            size: Size::default(),
            max_samples,
            stale_after,
            refused: Refused::default(),
        }
    }

    /// Samples, and how many there may be.
    pub(super) fn fill(&self) -> (usize, usize) {
        (self.size.samples, self.max_samples)
    }

    pub(super) fn refused(&self) -> Refused {
        self.refused
    }

    /// Processes that were heard from.
    pub(super) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Takes a request that was accepted.
    pub(super) fn take(&mut self, request: &[u8], now: Instant) -> Result<(), DecodeError> {
        self.forget_silent(now);
        for resource in resources(request) {
            let resource = resource?;
            let (process, info) = identity(&resource)?;
            let size = Size { samples: 1, label_bytes: process.len() };
            match self.processes.entry(process.clone()) {
                Entry::Occupied(mut known) => *known.get_mut() = Process { heard: now, info },
                Entry::Vacant(_)
                    if process.len() > MAX_LABELS_BYTES
                        || !self.size.fits(size, self.max_samples) =>
                {
                    self.refused.full += 1;
                    continue;
                }
                Entry::Vacant(new) => {
                    new.insert(Process { heard: now, info });
                    self.size.add(size);
                }
            }
            for scope in resource.scopes() {
                let scope = scope?;
                let scope_labels = scope_labels(&scope);
                let origin = Origin { process: &process, scope: &scope_labels };
                for message in scope.items() {
                    self.metric(&MetricView::read(message?)?, &origin)?;
                }
            }
        }
        Ok(())
    }

    fn metric(&mut self, metric: &MetricView<'_>, origin: &Origin<'_>) -> Result<(), DecodeError> {
        let (kind, temporality) = match metric.data {
            Data::Gauge => (Kind::Gauge, 0),
            Data::Sum { monotonic: true, temporality } => (Kind::Counter, temporality),
            Data::Sum { monotonic: false, temporality } => (Kind::Gauge, temporality),
            Data::Histogram { temporality } | Data::Exponential { temporality } => {
                (Kind::Histogram, temporality)
            }
            Data::Unknown => {
                self.refused.unsupported += 1;
                return Ok(());
            }
        };
        let is_delta = temporality == DELTA;
        if metric.name.len() > MAX_NAME_BYTES {
            self.refused.unsupported += 1;
            return Ok(());
        }
        let (name, unit) = names::family(metric.name, metric.unit, kind);
        let family = self.families.entry(name.clone()).or_insert_with(|| Family {
            kind,
            help: metric.description.chars().take(MAX_TEXT_CHARS).collect(),
            exponents: Exponents::default(),
            series: HashMap::new(),
        });
        if family.kind != kind {
            self.refused.conflicting += 1;
            return Ok(());
        }
        let mut taking = Taking {
            source: metric.name,
            family,
            origin,
            is_delta,
            size: &mut self.size,
            max_samples: self.max_samples,
            refused: &mut self.refused,
        };
        let taken = taking.metric(metric, unit);
        if taking.family.series.is_empty() {
            // Names alone would add up.
            self.families.remove(&name);
        }
        taken
    }

    /// Forgets processes that have not been heard from, with their series.
    pub(super) fn forget_silent(&mut self, now: Instant) {
        let before = self.processes.len();
        let stale_after = self.stale_after;
        self.processes.retain(|_, process| now.duration_since(process.heard) < stale_after);
        if self.processes.len() == before {
            return;
        }
        let processes = &self.processes;
        let mut size =
            Size { samples: processes.len(), label_bytes: processes.keys().map(String::len).sum() };
        self.families.retain(|_, family| {
            family.series.retain(|_, owned| processes.contains_key(&owned.process));
            for (labels, owned) in &family.series {
                size.add(Size::of(labels, &owned.series));
            }
            !family.series.is_empty()
        });
        self.size = size;
    }

    pub(super) fn put(&self, page: &mut Page) {
        for (name, family) in &self.families {
            if family.series.is_empty() {
                continue;
            }
            page.family(name, family.kind, &family.help);
            let mut rows: Vec<_> = family.series.iter().collect();
            rows.sort_by_key(|(labels, _)| *labels);
            for (labels, owned) in rows {
                owned.series.put(page, labels, family.exponents);
            }
        }
        let mut infos: Vec<String> = self
            .processes
            .iter()
            .filter(|(_, process)| !process.info.is_empty())
            .map(|(identity, process)| join(identity, &process.info))
            .collect();
        infos.sort();
        if !infos.is_empty() {
            page.info("target", "Processes that metrics were received from.", infos.into_iter());
        }
    }
}

struct Taking<'a> {
    source: &'a str,
    family: &'a mut Family,
    origin: &'a Origin<'a>,
    is_delta: bool,
    size: &'a mut Size,
    max_samples: usize,
    refused: &'a mut Refused,
}

impl Taking<'_> {
    fn metric(&mut self, metric: &MetricView<'_>, unit: Unit) -> Result<(), DecodeError> {
        for point in metric.number_points() {
            let point = point?;
            self.point(point.attributes(), Point::of_number(&point, unit)?)?;
        }
        for point in metric.histogram_points() {
            let point = point?;
            self.point(point.attributes(), Point::of_histogram(&point, unit)?)?;
        }
        for point in metric.exponential_points() {
            let point = point?;
            self.point(point.attributes(), Point::of_exponential(&point, unit)?)?;
        }
        Ok(())
    }

    fn point(&mut self, attributes: Attributes<'_>, point: Point) -> Result<(), DecodeError> {
        let labels = join(self.origin.process, &join(&labels(attributes)?, self.origin.scope));
        let Some(value) = point.value else {
            // "No recorded value": the series has ended.
            if let Some(owned) = self.family.series.remove(&labels) {
                self.size.remove(Size::of(&labels, &owned.series));
            }
            return Ok(());
        };
        if let Value::Exponential(buckets) = &value {
            self.family.exponents.cover(buckets);
        }
        match self.family.series.entry(labels) {
            Entry::Occupied(known) if *known.get().source != *self.source => {
                self.refused.conflicting += 1;
            }
            Entry::Occupied(mut known) => {
                let series = &mut known.get_mut().series;
                self.size.samples -= series.samples();
                if !series.advance(value, point.end_nanos, point.exemplars, self.is_delta) {
                    self.refused.outdated += 1;
                }
                self.size.samples += series.samples();
            }
            Entry::Vacant(new) => {
                let series = Series::new(value, point.end_nanos, point.exemplars);
                let size = Size::of(new.key(), &series);
                if new.key().len() > MAX_LABELS_BYTES || !self.size.fits(size, self.max_samples) {
                    self.refused.full += 1;
                    return Ok(());
                }
                self.size.add(size);
                let process = self.origin.process.to_owned();
                new.insert(Owned { process, source: self.source.into(), series });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
