//! Instruments, aggregated in this process and exported periodically.
//!
//! An instrument is a `static`; it joins the registry at its first use, and instruments of one name are one. While
//! metrics are off a measurement costs one relaxed load. Attribute sets of one instrument are bounded; what exceeds
//! the bound goes to one point with `otel.metric.overflow`.

mod aggregate;
mod console;
mod encode;
mod exemplar;
mod exponential;
pub(super) mod reader;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use aggregate::{Cell, Instrument, Kind, register};

use crate::Value;

/// Attributes of one measurement.
pub type Attributes<'a> = &'a [(&'static str, Value)];

/// What an observable instrument reports: one value for each attribute set.
pub type Observations<T> = Vec<(Vec<(&'static str, Value)>, T)>;

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Whether measurements are kept; one relaxed load.
#[inline]
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

pub(super) fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Upper bounds that the specification gives to histograms without bounds of their own.
const DEFAULT_BOUNDS: &[f64] = &[
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0,
    10000.0,
];

#[derive(Clone, Debug)]
struct Handle {
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    kind: Kind,
    instrument: OnceLock<Arc<Instrument>>,
}

impl Handle {
    const fn new(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        kind: Kind,
    ) -> Self {
        Self { name, unit, description, kind, instrument: OnceLock::new() }
    }

    fn get(&self) -> &Arc<Instrument> {
        self.instrument.get_or_init(|| register(self.name, self.unit, self.description, self.kind))
    }

    #[inline]
    fn update(&self, attributes: Attributes<'_>, update: impl FnOnce(&Cell)) {
        if is_enabled() {
            self.get().update(attributes, update);
        }
    }

    fn bind(&self, attributes: Attributes<'_>) -> Arc<Cell> {
        self.get().bind(attributes)
    }
}

macro_rules! instrument {
    ($(#[$doc:meta])* $name:ident, $bound:ident, $kind:expr, $method:ident, $what:literal, $value:ty, $update:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Handle);

        impl $name {
            /// An instrument by name, unit (UCUM) and description.
            pub const fn new(
                name: &'static str,
                unit: &'static str,
                description: &'static str,
            ) -> Self {
                Self(Handle::new(name, unit, description, $kind))
            }

            #[doc = $what]
            #[inline]
            pub fn $method(&self, value: $value, attributes: Attributes<'_>) {
                self.0.update(attributes, |cell| cell.$update(value));
            }

            /// A handle for one attribute set, for hot paths: no lookup, atomics only.
            pub fn bind(&self, attributes: Attributes<'_>) -> $bound {
                $bound(self.0.bind(attributes))
            }
        }

        /// An instrument bound to one attribute set.
        #[derive(Clone, Debug)]
        pub struct $bound(Arc<Cell>);

        impl $bound {
            #[doc = $what]
            #[inline]
            pub fn $method(&self, value: $value) {
                if is_enabled() {
                    self.0.$update(value);
                }
            }
        }
    };
}

instrument!(
    /// A sum that only grows.
    Counter, BoundCounter, Kind::Counter, add, "Adds to the sum.", u64, add_unsigned
);
instrument!(
    /// A sum that grows and shrinks.
    UpDownCounter, BoundUpDownCounter, Kind::UpDownCounter, add, "Adds to the sum; negative values shrink it.", i64, add
);
instrument!(
    /// The last value.
    Gauge, BoundGauge, Kind::Gauge, set, "Sets the value.", f64, set
);
instrument!(
    /// A distribution, counted in buckets.
    Histogram, BoundHistogram, Kind::Histogram(DEFAULT_BOUNDS), record, "Records a value; NaN and infinities are counted and not kept.", f64, record
);

impl Histogram {
    /// A histogram with its own upper bounds, ascending.
    pub const fn with_bounds(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        bounds: &'static [f64],
    ) -> Self {
        Self(Handle::new(name, unit, description, Kind::Histogram(bounds)))
    }
}

impl Counter {
    /// A counter whose totals are asked for at each export. A callback that panics is skipped.
    pub fn observable(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        observe: impl Fn() -> Observations<u64> + Send + Sync + 'static,
    ) {
        register(name, unit, description, Kind::Counter).observe_with(observe, |value| {
            aggregate::Observed::Int(i64::try_from(value).unwrap_or(i64::MAX))
        });
    }
}

impl UpDownCounter {
    /// A sum whose totals are asked for at each export. A callback that panics is skipped.
    pub fn observable(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        observe: impl Fn() -> Observations<i64> + Send + Sync + 'static,
    ) {
        register(name, unit, description, Kind::UpDownCounter)
            .observe_with(observe, aggregate::Observed::Int);
    }
}

impl Gauge {
    /// A gauge whose values are asked for at each export. A callback that panics is skipped.
    pub fn observable(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        observe: impl Fn() -> Observations<f64> + Send + Sync + 'static,
    ) {
        register(name, unit, description, Kind::Gauge)
            .observe_with(observe, aggregate::Observed::Double);
    }
}
