//! From the block's JSON form to [`TelemetryConfig`].

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    Exporter, LiveEvents, MemoryProfilingConfig, Protocol, TELEMETRY_KEY_NAME, TelemetryConfig,
    TelemetryConfigError, parse_bool,
};
use crate::{
    secret::{MASK, Secret, SecretUrl, is_secret_key},
    suggest::closest,
};

const ALIAS: (&str, &str) = ("instrument_http_client", "instrument_aiohttp");

impl TelemetryConfig {
    /// Reads the block itself; `null` is a block that says nothing.
    ///
    /// # Errors
    /// A value is of the wrong type or out of range.
    pub fn from_block(block: &Value) -> Result<TelemetryConfig, TelemetryConfigError> {
        let empty = Map::new();
        let map = match block {
            Value::Null => &empty,
            Value::Object(map) => map,
            other => return Err(invalid(TELEMETRY_KEY_NAME, "a mapping", other)),
        };
        let mut config = TelemetryConfig::default();
        let mut block = Block::new(map, TELEMETRY_KEY_NAME);

        block.boolean("enabled", &mut config.enabled)?;
        block.text("service_name", &mut config.service_name)?;
        block.boolean("service_name_per_server", &mut config.service_name_per_server)?;
        block.text("span_groups", &mut config.span_groups)?;
        block.choice("exporter", Exporter::EXPECTED, Exporter::parse, &mut config.exporter)?;
        block.boolean("traces_enabled", &mut config.traces_enabled)?;
        block.boolean("metrics_enabled", &mut config.metrics_enabled)?;
        block.boolean("logs_enabled", &mut config.logs_enabled)?;
        block.boolean(ALIAS.1, &mut config.instrument_aiohttp)?;
        block.known.insert(ALIAS.0);
        if block.holds(ALIAS.1) {
            if block.holds(ALIAS.0) {
                config.warnings.push(format!(
                    "`{TELEMETRY_KEY_NAME}.{}` has no effect beside `{}`",
                    ALIAS.0, ALIAS.1
                ));
            }
        } else {
            block.boolean(ALIAS.0, &mut config.instrument_aiohttp)?;
            if block.written.remove(ALIAS.0) {
                block.written.insert(ALIAS.1);
            }
        }
        block.optional("otlp_endpoint", "a URL", |text| Some(SecretUrl::new(text)), {
            &mut config.otlp_endpoint
        })?;
        block.optional("otlp_protocol", Protocol::EXPECTED, Protocol::parse, {
            &mut config.otlp_protocol
        })?;
        block.optional(
            "otlp_headers",
            "a string `name=value,…`",
            |text| Some(Secret::new(text)),
            &mut config.otlp_headers,
        )?;
        block.text("export_strategy", &mut config.export_strategy)?;
        block.integer("export_rank", &mut config.export_rank)?;
        block.optional("run_id", "a string", |text| Some(text.to_owned()), &mut config.run_id)?;
        block.choice("live_events", LiveEvents::EXPECTED, LiveEvents::parse, {
            &mut config.live_events
        })?;
        block.boolean("propagate_to_models", &mut config.propagate_to_models)?;
        block.list("propagate_to", &mut config.propagate_to)?;
        block.boolean("cpu_sampling_enabled", &mut config.cpu_sampling_enabled)?;
        block.seconds("cpu_min_resample_interval_s", &mut config.cpu_min_resample_interval_s)?;
        block.boolean("memory_sampling_enabled", &mut config.memory_sampling_enabled)?;
        block.seconds("memory_min_resample_interval_s", {
            &mut config.memory_min_resample_interval_s
        })?;
        block.boolean("gpu_sampling_enabled", &mut config.gpu_sampling_enabled)?;
        block.seconds("gpu_sample_interval_s", &mut config.gpu_sample_interval_s)?;

        if let Some(inner) = block.value("memory_profiling") {
            let Value::Object(map) = inner else {
                return Err(invalid(&block.path("memory_profiling"), "a mapping", inner));
            };
            let mut inner = Block::new(map, "telemetry.memory_profiling");
            config.memory_profiling = inner.memory_profiling()?;
            config.warnings.extend(inner.unknown());
            if inner.written.contains("enabled") {
                config.written.insert("memory_profiling.enabled");
            }
            if inner.written.contains("interval_seconds") {
                config.written.insert("memory_profiling.interval_seconds");
            }
        }
        config.warnings.extend(block.unknown());
        block.written.remove("memory_profiling");
        config.written.extend(block.written);
        Ok(config)
    }
}

/// A mapping that is being read: it remembers which keys were asked for and which were there.
struct Block<'a> {
    map: &'a Map<String, Value>,
    prefix: &'static str,
    known: BTreeSet<&'static str>,
    written: BTreeSet<&'static str>,
}

impl<'a> Block<'a> {
    fn new(map: &'a Map<String, Value>, prefix: &'static str) -> Block<'a> {
        Block { map, prefix, known: BTreeSet::new(), written: BTreeSet::new() }
    }

    fn holds(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    /// The value of a key that says something; `null` says nothing.
    fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.insert(key);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        self.written.insert(key);
        Some(value)
    }

    fn boolean(&mut self, key: &'static str, into: &mut bool) -> Result<(), TelemetryConfigError> {
        let Some(value) = self.value(key) else { return Ok(()) };
        let read = match value {
            Value::Bool(read) => Some(*read),
            Value::String(text) => parse_bool(text),
            Value::Number(number) => match number.as_i64() {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            _ => None,
        };
        *into = read.ok_or_else(|| invalid(&self.path(key), "true or false", value))?;
        Ok(())
    }

    fn text(&mut self, key: &'static str, into: &mut String) -> Result<(), TelemetryConfigError> {
        match self.value(key) {
            None => Ok(()),
            Some(Value::String(text)) => {
                if text.trim().is_empty() {
                    self.written.remove(key);
                } else {
                    text.trim().clone_into(into);
                }
                Ok(())
            }
            Some(other) => Err(invalid(&self.path(key), "a string", other)),
        }
    }

    fn choice<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
        into: &mut T,
    ) -> Result<(), TelemetryConfigError> {
        let mut read = None;
        self.optional(key, expected, parse, &mut read)?;
        if let Some(read) = read {
            *into = read;
        }
        Ok(())
    }

    fn optional<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
        into: &mut Option<T>,
    ) -> Result<(), TelemetryConfigError> {
        let Some(value) = self.value(key) else { return Ok(()) };
        let text = match value {
            Value::String(text) => text.trim(),
            // YAML reads a bare `on` or `off` as a boolean.
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            _ => return Err(invalid(&self.path(key), expected, value)),
        };
        if text.is_empty() {
            self.written.remove(key);
            return Ok(());
        }
        if value.is_boolean() && key != "live_events" {
            return Err(invalid(&self.path(key), expected, value));
        }
        *into = Some(parse(text).ok_or_else(|| invalid(&self.path(key), expected, value))?);
        Ok(())
    }

    fn integer(&mut self, key: &'static str, into: &mut i64) -> Result<(), TelemetryConfigError> {
        let Some(value) = self.value(key) else { return Ok(()) };
        let read = match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        *into = read.ok_or_else(|| invalid(&self.path(key), "an integer", value))?;
        Ok(())
    }

    fn seconds(&mut self, key: &'static str, into: &mut f64) -> Result<(), TelemetryConfigError> {
        let Some(value) = self.value(key) else { return Ok(()) };
        let read = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        *into = read
            .filter(|seconds| is_positive(*seconds))
            .ok_or_else(|| invalid(&self.path(key), "a number of seconds above 0", value))?;
        Ok(())
    }

    fn list(
        &mut self,
        key: &'static str,
        into: &mut Vec<String>,
    ) -> Result<(), TelemetryConfigError> {
        let Some(value) = self.value(key) else { return Ok(()) };
        *into = match value {
            Value::String(text) => split_list(text),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| invalid(&self.path(key), "a list of strings", value))?,
            other => return Err(invalid(&self.path(key), "a list of strings", other)),
        };
        Ok(())
    }

    fn memory_profiling(&mut self) -> Result<MemoryProfilingConfig, TelemetryConfigError> {
        let mut read = MemoryProfilingConfig::default();
        self.boolean("enabled", &mut read.enabled)?;
        self.seconds("interval_seconds", &mut read.interval_seconds)?;
        Ok(read)
    }

    fn unknown(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for key in self.map.keys().filter(|key| !self.known.contains(key.as_str())) {
            let mut warning = format!("`{}` is no known setting and has no effect", self.path(key));
            if let Some(name) = closest(key, self.known.iter().copied()) {
                warning.push_str(&format!(" (did you mean `{name}`?)"));
            }
            warnings.push(warning);
        }
        warnings
    }
}

/// Whether a number of seconds is one that can be waited.
pub(crate) fn is_positive(seconds: f64) -> bool {
    seconds > 0.0 && seconds.is_finite()
}

/// Comma-separated entries without blanks.
pub(crate) fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn invalid(key: &str, expected: &str, value: &Value) -> TelemetryConfigError {
    const SHOWN_CHARS: usize = 80;
    let mut shown = value.to_string();
    if is_secret_key(key.rsplit('.').next().unwrap_or(key)) {
        MASK.clone_into(&mut shown);
    } else if let Some((end, _)) = shown.char_indices().nth(SHOWN_CHARS) {
        shown.truncate(end);
        shown.push('…');
    }
    TelemetryConfigError::Value { key: key.to_owned(), expected: expected.to_owned(), value: shown }
}
