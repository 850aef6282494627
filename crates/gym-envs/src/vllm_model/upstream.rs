//! The last changes to a chat body before it goes upstream.

use std::borrow::Cow;

use gym_server::api::{Object, json};
use serde_json::{Map, Value};

use super::audio::{self, AudioError};
use super::config::VllmModelConfig;
use super::thinking;

/// Why a body cannot be sent.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum UpstreamError {
    #[error("metadata.{0} is not a JSON object")]
    Metadata(&'static str),
    #[error("the audio of the request cannot be used")]
    Audio(#[from] AudioError),
}

/// What the configuration adds to every body, as JSON texts.
#[derive(Debug, Clone, Default)]
pub struct Additions {
    chat_template_kwargs: Vec<(String, String)>,
    extra_body: Vec<(String, String)>,
    sampling_overrides: Vec<(String, String)>,
    /// JSON text of the model's name
    model: String,
}

impl Additions {
    /// Writes the configured values once.
    pub fn new(config: &VllmModelConfig) -> Self {
        let texts = |map: &Map<String, Value>| {
            map.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
        };
        Self {
            chat_template_kwargs: texts(&config.chat_template_kwargs),
            extra_body: texts(&config.extra_body),
            sampling_overrides: texts(&config.sampling_overrides),
            model: Value::from(config.model.as_str()).to_string(),
        }
    }

    /// Forces the model and lays `extra_body` under a body of the Responses dialect.
    pub fn apply_native<'a>(&'a self, body: &mut Object<'a>) {
        body.set("model", self.model.as_str());
        for (key, raw) in &self.extra_body {
            body.set_default(key.as_str(), raw.as_str());
        }
        for (key, raw) in &self.sampling_overrides {
            body.set(key.as_str(), raw.as_str());
        }
    }
}

/// Changes a chat body in place. Config lies under what the request's metadata says, and that under the request.
pub fn apply<'a>(
    body: &mut Object<'a>,
    config: &VllmModelConfig,
    additions: &'a Additions,
) -> Result<(), UpstreamError> {
    if let Some(messages) = rewrite_messages(body.get("messages").unwrap_or("[]"), config) {
        body.set("messages", messages);
    }
    body.set("model", additions.model.as_str());
    let metadata =
        body.get("metadata").filter(|raw| json::kind(raw) == json::Kind::Object).map(str::to_owned);
    let kwargs =
        overlay(&additions.chat_template_kwargs, metadata.as_deref(), "chat_template_kwargs")?;
    if !kwargs.is_empty() {
        body.set("chat_template_kwargs", text(kwargs.to_json()));
    }
    if body.get("top_logprobs").is_some_and(json::is_null) {
        body.remove("top_logprobs");
    }
    for (key, raw) in
        overlay(&additions.extra_body, metadata.as_deref(), "extra_body")?.into_members()
    {
        body.set_default(key, raw);
    }
    if let Some(parts) = metadata
        .as_deref()
        .map(|metadata| audio::parts(metadata, config.audio_root.as_deref()))
        .transpose()?
        .flatten()
    {
        let messages = audio::put_first(&parts, body.get("messages").unwrap_or("[]"))?;
        body.set("messages", messages);
    }
    for (key, raw) in &additions.sampling_overrides {
        body.set(key.as_str(), raw.as_str());
    }
    Ok(())
}

/// Configured members, overlaid by those of a JSON object in a metadata string.
fn overlay(
    configured: &[(String, String)],
    metadata: Option<&str>,
    key: &'static str,
) -> Result<Object<'static>, UpstreamError> {
    let mut all = Object::default();
    for (name, raw) in configured {
        all.set(name.clone(), raw.clone());
    }
    if let Some(own) =
        metadata.and_then(|metadata| json::member(metadata, key)).and_then(json::string)
    {
        let own = json::document(&own).map_err(|_| UpstreamError::Metadata(key))?;
        for (name, raw) in json::members(own).ok_or(UpstreamError::Metadata(key))?.flatten() {
            all.set(name.into_owned(), raw.to_owned());
        }
    }
    Ok(all)
}

pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Renames roles and takes reasoning out of earlier turns; `None` when nothing changes.
fn rewrite_messages(messages: &str, config: &VllmModelConfig) -> Option<String> {
    let rename = config.replace_developer_role_with_system && messages.contains("developer");
    let extract = config.uses_reasoning_parser
        && !config.preserve_reasoning_in_assistant_content
        && messages.contains("think");
    if !rename && !extract {
        return None;
    }
    let mut out = vec![b'['];
    for message in json::elements(messages)?.flatten() {
        if out.len() > 1 {
            out.push(b',');
        }
        let role = json::member(message, "role");
        if rename && role == Some("\"developer\"") {
            let mut renamed = Object::parse(message);
            renamed.set("role", "\"system\"");
            out.extend_from_slice(&renamed.to_json());
        } else if extract && role == Some("\"assistant\"") {
            out.extend_from_slice(&without_reasoning(message, config.uses_interleaved_reasoning));
        } else {
            out.extend_from_slice(message.as_bytes());
        }
    }
    out.push(b']');
    Some(text(out))
}

fn without_reasoning(message: &str, interleaved: bool) -> Cow<'_, [u8]> {
    let content = json::member(message, "content").and_then(json::string).unwrap_or_default();
    let (blocks, kept) = thinking::split(&content);
    let Some(first) = blocks.first() else { return Cow::Borrowed(message.as_bytes()) };
    let quoted = |content: &str| {
        let mut out = Vec::with_capacity(content.len() + 2);
        json::write_string(&mut out, content);
        text(out)
    };
    let mut changed = Object::parse(message);
    changed.set("content", quoted(&kept));
    if interleaved {
        changed.set("reasoning_content", quoted(first));
        changed.set("reasoning", quoted(first));
    }
    Cow::Owned(changed.to_json())
}

/// Whether the last message is an assistant's with neither content nor tool calls.
pub fn ends_with_nothing_said(messages: &str) -> bool {
    let Some(last) = json::elements(messages).and_then(|all| all.flatten().last()) else {
        return false;
    };
    let is_nothing =
        |name| json::member(last, name).is_none_or(|raw| matches!(raw, "null" | "\"\"" | "[]"));
    json::member(last, "role") == Some("\"assistant\"")
        && is_nothing("content")
        && is_nothing("tool_calls")
}
