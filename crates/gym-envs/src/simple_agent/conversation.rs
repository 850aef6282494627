//! The state of one agent loop, without any I/O.
//!
//! A conversation never builds a JSON tree: the request, the items the model added and the tool
//! outputs are kept as the bytes they came in, and the next model request is those bytes joined.
//! The caller owns the calls: it sends [`Conversation::model_request`], hands the reply to
//! [`Conversation::accept_reply`], makes the tool calls it is told to, and ends with
//! [`Conversation::finish`].

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use gym_server::api::{
    CreateParams, Field, Item, ItemKind, Rejection, Response, ResponseError, ResponseField, Urls,
    Usage, json,
};

use super::arguments;

/// A response lists every field of its items; a request only those that were set.
const OUTPUT_DEFAULTS: &[u8] = b",\"id\":null,\"status\":null";

/// Why a model's reply cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidReply {
    /// The reply is no response object.
    #[error("model reply is not a valid response")]
    Response(#[from] ResponseError),
    /// A function call lacks its name or its call id.
    #[error("a function call of the model reply has no `{0}`")]
    Call(&'static str),
}

/// What the caller does next.
#[derive(Debug)]
pub enum Turn {
    /// Make these calls in order, handing each output to [`Conversation::accept_output`].
    CallTools(Vec<ToolCall>),
    /// The answer is complete.
    Done,
}

/// One function call of a model reply.
#[derive(Debug)]
pub struct ToolCall {
    /// Path of the tool on its resources server, with the leading slash.
    pub path: String,
    /// The request body, or the text that stands in for the output when there is none to send.
    pub arguments: Result<Bytes, String>,
    name: Box<str>,
    call_id: Box<str>,
}

/// The loop of one `POST /v1/responses`.
#[derive(Debug)]
pub struct Conversation {
    request: Bytes,
    /// Where the value of `input` lies in `request`.
    input: Range<usize>,
    /// Everything the model and the tools added, as JSON array elements joined by commas.
    added: Vec<u8>,
    /// Ends (before the closing brace) of the tool outputs in `added`.
    output_ends: Vec<usize>,
    usage: Option<Usage>,
    last: Bytes,
    /// Where `output` and `usage` lie in `last`, if nothing else of it changes.
    replaced: Option<[Range<usize>; 2]>,
    steps: u64,
    max_steps: u64,
}

impl Conversation {
    /// Starts from the body of a Responses request. `max_steps` 0 is unlimited.
    ///
    /// # Errors
    ///
    /// When the body is not such a request.
    pub fn new(request: Bytes, max_steps: u64) -> Result<Self, Rejection> {
        let params = CreateParams::parse(&request, Urls::Without)?;
        if params.is_coerced() {
            let mut coerced = Vec::with_capacity(request.len());
            params.write_sparse(&mut coerced);
            return Self::new(Bytes::from(coerced), max_steps);
        }
        let input = match params.borrowed(Field::Input) {
            Some(Cow::Borrowed(input)) => range_in(&request, input),
            _ => 0..0,
        };
        drop(params);
        Ok(Conversation {
            request,
            input,
            added: Vec::new(),
            output_ends: Vec::new(),
            usage: None,
            last: Bytes::new(),
            replaced: None,
            steps: 0,
            max_steps,
        })
    }

    /// The body of the next model request: the original one with the grown input.
    pub fn model_request(&self) -> Bytes {
        let input = &self.request[self.input.clone()];
        let is_list = input.first() == Some(&b'[');
        if is_list && self.added.is_empty() {
            return self.request.clone();
        }
        let mut body = Vec::with_capacity(self.request.len() + self.added.len() + 40);
        body.extend_from_slice(&self.request[..self.input.start]);
        if is_list {
            // A JSON array ends with its bracket; what precedes it decides about the comma.
            let items = input[..input.len() - 1].trim_ascii_end();
            body.extend_from_slice(items);
            if items.len() > 1 {
                body.push(b',');
            }
        } else {
            body.extend_from_slice(b"[{\"content\":");
            body.extend_from_slice(input);
            body.extend_from_slice(b",\"role\":\"user\"}");
            if !self.added.is_empty() {
                body.push(b',');
            }
        }
        body.extend_from_slice(&self.added);
        body.push(b']');
        body.extend_from_slice(&self.request[self.input.end..]);
        Bytes::from(body)
    }

    /// Takes a model's reply in and says what comes next.
    ///
    /// # Errors
    ///
    /// The conversation is unchanged when the reply is no valid response.
    pub fn accept_reply(&mut self, reply: Bytes) -> Result<Turn, InvalidReply> {
        let response = Response::parse(&reply)?;
        let mut has_message = false;
        let mut calls = Vec::new();
        for item in response.items() {
            has_message |= item.is_assistant_message();
            if item.kind == ItemKind::FunctionCall {
                calls.push(ToolCall::new(&reply, item)?);
            }
        }
        self.steps += 1;
        let items = response.output_elements();
        if !items.is_empty() {
            self.separate();
            self.added.extend_from_slice(items.as_bytes());
        }
        if let Some(usage) = response.usage() {
            match &mut self.usage {
                Some(sum) => sum.add(usage),
                None => self.usage = Some(usage),
            }
        }
        let is_incomplete = response.is_incomplete();
        self.replaced = response.verbatim().filter(|text| text.len() == reply.len()).map(|_| {
            [ResponseField::Output, ResponseField::Usage]
                .map(|field| range_in(&reply, response.get(field).unwrap_or_default()))
        });
        self.last = reply;
        if is_incomplete || (calls.is_empty() && has_message) {
            return Ok(Turn::Done);
        }
        Ok(Turn::CallTools(calls))
    }

    /// Appends the output of one call.
    pub fn accept_output(&mut self, call: &ToolCall, text: &str) {
        self.separate();
        self.added.reserve(call.call_id.len() + text.len() + text.len() / 8 + 64);
        self.added.extend_from_slice(b"{\"call_id\":");
        json::write_string(&mut self.added, &call.call_id);
        self.added.extend_from_slice(b",\"output\":");
        json::write_string(&mut self.added, text);
        self.added.extend_from_slice(b",\"type\":\"function_call_output\"");
        self.output_ends.push(self.added.len());
        self.added.push(b'}');
    }

    /// Whether the step limit forbids another model call.
    pub fn is_exhausted(&self) -> bool {
        self.max_steps != 0 && self.steps >= self.max_steps
    }

    /// The last model reply with everything that was added and the summed usage.
    ///
    /// # Errors
    ///
    /// When no reply was accepted.
    pub fn finish(self) -> Result<Bytes, InvalidReply> {
        let output_len = self.added.len() + self.output_ends.len() * OUTPUT_DEFAULTS.len() + 2;
        let mut reply = Vec::with_capacity(self.last.len() + output_len + 256);
        if let Some([output, usage]) = &self.replaced {
            reply.extend_from_slice(&self.last[..output.start]);
            self.write_output(&mut reply);
            reply.extend_from_slice(&self.last[output.end..usage.start]);
            self.write_usage(&mut reply);
            reply.extend_from_slice(&self.last[usage.end..]);
            return Ok(Bytes::from(reply));
        }
        let last = Response::parse(&self.last)?;
        let (mut output, mut usage) = (Vec::with_capacity(output_len), Vec::new());
        self.write_output(&mut output);
        self.write_usage(&mut usage);
        let [output, usage] = [&output, &usage]
            .map(|text| std::str::from_utf8(text).expect("only strings were added"));
        last.write_full_with(&mut reply, output, usage);
        Ok(Bytes::from(reply))
    }

    /// Writes what was added as the `output` of a response.
    fn write_output(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        let mut from = 0;
        for &end in &self.output_ends {
            out.extend_from_slice(&self.added[from..end]);
            out.extend_from_slice(OUTPUT_DEFAULTS);
            from = end;
        }
        out.extend_from_slice(&self.added[from..]);
        out.push(b']');
    }

    fn write_usage(&self, out: &mut Vec<u8>) {
        match self.usage {
            Some(usage) => usage.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn separate(&mut self) {
        if !self.added.is_empty() {
            self.added.push(b',');
        }
    }
}

impl ToolCall {
    fn new(reply: &Bytes, item: Item<'_>) -> Result<Self, InvalidReply> {
        for (field, value) in [("name", &item.name), ("call_id", &item.call_id)] {
            if value.is_empty() {
                return Err(InvalidReply::Call(field));
            }
        }
        let arguments = match arguments::body(item.arguments) {
            Ok(Cow::Borrowed(part)) => Ok(reply.slice_ref(part.as_bytes())),
            Ok(Cow::Owned(text)) => Ok(Bytes::from(text)),
            Err(malformed) => Err(malformed.output()),
        };
        Ok(ToolCall {
            path: tool_path(&item.name),
            arguments,
            name: item.name.into(),
            call_id: item.call_id.into(),
        })
    }

    /// Name of the tool, as the model wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Where `part` lies in `whole`, which it was parsed from.
fn range_in(whole: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// `/<name>` with what a path may not hold percent-encoded.
fn tool_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len() + 1);
    path.push('/');
    for &byte in name.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => path.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' | b'!' | b'$' | b'&' | b'(' | b')'
            | b'*' | b'+' | b',' | b';' | b'=' => path.push(char::from(byte)),
            _ => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                path.push('%');
                path.push(char::from(HEX[usize::from(byte >> 4)]));
                path.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(request: &'static str) -> Conversation {
        Conversation::new(Bytes::from_static(request.as_bytes()), 0).expect("valid request")
    }

    fn text(bytes: &Bytes) -> &str {
        std::str::from_utf8(bytes).expect("requests are UTF-8")
    }

    const CALLS: &str = r#"{"id":"resp_1","created_at":1.0,"model":"m","object":"response","output":[
        {"arguments":"{\"city\": \"Oslo\"}","call_id":"call_1","name":"get_weather","type":"function_call","id":"fc_1","status":"completed"}
        ],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"incomplete_details":null,
        "usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":12},"user":null}"#;

    const ANSWER: &str = r#"{"id":"resp_2","created_at":2.0,"model":"m","object":"response","output":[{"id":"msg_1","content":[{"annotations":[],"text":"Cold.","type":"output_text"}],"role":"assistant","status":"completed","type":"message"}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":null},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":8},"user":null}"#;

    fn calls(turn: Turn) -> Vec<ToolCall> {
        match turn {
            Turn::CallTools(calls) => calls,
            Turn::Done => panic!("expected tool calls"),
        }
    }

    #[test]
    fn first_request_is_the_original_bytes() {
        let request = r#"{"input":[{"role":"user","content":"hi"}],"temperature":0.5}"#;
        let conversation = conversation(request);
        assert_eq!(conversation.model_request().as_ptr(), request.as_ptr());
    }

    #[test]
    fn string_input_becomes_one_user_message() {
        let conversation = conversation(r#"{"model":"m","input":"hi \"you\"","user":"u"}"#);
        assert_eq!(
            text(&conversation.model_request()),
            r#"{"model":"m","input":[{"content":"hi \"you\"","role":"user"}],"user":"u"}"#
        );
    }

    #[test]
    fn one_tool_turn_grows_the_input_and_sums_up() {
        let mut conversation =
            conversation(r#"{"input":[{"role":"user","content":"hi"} ] ,"top_p":1}"#);
        let turn = conversation.accept_reply(Bytes::from_static(CALLS.as_bytes())).expect("valid");
        let calls = calls(turn);
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].path, "/get_weather");
        assert_eq!(calls[0].arguments, Ok(Bytes::from_static(b"{\"city\": \"Oslo\"}")));
        conversation.accept_output(&calls[0], "{\"weather\":\"cold\"}");
        assert_eq!(
            text(&conversation.model_request()),
            concat!(
                r#"{"input":[{"role":"user","content":"hi"},"#,
                r#"{"arguments":"{\"city\": \"Oslo\"}","call_id":"call_1","name":"get_weather","type":"function_call","id":"fc_1","status":"completed"},"#,
                r#"{"call_id":"call_1","output":"{\"weather\":\"cold\"}","type":"function_call_output"}] ,"top_p":1}"#
            )
        );
        let turn = conversation.accept_reply(Bytes::from_static(ANSWER.as_bytes())).expect("valid");
        assert!(matches!(turn, Turn::Done));
        assert_eq!(
            text(&conversation.finish().expect("answered")),
            concat!(
                r#"{"id":"resp_2","created_at":2.0,"error":null,"incomplete_details":null,"instructions":null,"metadata":null,"model":"m","object":"response","output":["#,
                r#"{"arguments":"{\"city\": \"Oslo\"}","call_id":"call_1","name":"get_weather","type":"function_call","id":"fc_1","status":"completed"},"#,
                r#"{"call_id":"call_1","output":"{\"weather\":\"cold\"}","type":"function_call_output","id":null,"status":null},"#,
                r#"{"id":"msg_1","content":[{"annotations":[],"text":"Cold.","type":"output_text"}],"role":"assistant","status":"completed","type":"message"}"#,
                r#"],"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,"background":null,"conversation":null,"max_output_tokens":null,"max_tool_calls":null,"previous_response_id":null,"prompt":null,"prompt_cache_key":null,"reasoning":null,"safety_identifier":null,"service_tier":null,"status":null,"text":null,"top_logprobs":null,"truncation":null,"#,
                r#""usage":{"input_tokens":15,"input_tokens_details":{"cached_tokens":null},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":20},"user":null}"#
            )
        );
    }

    #[test]
    fn empty_input_list_grows_without_a_stray_comma() {
        let mut conversation = conversation(r#"{"input":[ ]}"#);
        let turn = conversation.accept_reply(Bytes::from_static(CALLS.as_bytes())).expect("valid");
        let calls = calls(turn);
        conversation.accept_output(&calls[0], "x");
        let request = conversation.model_request();
        let value: serde_json::Value = serde_json::from_slice(&request).expect("valid JSON");
        assert_eq!(value["input"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn incomplete_reply_stops_before_its_calls() {
        let reply = CALLS.replace(
            "\"incomplete_details\":null",
            "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}",
        );
        let mut conversation = conversation(r#"{"input":[]}"#);
        let turn = conversation.accept_reply(Bytes::from(reply)).expect("valid");
        assert!(matches!(turn, Turn::Done));
    }

    #[test]
    fn reasoning_alone_does_not_stop() {
        let reply = r#"{"id":"r","created_at":1,"model":"m","object":"response","output":[{"id":"rs","summary":[],"type":"reasoning"}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[]}"#;
        let mut conversation = conversation(r#"{"input":[]}"#);
        let turn = conversation.accept_reply(Bytes::from_static(reply.as_bytes())).expect("valid");
        assert!(calls(turn).is_empty());
        assert_eq!(
            text(&conversation.model_request()),
            r#"{"input":[{"id":"rs","summary":[],"type":"reasoning"}]}"#
        );
    }

    #[test]
    fn step_limit_counts_model_calls() {
        let mut conversation =
            Conversation::new(Bytes::from_static(b"{\"input\":[]}"), 1).expect("valid");
        assert!(!conversation.is_exhausted());
        let turn = conversation.accept_reply(Bytes::from_static(CALLS.as_bytes())).expect("valid");
        assert_eq!(calls(turn).len(), 1);
        assert!(conversation.is_exhausted());
    }

    #[test]
    fn tool_names_cannot_leave_their_path_segment_query_free() {
        assert_eq!(tool_path("get_weather"), "/get_weather");
        assert_eq!(tool_path("a b?c#é"), "/a%20b%3Fc%23%C3%A9");
    }
}
