//! The metrics of one route of a model server.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gym_telemetry::semconv::{
    self, span as span_name,
    value::{OPERATION_CHAT, dialect, token_type},
};
use gym_telemetry::{metrics, metrics::millis};
use lens::Value;
use lens::instruments::inference::{CLIENT_TOKEN_USAGE, SERVER_REQUEST_DURATION};
use lens::metrics::BoundHistogram;

use super::Dialect;
use super::facts::Facts;
use crate::instance::InstanceConfig;

/// Models that are told apart by name; what is asked of more is measured without one.
const MAX_MODELS: usize = 64;
/// What follows the provider's name in the name of an implementation.
const IMPLEMENTATION_SUFFIX: &str = "_model";

/// One route: its names, and its series once they are used.
pub(super) struct Meter {
    pub(super) span_name: &'static str,
    pub(super) dialect: &'static str,
    pub(super) server_name: Box<str>,
    pub(super) provider: Box<str>,
    durations: OnceLock<Durations>,
    models: Mutex<Vec<(Option<Box<str>>, ModelSeries)>>,
}

struct Durations {
    call: BoundHistogram,
    first_byte: BoundHistogram,
}

struct ModelSeries {
    duration: BoundHistogram,
    input: BoundHistogram,
    output: BoundHistogram,
}

impl Meter {
    pub(super) fn new(instance: &InstanceConfig, dialect: Dialect) -> Self {
        let (span_name, label) = match dialect {
            Dialect::Responses => (span_name::MODEL_RESPONSES, dialect::RESPONSES),
            Dialect::Chat => (span_name::MODEL_CHAT_COMPLETIONS, dialect::CHAT_COMPLETIONS),
            Dialect::Messages => (span_name::MODEL_MESSAGES, dialect::MESSAGES),
        };
        Self {
            span_name,
            dialect: label,
            server_name: instance.name.as_str().into(),
            provider: provider(&instance.implementation).into(),
            durations: OnceLock::new(),
            models: Mutex::default(),
        }
    }

    /// Records a call that was answered.
    pub(super) fn record(&self, took: Duration, first_byte: Duration, facts: &Facts) {
        let durations = self.durations();
        durations.call.record(millis(took));
        durations.first_byte.record(millis(first_byte));
        self.with_series(facts.request_model.as_deref(), |series| {
            series.duration.record(took.as_secs_f64());
            for (histogram, tokens) in
                [(&series.input, facts.input_tokens), (&series.output, facts.output_tokens)]
            {
                if let Some(tokens) = tokens {
                    #[allow(clippy::cast_precision_loss, reason = "counts of tokens are small")]
                    histogram.record(tokens as f64);
                }
            }
        });
    }

    /// Records a call that failed.
    pub(super) fn record_failure(&self, took: Duration, error_type: &str) {
        self.durations().call.record(millis(took));
        let mut attributes = self.conventional(None);
        attributes.push((semconv::ERROR_TYPE, Value::from(error_type)));
        SERVER_REQUEST_DURATION.record(took.as_secs_f64(), &attributes);
    }

    fn durations(&self) -> &Durations {
        self.durations.get_or_init(|| {
            let attributes = [
                (semconv::MODEL_DIALECT, self.dialect.into()),
                (semconv::SERVER_NAME, Value::from(&*self.server_name)),
            ];
            Durations {
                call: metrics::MODEL_CALL_DURATION.bind(&attributes),
                first_byte: metrics::MODEL_TIME_TO_FIRST_BYTE.bind(&attributes),
            }
        })
    }

    /// Attributes that the conventions ask for.
    fn conventional(&self, model: Option<&str>) -> Vec<(&'static str, Value)> {
        let mut attributes = vec![
            (semconv::GEN_AI_OPERATION_NAME, OPERATION_CHAT.into()),
            (semconv::GEN_AI_PROVIDER_NAME, Value::from(&*self.provider)),
        ];
        if let Some(model) = model {
            attributes.push((semconv::GEN_AI_REQUEST_MODEL, Value::from(model)));
        }
        attributes
    }

    fn with_series(&self, model: Option<&str>, use_it: impl FnOnce(&ModelSeries)) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let room = models.len() < MAX_MODELS;
        let model = model.filter(|model| {
            room || models.iter().any(|(known, _)| known.as_deref() == Some(model))
        });
        if let Some((_, series)) = models.iter().find(|(known, _)| known.as_deref() == model) {
            return use_it(series);
        }
        let attributes = self.conventional(model);
        let tokens = |of: &'static str| {
            let mut attributes = attributes.clone();
            attributes.push((semconv::GEN_AI_TOKEN_TYPE, of.into()));
            CLIENT_TOKEN_USAGE.bind(&attributes)
        };
        let series = ModelSeries {
            duration: SERVER_REQUEST_DURATION.bind(&attributes),
            input: tokens(token_type::INPUT),
            output: tokens(token_type::OUTPUT),
        };
        use_it(&series);
        models.push((model.map(Box::from), series));
    }
}

fn provider(implementation: &str) -> &str {
    implementation.strip_suffix(IMPLEMENTATION_SUFFIX).unwrap_or(implementation)
}
