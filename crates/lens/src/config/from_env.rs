//! The environment as settings.

mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{
    BatchSettings, ExemplarFilter, ExportSettings, ExporterKind, HistogramAggregation, LensConfig,
    LiveEvents, MetricSettings, OtlpSettings, Propagators, Protocol, Sampler, Signal, SpanLimits,
    TemporalityPreference, default_endpoint, doubled_path, signal_url,
};
use crate::env_vars as vars;

pub use text::{
    RESOURCE_ATTRIBUTES_EXPECTED, parse_bool, parse_headers, parse_resource_attributes,
};

/// A setting that could not be used; the default holds in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// The variable.
    pub variable: String,
    /// What is wrong with it, as the rest of a sentence that begins with its name.
    pub problem: String,
}

impl ConfigWarning {
    fn ignored(variable: &str, expected: &str) -> Self {
        Self { variable: variable.to_owned(), problem: format!("is ignored: expected {expected}") }
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.variable, self.problem)
    }
}

const BOOL_EXPECTED: &str = "a boolean (1 true yes on, 0 false no off)";

struct Env<'a> {
    map: &'a BTreeMap<String, String>,
    prefixes: &'a [&'a str],
    warnings: Vec<ConfigWarning>,
}

impl<'a> Env<'a> {
    /// The variable, unless empty or blank.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.map.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.get(name)?;
        let value = parse(text);
        if value.is_none() {
            self.warnings.push(ConfigWarning::ignored(name, expected));
        }
        value
    }

    /// The first prefix under which the variable is set.
    fn prefixed<T>(
        &mut self,
        suffix: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let name = self
            .prefixes
            .iter()
            .map(|prefix| format!("{prefix}{suffix}"))
            .find(|name| self.get(name).is_some())?;
        self.parsed(&name, expected, parse)
    }

    fn boolean(&mut self, suffix: &str) -> Option<bool> {
        self.prefixed(suffix, BOOL_EXPECTED, parse_bool)
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        self.parsed(name, "milliseconds", |text| text.parse().ok().map(Duration::from_millis))
    }

    fn count(&mut self, name: &str) -> Option<usize> {
        self.parsed(name, "a count", |text| text.parse().ok())
    }

    /// The per-signal form of an OTLP variable, else the general one; the name that is set.
    fn signal_name(&self, signal: Signal, general: &str) -> Option<String> {
        let rest = general.strip_prefix(vars::OTEL_EXPORTER_OTLP)?;
        let own = format!("{}{}_{rest}", vars::OTEL_EXPORTER_OTLP, signal.env_name());
        [own, general.to_owned()].into_iter().find(|name| self.get(name).is_some())
    }

    fn otlp(&mut self, signal: Signal) -> OtlpSettings {
        let mut settings = OtlpSettings::for_signal(signal);
        if let Some(name) = self.signal_name(signal, vars::OTEL_EXPORTER_OTLP_PROTOCOL) {
            let expected = "grpc, http/protobuf or http/json";
            settings.protocol =
                self.parsed(&name, expected, Protocol::from_name).unwrap_or(settings.protocol);
        }
        let own = format!("{}{}_ENDPOINT", vars::OTEL_EXPORTER_OTLP, signal.env_name());
        settings.endpoint = match self.get(&own) {
            Some(endpoint) => endpoint.to_owned(),
            None => {
                let base = self
                    .get(vars::OTEL_EXPORTER_OTLP_ENDPOINT)
                    .unwrap_or(default_endpoint(settings.protocol));
                if let Some(problem) = doubled_path(base, settings.protocol) {
                    let variable = vars::OTEL_EXPORTER_OTLP_ENDPOINT.to_owned();
                    let warning = ConfigWarning { variable, problem };
                    if !self.warnings.contains(&warning) {
                        self.warnings.push(warning);
                    }
                }
                signal_url(base, settings.protocol, signal)
            }
        };
        if !settings.endpoint.contains("://") {
            let insecure = self
                .signal_name(signal, vars::OTEL_EXPORTER_OTLP_INSECURE)
                .and_then(|name| self.parsed(&name, BOOL_EXPECTED, parse_bool))
                .unwrap_or(false);
            let scheme = if insecure { "http" } else { "https" };
            settings.endpoint = format!("{scheme}://{}", settings.endpoint);
        }
        if let Some(name) = self.signal_name(signal, vars::OTEL_EXPORTER_OTLP_HEADERS) {
            settings.headers = self.get(&name).map(parse_headers).unwrap_or_default();
        }
        if let Some(name) = self.signal_name(signal, vars::OTEL_EXPORTER_OTLP_TIMEOUT) {
            settings.timeout = self.millis(&name).unwrap_or(settings.timeout);
        }
        if let Some(name) = self.signal_name(signal, vars::OTEL_EXPORTER_OTLP_COMPRESSION) {
            let parse = |text: &str| match text.to_ascii_lowercase().as_str() {
                "gzip" => Some(true),
                "none" => Some(false),
                _ => None,
            };
            settings.gzip = self.parsed(&name, "gzip or none", parse).unwrap_or(false);
        }
        let path = |env: &Self, general: &str| {
            env.signal_name(signal, general).and_then(|name| env.get(&name)).map(PathBuf::from)
        };
        settings.certificate = path(self, vars::OTEL_EXPORTER_OTLP_CERTIFICATE);
        let certificate = path(self, vars::OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE);
        let key = path(self, vars::OTEL_EXPORTER_OTLP_CLIENT_KEY);
        let halves = [
            (
                vars::OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE,
                certificate.is_some(),
                vars::OTEL_EXPORTER_OTLP_CLIENT_KEY,
            ),
            (
                vars::OTEL_EXPORTER_OTLP_CLIENT_KEY,
                key.is_some(),
                vars::OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE,
            ),
        ];
        if certificate.is_some() != key.is_some() {
            for (variable, _, missing) in halves.into_iter().filter(|(_, is_set, _)| *is_set) {
                let warning = ConfigWarning::ignored(variable, &format!("{missing} beside it"));
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
        }
        settings.client_identity = certificate.zip(key);
        settings
    }

    fn exporter(
        &mut self,
        variable: &str,
        enabled: Option<bool>,
        chosen: ExporterKind,
        default_on: bool,
    ) -> ExporterKind {
        let expected = "otlp, console or none";
        let standard = self.parsed(variable, expected, exporter_kind);
        if standard == Some(ExporterKind::None) || !enabled.unwrap_or(default_on) {
            return ExporterKind::None;
        }
        standard.unwrap_or(chosen)
    }
}

fn exporter_kind(text: &str) -> Option<ExporterKind> {
    match text.to_ascii_lowercase().as_str() {
        "otlp" => Some(ExporterKind::Otlp),
        "console" => Some(ExporterKind::Console),
        "none" => Some(ExporterKind::None),
        _ => None,
    }
}

impl LensConfig {
    /// Reads the standard variables and those under `prefixes`, of which an earlier one wins.
    ///
    /// Kill switches (`OTEL_SDK_DISABLED`, an exporter `none`) win over everything. What cannot be parsed is
    /// reported and leaves its default, except `…ENABLED`, which then is off.
    pub fn from_env_map(
        map: &BTreeMap<String, String>,
        prefixes: &[&str],
    ) -> (Self, Vec<ConfigWarning>) {
        let mut env = Env { map, prefixes, warnings: Vec::new() };
        let mut config = Self::default();
        let killed = env.parsed(vars::OTEL_SDK_DISABLED, BOOL_EXPECTED, parse_bool);
        let killed = killed.unwrap_or(false);
        config.enabled = env.boolean(vars::suffix::ENABLED).unwrap_or(false) && !killed;
        let attributes = env.parsed(
            vars::OTEL_RESOURCE_ATTRIBUTES,
            RESOURCE_ATTRIBUTES_EXPECTED,
            parse_resource_attributes,
        );
        for (key, value) in attributes.unwrap_or_default() {
            if key == crate::semconv::SERVICE_NAME {
                config.service_name = value;
            } else {
                config.resource_attributes.push((key, value.into()));
            }
        }
        if let Some(name) = env.get(vars::OTEL_SERVICE_NAME) {
            config.service_name = name.to_owned();
        }
        if let Some(groups) =
            env.prefixed(vars::suffix::SPAN_GROUPS, "groups", |t| Some(t.to_owned()))
        {
            config.span_groups = groups;
        }
        let chosen = env
            .prefixed(vars::suffix::EXPORTER, "otlp, console or none", exporter_kind)
            .unwrap_or(ExporterKind::Otlp);
        let traces = env.boolean(vars::suffix::TRACES_ENABLED);
        config.traces_exporter = env.exporter(vars::OTEL_TRACES_EXPORTER, traces, chosen, true);
        let metrics = env.boolean(vars::suffix::METRICS_ENABLED);
        config.metrics_exporter = env.exporter(vars::OTEL_METRICS_EXPORTER, metrics, chosen, true);
        let logs = env.boolean(vars::suffix::LOGS_ENABLED);
        config.live.exporter = env.exporter(vars::OTEL_LOGS_EXPORTER, None, chosen, true);
        if logs == Some(true) {
            config.logs_exporter = config.live.exporter;
        }
        let live = env.prefixed(vars::suffix::LIVE_EVENTS, "auto, on or off", LiveEvents::parse);
        config.live.events = live.unwrap_or_default();
        config.traces_otlp = env.otlp(Signal::Traces);
        config.metrics_otlp = env.otlp(Signal::Metrics);
        config.logs_otlp = env.otlp(Signal::Logs);
        config.sampler = read_sampler(&mut env);
        config.export = read_export(&mut env);
        let mut rank = |names: [&str; 2]| {
            let name = names.into_iter().find(|name| env.get(name).is_some())?;
            env.parsed(name, "a whole number", |text| text.parse().ok())
        };
        config.rank = rank([vars::RANK, vars::SLURM_PROCID]).unwrap_or(config.rank);
        let world_size = rank([vars::WORLD_SIZE, vars::SLURM_NTASKS]);
        config.world_size = world_size.unwrap_or(config.world_size).max(1);
        let local_rank = rank([vars::LOCAL_RANK, vars::SLURM_LOCALID]);
        config.local_rank = local_rank.unwrap_or(config.local_rank);
        config.propagators = read_propagators(&mut env);
        config.batch = read_batch(&mut env);
        config.limits = read_limits(&mut env);
        config.metrics = read_metrics(&mut env);
        let interval = env.millis(vars::OTEL_METRIC_EXPORT_INTERVAL);
        config.metric_interval = interval.unwrap_or(config.metric_interval);
        let timeout = env.millis(vars::OTEL_METRIC_EXPORT_TIMEOUT);
        config.metric_timeout = timeout.unwrap_or(config.metric_timeout);
        (config, env.warnings)
    }
}

fn read_sampler(env: &mut Env<'_>) -> Sampler {
    let named = env.parsed(vars::OTEL_TRACES_SAMPLER, "a sampler's name", |name| {
        Sampler::from_name(name, None).map(|sampler| (sampler, name.to_ascii_lowercase()))
    });
    let Some((mut sampler, name)) = named else { return Sampler::default() };
    if name.ends_with("traceidratio") {
        let ratio =
            env.parsed(vars::OTEL_TRACES_SAMPLER_ARG, "a number from 0 to 1", Sampler::parse_ratio);
        sampler.ratio = ratio.unwrap_or(sampler.ratio);
    }
    sampler
}

fn read_export(env: &mut Env<'_>) -> ExportSettings {
    let default = ExportSettings::default();
    let strategy = env.prefixed(vars::suffix::EXPORT_STRATEGY, "a name", |t| Some(t.to_owned()));
    let rank = env.prefixed(vars::suffix::EXPORT_RANK, "an integer", |text| text.parse().ok());
    let expected = "a number from 0 to 1";
    let rate = env.prefixed(vars::suffix::EXPORT_SAMPLE_RATE, expected, Sampler::parse_ratio);
    ExportSettings {
        strategy: strategy.unwrap_or(default.strategy),
        rank: rank.unwrap_or(default.rank),
        sample_rate: rate.unwrap_or(default.sample_rate),
        sampler: env.boolean(vars::suffix::SAMPLER_ENABLED).unwrap_or(default.sampler),
    }
}

fn read_metrics(env: &mut Env<'_>) -> MetricSettings {
    let temporality = env.parsed(
        vars::OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE,
        &TemporalityPreference::NAMES.join(", "),
        TemporalityPreference::from_name,
    );
    let histogram = env.parsed(
        vars::OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION,
        &HistogramAggregation::NAMES.join(", "),
        HistogramAggregation::from_name,
    );
    let exemplars = env.parsed(
        vars::OTEL_METRICS_EXEMPLAR_FILTER,
        &ExemplarFilter::NAMES.join(", "),
        ExemplarFilter::from_name,
    );
    MetricSettings {
        temporality: temporality.unwrap_or_default(),
        histogram: histogram.unwrap_or_default(),
        exemplars: exemplars.unwrap_or_default(),
    }
}

fn read_propagators(env: &mut Env<'_>) -> Propagators {
    let Some(text) = env.get(vars::OTEL_PROPAGATORS) else { return Propagators::default() };
    let mut chosen = Propagators { trace_context: false, baggage: false };
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match name.to_ascii_lowercase().as_str() {
            "tracecontext" => chosen.trace_context = true,
            "baggage" => chosen.baggage = true,
            "none" => {}
            _ => env.warnings.push(ConfigWarning::ignored(
                vars::OTEL_PROPAGATORS,
                &format!("tracecontext, baggage or none, not {name:?}"),
            )),
        }
    }
    chosen
}

fn read_batch(env: &mut Env<'_>) -> BatchSettings {
    let default = BatchSettings::default();
    BatchSettings {
        schedule_delay: env.millis(vars::OTEL_BSP_SCHEDULE_DELAY).unwrap_or(default.schedule_delay),
        max_queue_spans: env.count(vars::OTEL_BSP_MAX_QUEUE_SIZE).filter(|count| *count > 0),
        max_batch_spans: env.count(vars::OTEL_BSP_MAX_EXPORT_BATCH_SIZE).filter(|count| *count > 0),
        export_timeout: env.millis(vars::OTEL_BSP_EXPORT_TIMEOUT).unwrap_or(default.export_timeout),
        ..default
    }
}

fn read_limits(env: &mut Env<'_>) -> SpanLimits {
    let default = SpanLimits::default();
    let general = env.count(vars::OTEL_ATTRIBUTE_COUNT_LIMIT);
    let general_length = env.count(vars::OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT);
    SpanLimits {
        attributes: env
            .count(vars::OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT)
            .or(general)
            .unwrap_or(default.attributes),
        attribute_value_chars: env
            .count(vars::OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)
            .or(general_length)
            .unwrap_or(default.attribute_value_chars),
        events: env.count(vars::OTEL_SPAN_EVENT_COUNT_LIMIT).unwrap_or(default.events),
        links: env.count(vars::OTEL_SPAN_LINK_COUNT_LIMIT).unwrap_or(default.links),
        event_attributes: env
            .count(vars::OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT)
            .or(general)
            .unwrap_or(default.event_attributes),
        link_attributes: env
            .count(vars::OTEL_LINK_ATTRIBUTE_COUNT_LIMIT)
            .or(general)
            .unwrap_or(default.link_attributes),
    }
}

#[cfg(test)]
mod tests;
