//! From resolved settings to the pipeline's own config.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use lens::{
    Value,
    config::{
        self, BatchSettings, ExportSettings, ExporterKind, LensConfig, LiveSettings,
        MetricSettings, OtlpSettings, Sampler, SpoolSettings,
    },
};

use crate::{
    config::{Exporter, LiveEvents},
    env_vars,
    origin::Origin,
    resolve::{OtlpSignal, Resolved, SHARED_MEMORY, SignalSettings, lens_protocol},
    run_id::RunId,
    semconv,
};

/// Who this process is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process<'a> {
    pub(crate) server_name: Option<&'a str>,
    pub(crate) server_type: Option<&'a str>,
    pub(crate) resource_attributes: &'a [(String, Value)],
    /// Where what cannot be delivered is kept; only in the buffer when nobody said.
    pub(crate) overflow_dir: Option<&'a Path>,
}

pub(crate) fn lens_config(resolved: &Resolved, process: Process<'_>, run_id: &RunId) -> LensConfig {
    let mut config = LensConfig {
        enabled: resolved.is_enabled(),
        service_name: resolved.service_name_of(process.server_name),
        resource_attributes: resource_attributes(resolved, process, run_id),
        span_groups: resolved.span_groups.value.clone(),
        traces_exporter: exporter(&resolved.traces),
        metrics_exporter: exporter(&resolved.metrics),
        logs_exporter: exporter(&resolved.logs),
        traces_otlp: otlp(&resolved.otlp.traces),
        metrics_otlp: otlp(&resolved.otlp.metrics),
        logs_otlp: otlp(&resolved.otlp.logs),
        live: LiveSettings {
            events: match resolved.live_events.value {
                LiveEvents::Auto => config::LiveEvents::Auto,
                LiveEvents::On => config::LiveEvents::On,
                LiveEvents::Off => config::LiveEvents::Off,
            },
            // Whatever becomes of the program's own log records.
            exporter: exporter_kind(resolved.logs.exporter.value),
            ..LiveSettings::default()
        },
        spool: SpoolSettings {
            ring_folder: Some(ring_folder(resolved)),
            overflow_folder: process.overflow_dir.map(Path::to_owned),
            run_id: run_id.to_string(),
            ships_dead: false,
        },
        // Every process of a fleet is rank 0 of a world of its own.
        export: ExportSettings {
            strategy: resolved.export_strategy.value.clone(),
            rank: resolved.export_rank.value,
            sample_rate: resolved.export_sample_rate.value,
            sampler: resolved.sampler_enabled.value,
        },
        ..LensConfig::default()
    };
    let standard = &resolved.standard;
    if let Some(sampler) =
        Sampler::from_name(&standard.traces_sampler, standard.traces_sampler_arg.as_deref())
    {
        config.sampler = sampler;
    }
    let propagators = standard.propagators.as_str();
    let names = |name| propagators.split(',').any(|entry| entry.trim() == name);
    config.propagators.trace_context = names("tracecontext");
    config.propagators.baggage = names("baggage");

    let millis = |variable, default: Duration| {
        standard.number(variable).map_or(default, Duration::from_millis)
    };
    let count =
        |variable| standard.number(variable).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let batch = &mut config.batch;
    batch.schedule_delay = millis(env_vars::OTEL_BSP_SCHEDULE_DELAY, batch.schedule_delay);
    batch.export_timeout = millis(env_vars::OTEL_BSP_EXPORT_TIMEOUT, batch.export_timeout);
    batch.max_queue_spans = count(env_vars::OTEL_BSP_MAX_QUEUE_SIZE);
    batch.max_batch_spans = count(env_vars::OTEL_BSP_MAX_EXPORT_BATCH_SIZE);
    bound_bytes(batch, resolved, 1);
    let batch = &mut config.log_batch;
    batch.schedule_delay = millis(env_vars::OTEL_BLRP_SCHEDULE_DELAY, batch.schedule_delay);
    batch.export_timeout = millis(env_vars::OTEL_BLRP_EXPORT_TIMEOUT, batch.export_timeout);
    batch.max_queue_spans = count(env_vars::OTEL_BLRP_MAX_QUEUE_SIZE);
    batch.max_batch_spans = count(env_vars::OTEL_BLRP_MAX_EXPORT_BATCH_SIZE);
    bound_bytes(batch, resolved, LOGS_SHARE);
    config.metric_interval = millis(env_vars::OTEL_METRIC_EXPORT_INTERVAL, config.metric_interval);
    config.metric_timeout = millis(env_vars::OTEL_METRIC_EXPORT_TIMEOUT, config.metric_timeout);
    config.metrics = MetricSettings {
        temporality: standard.temporality.value,
        histogram: standard.histogram_aggregation.value,
        exemplars: standard.exemplar_filter.value,
    };
    let limit = |variable| count(variable).unwrap_or(usize::MAX);
    config.limits.attributes = limit(env_vars::OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT);
    config.limits.attribute_value_chars = limit(env_vars::OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT);
    config.limits.events = limit(env_vars::OTEL_SPAN_EVENT_COUNT_LIMIT);
    config.limits.links = limit(env_vars::OTEL_SPAN_LINK_COUNT_LIMIT);
    config.limits.event_attributes = limit(env_vars::OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT);
    config.limits.link_attributes = limit(env_vars::OTEL_LINK_ATTRIBUTE_COUNT_LIMIT);
    config
}

/// Log records get a quarter of what spans get, in a buffer and files of their own.
const LOGS_SHARE: u64 = 4;

fn bound_bytes(batch: &mut BatchSettings, resolved: &Resolved, share: u64) {
    let buffer_bytes = resolved.buffer_bytes.value / share;
    batch.max_queue_bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
    batch.max_spool_bytes = resolved.spool_bytes.value / share;
}

/// The folder for buffers. A session's folder that is not there, as after `su`, is as good as not named.
pub(crate) fn ring_folder(resolved: &Resolved) -> PathBuf {
    let folder = PathBuf::from(&resolved.spool_dir.value);
    let is_session = resolved.spool_dir.origin == Origin::Variable(env_vars::XDG_RUNTIME_DIR);
    if is_session && !folder.is_dir() { SHARED_MEMORY.into() } else { folder }
}

/// Weakest first: a later entry of the same key wins.
fn resource_attributes(
    resolved: &Resolved,
    process: Process<'_>,
    run_id: &RunId,
) -> Vec<(String, Value)> {
    let mut attributes: Vec<(String, Value)> = Vec::new();
    let mut put = |key: &str, value: Value| {
        attributes.retain(|(other, _)| other != key);
        attributes.push((key.to_owned(), value));
    };
    put(semconv::SERVICE_VERSION, env!("CARGO_PKG_VERSION").into());
    if let Some(text) = resolved.standard.resource_attributes.value.as_deref() {
        for (key, value) in lens::config::parse_resource_attributes(text).unwrap_or_default() {
            // It went into the base of `service.name` already.
            if key != semconv::SERVICE_NAME {
                put(&key, value.into());
            }
        }
    }
    put(semconv::GYM_VERSION, env!("CARGO_PKG_VERSION").into());
    put(semconv::SERVICE_GROUP, resolved.service_name.value.clone().into());
    put(semconv::RUN_ID, run_id.to_string().into());
    let optional = [
        (semconv::SERVER_NAME, process.server_name),
        (semconv::SERVER_TYPE, process.server_type),
        (semconv::USER_ID, resolved.user_id.value.as_deref()),
        (semconv::WANDB_ENTITY, resolved.wandb_entity.value.as_deref()),
        (semconv::WANDB_PROJECT, resolved.wandb_project.value.as_deref()),
        (semconv::DEPLOYMENT_ENVIRONMENT, resolved.deployment_environment.value.as_deref()),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            put(key, value.to_owned().into());
        }
    }
    for (key, value) in process.resource_attributes {
        put(key, value.clone());
    }
    attributes
}

fn exporter(signal: &SignalSettings) -> ExporterKind {
    if !signal.enabled.value {
        return ExporterKind::None;
    }
    exporter_kind(signal.exporter.value)
}

fn exporter_kind(exporter: Exporter) -> ExporterKind {
    match exporter {
        Exporter::Otlp => ExporterKind::Otlp,
        Exporter::Console => ExporterKind::Console,
        Exporter::None => ExporterKind::None,
    }
}

fn otlp(signal: &OtlpSignal) -> OtlpSettings {
    OtlpSettings {
        endpoint: signal.endpoint.value.expose().to_owned(),
        protocol: lens_protocol(signal.protocol.value),
        headers: signal
            .headers
            .value
            .as_ref()
            .map(|headers| lens::config::parse_headers(headers.expose()))
            .unwrap_or_default(),
        timeout: Duration::from_millis(signal.timeout_millis.value),
        gzip: signal.gzip.value,
        certificate: signal.certificate.value.as_deref().map(Into::into),
        client_identity: match (&signal.client_certificate.value, &signal.client_key.value) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lens::config::{ExemplarFilter, HistogramAggregation, TemporalityPreference};
    use serde_json::json;

    use super::*;
    use crate::{config::TelemetryConfig, resolve::resolve};

    fn config(variables: &[(&str, &str)], block: serde_json::Value) -> LensConfig {
        let env: BTreeMap<String, String> =
            variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let block = TelemetryConfig::from_block(&block).unwrap();
        let extra = [("team".to_owned(), Value::from("ours"))];
        let process = Process {
            server_name: Some("policy_model"),
            server_type: Some("responses_api_models"),
            resource_attributes: &extra,
            overflow_dir: Some(Path::new("/cache/spool")),
        };
        lens_config(&resolve(&env, &block), process, &RunId::new("run-1").unwrap())
    }

    #[test]
    fn the_resource_says_who_the_process_is() {
        let config = config(
            &[
                (env_vars::OTEL_RESOURCE_ATTRIBUTES, "service.name=lab,zone=a%20b,team=theirs"),
                (env_vars::USER_ID, "ada"),
                (env_vars::WANDB_ENTITY, "lab"),
                (env_vars::WANDB_PROJECT, "p"),
                (env_vars::DEPLOYMENT_ENV, "staging"),
                (env_vars::ENVIRONMENT, "weaker"),
            ],
            json!({"enabled": true}),
        );
        assert_eq!(config.service_name, "lab/policy_model");
        let expected: Vec<(String, Value)> = [
            (semconv::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
            ("zone", "a b"),
            (semconv::GYM_VERSION, env!("CARGO_PKG_VERSION")),
            (semconv::SERVICE_GROUP, "lab"),
            (semconv::RUN_ID, "run-1"),
            (semconv::SERVER_NAME, "policy_model"),
            (semconv::SERVER_TYPE, "responses_api_models"),
            (semconv::USER_ID, "ada"),
            (semconv::WANDB_ENTITY, "lab"),
            (semconv::WANDB_PROJECT, "p"),
            (semconv::DEPLOYMENT_ENVIRONMENT, "staging"),
            ("team", "ours"),
        ]
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .into();
        assert_eq!(config.resource_attributes, expected);
    }

    #[test]
    fn open_spans_are_told_of_as_asked_for_whether_or_not_log_records_are_exported() {
        let live = |variables: &[(&str, &str)], block| config(variables, block).live;
        let on = live(&[], json!({"enabled": true, "live_events": "on"}));
        assert_eq!((on.events, on.exporter), (config::LiveEvents::On, ExporterKind::Otlp));
        let off = live(&[(env_vars::LIVE_EVENTS, "off")], json!({"live_events": "on"}));
        assert_eq!(off.events, config::LiveEvents::Off);
        let auto = live(&[], json!({"enabled": true, "exporter": "console"}));
        assert_eq!((auto.events, auto.exporter), (config::LiveEvents::Auto, ExporterKind::Console));
        // The kill switch of the signal holds for them, too.
        let killed = live(&[(env_vars::OTEL_LOGS_EXPORTER, "none")], json!({"live_events": "on"}));
        assert_eq!(killed.exporter, ExporterKind::None);
    }

    #[test]
    fn signals_go_where_their_settings_say() {
        let config = config(
            &[(env_vars::OTEL_METRICS_EXPORTER, "none"), (env_vars::OTEL_LOGS_EXPORTER, "otlp")],
            json!({"exporter": "console", "logs_enabled": true, "otlp_headers": "A=b%20c"}),
        );
        assert_eq!(config.traces_exporter, ExporterKind::Console);
        assert_eq!(config.metrics_exporter, ExporterKind::None);
        assert_eq!(config.logs_exporter, ExporterKind::Otlp);
        assert_eq!(config.logs_otlp.headers, [("a".to_owned(), "b c".to_owned())]);
    }

    #[test]
    fn strategy_and_sampler_reach_the_pipeline() {
        let config = config(
            &[(env_vars::SAMPLER_ENABLED, "1"), (env_vars::lens::EXPORT_SAMPLE_RATE, "0.5")],
            json!({"export_strategy": "single_rank", "export_rank": 3}),
        );
        let expected = ExportSettings {
            strategy: "single_rank".to_owned(),
            rank: 3,
            sample_rate: 0.5,
            sampler: true,
        };
        assert_eq!(config.export, expected);
        assert_eq!((config.rank, config.world_size), (0, 1));
    }

    #[test]
    fn standard_variables_reach_the_pipeline() {
        let config = config(
            &[
                (env_vars::OTEL_BSP_SCHEDULE_DELAY, "7"),
                (env_vars::OTEL_BSP_MAX_QUEUE_SIZE, "9"),
                (env_vars::OTEL_TRACES_SAMPLER, "traceidratio"),
                (env_vars::OTEL_TRACES_SAMPLER_ARG, "0.25"),
                (env_vars::OTEL_PROPAGATORS, "tracecontext"),
                (env_vars::OTEL_ATTRIBUTE_COUNT_LIMIT, "3"),
                (env_vars::OTEL_SPAN_LINK_COUNT_LIMIT, "7"),
                (env_vars::OTEL_METRIC_EXPORT_INTERVAL, "11"),
                (env_vars::OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE, "LowMemory"),
                (env_vars::OTEL_METRICS_EXEMPLAR_FILTER, "always_on"),
                (
                    env_vars::OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION,
                    "base2_exponential_bucket_histogram",
                ),
                (env_vars::OTEL_BLRP_SCHEDULE_DELAY, "13"),
                (env_vars::OTEL_BLRP_EXPORT_TIMEOUT, "15"),
                (env_vars::OTEL_BLRP_MAX_QUEUE_SIZE, "17"),
                (env_vars::OTEL_BLRP_MAX_EXPORT_BATCH_SIZE, "19"),
            ],
            json!({}),
        );
        assert_eq!(config.batch.schedule_delay, Duration::from_millis(7));
        assert_eq!(config.batch.max_queue_spans, Some(9));
        assert_eq!(config.batch.max_batch_spans, None);
        assert_eq!((config.sampler.parent_based, config.sampler.ratio), (false, 0.25));
        assert!(config.propagators.trace_context && !config.propagators.baggage);
        assert_eq!((config.limits.attributes, config.limits.event_attributes), (3, 3));
        assert_eq!((config.limits.links, config.limits.link_attributes), (7, 3));
        assert_eq!(config.metric_interval, Duration::from_millis(11));
        let metrics = MetricSettings {
            temporality: TemporalityPreference::LowMemory,
            histogram: HistogramAggregation::Exponential,
            exemplars: ExemplarFilter::AlwaysOn,
        };
        assert_eq!(config.metrics, metrics);
        let logs = config.log_batch;
        assert_eq!(logs.schedule_delay, Duration::from_millis(13));
        assert_eq!(logs.export_timeout, Duration::from_millis(15));
        assert_eq!((logs.max_queue_spans, logs.max_batch_spans), (Some(17), Some(19)));
    }

    #[test]
    fn what_outlives_a_process_is_where_and_as_large_as_the_settings_say() {
        let config = config(
            &[
                (env_vars::SPOOL_DIR, "/memory"),
                (env_vars::BUFFER_BYTES, "8388608"),
                (env_vars::SPOOL_BYTES, "400"),
            ],
            json!({}),
        );
        assert_eq!(
            config.spool,
            SpoolSettings {
                ring_folder: Some("/memory".into()),
                overflow_folder: Some("/cache/spool".into()),
                run_id: "run-1".to_owned(),
                ships_dead: false,
            }
        );
        assert_eq!((config.batch.max_queue_bytes, config.batch.max_spool_bytes), (8 << 20, 400));
        let logs = config.log_batch;
        assert_eq!((logs.max_queue_bytes, logs.max_spool_bytes), (2 << 20, 100));
    }

    #[test]
    fn a_session_folder_that_is_not_there_is_as_good_as_none() {
        let folder = |variables: &[(&str, &str)]| config(variables, json!({})).spool.ring_folder;
        assert_eq!(folder(&[]), Some(SHARED_MEMORY.into()));
        assert_eq!(
            folder(&[(env_vars::XDG_RUNTIME_DIR, "/not/there")]),
            Some(SHARED_MEMORY.into())
        );
        let there = std::env::temp_dir();
        let session = (env_vars::XDG_RUNTIME_DIR, there.to_str().unwrap());
        assert_eq!(folder(&[session]), Some(there.clone()));
        assert_eq!(folder(&[session, (env_vars::SPOOL_DIR, "/given")]), Some("/given".into()));
    }
}
