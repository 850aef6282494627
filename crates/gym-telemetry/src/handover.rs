//! What a child process must be told so that it decides like its parent.
//!
//! The process environment is never changed: the hand-over is a value, applied to the command of
//! one child. It holds only what the child's own environment does not say already: settings that
//! the block decided, and the generated run id. Defaults are never handed over, because as
//! variables they would beat what the user set in a lower layer.

use std::{collections::BTreeMap, fmt, process::Command};

use crate::{
    config::Exporter,
    env_vars,
    groups::{KNOWN_TO_REFERENCE, name},
    origin::{Origin, Sourced},
    resolve::{Resolved, SignalSettings},
    run_id::RunId,
    secret::{MASK, is_secret_key, masked_url},
};

/// Environment variables for a child.
#[derive(Clone, PartialEq, Eq)]
pub struct ChildEnv {
    variables: BTreeMap<&'static str, String>,
    /// As it will be in the child's environment, by whatever layer.
    span_groups: String,
    /// The user chose the HTTP conventions of Python servers.
    http_conventions_chosen: bool,
}

impl ChildEnv {
    /// What a child needs to decide like `resolved`, given that it inherits `env`; `generated` is
    /// its run id when nobody gave one.
    pub fn new(resolved: &Resolved, env: &BTreeMap<String, String>, generated: &RunId) -> ChildEnv {
        let mut out = HandOver(BTreeMap::new());
        out.put(env_vars::ENABLED, &resolved.enabled, |on| flag(*on));
        out.put(env_vars::OTEL_SERVICE_NAME, &resolved.service_name, String::clone);
        out.put(env_vars::SERVICE_NAME_PER_SERVER, &resolved.service_name_per_server, |on| {
            flag(*on)
        });
        out.put(env_vars::SPAN_GROUPS, &resolved.span_groups, String::clone);
        out.exporters(resolved);
        out.put(env_vars::TRACES_ENABLED, &resolved.traces.enabled, |on| flag(*on));
        out.put(env_vars::METRICS_ENABLED, &resolved.metrics.enabled, |on| flag(*on));
        out.put(env_vars::LOGS_ENABLED, &resolved.logs.enabled, |on| flag(*on));
        out.put(env_vars::INSTRUMENT_AIOHTTP, &resolved.instrument_aiohttp, |on| flag(*on));
        out.put(env_vars::EXPORT_STRATEGY, &resolved.export_strategy, String::clone);
        out.put(env_vars::EXPORT_RANK, &resolved.export_rank, i64::to_string);
        out.put(env_vars::LIVE_EVENTS, &resolved.live_events, |l| l.as_str().to_owned());
        out.put(env_vars::PROPAGATE_TO_MODELS, &resolved.propagate_to_models, |on| flag(*on));
        out.put(env_vars::PROPAGATE_TO, &resolved.propagate_to, |hosts| hosts.join(","));
        out.put(env_vars::MEMORY_PROFILING_ENABLED, &resolved.memory_profiling_enabled, |on| {
            flag(*on)
        });
        out.put(
            env_vars::MEMORY_PROFILING_INTERVAL_SECONDS,
            &resolved.memory_profiling_interval_seconds,
            f64::to_string,
        );
        out.put(env_vars::CPU_SAMPLING_ENABLED, &resolved.cpu_sampling_enabled, |on| flag(*on));
        out.put(
            env_vars::CPU_MIN_RESAMPLE_INTERVAL_S,
            &resolved.cpu_min_resample_interval_s,
            f64::to_string,
        );
        out.put(env_vars::MEMORY_SAMPLING_ENABLED, &resolved.memory_sampling_enabled, |on| {
            flag(*on)
        });
        out.put(
            env_vars::MEMORY_MIN_RESAMPLE_INTERVAL_S,
            &resolved.memory_min_resample_interval_s,
            f64::to_string,
        );
        out.put(env_vars::GPU_SAMPLING_ENABLED, &resolved.gpu_sampling_enabled, |on| flag(*on));
        out.put(env_vars::GPU_SAMPLE_INTERVAL_S, &resolved.gpu_sample_interval_s, f64::to_string);
        out.otlp(resolved);
        if matches!(resolved.run_id.origin, Origin::Block | Origin::Generated) {
            let id = resolved.run_id.value.as_ref().unwrap_or(generated);
            out.0.insert(env_vars::RUN_ID, id.to_string());
        }
        let is_set = |name: &str| env.get(name).is_some_and(|value| !value.trim().is_empty());
        ChildEnv {
            variables: out.0,
            span_groups: resolved.span_groups.value.clone(),
            http_conventions_chosen: is_set(env_vars::OTEL_SEMCONV_STABILITY_OPT_IN),
        }
    }

    /// The variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()))
    }

    /// A variable's value, if it is handed over.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// How many variables are handed over.
    pub fn len(&self) -> usize {
        self.variables.len()
    }

    /// Whether nothing is handed over.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    /// Adds them to a command.
    pub fn apply(&self, command: &mut Command) {
        command.envs(&self.variables);
    }

    /// The same for a server of the Python reference, and one sentence when something had to be
    /// left out.
    ///
    /// A group name that the reference does not know would switch its telemetry off. It is told to
    /// use the stable HTTP conventions, unless the user chose.
    pub fn for_foreign(&self) -> (ChildEnv, Option<String>) {
        let mut child = self.clone();
        if !child.http_conventions_chosen {
            child.variables.insert(env_vars::OTEL_SEMCONV_STABILITY_OPT_IN, "http".to_owned());
        }
        let asked = self.span_groups.to_ascii_lowercase();
        let (known, unknown): (Vec<&str>, Vec<&str>) = asked
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .partition(|entry| KNOWN_TO_REFERENCE.contains(entry));
        if unknown.is_empty() && !known.is_empty() {
            return (child, None);
        }
        if known.is_empty() {
            // An empty list would mean `default` to it.
            child.variables.insert(env_vars::TRACES_ENABLED, flag(false));
            child.span_groups = name::DEFAULT.to_owned();
        } else {
            child.span_groups = known.join(",");
        }
        child.variables.insert(env_vars::SPAN_GROUPS, child.span_groups.clone());
        if unknown.is_empty() {
            return (child, None);
        }
        let warning = format!(
            "Python servers do not know the span groups {} and are started without them",
            unknown.iter().map(|entry| format!("`{entry}`")).collect::<Vec<_>>().join(", ")
        );
        (child, Some(warning))
    }
}

impl fmt::Debug for ChildEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.variables.iter().map(|(name, value)| match *name {
            env_vars::OTEL_EXPORTER_OTLP_ENDPOINT => (*name, masked_url(value)),
            name if is_secret_key(name) => (name, MASK.to_owned()),
            name => (name, value.clone()),
        });
        f.debug_map().entries(shown).finish()
    }
}

struct HandOver(BTreeMap<&'static str, String>);

impl HandOver {
    fn put<T>(
        &mut self,
        variable: &'static str,
        setting: &Sourced<T>,
        write: impl FnOnce(&T) -> String,
    ) {
        if setting.origin == Origin::Block {
            self.0.insert(variable, write(&setting.value));
        }
    }

    /// The block's exporter, under a name that does not beat what the user set for one signal.
    fn exporters(&mut self, resolved: &Resolved) {
        if resolved.exporter.origin != Origin::Block {
            return;
        }
        let signals = [
            (env_vars::OTEL_TRACES_EXPORTER, &resolved.traces),
            (env_vars::OTEL_METRICS_EXPORTER, &resolved.metrics),
            (env_vars::OTEL_LOGS_EXPORTER, &resolved.logs),
        ];
        let by_signal = signals
            .iter()
            .any(|(_, SignalSettings { exporter, .. })| exporter.origin != Origin::Block);
        if !by_signal {
            self.put(env_vars::EXPORTER, &resolved.exporter, written);
            return;
        }
        for (variable, settings) in signals {
            self.put(variable, &settings.exporter, written);
        }
    }

    fn otlp(&mut self, resolved: &Resolved) {
        let otlp = &resolved.otlp;
        self.put(env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, &otlp.base_endpoint, |url| {
            url.as_ref().map(|url| url.expose().to_owned()).unwrap_or_default()
        });
        // The block speaks for all signals: the first one that it decided says what it holds.
        for signal in [&otlp.traces, &otlp.metrics, &otlp.logs] {
            self.put(env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, &signal.protocol, |protocol| {
                protocol.as_str().to_owned()
            });
            self.put(env_vars::OTEL_EXPORTER_OTLP_HEADERS, &signal.headers, |headers| {
                headers.as_ref().map(|h| h.expose().to_owned()).unwrap_or_default()
            });
        }
    }
}

fn written(exporter: &Exporter) -> String {
    exporter.as_str().to_owned()
}

/// As the reference writes booleans.
fn flag(on: bool) -> String {
    if on { "1" } else { "0" }.to_owned()
}
