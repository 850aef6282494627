//! Instruments and their points.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use lens_otlp::encode::put_key_value;
use lens_otlp::metrics::{Exemplar, HISTOGRAM_POINT_ATTRIBUTES, Number, POINT_ATTRIBUTES};

use super::exemplar::Exemplars;
use super::exponential::Exponential;
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

/// Whether histograms are exponential.
static EXPONENTIAL: AtomicBool = AtomicBool::new(false);

/// Measurements that no histogram can hold: NaN and infinities.
static NOT_FINITE: AtomicU64 = AtomicU64::new(0);

pub(super) fn set_exponential(exponential: bool) {
    EXPONENTIAL.store(exponential, Ordering::Relaxed);
}

pub(super) fn not_finite() -> u64 {
    NOT_FINITE.load(Ordering::Relaxed)
}

/// One point: lock-free, but for exponential histograms.
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
    exponential: OnceLock<Box<Mutex<Exponential>>>,
    exemplars: Exemplars,
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
            exponential: OnceLock::new(),
            exemplars: Exemplars::default(),
        }
    }

    pub(super) fn add(&self, value: i64) {
        self.int.fetch_add(value, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.exemplars.offer(0, Number::Int(value));
    }

    pub(super) fn add_unsigned(&self, value: u64) {
        self.add(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(super) fn set(&self, value: f64) {
        self.double.store(value.to_bits(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.exemplars.offer(0, Number::Double(value));
    }

    pub(super) fn record(&self, value: f64) {
        if !value.is_finite() {
            NOT_FINITE.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if EXPONENTIAL.load(Ordering::Relaxed) {
            return self.record_exponential(value);
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
        self.exemplars.offer(bucket, Number::Double(value));
    }

    #[cold]
    fn record_exponential(&self, value: f64) {
        lock(self.exponential.get_or_init(Box::default)).record(value);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.exemplars.offer(0, Number::Double(value));
    }
}

/// What one point says at an export.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observed {
    Int(i64),
    Double(f64),
    Histogram { count: u64, sum: f64, buckets: Vec<u64>, min: f64, max: f64 },
    Exponential(Box<Exponential>),
}

/// One attribute set and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// Encoded, sorted by key.
    pub attributes: Vec<u8>,
    pub value: Observed,
    pub exemplars: Vec<Exemplar>,
}

/// How sums and histograms relate to the collection before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deltas {
    /// Those that are added to.
    pub measured: bool,
    /// Those whose totals are asked for.
    pub observed: bool,
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
    /// Totals of the collection before, for deltas of what is observed.
    totals: Mutex<HashMap<Vec<u8>, i64>>,
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
        totals: Mutex::default(),
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
    ///
    /// With deltas a point begins anew, so there is one reader of them.
    pub(super) fn collect(&self, deltas: Deltas) -> Vec<Point> {
        let is_sum = !matches!(self.kind, Kind::UpDownCounter | Kind::Gauge);
        let deltas =
            Deltas { measured: deltas.measured && is_sum, observed: deltas.observed && is_sum };
        let cells: Vec<(Vec<u8>, Arc<Cell>)> = {
            let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
            cells.iter().map(|(key, cell)| (key.clone(), Arc::clone(cell))).collect()
        };
        let overflow = self.overflow.get().map(|cell| (self.overflow_key(), Arc::clone(cell)));
        let mut points: Vec<Point> = cells
            .into_iter()
            .chain(overflow)
            .filter(|(_, cell)| cell.count.load(Ordering::Relaxed) > 0)
            .map(|(attributes, cell)| {
                let value = if deltas.measured { self.take(&cell) } else { self.read(&cell) };
                Point { attributes, value, exemplars: cell.exemplars.take() }
            })
            .collect();
        let limit = CARDINALITY_LIMIT.load(Ordering::Relaxed);
        for callback in lock(&self.callbacks).iter() {
            let observe = std::panic::AssertUnwindSafe(callback);
            let observed = std::panic::catch_unwind(observe).unwrap_or_default();
            // One place is kept for what exceeds the limit.
            let room = limit.saturating_sub(points.len() + 1);
            let mut observed = observed.into_iter();
            for (attributes, value) in observed.by_ref().take(room) {
                points.push(Point { attributes, value, exemplars: Vec::new() });
            }
            for (_, value) in observed {
                self.put_overflow(&mut points, value);
            }
        }
        if deltas.observed && self.has_callbacks() {
            self.subtract_totals(&mut points);
        }
        points.sort_by(|left, right| left.attributes.cmp(&right.attributes));
        points
    }

    fn overflow_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        put_key_value(&mut key, self.field(), semconv::METRIC_OVERFLOW, &true);
        key
    }

    /// Adds to the point that takes what exceeds the limit: a sum stays the true total.
    fn put_overflow(&self, points: &mut Vec<Point>, value: Observed) {
        let attributes = self.overflow_key();
        match points.iter_mut().find(|point| point.attributes == attributes) {
            Some(Point { value: Observed::Int(sum), .. }) => {
                if let Observed::Int(value) = value {
                    *sum = sum.saturating_add(value);
                }
            }
            Some(point) => point.value = value,
            None => points.push(Point { attributes, value, exemplars: Vec::new() }),
        }
    }

    pub(super) fn has_callbacks(&self) -> bool {
        !lock(&self.callbacks).is_empty()
    }

    fn subtract_totals(&self, points: &mut [Point]) {
        let mut totals = lock(&self.totals);
        for point in points {
            if let Observed::Int(value) = &mut point.value {
                let before = totals.insert(point.attributes.clone(), *value).unwrap_or(0);
                // A total that shrank began anew.
                *value = if *value >= before { *value - before } else { *value };
            }
        }
    }

    /// Reads a point and begins it anew.
    fn take(&self, cell: &Cell) -> Observed {
        let take = |number: &AtomicU64, new: f64| number.swap(new.to_bits(), Ordering::Relaxed);
        cell.count.store(0, Ordering::Relaxed);
        match self.kind {
            Kind::Counter | Kind::UpDownCounter => {
                Observed::Int(cell.int.swap(0, Ordering::Relaxed))
            }
            Kind::Gauge => self.read(cell),
            Kind::Histogram(_) => match cell.exponential.get() {
                Some(exponential) => {
                    Observed::Exponential(Box::new(std::mem::take(&mut *lock(exponential))))
                }
                None => {
                    let buckets = cell.buckets.iter();
                    let buckets: Vec<u64> =
                        buckets.map(|bucket| bucket.swap(0, Ordering::Relaxed)).collect();
                    Observed::Histogram {
                        count: buckets.iter().sum(),
                        sum: f64::from_bits(take(&cell.double, 0.0)),
                        buckets,
                        min: f64::from_bits(take(&cell.min, f64::INFINITY)),
                        max: f64::from_bits(take(&cell.max, f64::NEG_INFINITY)),
                    }
                }
            },
        }
    }

    fn read(&self, cell: &Cell) -> Observed {
        if let Some(exponential) = cell.exponential.get() {
            return Observed::Exponential(Box::new(lock(exponential).clone()));
        }
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

    const CUMULATIVE: Deltas = Deltas { measured: false, observed: false };
    const BOUNDS: &[f64] = &[1.0, 2.0];

    fn instrument(name: &'static str, kind: Kind) -> Arc<Instrument> {
        register(name, "1", "", kind)
    }

    #[test]
    fn order_of_attributes_does_not_matter_and_the_last_of_a_key_wins() {
        let counter = instrument("test.order", Kind::Counter);
        counter.update(&[("a", 1.into()), ("b", 2.into())], |cell| cell.add(1));
        counter.update(&[("b", 9.into()), ("b", 2.into()), ("a", 1.into())], |cell| cell.add(2));
        let points = counter.collect(CUMULATIVE);
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].value, Observed::Int(3));
    }

    #[test]
    fn bucket_takes_values_up_to_and_with_its_bound() {
        let histogram = instrument("test.buckets", Kind::Histogram(BOUNDS));
        let before = not_finite();
        for value in [0.5, 1.0, 1.5, 2.0, 7.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            histogram.update(&[], |cell| cell.record(value));
        }
        let expected =
            Observed::Histogram { count: 5, sum: 12.0, buckets: vec![2, 2, 1], min: 0.5, max: 7.0 };
        assert_eq!(histogram.collect(CUMULATIVE)[0].value, expected);
        assert_eq!(not_finite() - before, 3, "what it cannot hold is counted");
    }

    #[test]
    fn attribute_sets_beyond_the_limit_share_one_overflow_point() {
        let counter = instrument("test.overflow", Kind::Counter);
        let limit = CARDINALITY_LIMIT.load(Ordering::Relaxed);
        for at in 0..limit + 10 {
            counter.update(&[("at", Value::from(at))], |cell| cell.add(1));
        }
        let points = counter.collect(CUMULATIVE);
        assert_eq!(points.len(), limit);
        let overflow = points.iter().filter(|point| point.value == Observed::Int(11)).count();
        assert_eq!(overflow, 1);
        assert_eq!(total(&points), limit as i64 + 10);
    }

    fn total(points: &[Point]) -> i64 {
        let value = |point: &Point| match point.value {
            Observed::Int(value) => value,
            _ => 0,
        };
        points.iter().map(value).sum()
    }

    #[test]
    fn observed_attribute_sets_beyond_the_limit_share_one_overflow_point_too() {
        let counter = instrument("test.overflow.observed", Kind::Counter);
        let observe = || (0..10_000).map(|at| (vec![("at", Value::from(at))], 1)).collect();
        counter.observe_with(observe, Observed::Int);
        let points = counter.collect(CUMULATIVE);
        assert_eq!(points.len(), CARDINALITY_LIMIT.load(Ordering::Relaxed));
        assert_eq!(total(&points), 10_000);
        let overflow = counter.overflow_key();
        assert_eq!(points.iter().filter(|point| point.attributes == overflow).count(), 1);
    }

    const DELTA: Deltas = Deltas { measured: true, observed: true };

    #[test]
    fn deltas_begin_anew_and_what_was_not_measured_is_not_told() {
        let counter = instrument("test.delta", Kind::Counter);
        let histogram = instrument("test.delta.histogram", Kind::Histogram(BOUNDS));
        let up_down = instrument("test.delta.up_down", Kind::UpDownCounter);
        for round in 0..2 {
            counter.update(&[], |cell| cell.add(3));
            histogram.update(&[], |cell| cell.record(1.5));
            up_down.update(&[], |cell| cell.add(2));
            assert_eq!(counter.collect(DELTA)[0].value, Observed::Int(3), "round {round}");
            let expected = Observed::Histogram {
                count: 1,
                sum: 1.5,
                buckets: vec![0, 1, 0],
                min: 1.5,
                max: 1.5,
            };
            assert_eq!(histogram.collect(DELTA)[0].value, expected);
            let total = 2 * (round + 1);
            assert_eq!(up_down.collect(DELTA)[0].value, Observed::Int(total), "never a delta");
        }
        assert!(counter.collect(DELTA).is_empty() && histogram.collect(DELTA).is_empty());
    }

    #[test]
    fn observed_totals_become_deltas_unless_memory_is_to_be_saved() {
        let counter = instrument("test.delta.observed", Kind::Counter);
        static TOTAL: AtomicI64 = AtomicI64::new(5);
        let observe = || vec![(Vec::new(), TOTAL.load(Ordering::Relaxed))];
        counter.observe_with(observe, Observed::Int);
        let value = |deltas| counter.collect(deltas)[0].value.clone();
        assert_eq!(value(DELTA), Observed::Int(5));
        TOTAL.store(7, Ordering::Relaxed);
        let low_memory = Deltas { measured: true, observed: false };
        assert_eq!(value(low_memory), Observed::Int(7));
        assert_eq!(value(DELTA), Observed::Int(2));
        TOTAL.store(1, Ordering::Relaxed);
        assert_eq!(value(DELTA), Observed::Int(1), "it began anew");
    }

    #[test]
    fn callback_that_panicked_once_is_asked_again() {
        let gauge = instrument("test.callbacks.once", Kind::Gauge);
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let observe = || {
            assert!(CALLS.fetch_add(1, Ordering::Relaxed) > 0, "a callback's own fault");
            vec![(Vec::new(), 4.0)]
        };
        gauge.observe_with(observe, Observed::Double);
        assert!(gauge.collect(CUMULATIVE).is_empty());
        assert_eq!(gauge.collect(CUMULATIVE)[0].value, Observed::Double(4.0));
    }

    #[test]
    fn callback_that_panics_does_not_hide_the_others() {
        let gauge = instrument("test.callbacks", Kind::Gauge);
        gauge.observe_with(
            || -> Observations<f64> { panic!("a callback's own fault") },
            Observed::Double,
        );
        gauge.observe_with(|| vec![(Vec::new(), 4.0)], Observed::Double);
        assert_eq!(gauge.collect(CUMULATIVE)[0].value, Observed::Double(4.0));
    }

    #[test]
    fn instrument_that_was_never_used_has_no_point() {
        let counter = instrument("test.unused", Kind::Counter);
        let bound = counter.bind(&[]);
        assert!(counter.collect(CUMULATIVE).is_empty());
        bound.add(1);
        assert_eq!(counter.collect(CUMULATIVE).len(), 1);
    }
}
