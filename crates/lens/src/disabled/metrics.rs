//! Instruments that do nothing.

use crate::Value;

/// Attributes of one measurement.
pub type Attributes<'a> = &'a [(&'static str, Value)];

/// `false`.
#[inline(always)]
pub const fn is_enabled() -> bool {
    false
}

macro_rules! instrument {
    ($(#[$doc:meta])* $name:ident, $bound:ident, $method:ident, $value:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(());

        impl $name {
            /// An instrument by name, unit (UCUM) and description.
            pub const fn new(
                _name: &'static str,
                _unit: &'static str,
                _description: &'static str,
            ) -> Self {
                Self(())
            }
            /// Does nothing.
            #[inline(always)]
            pub fn $method(&self, _value: $value, _attributes: Attributes<'_>) {}
            /// A handle for one attribute set.
            #[inline(always)]
            pub fn bind(&self, _attributes: Attributes<'_>) -> $bound {
                $bound(())
            }
        }

        /// An instrument bound to one attribute set.
        #[derive(Clone, Debug)]
        pub struct $bound(());

        impl $bound {
            /// Does nothing.
            #[inline(always)]
            pub fn $method(&self, _value: $value) {}
        }
    };
}

instrument!(
    /// A sum that only grows.
    Counter, BoundCounter, add, u64
);
instrument!(
    /// A sum that grows and shrinks.
    UpDownCounter, BoundUpDownCounter, add, i64
);
instrument!(
    /// The last value.
    Gauge, BoundGauge, set, f64
);
instrument!(
    /// A distribution.
    Histogram, BoundHistogram, record, f64
);

/// What an observable instrument reports: one value for each attribute set.
pub type Observations<T> = Vec<(Vec<(&'static str, Value)>, T)>;

impl Counter {
    /// Does nothing.
    pub fn observable(
        _name: &'static str,
        _unit: &'static str,
        _description: &'static str,
        _observe: impl Fn() -> Observations<u64> + Send + Sync + 'static,
    ) {
    }
}

impl UpDownCounter {
    /// Does nothing.
    pub fn observable(
        _name: &'static str,
        _unit: &'static str,
        _description: &'static str,
        _observe: impl Fn() -> Observations<i64> + Send + Sync + 'static,
    ) {
    }
}

impl Gauge {
    /// Does nothing.
    pub fn observable(
        _name: &'static str,
        _unit: &'static str,
        _description: &'static str,
        _observe: impl Fn() -> Observations<f64> + Send + Sync + 'static,
    ) {
    }
}

impl Histogram {
    /// A histogram with its own upper bounds.
    pub const fn with_bounds(
        _name: &'static str,
        _unit: &'static str,
        _description: &'static str,
        _bounds: &'static [f64],
    ) -> Self {
        Self(())
    }
}
