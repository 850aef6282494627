//! A chat reply as its caller gets it: as a chat reply with think tags, or as a Responses reply.

use std::borrow::Cow;

use bytes::Bytes;
use gym_server::api::chat::ChatReply;
use gym_server::api::{self, CreateParams, Object, ReplyHead, ResponseError, ids, json};

use super::thinking;

/// Why an engine's reply cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FromChatError {
    #[error("the engine's reply is not a chat completion")]
    NotChat(#[from] ResponseError),
    #[error("the engine's reply has reasoning, but uses_reasoning_parser is false")]
    UnexpectedReasoning,
}

/// The reply for callers of the chat dialect: reasoning becomes think tags at the front of the content.
pub fn chat(reply: Bytes, uses_reasoning_parser: bool) -> Result<Bytes, FromChatError> {
    let parsed = ChatReply::parse(&reply)?;
    if parsed.reasoning.is_some() && !uses_reasoning_parser {
        return Err(FromChatError::UnexpectedReasoning);
    }
    let mentions_reasoning = parsed.message.is_some_and(|message| message.contains("\"reasoning"));
    if !mentions_reasoning {
        return Ok(reply);
    }
    let text = std::str::from_utf8(&reply).map_err(|_| ResponseError::NotUtf8)?;
    let choices: Vec<String> = json::member(text, "choices")
        .and_then(json::elements)
        .into_iter()
        .flatten()
        .flatten()
        .map(with_think_tags)
        .collect();
    let mut object = Object::parse(text);
    object.set("choices", format!("[{}]", choices.join(",")));
    Ok(object.to_json().into())
}

fn with_think_tags(choice: &str) -> String {
    let mut message = Object::parse(json::member(choice, "message").unwrap_or("{}"));
    let text = |raw: Option<Cow<'_, str>>| {
        raw.and_then(|raw| json::string(&raw).map(Cow::into_owned)).filter(|text| !text.is_empty())
    };
    let (content, other) = (message.remove("reasoning_content"), message.remove("reasoning"));
    if let Some(reasoning) = text(content).or(text(other)) {
        let said = message.get("content").and_then(json::string).unwrap_or_default();
        let mut out = Vec::new();
        json::write_string(&mut out, &thinking::join(&reasoning, &said));
        message.set("content", super::upstream::text(out));
    }
    let mut choice = Object::parse(choice);
    choice.set("message", super::upstream::text(message.to_json()));
    super::upstream::text(choice.to_json())
}

/// The reply for callers of the Responses dialect.
pub fn responses(
    reply: &[u8],
    request: &CreateParams<'_>,
    model: &str,
    uses_reasoning_parser: bool,
) -> Result<Bytes, FromChatError> {
    let reply = ChatReply::parse(reply)?;
    if reply.reasoning.is_some() && !uses_reasoning_parser {
        return Err(FromChatError::UnexpectedReasoning);
    }
    let content = reply.content.as_deref().or(reply.refusal.as_deref()).unwrap_or_default();
    let (mut blocks, mut said) = if uses_reasoning_parser {
        thinking::split(content)
    } else {
        (Vec::new(), content.to_owned())
    };
    let joined;
    if let Some(reasoning) = reply.reasoning.as_deref() {
        if reasoning.contains("think>") {
            // Tags inside the reasoning end blocks early, just as they do for callers of the chat dialect.
            joined = thinking::join(reasoning, content);
            (blocks, said) = thinking::split(&joined);
        } else {
            blocks.insert(0, reasoning);
        }
    }
    let mut items = Vec::with_capacity(said.len() + 512);
    if !blocks.is_empty() {
        api::write_reasoning_item(
            &mut items,
            &format!("rs_{}", ids::random_hex()),
            blocks.iter().copied(),
        );
    }
    let calls: Vec<&str> =
        reply.tool_calls.and_then(json::elements).into_iter().flatten().flatten().collect();
    if !said.is_empty() || (blocks.is_empty() && calls.is_empty()) {
        api::write_message_item(&mut items, &format!("msg_{}", ids::random_hex()), &said);
    }
    for call in calls {
        let function = json::member(call, "function").unwrap_or("{}");
        let text =
            |object, name| json::member(object, name).and_then(json::string).unwrap_or_default();
        api::write_function_call_item(
            &mut items,
            &text(call, "id"),
            &text(function, "name"),
            &text(function, "arguments"),
        );
    }
    let head = ReplyHead {
        id: &format!("resp_{}", ids::random_hex()),
        created_at: reply.created.and_then(|raw| raw.parse().ok()).unwrap_or_default(),
        model,
        incomplete: match reply.finish_reason.as_deref() {
            Some("length") => Some("max_output_tokens"),
            Some("content_filter") => Some("content_filter"),
            _ => None,
        },
        usage: reply.usage(),
    };
    let mut out = Vec::with_capacity(items.len() + 2048);
    api::write_reply(&mut out, &head, request, &items);
    Ok(out.into())
}

/// A completion that nobody computed: no content, this id and finish reason.
pub fn made_up(id: &str, model: &str, finish_reason: &str, now: u64) -> Bytes {
    let mut out = format!(r#"{{"id":"{id}","object":"chat.completion","created":{now},"model":"#)
        .into_bytes();
    json::write_string(&mut out, model);
    out.extend_from_slice(
        format!(r#","choices":[{{"index":0,"message":{{"role":"assistant","content":null}},"logprobs":null,"finish_reason":"{finish_reason}"}}]}}"#).as_bytes(),
    );
    out.into()
}

/// Whether a refusal of the engine says that the context is too long.
pub fn is_context_overflow(status: u16, body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    status == 400 && (text.contains("context length") || text.contains("max_tokens"))
}
