//! The environment as settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{
    BatchSettings, ExemplarFilter, ExportSettings, ExporterKind, HistogramAggregation, LensConfig,
    MetricSettings, OtlpSettings, Propagators, Protocol, Sampler, Signal, SpanLimits,
    TemporalityPreference, default_endpoint, doubled_path, signal_url,
};
use crate::env_vars as vars;

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

/// A boolean in any of the accepted spellings: `1 true yes on` and `0 false no off`, any case.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// What [`parse_resource_attributes`] takes.
pub const RESOURCE_ATTRIBUTES_EXPECTED: &str =
    "key=value,… with both percent-encoded; one pair that is not discards all";

/// `key=value,…` with percent-encoded keys and values, as in `OTEL_RESOURCE_ATTRIBUTES`; later pairs of a key win.
///
/// `None` when any part is malformed: the specification discards the variable then.
pub fn parse_resource_attributes(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=')?;
        let (key, value) = (strictly_decoded(key.trim())?, strictly_decoded(value.trim())?);
        if key.is_empty() {
            return None;
        }
        pairs.retain(|(known, _)| *known != key);
        pairs.push((key, value));
    }
    Some(pairs)
}

/// The decoded text; `None` when an escape is none, or when it is no UTF-8.
fn strictly_decoded(text: &str) -> Option<String> {
    let is_escape = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let decoded = percent_decode(text);
    // What is no UTF-8 comes back as it was.
    (decoded != text || !text.contains('%')).then_some(decoded)
}

/// `key=value,…` with percent-encoded values; malformed pairs are skipped.
fn parse_key_values(text: &str) -> Vec<(String, String)> {
    text.split(',')
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let key = key.trim();
            (!key.is_empty()).then(|| (key.to_owned(), percent_decode(value.trim())))
        })
        .collect()
}

/// `key=value,…` as in `OTEL_EXPORTER_OTLP_HEADERS`; names in lower case.
pub fn parse_headers(text: &str) -> Vec<(String, String)> {
    let mut headers = parse_key_values(text);
    for (name, _) in &mut headers {
        name.make_ascii_lowercase();
    }
    headers
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
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
        config.logs_exporter = env.exporter(vars::OTEL_LOGS_EXPORTER, logs, chosen, false);
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
mod tests {
    use super::*;

    const PREFIXES: &[&str] = &[vars::NEMO_GYM_OTEL, vars::NEMO_LENS];

    fn read(pairs: &[(&str, &str)]) -> (LensConfig, Vec<ConfigWarning>) {
        let map =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        LensConfig::from_env_map(&map, PREFIXES)
    }

    fn config(pairs: &[(&str, &str)]) -> LensConfig {
        let (config, warnings) = read(pairs);
        assert_eq!(warnings, []);
        config
    }

    #[test]
    fn earlier_prefix_wins_and_a_blank_variable_is_unset() {
        assert!(!config(&[]).enabled);
        assert!(config(&[("NEMO_LENS_ENABLED", " On ")]).enabled);
        assert!(!config(&[("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_ENABLED", "no")]).enabled);
        assert!(config(&[("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_ENABLED", "  ")]).enabled);
    }

    #[test]
    fn kill_switches_win_over_everything() {
        let on = ("NEMO_GYM_OTEL_ENABLED", "1");
        assert!(!config(&[on, ("OTEL_SDK_DISABLED", "true")]).enabled);
        assert!(!config(&[on, ("OTEL_SDK_DISABLED", "1")]).enabled);
        let killed = [on, ("OTEL_TRACES_EXPORTER", "none"), ("NEMO_GYM_OTEL_EXPORTER", "console")];
        let config = config(&killed);
        assert_eq!(config.traces_exporter, ExporterKind::None);
        assert_eq!(config.metrics_exporter, ExporterKind::Console);
        assert_eq!(config.logs_exporter, ExporterKind::None);
    }

    #[test]
    fn unreadable_value_is_reported_and_leaves_its_default() {
        let (config, warnings) = read(&[
            ("NEMO_GYM_OTEL_ENABLED", "maybe"),
            ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
        ]);
        assert!(!config.enabled);
        assert_eq!(config.batch, BatchSettings::default());
        let variables: Vec<_> = warnings.iter().map(|warning| warning.variable.as_str()).collect();
        let expected = ["NEMO_GYM_OTEL_ENABLED", "OTEL_TRACES_SAMPLER", "OTEL_BSP_SCHEDULE_DELAY"];
        assert_eq!(variables, expected);
    }

    #[test]
    fn endpoints_follow_the_specification() {
        let endpoint = |pairs: &[(&str, &str)]| config(pairs).traces_otlp.endpoint;
        let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        assert_eq!(endpoint(&[]), "http://localhost:4317");
        assert_eq!(endpoint(&[http]), "http://localhost:4318/v1/traces");
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1/base/");
        assert_eq!(endpoint(&[http, base]), "http://h:1/base/v1/traces");
        assert_eq!(endpoint(&[base]), "http://h:1/base/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:2/as/it/is");
        assert_eq!(endpoint(&[http, base, own]), "http://t:2/as/it/is");
        assert_eq!(config(&[http, base, own]).metrics_otlp.endpoint, "http://h:1/base/v1/metrics");
        let bare = ("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317");
        assert_eq!(endpoint(&[bare]), "https://h:4317");
        assert_eq!(endpoint(&[bare, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]), "http://h:4317");
    }

    #[test]
    fn signal_settings_win_over_general_ones() {
        let config = config(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a,bad"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x=y"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ]);
        let (traces, metrics) = (&config.traces_otlp, &config.metrics_otlp);
        assert_eq!(traces.headers, [("authorization".to_owned(), "Bearer a".to_owned())]);
        assert_eq!(metrics.headers, [("x".to_owned(), "y".to_owned())]);
        assert_eq!((traces.gzip, metrics.gzip), (true, false));
        assert_eq!((traces.protocol, metrics.protocol), (Protocol::HttpJson, Protocol::Grpc));
        assert_eq!(metrics.timeout, Duration::from_millis(1500));
        let shown = format!("{traces:?}");
        assert!(shown.contains("authorization") && !shown.contains("Bearer"), "{shown}");
    }

    #[test]
    fn service_name_wins_over_resource_attributes() {
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,team=x%2Cy");
        assert_eq!(config(&[attributes]).service_name, "a");
        let both = config(&[attributes, ("OTEL_SERVICE_NAME", "b")]);
        assert_eq!(both.service_name, "b");
        assert_eq!(both.resource_attributes.len(), 1);
        assert_eq!(both.resource_attributes[0].0, "team");
    }

    #[test]
    fn resource_attributes_are_decoded_and_one_bad_pair_discards_all() {
        let read = |text| {
            let map = [("OTEL_RESOURCE_ATTRIBUTES".to_owned(), String::from(text))].into();
            let (config, warnings) = LensConfig::from_env_map(&map, &[]);
            let attributes = config.resource_attributes.into_iter();
            let pairs: Vec<String> =
                attributes.map(|(key, value)| format!("{key}={value:?}")).collect();
            (pairs, warnings.len())
        };
        let decoded = [r#"team x=String("a,b")"#, r#"b=String("ü")"#].map(str::to_owned).to_vec();
        assert_eq!(read("team%20x=a%2Cb, b=%C3%BC ,"), (decoded, 0));
        for text in ["x=%ZZ,y=1", "x=%4", "x,y=1", "=1,y=1", "y=1,x=%FF"] {
            assert_eq!(read(text), (Vec::new(), 1), "{text}");
        }
    }

    #[test]
    fn settings_of_which_half_is_missing_or_that_cannot_be_are_told_once() {
        let said = |variables: &[(&str, &str)]| {
            let map =
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let (_, warnings) = LensConfig::from_env_map(&map.collect(), &[]);
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let half = said(&[("OTEL_EXPORTER_OTLP_CLIENT_KEY", "k.pem")]);
        assert_eq!(
            half,
            [
                "OTEL_EXPORTER_OTLP_CLIENT_KEY is ignored: expected OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it"
            ]
        );
        let bare =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317"), ("OTEL_EXPORTER_OTLP_INSECURE", "perhaps")];
        assert!(
            said(&bare)[0].starts_with("OTEL_EXPORTER_OTLP_INSECURE is ignored"),
            "{:?}",
            said(&bare)
        );
        assert_eq!(said(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP")]), Vec::<String>::new());
        assert_eq!(said(&[("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd")]).len(), 1);
        let doubled = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318/v1/traces/"),
        ];
        let said_of_it = said(&doubled);
        assert_eq!(said_of_it.len(), 1, "{said_of_it:?}");
        assert!(
            said_of_it[0].contains("OTEL_EXPORTER_OTLP_ENDPOINT ends in /v1/traces"),
            "{said_of_it:?}"
        );
        assert_eq!(said(&doubled[1..]), Vec::<String>::new(), "gRPC adds no path");
    }

    #[test]
    fn samplers_and_propagators_are_read_by_name() {
        let config = config(&[
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_PROPAGATORS", "baggage"),
        ]);
        assert_eq!(config.sampler, Sampler { parent_based: false, ratio: 0.25 });
        assert_eq!(config.propagators, Propagators { trace_context: false, baggage: true });
        let off = Sampler::from_name("parentbased_always_off", None);
        assert_eq!(off, Some(Sampler { parent_based: true, ratio: 0.0 }));
    }

    #[test]
    fn every_standard_sampler_is_known_and_an_unknown_one_is_as_good_as_none() {
        let of = |name, ratio| {
            let argument = ("OTEL_TRACES_SAMPLER_ARG", ratio);
            let (config, warnings) = read(&[("OTEL_TRACES_SAMPLER", name), argument]);
            (config.sampler.parent_based, config.sampler.ratio, warnings.len())
        };
        assert_eq!(of("always_on", ""), (false, 1.0, 0));
        assert_eq!(of("always_off", ""), (false, 0.0, 0));
        assert_eq!(of("TraceIdRatio", "0.25"), (false, 0.25, 0));
        assert_eq!(of("parentbased_always_on", ""), (true, 1.0, 0));
        assert_eq!(of("parentbased_always_off", ""), (true, 0.0, 0));
        assert_eq!(of("parentbased_traceidratio", "0.25"), (true, 0.25, 0));
        assert_eq!(of("jaeger_remote", "0.25"), (true, 1.0, 1));
        assert_eq!(of("always_off", "nonsense that it does not read"), (false, 0.0, 0));
    }

    #[test]
    fn ratio_that_is_none_is_reported_and_as_good_as_not_given() {
        for ratio in ["NaN", "inf", "-inf", "-0.1", "1.5", "abc", "0.5x"] {
            let (config, warnings) = read(&[
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", ratio),
            ]);
            assert_eq!(config.sampler, Sampler { parent_based: true, ratio: 1.0 }, "{ratio}");
            assert_eq!(warnings.len(), 1, "{ratio}");
            assert_eq!(warnings[0].variable, "OTEL_TRACES_SAMPLER_ARG");
        }
        for unset in ["", "  "] {
            let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
            let config = config(&[sampler, ("OTEL_TRACES_SAMPLER_ARG", unset)]);
            assert_eq!(config.sampler.ratio, 1.0);
        }
    }

    #[test]
    fn ranks_and_strategy_are_read() {
        let config = config(&[
            ("NEMO_LENS_EXPORT_STRATEGY", "single_rank"),
            ("NEMO_LENS_EXPORT_RANK", "-2"),
            ("NEMO_GYM_OTEL_EXPORT_SAMPLE_RATE", "0.5"),
            ("NEMO_LENS_SAMPLER_ENABLED", "yes"),
            ("RANK", "3"),
            ("SLURM_PROCID", "9"),
            ("SLURM_NTASKS", "8"),
            ("LOCAL_RANK", "1"),
        ]);
        let expected = ExportSettings {
            strategy: "single_rank".to_owned(),
            rank: -2,
            sample_rate: 0.5,
            sampler: true,
        };
        assert_eq!(config.export, expected);
        assert_eq!((config.rank, config.world_size, config.local_rank), (3, 8, 1));
    }

    #[test]
    fn settings_of_metrics_are_read_by_name_in_any_case() {
        let metrics = config(&[
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "DELTA"),
            (
                "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
                "base2_exponential_bucket_histogram",
            ),
            ("OTEL_METRICS_EXEMPLAR_FILTER", "Always_Off"),
        ])
        .metrics;
        let expected = MetricSettings {
            temporality: TemporalityPreference::Delta,
            histogram: HistogramAggregation::Exponential,
            exemplars: ExemplarFilter::AlwaysOff,
        };
        assert_eq!(metrics, expected);
        let (config, warnings) =
            read(&[("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "junk")]);
        assert_eq!(config.metrics, MetricSettings::default());
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn limits_fall_back_to_the_general_ones() {
        let config = config(&[
            ("OTEL_ATTRIBUTE_COUNT_LIMIT", "5"),
            ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "9"),
            ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "2"),
        ]);
        let limits = config.limits;
        assert_eq!((limits.attributes, limits.attribute_value_chars), (5, 9));
        assert_eq!((limits.events, limits.event_attributes), (128, 2));
        assert_eq!((limits.links, limits.link_attributes), (128, 5));
    }
}
