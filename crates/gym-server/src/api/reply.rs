//! Writing a Responses reply: items, and the object around them with every field in the reference's order.

use super::create_params::{CreateParams, Field};
use super::json;
use super::usage::{Usage, write_count};

/// What a reply says of itself, next to its items and the echo of the request.
#[derive(Debug, Clone)]
pub struct ReplyHead<'a> {
    /// `resp_` and 32 hex digits.
    pub id: &'a str,
    /// Unix seconds.
    pub created_at: f64,
    /// The name of the model.
    pub model: &'a str,
    /// Why the reply is incomplete (`max_output_tokens`, `content_filter`), if it is.
    pub incomplete: Option<&'a str>,
    /// Token counts, when known.
    pub usage: Option<Usage>,
}

/// Writes a reply. `output` is the inside of the list of items; parameters of the request are echoed.
pub fn write_reply(
    out: &mut Vec<u8>,
    head: &ReplyHead<'_>,
    request: &CreateParams<'_>,
    output: &[u8],
) {
    let echo = |out: &mut Vec<u8>, key: &str, field| {
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(request.or_default(field).as_bytes());
    };
    out.extend_from_slice(b"{\"id\":\"");
    json::write_string_inner(out, head.id);
    out.extend_from_slice(b"\",\"created_at\":");
    write_seconds(out, head.created_at);
    out.extend_from_slice(b",\"error\":null,\"incomplete_details\":");
    match head.incomplete {
        Some(reason) => {
            out.extend_from_slice(b"{\"reason\":");
            json::write_string(out, reason);
            out.push(b'}');
        }
        None => out.extend_from_slice(b"null"),
    }
    echo(out, ",\"instructions\":", Field::Instructions);
    echo(out, ",\"metadata\":", Field::Metadata);
    out.extend_from_slice(b",\"model\":");
    json::write_string(out, head.model);
    out.extend_from_slice(b",\"object\":\"response\",\"output\":[");
    out.extend_from_slice(output);
    out.push(b']');
    echo(out, ",\"parallel_tool_calls\":", Field::ParallelToolCalls);
    echo(out, ",\"temperature\":", Field::Temperature);
    echo(out, ",\"tool_choice\":", Field::ToolChoice);
    echo(out, ",\"tools\":", Field::Tools);
    echo(out, ",\"top_p\":", Field::TopP);
    echo(out, ",\"background\":", Field::Background);
    out.extend_from_slice(b",\"conversation\":null");
    echo(out, ",\"max_output_tokens\":", Field::MaxOutputTokens);
    echo(out, ",\"max_tool_calls\":", Field::MaxToolCalls);
    echo(out, ",\"previous_response_id\":", Field::PreviousResponseId);
    echo(out, ",\"prompt\":", Field::Prompt);
    out.extend_from_slice(b",\"prompt_cache_key\":null");
    echo(out, ",\"reasoning\":", Field::Reasoning);
    out.extend_from_slice(b",\"safety_identifier\":null");
    echo(out, ",\"service_tier\":", Field::ServiceTier);
    let status: &[u8] = if head.incomplete.is_some() {
        b",\"status\":\"incomplete\""
    } else {
        b",\"status\":\"completed\""
    };
    out.extend_from_slice(status);
    echo(out, ",\"text\":", Field::Text);
    echo(out, ",\"top_logprobs\":", Field::TopLogprobs);
    echo(out, ",\"truncation\":", Field::Truncation);
    out.extend_from_slice(b",\"usage\":");
    match head.usage {
        Some(usage) => usage.write(out),
        None => out.extend_from_slice(b"null"),
    }
    echo(out, ",\"user\":", Field::User);
    out.push(b'}');
}

/// Writes seconds as Python writes a float.
fn write_seconds(out: &mut Vec<u8>, seconds: f64) {
    if seconds.fract() == 0.0 && (0.0..1e15).contains(&seconds) && seconds.is_sign_positive() {
        write_count(out, seconds as u64);
        out.extend_from_slice(b".0");
    } else {
        out.extend_from_slice(format!("{seconds:?}").as_bytes());
    }
}

fn separate(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

/// Appends a message item with one text to a list of items.
pub fn write_message_item(out: &mut Vec<u8>, id: &str, text: &str) {
    separate(out);
    out.extend_from_slice(b"{\"id\":");
    json::write_string(out, id);
    out.extend_from_slice(b",\"content\":[{\"annotations\":[],\"text\":");
    json::write_string(out, text);
    out.extend_from_slice(
        b",\"type\":\"output_text\",\"logprobs\":null}],\"role\":\"assistant\",\"status\":\"completed\",\"type\":\"message\"}",
    );
}

/// Appends a function call item to a list of items.
pub fn write_function_call_item(out: &mut Vec<u8>, call_id: &str, name: &str, arguments: &str) {
    separate(out);
    out.extend_from_slice(b"{\"arguments\":");
    json::write_string(out, arguments);
    json::write_key(out, "call_id");
    json::write_string(out, call_id);
    json::write_key(out, "name");
    json::write_string(out, name);
    out.extend_from_slice(b",\"type\":\"function_call\",\"id\":");
    json::write_string(out, call_id);
    out.extend_from_slice(b",\"status\":\"completed\"}");
}

/// Appends a reasoning item with these summaries to a list of items.
pub fn write_reasoning_item<'t>(
    out: &mut Vec<u8>,
    id: &str,
    summaries: impl IntoIterator<Item = &'t str>,
) {
    separate(out);
    out.extend_from_slice(b"{\"id\":");
    json::write_string(out, id);
    out.extend_from_slice(b",\"summary\":[");
    for (at, text) in summaries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"text\":");
        json::write_string(out, text);
        out.extend_from_slice(b",\"type\":\"summary_text\"}");
    }
    out.extend_from_slice(b"],\"type\":\"reasoning\",\"encrypted_content\":null}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Response, Urls};

    #[test]
    fn a_written_reply_is_in_the_form_of_its_own_echo() {
        let request = CreateParams::parse(
            br#"{"input":"x","temperature":0.5,"metadata":{"k":"v"}}"#,
            Urls::Without,
        )
        .expect("request");
        let mut items = Vec::new();
        write_reasoning_item(&mut items, "rs_1", ["why"]);
        write_function_call_item(&mut items, "call_1", "f", r#"{"a":1}"#);
        write_message_item(&mut items, "msg_1", "hi\n");
        let head = ReplyHead {
            id: "resp_1",
            created_at: 1.0,
            model: "m",
            incomplete: Some("max_output_tokens"),
            usage: None,
        };
        let mut out = Vec::new();
        write_reply(&mut out, &head, &request, &items);
        let reply = Response::parse(&out).expect("reply");
        let mut echo = Vec::new();
        reply.write_full(&mut echo);
        assert_eq!(String::from_utf8(echo), String::from_utf8(out.clone()));
        assert!(String::from_utf8_lossy(&out).starts_with(
            r#"{"id":"resp_1","created_at":1.0,"error":null,"incomplete_details":{"reason":"max_output_tokens"},"instructions":null,"metadata":{"k":"v"},"model":"m","object":"response","output":[{"id":"rs_1","summary":[{"text":"why","type":"summary_text"}],"type":"reasoning","encrypted_content":null},{"arguments":"{\"a\":1}","call_id":"call_1","name":"f","type":"function_call","id":"call_1","status":"completed"},{"id":"msg_1","content":[{"annotations":[],"text":"hi\n","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message"}],"#
        ));
    }
}
