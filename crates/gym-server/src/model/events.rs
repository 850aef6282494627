//! Finished replies as server-sent events. JSON inside events is written as Python's `json.dumps` writes it.

use super::messages::{Block, Message};
use super::sanitise::Namespaces;
use crate::api::{Response, ResponseError, json};

/// Appends `event: <name>` and the data of it.
fn event(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    self::data(out, data);
}

fn data(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"data: ");
    json::write_python(out, std::str::from_utf8(data).unwrap_or("null"));
    out.extend_from_slice(b"\n\n");
}

/// `response.created`, one `response.output_item.done` per item, `response.completed`.
pub(super) fn responses(reply: &[u8], namespaces: &Namespaces) -> Result<Vec<u8>, ResponseError> {
    let response = Response::parse(reply)?;
    let text = std::str::from_utf8(reply).map_err(|_| ResponseError::NotUtf8)?;
    let items: Vec<String> = json::elements(response.output())
        .into_iter()
        .flatten()
        .flatten()
        .map(|item| split_namespace(item, namespaces))
        .collect();
    let mut out = Vec::with_capacity(reply.len() * 3);
    let mut created = b"{\"type\":\"response.created\",\"response\":".to_vec();
    write_replaced(&mut created, text, &[("status", "\"in_progress\""), ("output", "[]")]);
    created.push(b'}');
    event(&mut out, "response.created", &created);
    for (at, item) in items.iter().enumerate() {
        let done =
            format!(r#"{{"type":"response.output_item.done","output_index":{at},"item":{item}}}"#);
        event(&mut out, "response.output_item.done", done.as_bytes());
    }
    let mut completed = b"{\"type\":\"response.completed\",\"response\":".to_vec();
    if namespaces.is_empty() {
        completed.extend_from_slice(text.as_bytes());
    } else {
        write_replaced(&mut completed, text, &[("output", &format!("[{}]", items.join(",")))]);
    }
    completed.push(b'}');
    event(&mut out, "response.completed", &completed);
    Ok(out)
}

/// Copies an object with some members replaced (or added).
fn write_replaced(out: &mut Vec<u8>, object: &str, replaced: &[(&str, &str)]) {
    out.push(b'{');
    let mut seen = vec![false; replaced.len()];
    for (key, value) in json::members(object).into_iter().flatten().flatten() {
        let at = replaced.iter().position(|(name, _)| *name == key);
        if let Some(at) = at {
            seen[at] = true;
        }
        json::write_member(out, &key, at.map_or(value, |at| replaced[at].1));
    }
    for ((name, value), _) in replaced.iter().zip(seen).filter(|(_, seen)| !seen) {
        json::write_member(out, name, value);
    }
    out.push(b'}');
}

fn split_namespace(item: &str, namespaces: &Namespaces) -> String {
    let name = json::member(item, "name").and_then(json::string).unwrap_or_default();
    let is_call = json::member(item, "type") == Some("\"function_call\"");
    let Some((namespace, sub)) = namespaces.split(&name).filter(|_| is_call) else {
        return item.to_owned();
    };
    let quoted = |text: &str| {
        let mut out = Vec::new();
        json::write_string(&mut out, text);
        String::from_utf8(out).unwrap_or_default()
    };
    let mut out = Vec::with_capacity(item.len() + 32);
    write_replaced(&mut out, item, &[("name", &quoted(sub)), ("namespace", &quoted(namespace))]);
    String::from_utf8(out).unwrap_or_default()
}

/// `response.created` and `response.failed`.
pub(super) fn failed(message: &str, model: &str, id: &str, now: f64) -> Vec<u8> {
    let body = |status: &str, error: &[u8]| {
        let mut out = format!(r#"{{"type":"response.{status}","response":{{"id":"resp_{id}","object":"response","created_at":{now:?},"status":"#)
            .into_bytes();
        json::write_string(&mut out, if status == "created" { "in_progress" } else { status });
        out.extend_from_slice(b",\"error\":");
        out.extend_from_slice(error);
        json::write_key(&mut out, "model");
        json::write_string(&mut out, model);
        out.extend_from_slice(
            b",\"output\":[],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[]}}",
        );
        out
    };
    let mut error = b"{\"code\":\"server_error\",\"message\":".to_vec();
    json::write_string(&mut error, message);
    error.push(b'}');
    let mut out = Vec::new();
    event(&mut out, "response.created", &body("created", b"null"));
    event(&mut out, "response.failed", &body("failed", &error));
    out
}

/// One chunk per kind of content, a last one with the finish reason, `[DONE]`.
pub(super) fn chat(reply: &[u8], include_usage: bool) -> Result<Vec<u8>, ResponseError> {
    let text = std::str::from_utf8(reply).map_err(|_| ResponseError::NotUtf8)?;
    json::document(text).map_err(ResponseError::NotJson)?;
    let choices = json::member(text, "choices").ok_or(ResponseError::Missing("choices"))?;
    let field = |name, default| json::member(text, name).unwrap_or(default);
    let head = format!(
        r#"{{"id":{},"object":"chat.completion.chunk","created":{},"model":{},"choices":["#,
        field("id", "\"\""),
        field("created", "0"),
        field("model", "\"\""),
    );
    let mut out = Vec::with_capacity(reply.len() * 2);
    for choice in json::elements(choices).ok_or(ResponseError::WrongType("choices"))?.flatten() {
        let index = json::member(choice, "index").unwrap_or("0");
        let mut chunk = |delta: &str, finish: &str| {
            let chunk =
                format!(r#"{head}{{"index":{index},"delta":{delta},"finish_reason":{finish}}}]}}"#);
            data(&mut out, chunk.as_bytes());
        };
        let message = json::member(choice, "message").unwrap_or("{}");
        let part = |name| {
            json::member(message, name).filter(|raw| !matches!(*raw, "null" | "\"\"" | "[]"))
        };
        chunk(r#"{"role":"assistant"}"#, "null");
        if let Some(reasoning) = part("reasoning_content") {
            chunk(&format!(r#"{{"reasoning_content":{reasoning}}}"#), "null");
        }
        if let Some(content) = part("content") {
            chunk(&format!(r#"{{"content":{content}}}"#), "null");
        }
        if let Some(calls) = part("tool_calls") {
            chunk(&format!(r#"{{"tool_calls":{}}}"#, indexed(calls)), "null");
        }
        chunk("{}", json::member(choice, "finish_reason").unwrap_or("\"stop\""));
    }
    if include_usage {
        let usage = format!(r#"{head}],"usage":{}}}"#, field("usage", "null"));
        data(&mut out, usage.as_bytes());
    }
    out.extend_from_slice(b"data: [DONE]\n\n");
    Ok(out)
}

/// The tool calls of a message, each with its `index` first.
fn indexed(calls: &str) -> String {
    let all =
        json::elements(calls).into_iter().flatten().flatten().enumerate().map(|(at, call)| {
            let mut out = format!("{{\"index\":{at}").into_bytes();
            for (key, value) in json::members(call)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|(key, _)| key != "index")
            {
                json::write_member(&mut out, &key, value);
            }
            out.push(b'}');
            String::from_utf8(out).unwrap_or_default()
        });
    format!("[{}]", all.collect::<Vec<_>>().join(","))
}

/// `message_start`, three events per block, `message_delta`, `message_stop`.
pub(super) fn messages(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    let mut start = b"{\"type\":\"message_start\",\"message\":".to_vec();
    start.extend_from_slice(&message.to_json_at_start());
    start.push(b'}');
    event(&mut out, "message_start", &start);
    for (at, block) in message.blocks.iter().enumerate() {
        block_events(&mut out, at, block);
    }
    let delta = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{}","stop_sequence":null}},"usage":{{"output_tokens":{}}}}}"#,
        message.stop_reason, message.usage.output_tokens
    );
    event(&mut out, "message_delta", delta.as_bytes());
    event(&mut out, "message_stop", b"{\"type\":\"message_stop\"}");
    out
}

fn block_events(out: &mut Vec<u8>, at: usize, block: &Block) {
    let quoted = |text: &str| {
        let mut out = Vec::new();
        json::write_string(&mut out, text);
        String::from_utf8(out).unwrap_or_default()
    };
    let (empty, delta) = match block {
        Block::Text(text) => (
            r#"{"type":"text","text":""}"#.to_owned(),
            format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)),
        ),
        Block::Thinking(text) => (
            r#"{"type":"thinking","thinking":"","signature":""}"#.to_owned(),
            format!(r#"{{"type":"thinking_delta","thinking":{}}}"#, quoted(text)),
        ),
        Block::ToolUse { id, name, input } => (
            format!(
                r#"{{"type":"tool_use","id":{},"name":{},"input":{{}}}}"#,
                quoted(id),
                quoted(name)
            ),
            format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quoted(input)),
        ),
    };
    let start = format!(r#"{{"type":"content_block_start","index":{at},"content_block":{empty}}}"#);
    event(out, "content_block_start", start.as_bytes());
    let delta = format!(r#"{{"type":"content_block_delta","index":{at},"delta":{delta}}}"#);
    event(out, "content_block_delta", delta.as_bytes());
    let stop = format!(r#"{{"type":"content_block_stop","index":{at}}}"#);
    event(out, "content_block_stop", stop.as_bytes());
}
