//! `/v1/messages` on top of Responses: the request one way, the reply the other.

use serde_json::{Map, Value, json as object};

use super::PrepareError;
use crate::api::{Item, ItemKind, Rejection, Response, ResponseError, ResponseField, Usage, json};

/// A mapped request.
pub(super) struct MessagesRequest {
    pub body: Vec<u8>,
    pub stream: bool,
    pub model: Option<String>,
}

fn unsupported(what: &str) -> PrepareError {
    PrepareError::Unsupported(what.to_owned())
}

/// Maps a request to the body of a Responses request. Keys that are not listed in the mapping are ignored.
pub(super) fn request(body: &[u8]) -> Result<MessagesRequest, PrepareError> {
    let text = std::str::from_utf8(body).map_err(|_| Rejection::NotUtf8)?;
    if text.is_empty() {
        return Err(Rejection::empty_body().into());
    }
    let raw = json::document(text).map_err(|fault| Rejection::not_json(text, fault))?;
    if json::kind(raw) != json::Kind::Object {
        return Err(Rejection::one(
            "dict_type",
            vec!["body".into()],
            "Input should be a valid dictionary",
            raw,
        )
        .into());
    }
    let from: Value =
        serde_json::from_str(text).map_err(|error| PrepareError::Unsupported(error.to_string()))?;
    let mut to = Map::new();
    let mut items = Vec::new();
    for message in from["messages"].as_array().into_iter().flatten() {
        message_items(message, &mut items)?;
    }
    to.insert("input".into(), Value::Array(items));
    match &from["system"] {
        Value::Null => {}
        system => {
            to.insert("instructions".into(), Value::String(joined_texts(system)));
        }
    }
    for (theirs, ours) in [
        ("max_tokens", "max_output_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("model", "model"),
    ] {
        if let Some(value) = from.get(theirs).filter(|value| !value.is_null()) {
            to.insert(ours.into(), value.clone());
        }
    }
    if let Some(tools) = from["tools"].as_array() {
        to.insert("tools".into(), tools.iter().map(tool).collect());
    }
    if let Some(choice) = tool_choice(&from["tool_choice"])? {
        to.insert("tool_choice".into(), choice);
    }
    Ok(MessagesRequest {
        body: Value::Object(to).to_string().into_bytes(),
        stream: json::member(text, "stream").is_some_and(super::is_truthy),
        model: from["model"].as_str().map(str::to_owned),
    })
}

fn tool(tool: &Value) -> Value {
    let parameters = tool.get("input_schema").filter(|schema| !schema.is_null()).cloned();
    object!({
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": parameters.unwrap_or_else(|| object!({"type": "object", "properties": {}})),
        "strict": false,
    })
}

fn tool_choice(choice: &Value) -> Result<Option<Value>, PrepareError> {
    Ok(Some(match choice["type"].as_str() {
        None => return Ok(None),
        Some("auto") => object!("auto"),
        Some("none") => object!("none"),
        Some("any") => object!("required"),
        Some("tool") => object!({"type": "function", "name": choice["name"]}),
        Some(other) => return Err(unsupported(&format!("Unsupported tool_choice type: {other}"))),
    }))
}

fn joined_texts(content: &Value) -> String {
    match content {
        Value::Array(blocks) => {
            let texts: Vec<&str> =
                blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// The items of one message: text and images gather in one message item, everything else stands alone, in order.
fn message_items(message: &Value, items: &mut Vec<Value>) -> Result<(), PrepareError> {
    let role = message["role"].as_str().unwrap_or("user");
    let blocks = match &message["content"] {
        Value::Array(blocks) => blocks.as_slice(),
        content => {
            items.push(object!({"role": role, "content": content.as_str().unwrap_or_default(), "type": "message"}));
            return Ok(());
        }
    };
    let mut parts = Vec::new();
    for block in blocks {
        match block["type"].as_str().unwrap_or_default() {
            "text" => parts.push(text_part(role, &block["text"])),
            "image" => parts.push(image_part(&block["source"])?),
            kind => {
                flush(role, &mut parts, items);
                items.push(lone_item(kind, block)?);
            }
        }
    }
    flush(role, &mut parts, items);
    Ok(())
}

fn flush(role: &str, parts: &mut Vec<Value>, items: &mut Vec<Value>) {
    if !parts.is_empty() {
        let content = std::mem::take(parts);
        items.push(object!({"role": role, "content": content, "type": "message"}));
    }
}

fn text_part(role: &str, text: &Value) -> Value {
    match role {
        "assistant" => object!({"type": "output_text", "text": text, "annotations": []}),
        _ => object!({"type": "input_text", "text": text}),
    }
}

fn image_part(source: &Value) -> Result<Value, PrepareError> {
    let media = source["media_type"].as_str().unwrap_or_default();
    if source["type"] != "base64"
        || !matches!(media, "image/jpeg" | "image/png" | "image/gif" | "image/webp")
    {
        return Err(unsupported("Only base64 images of type jpeg, png, gif or webp are supported"));
    }
    let url = format!("data:{media};base64,{}", source["data"].as_str().unwrap_or_default());
    Ok(object!({"type": "input_image", "image_url": url, "detail": "auto"}))
}

fn lone_item(kind: &str, block: &Value) -> Result<Value, PrepareError> {
    Ok(match kind {
        "tool_use" => object!({
            "type": "function_call",
            "call_id": block["id"],
            "name": block["name"],
            "arguments": block["input"].to_string(),
        }),
        "tool_result" => object!({
            "type": "function_call_output",
            "call_id": block["tool_use_id"],
            "output": joined_texts(&block["content"]),
        }),
        "thinking" => {
            let signature = block["signature"].as_str().filter(|signature| !signature.is_empty());
            object!({
                "type": "reasoning",
                "id": "rs_0",
                "summary": [{"type": "summary_text", "text": block["thinking"]}],
                "encrypted_content": signature,
            })
        }
        other => return Err(unsupported(&format!("Unsupported content block type: {other}"))),
    })
}

/// A block of a reply.
pub(super) enum Block {
    Text(String),
    Thinking(String),
    ToolUse { id: String, name: String, input: String },
}

/// A reply in the words of the messages dialect.
pub(super) struct Message {
    pub id: String,
    pub model: String,
    pub blocks: Vec<Block>,
    pub stop_reason: &'static str,
    pub usage: Usage,
}

/// Maps a Responses reply.
pub(super) fn reply(body: &[u8], requested_model: Option<&str>) -> Result<Message, ResponseError> {
    let response = Response::parse(body)?;
    let text = |field| response.set(field).and_then(json::string).unwrap_or_default().into_owned();
    let mut blocks = Vec::new();
    let mut refused = false;
    for item in response.items() {
        reply_blocks(&item, &mut blocks, &mut refused);
    }
    let reason =
        response.set(ResponseField::IncompleteDetails).and_then(|raw| json::member(raw, "reason"));
    let stop_reason = match reason.and_then(json::string).as_deref() {
        Some("max_output_tokens") => "max_tokens",
        Some("content_filter") => "refusal",
        _ if refused => "refusal",
        _ if blocks.iter().any(|block| matches!(block, Block::ToolUse { .. })) => "tool_use",
        _ => "end_turn",
    };
    let id = text(ResponseField::Id);
    let id = id.strip_prefix("resp_").unwrap_or(&id);
    Ok(Message {
        id: format!("msg_{id}"),
        model: requested_model.map_or_else(|| text(ResponseField::Model), str::to_owned),
        blocks,
        stop_reason,
        usage: response.usage().unwrap_or_default(),
    })
}

fn reply_blocks(item: &Item<'_>, blocks: &mut Vec<Block>, refused: &mut bool) {
    let parts = || item.content.and_then(json::elements).into_iter().flatten().flatten();
    let member = |part, name| {
        json::member(part, name).and_then(json::string).unwrap_or_default().into_owned()
    };
    match item.kind {
        ItemKind::Message => {
            for part in parts() {
                match json::member(part, "type") {
                    Some("\"refusal\"") => {
                        *refused = true;
                        blocks.push(Block::Text(member(part, "refusal")));
                    }
                    _ => blocks.push(Block::Text(member(part, "text"))),
                }
            }
        }
        ItemKind::Reasoning => {
            blocks.extend(parts().map(|part| Block::Thinking(member(part, "text"))))
        }
        ItemKind::FunctionCall => {
            let valid = json::document(&item.arguments)
                .is_ok_and(|raw| json::kind(raw) == json::Kind::Object);
            blocks.push(Block::ToolUse {
                id: item.call_id.to_string(),
                name: item.name.to_string(),
                input: if valid { item.arguments.to_string() } else { "{}".to_owned() },
            });
        }
        ItemKind::FunctionCallOutput | ItemKind::Other => {}
    }
}

impl Message {
    /// The reply body.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = self.head();
        for (at, block) in self.blocks.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            block.write(&mut out);
        }
        out.extend_from_slice(b"],\"stop_reason\":");
        json::write_string(&mut out, self.stop_reason);
        out.extend_from_slice(b",\"usage\":{\"input_tokens\":");
        out.extend_from_slice(self.usage.input_tokens.to_string().as_bytes());
        out.extend_from_slice(b",\"output_tokens\":");
        out.extend_from_slice(self.usage.output_tokens.to_string().as_bytes());
        out.extend_from_slice(b"}}");
        out
    }

    /// The message as an event stream begins it: no content, no output yet.
    pub fn to_json_at_start(&self) -> Vec<u8> {
        let mut out = self.head();
        out.extend_from_slice(
            b"],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":",
        );
        out.extend_from_slice(self.usage.input_tokens.to_string().as_bytes());
        out.extend_from_slice(b",\"output_tokens\":0}}");
        out
    }

    fn head(&self) -> Vec<u8> {
        let mut out = vec![b'{'];
        json::write_key(&mut out, "id");
        json::write_string(&mut out, &self.id);
        out.extend_from_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
        json::write_string(&mut out, &self.model);
        out.extend_from_slice(b",\"content\":[");
        out
    }
}

impl Block {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Block::Text(text) => {
                out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                json::write_string(out, text);
            }
            Block::Thinking(text) => {
                out.extend_from_slice(b"{\"type\":\"thinking\",\"thinking\":");
                json::write_string(out, text);
                out.extend_from_slice(b",\"signature\":\"\"");
            }
            Block::ToolUse { id, name, input } => {
                out.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":");
                json::write_string(out, id);
                json::write_key(out, "name");
                json::write_string(out, name);
                out.extend_from_slice(b",\"input\":");
                json::write_compact(out, input);
            }
        }
        out.push(b'}');
    }
}
