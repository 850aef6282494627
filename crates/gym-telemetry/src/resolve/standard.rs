//! Standard OpenTelemetry variables that no block key stands for.
//!
//! Defaults are those of the pipeline that obeys them, so that what is shown is what is used.

use lens::config::{
    ExemplarFilter, HistogramAggregation, LensConfig, RESOURCE_ATTRIBUTES_EXPECTED, Sampler,
    TemporalityPreference, parse_resource_attributes,
};

use super::layers::Layers;
use crate::{env_vars, origin::Sourced};

/// The limits, delays and choices of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Standard {
    /// `key=value,…` added to the resource.
    pub resource_attributes: Sourced<Option<String>>,
    /// Name of the sampler.
    pub traces_sampler: Sourced<String>,
    /// The sampler's argument.
    pub traces_sampler_arg: Sourced<Option<String>>,
    /// Propagators, comma-separated.
    pub propagators: Sourced<String>,
    /// What an export of metrics says about sums and histograms.
    pub temporality: Sourced<TemporalityPreference>,
    /// The buckets of histograms.
    pub histogram_aggregation: Sourced<HistogramAggregation>,
    /// Which measurements are told with their trace.
    pub exemplar_filter: Sourced<ExemplarFilter>,
    /// Numbers, by variable; `None` is no limit.
    pub numbers: Vec<(&'static str, Sourced<Option<u64>>)>,
}

type Default = fn(&LensConfig) -> Option<u64>;

/// The variable, the more general one that stands in for it, and the default.
const NUMBERS: &[(&str, Option<&str>, Default)] = &[
    (env_vars::OTEL_BSP_SCHEDULE_DELAY, None, |c| millis(c.batch.schedule_delay)),
    (env_vars::OTEL_BSP_EXPORT_TIMEOUT, None, |c| millis(c.batch.export_timeout)),
    (env_vars::OTEL_BSP_MAX_QUEUE_SIZE, None, |c| c.batch.max_queue_spans.and_then(count)),
    (env_vars::OTEL_BSP_MAX_EXPORT_BATCH_SIZE, None, |c| c.batch.max_batch_spans.and_then(count)),
    (env_vars::OTEL_BLRP_SCHEDULE_DELAY, None, |c| millis(c.log_batch.schedule_delay)),
    (env_vars::OTEL_BLRP_EXPORT_TIMEOUT, None, |c| millis(c.log_batch.export_timeout)),
    (env_vars::OTEL_BLRP_MAX_QUEUE_SIZE, None, |c| c.log_batch.max_queue_spans.and_then(count)),
    (env_vars::OTEL_BLRP_MAX_EXPORT_BATCH_SIZE, None, |c| {
        c.log_batch.max_batch_spans.and_then(count)
    }),
    (env_vars::OTEL_METRIC_EXPORT_INTERVAL, None, |c| millis(c.metric_interval)),
    (env_vars::OTEL_METRIC_EXPORT_TIMEOUT, None, |c| millis(c.metric_timeout)),
    (env_vars::OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, Some(env_vars::OTEL_ATTRIBUTE_COUNT_LIMIT), |c| {
        count(c.limits.attributes)
    }),
    (
        env_vars::OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT,
        Some(env_vars::OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT),
        |c| count(c.limits.attribute_value_chars),
    ),
    (env_vars::OTEL_SPAN_EVENT_COUNT_LIMIT, None, |c| count(c.limits.events)),
    (env_vars::OTEL_SPAN_LINK_COUNT_LIMIT, None, |c| count(c.limits.links)),
    (env_vars::OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT, Some(env_vars::OTEL_ATTRIBUTE_COUNT_LIMIT), |c| {
        count(c.limits.event_attributes)
    }),
    (env_vars::OTEL_LINK_ATTRIBUTE_COUNT_LIMIT, Some(env_vars::OTEL_ATTRIBUTE_COUNT_LIMIT), |c| {
        count(c.limits.link_attributes)
    }),
];

const SAMPLERS: &[&str] = &[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

impl Standard {
    /// A number by its variable; `None` is no limit.
    pub fn number(&self, variable: &str) -> Option<u64> {
        self.numbers.iter().find(|(name, _)| *name == variable).and_then(|(_, number)| number.value)
    }
}

pub(super) fn resolve(at: &mut Layers<'_>) -> Standard {
    let defaults = LensConfig::default();
    let mut numbers = Vec::with_capacity(NUMBERS.len());
    for (variable, general, default) in NUMBERS.iter().copied() {
        let names = [variable, general.unwrap_or(variable)];
        let names = if general.is_some() { &names[..] } else { &names[..1] };
        let number = at.standard(
            names,
            |text| text.trim().parse().ok().map(Some),
            "a whole number",
            None,
            default(&defaults),
        );
        numbers.push((variable, number));
    }
    let traces_sampler = at.standard(
        &[env_vars::OTEL_TRACES_SAMPLER],
        |text| {
            let text = text.trim().to_ascii_lowercase();
            SAMPLERS.contains(&text.as_str()).then_some(text)
        },
        "always_on, always_off, traceidratio or one of these with `parentbased_` before it",
        None,
        "parentbased_always_on".to_owned(),
    );
    // Only a ratio is read; whatever else stands there is another sampler's.
    let traces_sampler_arg = if traces_sampler.value.ends_with("traceidratio") {
        at.standard(
            &[env_vars::OTEL_TRACES_SAMPLER_ARG],
            |text| Sampler::parse_ratio(text).map(|_| Some(text.trim().to_owned())),
            "a number from 0 to 1",
            None,
            None,
        )
    } else {
        at.maybe(&[env_vars::OTEL_TRACES_SAMPLER_ARG])
    };
    Standard {
        resource_attributes: at.standard(
            &[env_vars::OTEL_RESOURCE_ATTRIBUTES],
            |text| parse_resource_attributes(text).map(|_| Some(text.trim().to_owned())),
            RESOURCE_ATTRIBUTES_EXPECTED,
            None,
            None,
        ),
        traces_sampler,
        traces_sampler_arg,
        propagators: at.standard(
            &[env_vars::OTEL_PROPAGATORS],
            parse_propagators,
            "a list of tracecontext and baggage, or none",
            None,
            "tracecontext,baggage".to_owned(),
        ),
        temporality: at.standard(
            &[env_vars::OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE],
            TemporalityPreference::from_name,
            "`cumulative`, `delta` or `lowmemory`",
            None,
            defaults.metrics.temporality,
        ),
        histogram_aggregation: at.standard(
            &[env_vars::OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION],
            HistogramAggregation::from_name,
            "`explicit_bucket_histogram` or `base2_exponential_bucket_histogram`",
            None,
            defaults.metrics.histogram,
        ),
        exemplar_filter: at.standard(
            &[env_vars::OTEL_METRICS_EXEMPLAR_FILTER],
            ExemplarFilter::from_name,
            "`trace_based`, `always_on` or `always_off`",
            None,
            defaults.metrics.exemplars,
        ),
        numbers,
    }
}

fn parse_propagators(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let is_known = |name: &str| matches!(name.trim(), "tracecontext" | "baggage" | "none" | "");
    text.split(',').all(is_known).then_some(text)
}

/// One value of `key=value,…`.
pub(super) fn resource_attribute(text: &str, key: &str) -> Option<String> {
    parse_resource_attributes(text)?
        .into_iter()
        .find(|(name, value)| name == key && !value.is_empty())
        .map(|(_, value)| value)
}

fn millis(duration: std::time::Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok()
}

/// The largest number stands for no limit.
fn count(limit: usize) -> Option<u64> {
    (limit != usize::MAX).then(|| u64::try_from(limit).unwrap_or(u64::MAX))
}
