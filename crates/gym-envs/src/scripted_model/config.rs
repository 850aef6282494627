//! The configuration of a scripted model: what it answers, how long that takes, and what goes wrong.

use serde::Deserialize;
use serde_json::Value;

use super::fault::Faults;
use super::latency::Latency;

/// The block of a `scripted_model` instance. Fields of the instance itself (`entrypoint`, `host`, …) are ignored.
#[derive(Debug, Clone, Deserialize, Default)]
pub struct ScriptedModelConfig {
    /// Name in replies; the requested one unless set.
    #[serde(default)]
    pub model: Option<String>,
    /// Replies, one per step. Without any, every declared tool is called once and then comes the answer.
    #[serde(default)]
    pub script: Vec<ScriptedReply>,
    /// Text of the answer when there is no script.
    #[serde(default)]
    pub answer: Option<String>,
    /// How long a reply takes.
    #[serde(default)]
    pub latency: Latency,
    /// Splits the drawn latency into engine timings where a reply has none of its own.
    #[serde(default)]
    pub engine: Option<EngineShares>,
    /// What goes wrong, and how often.
    #[serde(default)]
    pub errors: Faults,
    /// Seed of everything that is drawn.
    #[serde(default)]
    pub seed: u64,
}

/// One reply of a script.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct ScriptedReply {
    /// Text of the message.
    #[serde(default)]
    pub text: Option<String>,
    /// Reasoning before it.
    #[serde(default)]
    pub reasoning: Option<String>,
    /// Tools that are called.
    #[serde(default)]
    pub tool_calls: Vec<ScriptedCall>,
    /// Token counts; estimated from lengths unless set.
    #[serde(default)]
    pub usage: Option<ScriptedUsage>,
    /// What the engine says about its time; the reply takes at least as long.
    #[serde(default)]
    pub engine: Option<EngineTimings>,
    /// How the reply ends.
    #[serde(default)]
    pub finish: Finish,
    /// Latency of this reply, instead of the general one.
    #[serde(default)]
    pub latency: Option<Latency>,
}

/// One call of a tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Name of the tool.
    pub name: String,
    /// An object, or a string that is sent as it is (it need not be JSON).
    #[serde(default)]
    pub arguments: Value,
}

impl ScriptedCall {
    /// The arguments as the model writes them.
    pub fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            object => object.to_string(),
        }
    }
}

/// Token counts of a scripted reply.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of those read, from a cache.
    #[serde(default)]
    pub cached_tokens: Option<u64>,
    /// Of those written, reasoning.
    #[serde(default)]
    pub reasoning_tokens: Option<u64>,
}

/// Milliseconds that an engine reports.
#[derive(Debug, Clone, Copy, Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct EngineTimings {
    /// Waited for a slot.
    #[serde(default)]
    pub queue_ms: f64,
    /// Read the prompt.
    #[serde(default)]
    pub prefill_ms: f64,
    /// Wrote the reply.
    #[serde(default)]
    pub decode_ms: f64,
}

/// Shares of the drawn latency; what is left is decoding.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineShares {
    /// Waited for a slot.
    pub queue_share: f64,
    /// Read the prompt.
    pub prefill_share: f64,
}

/// How a reply ends.
#[derive(Debug, Clone, Copy, Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// By itself.
    #[default]
    Stop,
    /// Cut off at the token limit.
    Length,
    /// By a filter.
    ContentFilter,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// A field is wrong.
    #[error("{}", if path == "." { "the settings do not fit".to_owned() } else { format!("the script is not valid at `{path}`") })]
    Field {
        /// Where.
        path: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The file of replies cannot be used.
    #[error("the file of the script cannot be used: {0}")]
    File(String),
    /// A value makes no sense.
    #[error("`{path}` of the script {reason}")]
    Value {
        /// Where.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
}

impl ScriptedModelConfig {
    /// Reads a parsed script file: a list of replies, or a mapping with the fields of the block.
    /// A `script` that is a text names a file of replies.
    pub fn from_value(value: Value) -> Result<Self, ScriptError> {
        let value = match value {
            Value::Array(script) => serde_json::json!({ "script": script }),
            Value::Null => Value::Object(serde_json::Map::new()),
            other => other,
        };
        let value = match value.get("script").and_then(Value::as_str) {
            Some(file) => {
                let script =
                    super::read_script(std::path::Path::new(file)).map_err(ScriptError::File)?;
                let mut value = value;
                value["script"] = script;
                value
            }
            None => value,
        };
        let known = ["model", "script", "answer", "latency", "engine", "errors", "seed"];
        if let Some(key) = value
            .as_object()
            .and_then(|object| object.keys().find(|key| !known.contains(&key.as_str())))
        {
            return Err(ScriptError::Value {
                path: key.clone(),
                reason: "is not a key of a script",
            });
        }
        let config: Self = serde_path(value)?;
        config.check()?;
        Ok(config)
    }

    /// Checks what types cannot say.
    pub fn check(&self) -> Result<(), ScriptError> {
        let is_time = |millis: f64| millis.is_finite() && (0.0..=86_400_000.0).contains(&millis);
        for (at, reply) in self.script.iter().enumerate() {
            let wrong = |field: &str, reason| {
                Err(ScriptError::Value { path: format!("script[{at}]{field}"), reason })
            };
            if reply.text.is_none() && reply.tool_calls.is_empty() && reply.reasoning.is_none() {
                return wrong("", "needs `text`, `reasoning` or `tool_calls`");
            }
            if let Some(engine) = reply.engine
                && ![engine.queue_ms, engine.prefill_ms, engine.decode_ms].into_iter().all(is_time)
            {
                return wrong(".engine", "needs milliseconds between 0 and a day");
            }
            if reply.tool_calls.iter().any(|call| call.name.is_empty()) {
                return wrong(".tool_calls", "has a call without a name");
            }
        }
        let shares_fit = self.engine.is_none_or(|shares| {
            shares.queue_share >= 0.0
                && shares.prefill_share >= 0.0
                && shares.queue_share + shares.prefill_share <= 1.0
        });
        if !shares_fit {
            return Err(ScriptError::Value {
                path: "engine".to_owned(),
                reason: "needs shares that add up to at most 1",
            });
        }
        Ok(())
    }
}

fn serde_path(value: Value) -> Result<ScriptedModelConfig, ScriptError> {
    // A script's replies are read one by one so that an error names the reply.
    if let Some(script) = value.get("script").and_then(Value::as_array) {
        for (at, reply) in script.iter().enumerate() {
            ScriptedReply::deserialize(reply)
                .map_err(|source| ScriptError::Field { path: format!("script[{at}]"), source })?;
        }
    }
    ScriptedModelConfig::deserialize(&value)
        .map_err(|source| ScriptError::Field { path: ".".to_owned(), source })
}
