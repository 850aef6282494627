//! How metrics are aggregated, by the names of the specification.

/// How metrics are aggregated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricSettings {
    /// What an export says about sums and histograms.
    pub temporality: TemporalityPreference,
    /// The buckets of histograms.
    pub histogram: HistogramAggregation,
    /// Which measurements may be told with their trace.
    pub exemplars: ExemplarFilter,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every name, as the specification writes it.
            pub const NAMES: &[&str] = &[$($text),*];

            /// By its name, in any case.
            pub fn from_name(name: &str) -> Option<Self> {
                match name.trim().to_ascii_lowercase().as_str() {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

choice! {
    /// `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`.
    TemporalityPreference {
        /// Everything since the start of the process.
        #[default]
        Cumulative = "cumulative",
        /// Counters and histograms since the last export.
        Delta = "delta",
        /// The same, but for counters that are observed: their totals need no memory here.
        LowMemory = "lowmemory",
    }
}

choice! {
    /// `OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION`.
    HistogramAggregation {
        /// The bounds that the instrument names.
        #[default]
        Explicit = "explicit_bucket_histogram",
        /// Buckets that grow by a constant factor, as fine as 160 of them allow.
        Exponential = "base2_exponential_bucket_histogram",
    }
}

choice! {
    /// `OTEL_METRICS_EXEMPLAR_FILTER`.
    ExemplarFilter {
        /// Those made inside of a span that is recorded.
        #[default]
        TraceBased = "trace_based",
        /// All.
        AlwaysOn = "always_on",
        /// None.
        AlwaysOff = "always_off",
    }
}
