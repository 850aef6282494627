//! Instruments and their points.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use lens_otlp::encode::put_key_value;
use lens_otlp::metrics::{HISTOGRAM_POINT_ATTRIBUTES, POINT_ATTRIBUTES};

use super::{Attributes, Observations};
use crate::enabled::lock;
use crate::semconv;

/// What an instrument measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Counter,
    UpDownCounter,
    Gauge,
    Histogram(&'static [f64]),
}

/// Distinct attribute sets of one instrument.
pub(super) static CARDINALITY_LIMIT: AtomicUsize = AtomicUsize::new(2000);

/// One point: lock-free.
#[derive(Debug)]
pub(super) struct Cell {
    /// Sums.
    int: AtomicI64,
    /// Bits of a gauge, or of a histogram's sum.
    double: AtomicU64,
    /// Measurements so far.
    count: AtomicU64,
    bounds: &'static [f64],
    buckets: Box<[AtomicU64]>,
    min: AtomicU64,
    max: AtomicU64,
}

fn update_double(bits: &AtomicU64, update: impl Fn(f64) -> f64) {
    let _ = bits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
        Some(update(f64::from_bits(bits)).to_bits())
    });
}

impl Cell {
    fn new(kind: Kind) -> Self {
        let bounds: &'static [f64] = match kind {
            Kind::Histogram(bounds) => bounds,
            _ => &[],
        };
        let buckets = match kind {
            Kind::Histogram(_) => (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            _ => Box::default(),
        };
        Self {
            int: AtomicI64::new(0),
            double: AtomicU64::new(0),
            count: AtomicU64::new(0),
            bounds,
            buckets,
            min: AtomicU64::new(f64::INFINITY.to_bits()),
            max: AtomicU64::new(f64::NEG_INFINITY.to_bits()),
        }
    }

    pub(super) fn add(&self, value: i64) {
        self.int.fetch_add(value, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_unsigned(&self, value: u64) {
        self.add(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(super) fn set(&self, value: f64) {
        self.double.store(value.to_bits(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        update_double(&self.double, |sum| sum + value);
        if value < f64::from_bits(self.min.load(Ordering::Relaxed)) {
            update_double(&self.min, |min| min.min(value));
        }
        if value > f64::from_bits(self.max.load(Ordering::Relaxed)) {
            update_double(&self.max, |max| max.max(value));
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// What one point says at an export.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observed {
    Int(i64),
    Double(f64),
    Histogram { count: u64, sum: f64, buckets: Vec<u64>, min: f64, max: f64 },
}

/// One attribute set and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// Encoded, sorted by key.
    pub attributes: Vec<u8>,
    pub value: Observed,
}

type Callback = Box<dyn Fn() -> Vec<(Vec<u8>, Observed)> + Send + Sync>;

/// One instrument of the process.
pub(super) struct Instrument {
    pub name: &'static str,
    pub unit: &'static str,
    pub description: &'static str,
    pub kind: Kind,
    cells: RwLock<HashMap<Vec<u8>, Arc<Cell>>>,
    /// The point without attributes, found without a look-up.
    bare: OnceLock<Arc<Cell>>,
    overflow: OnceLock<Arc<Cell>>,
    callbacks: Mutex<Vec<Callback>>,
}

impl std::fmt::Debug for Instrument {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Instrument").field("name", &self.name).finish_non_exhaustive()
    }
}

static INSTRUMENTS: Mutex<Vec<Arc<Instrument>>> = Mutex::new(Vec::new());

/// The instrument of a name; the first registration decides unit, description and kind, unless the kinds differ.
pub(super) fn register(
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    kind: Kind,
) -> Arc<Instrument> {
    let mut instruments = lock(&INSTRUMENTS);
    let same_kind =
        |left: Kind, right: Kind| std::mem::discriminant(&left) == std::mem::discriminant(&right);
    let known = instruments.iter().find(|known| known.name == name && same_kind(known.kind, kind));
    if let Some(known) = known {
        return Arc::clone(known);
    }
    let instrument = Arc::new(Instrument {
        name,
        unit,
        description,
        kind,
        cells: RwLock::default(),
        bare: OnceLock::new(),
        overflow: OnceLock::new(),
        callbacks: Mutex::default(),
    });
    instruments.push(Arc::clone(&instrument));
    instrument
}

/// Every instrument, in the order of registration.
pub(super) fn instruments() -> Vec<Arc<Instrument>> {
    lock(&INSTRUMENTS).clone()
}

thread_local! {
    static KEY: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Instrument {
    fn field(&self) -> u8 {
        match self.kind {
            Kind::Histogram(_) => HISTOGRAM_POINT_ATTRIBUTES,
            _ => POINT_ATTRIBUTES,
        }
    }

    /// Appends attributes sorted by key; of a repeated key the last value counts.
    fn encode(&self, attributes: Attributes<'_>, out: &mut Vec<u8>) {
        let mut order: [usize; 16] = [0; 16];
        let mut long;
        let order: &mut [usize] = if attributes.len() <= order.len() {
            &mut order[..attributes.len()]
        } else {
            long = vec![0; attributes.len()];
            &mut long
        };
        for (at, slot) in order.iter_mut().enumerate() {
            *slot = at;
        }
        order.sort_by_key(|at| attributes[*at].0);
        for (at, index) in order.iter().enumerate() {
            let (key, value) = &attributes[*index];
            let repeated = order.get(at + 1).is_some_and(|next| attributes[*next].0 == *key);
            if !repeated {
                put_key_value(out, self.field(), key, value);
            }
        }
    }

    pub(super) fn update(&self, attributes: Attributes<'_>, update: impl FnOnce(&Cell)) {
        if attributes.is_empty() {
            return update(self.bare.get_or_init(|| self.create(&[])));
        }
        let mut key = KEY.try_with(std::cell::RefCell::take).unwrap_or_default();
        key.clear();
        self.encode(attributes, &mut key);
        let known = {
            let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
            match cells.get(&key) {
                Some(cell) => {
                    update(cell);
                    None
                }
                None => Some(update),
            }
        };
        if let Some(update) = known {
            update(&self.create(&key));
        }
        let _ = KEY.try_with(|cell| cell.replace(key));
    }

    pub(super) fn bind(&self, attributes: Attributes<'_>) -> Arc<Cell> {
        let mut key = Vec::new();
        self.encode(attributes, &mut key);
        self.create(&key)
    }

    fn create(&self, key: &[u8]) -> Arc<Cell> {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(key) {
            return Arc::clone(cell);
        }
        if cells.len() + 1 >= CARDINALITY_LIMIT.load(Ordering::Relaxed) {
            return Arc::clone(self.overflow.get_or_init(|| Arc::new(Cell::new(self.kind))));
        }
        let cell = Arc::new(Cell::new(self.kind));
        cells.insert(key.to_vec(), Arc::clone(&cell));
        cell
    }

    pub(super) fn observe_with<T: 'static>(
        self: &Arc<Self>,
        observe: impl Fn() -> Observations<T> + Send + Sync + 'static,
        value: impl Fn(T) -> Observed + Send + Sync + 'static,
    ) {
        let instrument = Arc::downgrade(self);
        let callback = move || {
            let Some(instrument) = instrument.upgrade() else { return Vec::new() };
            let observations = observe().into_iter();
            let encode = |(attributes, observed): (Vec<_>, T)| {
                let mut key = Vec::new();
                instrument.encode(&attributes, &mut key);
                (key, value(observed))
            };
            observations.map(encode).collect()
        };
        lock(&self.callbacks).push(Box::new(callback));
    }

    /// All points that have been measured, in the order of their attributes.
    pub(super) fn collect(&self) -> Vec<Point> {
        let cells: Vec<(Vec<u8>, Arc<Cell>)> = {
            let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
            cells.iter().map(|(key, cell)| (key.clone(), Arc::clone(cell))).collect()
        };
        let overflow = self.overflow.get().map(|cell| {
            let mut key = Vec::new();
            put_key_value(&mut key, self.field(), semconv::METRIC_OVERFLOW, &true);
            (key, Arc::clone(cell))
        });
        let mut points: Vec<Point> = cells
            .into_iter()
            .chain(overflow)
            .filter(|(_, cell)| cell.count.load(Ordering::Relaxed) > 0)
            .map(|(attributes, cell)| Point { attributes, value: self.read(&cell) })
            .collect();
        let limit = CARDINALITY_LIMIT.load(Ordering::Relaxed);
        for callback in lock(&self.callbacks).iter() {
            let observe = std::panic::AssertUnwindSafe(callback);
            let observed = std::panic::catch_unwind(observe).unwrap_or_default();
            let room = limit.saturating_sub(points.len());
            points.extend(
                observed
                    .into_iter()
                    .take(room)
                    .map(|(attributes, value)| Point { attributes, value }),
            );
        }
        points.sort_by(|left, right| left.attributes.cmp(&right.attributes));
        points
    }

    fn read(&self, cell: &Cell) -> Observed {
        match self.kind {
            Kind::Counter | Kind::UpDownCounter => Observed::Int(cell.int.load(Ordering::Relaxed)),
            Kind::Gauge => Observed::Double(f64::from_bits(cell.double.load(Ordering::Relaxed))),
            Kind::Histogram(_) => {
                let buckets: Vec<u64> =
                    cell.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
                Observed::Histogram {
                    // The sum of the buckets, so that a point never contradicts itself.
                    count: buckets.iter().sum(),
                    sum: f64::from_bits(cell.double.load(Ordering::Relaxed)),
                    buckets,
                    min: f64::from_bits(cell.min.load(Ordering::Relaxed)),
                    max: f64::from_bits(cell.max.load(Ordering::Relaxed)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    const BOUNDS: &[f64] = &[1.0, 2.0];

    fn instrument(name: &'static str, kind: Kind) -> Arc<Instrument> {
        register(name, "1", "", kind)
    }

    #[test]
    fn order_of_attributes_does_not_matter_and_the_last_of_a_key_wins() {
        let counter = instrument("test.order", Kind::Counter);
        counter.update(&[("a", 1.into()), ("b", 2.into())], |cell| cell.add(1));
        counter.update(&[("b", 9.into()), ("b", 2.into()), ("a", 1.into())], |cell| cell.add(2));
        let points = counter.collect();
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].value, Observed::Int(3));
    }

    #[test]
    fn bucket_takes_values_up_to_and_with_its_bound() {
        let histogram = instrument("test.buckets", Kind::Histogram(BOUNDS));
        for value in [0.5, 1.0, 1.5, 2.0, 7.0, f64::NAN] {
            histogram.update(&[], |cell| cell.record(value));
        }
        let expected =
            Observed::Histogram { count: 5, sum: 12.0, buckets: vec![2, 2, 1], min: 0.5, max: 7.0 };
        assert_eq!(histogram.collect()[0].value, expected);
    }

    #[test]
    fn attribute_sets_beyond_the_limit_share_one_overflow_point() {
        let counter = instrument("test.overflow", Kind::Counter);
        let limit = CARDINALITY_LIMIT.load(Ordering::Relaxed);
        for at in 0..limit + 10 {
            counter.update(&[("at", Value::from(at))], |cell| cell.add(1));
        }
        let points = counter.collect();
        assert_eq!(points.len(), limit);
        let overflow = points.iter().filter(|point| point.value == Observed::Int(11)).count();
        assert_eq!(overflow, 1);
    }

    #[test]
    fn callback_that_panics_does_not_hide_the_others() {
        let gauge = instrument("test.callbacks", Kind::Gauge);
        gauge.observe_with(
            || -> Observations<f64> { panic!("a callback's own fault") },
            Observed::Double,
        );
        gauge.observe_with(|| vec![(Vec::new(), 4.0)], Observed::Double);
        assert_eq!(gauge.collect()[0].value, Observed::Double(4.0));
    }

    #[test]
    fn instrument_that_was_never_used_has_no_point() {
        let counter = instrument("test.unused", Kind::Counter);
        let bound = counter.bind(&[]);
        assert!(counter.collect().is_empty());
        bound.add(1);
        assert_eq!(counter.collect().len(), 1);
    }
}
