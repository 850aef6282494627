//! The block of a `vllm_model` instance.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Fields of the block; those of every instance (`entrypoint`, `host`, …) are ignored.
#[derive(Debug, Clone, Deserialize)]
pub struct VllmModelConfig {
    /// One base URL, or one per replica.
    #[serde(deserialize_with = "one_or_many")]
    pub base_url: Vec<String>,
    /// Sent as bearer token.
    pub api_key: Secret,
    /// Name of the model upstream.
    #[serde(deserialize_with = "text")]
    pub model: String,
    /// Not supported: token ids for training.
    pub return_token_id_information: bool,
    /// Whether the engine separates reasoning from content.
    pub uses_reasoning_parser: bool,
    /// Not supported: token ids for training.
    #[serde(default)]
    pub request_prompt_and_generation_token_ids: bool,
    /// Whether reasoning of earlier turns is sent back apart from the content.
    #[serde(default = "yes")]
    pub uses_interleaved_reasoning: bool,
    /// Whether reasoning stays in the content of earlier turns.
    #[serde(default)]
    pub preserve_reasoning_in_assistant_content: bool,
    /// Whether `developer` messages go upstream as `system`.
    #[serde(default)]
    pub replace_developer_role_with_system: bool,
    /// Whether a turn may end with nothing but reasoning.
    #[serde(default = "yes")]
    pub sequential_reasoning_allowed: bool,
    /// Whether the engine answers the Responses dialect itself.
    #[serde(default)]
    pub is_responses_native: bool,
    /// Arguments of the chat template.
    #[serde(default, deserialize_with = "or_empty")]
    pub chat_template_kwargs: Map<String, Value>,
    /// Parameters that always win.
    #[serde(default, deserialize_with = "or_empty")]
    pub sampling_overrides: Map<String, Value>,
    /// Members of the body that the request may override.
    #[serde(default, deserialize_with = "or_empty")]
    pub extra_body: Map<String, Value>,
    /// Headers of every request.
    #[serde(default, deserialize_with = "or_empty")]
    pub default_headers: BTreeMap<String, String>,
    /// Folder below which audio files lie.
    #[serde(default)]
    pub audio_root: Option<PathBuf>,
    /// Whether `/completions` is called with the plain text of the messages.
    #[serde(default)]
    pub use_completions_api: bool,
    /// Not supported: rendering a chat template.
    #[serde(default)]
    pub render_chat_template: bool,
    /// Not supported: a tokenizer.
    #[serde(default)]
    pub tokenizer: Option<String>,
}

impl VllmModelConfig {
    /// Key and reason of the first setting that this server cannot honour.
    pub fn unsupported(&self) -> Option<(&'static str, &'static str)> {
        const TOKEN_IDS: &str =
            "token ids for training are not supported; set it to false or use the Python server";
        let table = [
            (self.return_token_id_information, "return_token_id_information", TOKEN_IDS),
            (
                self.request_prompt_and_generation_token_ids,
                "request_prompt_and_generation_token_ids",
                TOKEN_IDS,
            ),
            (
                self.render_chat_template,
                "render_chat_template",
                "chat templates cannot be rendered here; remove it or use the Python server",
            ),
            (
                self.tokenizer.is_some(),
                "tokenizer",
                "tokenizers are not supported; remove it or use the Python server",
            ),
            (self.base_url.is_empty(), "base_url", "expected at least one URL"),
            (
                self.is_responses_native && self.use_completions_api,
                "use_completions_api",
                "cannot be combined with is_responses_native",
            ),
            (
                self.is_responses_native && !self.chat_template_kwargs.is_empty(),
                "chat_template_kwargs",
                "cannot be combined with is_responses_native",
            ),
            (
                self.is_responses_native && self.replace_developer_role_with_system,
                "replace_developer_role_with_system",
                "cannot be combined with is_responses_native",
            ),
        ];
        table.into_iter().find(|(is_set, ..)| *is_set).map(|(_, key, reason)| (key, reason))
    }
}

/// A text that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("****")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer).map(Secret)
    }
}

fn yes() -> bool {
    true
}

/// A text, also when YAML read it as a number.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!("expected a string, got {other}"))),
    }
}

pub(crate) fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(url) => Ok(vec![url]),
        Value::Array(urls) => {
            let urls: Option<Vec<String>> =
                urls.iter().map(|url| url.as_str().map(str::to_owned)).collect();
            urls.ok_or_else(|| serde::de::Error::custom("expected a URL or a list of URLs"))
        }
        _ => Err(serde::de::Error::custom("expected a URL or a list of URLs")),
    }
}
