//! Every setting as a line of a table.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Resolved, Signal, about, otlp::OtlpSignal};
use crate::{
    config::TelemetryConfig,
    env_vars::{self, per_signal},
    groups,
    origin::{Origin, Sourced},
    secret::{masked_headers, masked_pairs},
};

/// One setting, fit to be shown: secrets are masked.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Key in the `telemetry:` block, or a dotted name of ours where the block has none.
    pub name: String,
    /// The variable that sets it, the strongest one; empty for what is derived.
    pub variable: &'static str,
    /// What holds.
    pub value: String,
    /// Who decided it.
    pub origin: Origin,
}

impl Row {
    fn new(
        name: impl Into<String>,
        variable: &'static str,
        value: impl ToString,
        origin: Origin,
    ) -> Row {
        Row { name: name.into(), variable, value: value.to_string(), origin }
    }

    /// What the setting does, one clause.
    pub fn about(&self) -> &'static str {
        about::about(&self.name)
    }

    /// The row as a JSON object: `name`, `value`, `origin`, `variable`.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "origin": self.origin.to_string(),
            "variable": self.variable,
        })
    }
}

/// What stands for a value that nobody set.
const UNSET: &str = "-";

struct Table(Vec<Row>);

impl Table {
    fn push<T: ToString>(&mut self, name: &str, variable: &'static str, setting: &Sourced<T>) {
        self.0.push(Row::new(name, variable, setting.value.to_string(), setting.origin));
    }

    fn maybe<T: ToString>(
        &mut self,
        name: &str,
        variable: &'static str,
        setting: &Sourced<Option<T>>,
    ) {
        let value = setting.value.as_ref().map_or_else(|| UNSET.to_owned(), T::to_string);
        self.0.push(Row::new(name, variable, value, setting.origin));
    }
}

impl Resolved {
    /// Every telemetry setting with its value as it will be used and who decided it.
    pub fn rows(&self) -> Vec<Row> {
        let mut table = Table(Vec::with_capacity(80));
        self.own_rows(&mut table);
        for signal in Signal::ALL {
            otlp_rows(&mut table, signal, self.otlp.of(signal));
        }
        self.standard_rows(&mut table);
        table.0
    }

    fn own_rows(&self, table: &mut Table) {
        let mut enabled =
            Row::new("enabled", env_vars::ENABLED, self.is_enabled(), self.enabled.origin);
        if let (true, Some(fault)) = (self.enabled.value, self.faults.first()) {
            enabled.origin = Origin::Variable(fault.variable);
        }
        table.0.push(enabled);
        table.push("service_name", env_vars::OTEL_SERVICE_NAME, &self.service_name);
        table.push(
            "service_name_per_server",
            env_vars::SERVICE_NAME_PER_SERVER,
            &self.service_name_per_server,
        );
        table.push("span_groups", env_vars::SPAN_GROUPS, &self.span_groups);
        table.0.push(Row::new(
            "span_groups.resolved",
            "",
            groups::resolve(&self.span_groups).names().join(","),
            self.span_groups.origin,
        ));
        table.push("exporter", env_vars::EXPORTER, &self.exporter);
        for (signal, exporter, enabled) in [
            (Signal::Traces, env_vars::OTEL_TRACES_EXPORTER, env_vars::TRACES_ENABLED),
            (Signal::Metrics, env_vars::OTEL_METRICS_EXPORTER, env_vars::METRICS_ENABLED),
            (Signal::Logs, env_vars::OTEL_LOGS_EXPORTER, env_vars::LOGS_ENABLED),
        ] {
            let settings = self.signal(signal);
            table.push(&format!("{}_enabled", signal.as_str()), enabled, &settings.enabled);
            table.push(&format!("{}.exporter", signal.as_str()), exporter, &settings.exporter);
        }
        table.push("instrument_aiohttp", env_vars::INSTRUMENT_AIOHTTP, &self.instrument_aiohttp);
        table.push("export_strategy", env_vars::EXPORT_STRATEGY, &self.export_strategy);
        table.push("export_rank", env_vars::EXPORT_RANK, &self.export_rank);
        table.push("export_sample_rate", env_vars::EXPORT_SAMPLE_RATE, &self.export_sample_rate);
        table.push("sampler_enabled", env_vars::SAMPLER_ENABLED, &self.sampler_enabled);
        let run_id = match (&self.run_id.value, self.run_id.origin) {
            (Some(id), _) => id.to_string(),
            (None, _) => "(new for every fleet)".to_owned(),
        };
        table.0.push(Row::new("run_id", env_vars::RUN_ID, run_id, self.run_id.origin));
        table.maybe("user_id", env_vars::USER_ID, &self.user_id);
        table.push("live_events", env_vars::LIVE_EVENTS, &self.live_events);
        table.push("propagate_to_models", env_vars::PROPAGATE_TO_MODELS, &self.propagate_to_models);
        table.0.push(Row::new(
            "propagate_to",
            env_vars::PROPAGATE_TO,
            if self.propagate_to.is_empty() {
                UNSET.to_owned()
            } else {
                self.propagate_to.join(",")
            },
            self.propagate_to.origin,
        ));
        table.push(
            "memory_profiling.enabled",
            env_vars::MEMORY_PROFILING_ENABLED,
            &self.memory_profiling_enabled,
        );
        table.push(
            "memory_profiling.interval_seconds",
            env_vars::MEMORY_PROFILING_INTERVAL_SECONDS,
            &self.memory_profiling_interval_seconds,
        );
        table.push(
            "cpu_sampling_enabled",
            env_vars::CPU_SAMPLING_ENABLED,
            &self.cpu_sampling_enabled,
        );
        table.push(
            "cpu_min_resample_interval_s",
            env_vars::CPU_MIN_RESAMPLE_INTERVAL_S,
            &self.cpu_min_resample_interval_s,
        );
        table.push(
            "memory_sampling_enabled",
            env_vars::MEMORY_SAMPLING_ENABLED,
            &self.memory_sampling_enabled,
        );
        table.push(
            "memory_min_resample_interval_s",
            env_vars::MEMORY_MIN_RESAMPLE_INTERVAL_S,
            &self.memory_min_resample_interval_s,
        );
        table.push(
            "gpu_sampling_enabled",
            env_vars::GPU_SAMPLING_ENABLED,
            &self.gpu_sampling_enabled,
        );
        table.push(
            "gpu_sample_interval_s",
            env_vars::GPU_SAMPLE_INTERVAL_S,
            &self.gpu_sample_interval_s,
        );
        table.maybe("wandb.entity", env_vars::WANDB_ENTITY, &self.wandb_entity);
        table.maybe("wandb.project", env_vars::WANDB_PROJECT, &self.wandb_project);
        table.maybe(
            "deployment_environment",
            env_vars::DEPLOYMENT_ENV,
            &self.deployment_environment,
        );
        table.push("spool_dir", env_vars::SPOOL_DIR, &self.spool_dir);
        table.push("buffer_bytes", env_vars::BUFFER_BYTES, &self.buffer_bytes);
        table.push("spool_bytes", env_vars::SPOOL_BYTES, &self.spool_bytes);
    }

    fn standard_rows(&self, table: &mut Table) {
        let standard = &self.standard;
        table.0.push(Row::new(
            "resource_attributes",
            env_vars::OTEL_RESOURCE_ATTRIBUTES,
            standard
                .resource_attributes
                .value
                .as_deref()
                .map_or_else(|| UNSET.to_owned(), masked_pairs),
            standard.resource_attributes.origin,
        ));
        table.push("traces.sampler", env_vars::OTEL_TRACES_SAMPLER, &standard.traces_sampler);
        table.maybe(
            "traces.sampler_arg",
            env_vars::OTEL_TRACES_SAMPLER_ARG,
            &standard.traces_sampler_arg,
        );
        table.push("propagators", env_vars::OTEL_PROPAGATORS, &standard.propagators);
        let choices = [
            (
                "metrics.temporality_preference",
                env_vars::OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE,
                standard.temporality.value.as_str(),
                standard.temporality.origin,
            ),
            (
                "metrics.default_histogram_aggregation",
                env_vars::OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION,
                standard.histogram_aggregation.value.as_str(),
                standard.histogram_aggregation.origin,
            ),
            (
                "metrics.exemplar_filter",
                env_vars::OTEL_METRICS_EXEMPLAR_FILTER,
                standard.exemplar_filter.value.as_str(),
                standard.exemplar_filter.origin,
            ),
        ];
        for (name, variable, value, origin) in choices {
            table.0.push(Row::new(name, variable, value, origin));
        }
        for (variable, number) in &standard.numbers {
            let name = variable.strip_prefix(env_vars::OTEL_PREFIX).unwrap_or(variable);
            let value = match number.value {
                Some(number) => number.to_string(),
                None if is_bounded_by_bytes(variable) => "by bytes".to_owned(),
                None => "no limit".to_owned(),
            };
            table.0.push(Row::new(name.to_ascii_lowercase(), variable, value, number.origin));
        }
    }

    /// The block that would give another process these settings: what the head server serves, so
    /// that a driver in another shell agrees with the fleet. Never contains headers or credentials.
    pub fn effective_block(&self) -> Map<String, Value> {
        let mut block = Map::new();
        let mut put = |key: &str, value: Value| block.insert(key.to_owned(), value);
        put("enabled", json!(self.is_enabled()));
        put("service_name", json!(self.service_name.value));
        put("service_name_per_server", json!(self.service_name_per_server.value));
        put("span_groups", json!(self.span_groups.value));
        put("exporter", json!(self.exporter.value));
        put("traces_enabled", json!(self.traces.enabled.value));
        put("metrics_enabled", json!(self.metrics.enabled.value));
        put("logs_enabled", json!(self.logs.enabled.value));
        put("instrument_aiohttp", json!(self.instrument_aiohttp.value));
        put("export_strategy", json!(self.export_strategy.value));
        put("export_rank", json!(self.export_rank.value));
        put("live_events", json!(self.live_events.value));
        put("propagate_to_models", json!(self.propagate_to_models.value));
        put("propagate_to", json!(self.propagate_to.value));
        if let Some(endpoint) = &self.otlp.base_endpoint.value {
            put("otlp_endpoint", json!(endpoint.without_credentials()));
        }
        if self.otlp.traces.protocol.origin != Origin::Default {
            put("otlp_protocol", json!(self.otlp.traces.protocol.value));
        }
        if let Some(id) = &self.run_id.value {
            put("run_id", json!(id.as_str()));
        }
        block
    }
}

/// Queues and batches are bounded in bytes; a bound in spans comes on top.
fn is_bounded_by_bytes(variable: &str) -> bool {
    [
        env_vars::OTEL_BSP_MAX_QUEUE_SIZE,
        env_vars::OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
        env_vars::OTEL_BLRP_MAX_QUEUE_SIZE,
        env_vars::OTEL_BLRP_MAX_EXPORT_BATCH_SIZE,
    ]
    .contains(&variable)
}

fn otlp_rows(table: &mut Table, signal: Signal, otlp: &OtlpSignal) {
    let nth = signal as usize;
    let name = |setting: &str| format!("{}.{setting}", signal.as_str());
    table.push(&name("otlp_endpoint"), per_signal::ENDPOINT[nth], &otlp.endpoint);
    table.push(&name("otlp_protocol"), per_signal::PROTOCOL[nth], &otlp.protocol);
    table.0.push(Row::new(
        name("otlp_headers"),
        per_signal::HEADERS[nth],
        otlp.headers
            .value
            .as_ref()
            .map_or_else(|| UNSET.to_owned(), |headers| masked_headers(headers.expose())),
        otlp.headers.origin,
    ));
    table.push(&name("otlp_timeout_millis"), per_signal::TIMEOUT[nth], &otlp.timeout_millis);
    table.0.push(Row::new(
        name("otlp_compression"),
        per_signal::COMPRESSION[nth],
        if otlp.gzip.value { "gzip" } else { "none" },
        otlp.gzip.origin,
    ));
    table.push(&name("otlp_insecure"), per_signal::INSECURE[nth], &otlp.insecure);
    table.maybe(&name("otlp_certificate"), per_signal::CERTIFICATE[nth], &otlp.certificate);
    table.maybe(&name("otlp_client_key"), per_signal::CLIENT_KEY[nth], &otlp.client_key);
    table.maybe(
        &name("otlp_client_certificate"),
        per_signal::CLIENT_CERTIFICATE[nth],
        &otlp.client_certificate,
    );
}

/// Every setting with its default: what an empty environment and an empty block give.
pub fn settings_table() -> Vec<Row> {
    super::resolve(&BTreeMap::new(), &TelemetryConfig::default()).rows()
}
