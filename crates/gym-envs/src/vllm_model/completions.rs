//! Calling `/completions` with the plain text of the messages.

use bytes::Bytes;
use gym_server::api::{Object, ResponseError, json};

/// Why a chat body has no plain form.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CompletionsError {
    #[error(
        "the completions API takes one user message, with at most one system message before it"
    )]
    Messages,
    #[error("the completions API takes text only")]
    NotText,
    #[error("the completions API takes no tools")]
    Tools,
}

/// Makes the body of `/completions` from a chat body.
pub fn request(mut chat: Object<'_>) -> Result<Vec<u8>, CompletionsError> {
    if chat.get("tools").is_some_and(|raw| !matches!(raw, "null" | "[]")) {
        return Err(CompletionsError::Tools);
    }
    let messages = chat.remove("messages").unwrap_or_default();
    let all: Vec<&str> = json::elements(&messages).into_iter().flatten().flatten().collect();
    let roles: Vec<_> =
        all.iter().map(|message| json::member(message, "role").unwrap_or_default()).collect();
    if !matches!(roles.as_slice(), ["\"user\""] | ["\"system\"", "\"user\""]) {
        return Err(CompletionsError::Messages);
    }
    let texts =
        all.iter().map(|message| plain_text(json::member(message, "content").unwrap_or("null")));
    let prompt = texts.collect::<Result<Vec<_>, _>>()?.join("\n\n");
    let mut quoted = Vec::with_capacity(prompt.len() + 2);
    json::write_string(&mut quoted, &prompt);
    chat.set("prompt", super::upstream::text(quoted));
    for name in ["tools", "tool_choice", "parallel_tool_calls"] {
        chat.remove(name);
    }
    if let Some(limit) = chat.remove("max_completion_tokens") {
        chat.set("max_tokens", limit);
    }
    let top = chat.remove("top_logprobs");
    match chat.remove("logprobs").as_deref() {
        Some("true") => chat.set("logprobs", top.unwrap_or("1".into())),
        Some("false" | "null") | None => {}
        Some(count) => chat.set("logprobs", count.to_owned()),
    }
    Ok(chat.to_json())
}

fn plain_text(content: &str) -> Result<String, CompletionsError> {
    if let Some(text) = json::string(content) {
        return Ok(text.into_owned());
    }
    let mut text = String::new();
    for part in json::elements(content).ok_or(CompletionsError::NotText)?.flatten() {
        if json::member(part, "type") != Some("\"text\"") {
            return Err(CompletionsError::NotText);
        }
        text.push_str(&json::member(part, "text").and_then(json::string).unwrap_or_default());
    }
    Ok(text)
}

/// Makes a chat reply from the reply of `/completions`.
pub fn reply(body: &[u8]) -> Result<Bytes, ResponseError> {
    let text = std::str::from_utf8(body).map_err(|_| ResponseError::NotUtf8)?;
    json::document(text).map_err(ResponseError::NotJson)?;
    let choices = json::member(text, "choices")
        .and_then(json::elements)
        .ok_or(ResponseError::Missing("choices"))?;
    let choices: Vec<String> = choices
        .flatten()
        .map(|choice| {
            let member = |name, default| json::member(choice, name).unwrap_or(default);
            format!(
                r#"{{"index":{},"message":{{"role":"assistant","content":{}}},"logprobs":null,"finish_reason":{}}}"#,
                member("index", "0"),
                member("text", "null"),
                member("finish_reason", "\"stop\""),
            )
        })
        .collect();
    let mut object = Object::parse(text);
    object.set("object", "\"chat.completion\"");
    object.set("choices", format!("[{}]", choices.join(",")));
    Ok(object.to_json().into())
}
