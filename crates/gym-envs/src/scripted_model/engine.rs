//! From a request to a scripted reply: which step it is, what is answered, how long that takes and what goes wrong.
//!
//! Everything drawn follows from the seed, the request's bytes and the caller's key, so a run can be repeated.
//! No tree of values is built: a reply without latency takes a few microseconds.

use std::time::Duration;

use gym_server::api::chat::{ChatField, ChatRequest};
use gym_server::api::json::trusted;
use gym_server::api::{self, CreateParams, Field, ReplyHead, Usage, ids, json};

use super::arguments;
use super::config::{EngineTimings, Finish, ScriptedCall, ScriptedModelConfig, ScriptedReply};
use super::fault::Fault;
use super::random::{Rng, hash};

const MODEL: &str = "scripted-model";
const ANSWER: &str = "That is all I need: done.";

/// Replies are dated with a constant, since they must not differ between two runs.
const CREATED_AT: u32 = 1_700_000_000;

/// What to send, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The reply body.
    pub body: Vec<u8>,
    /// How long it takes.
    pub delay: Duration,
    /// What goes wrong instead, or with it.
    pub fault: Option<Fault>,
    /// Value of the `Server-Timing` header.
    pub server_timing: Option<String>,
}

/// A script, ready to answer.
#[derive(Debug, Clone)]
pub struct Engine {
    config: ScriptedModelConfig,
    /// The argument texts of each reply's calls.
    arguments: Vec<Vec<String>>,
}

/// What a reply says, whichever dialect it is written in.
struct Said<'a> {
    text: Option<&'a str>,
    reasoning: Option<&'a str>,
    calls: Vec<(&'a str, std::borrow::Cow<'a, str>)>,
    usage: Option<Usage>,
    finish: Finish,
}

/// What of a request decides the reply.
struct Asked<'a> {
    outputs: usize,
    tools: &'a str,
    may_call: bool,
    key: u64,
    input_length: usize,
}

impl Engine {
    /// Prepares a script.
    pub fn new(config: ScriptedModelConfig) -> Self {
        let arguments = config
            .script
            .iter()
            .map(|reply| reply.tool_calls.iter().map(ScriptedCall::arguments_text).collect())
            .collect();
        Self { config, arguments }
    }

    /// The configuration.
    pub fn config(&self) -> &ScriptedModelConfig {
        &self.config
    }

    /// The hash of a request from which everything is drawn. `salt` tells apart requests with the same bytes.
    pub fn key(&self, body: &[u8], salt: u64) -> u64 {
        hash(self.config.seed ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93), body)
    }

    /// Answers a checked Responses request.
    pub fn responses(&self, request: &CreateParams<'_>, key: u64) -> Outcome {
        let input = request.or_default(Field::Input);
        let asked = Asked {
            outputs: outputs_since_user(input, "type", "\"function_call_output\""),
            tools: request.or_default(Field::Tools),
            may_call: request.get(Field::ToolChoice) != Some("\"none\""),
            key,
            input_length: input.len(),
        };
        let requested = request.set(Field::Model).and_then(json::string);
        self.answer(&asked, |said, model| {
            write_responses(said, model.or(requested.as_deref()), request, key)
        })
    }

    /// Answers a checked chat request.
    pub fn chat(&self, request: &ChatRequest<'_>, key: u64) -> Outcome {
        let messages = request.get(ChatField::Messages).unwrap_or("[]");
        let asked = Asked {
            outputs: outputs_since_user(messages, "role", "\"tool\""),
            tools: request.set(ChatField::Tools).unwrap_or("[]"),
            may_call: request.get(ChatField::ToolChoice) != Some("\"none\""),
            key,
            input_length: messages.len(),
        };
        let requested = request.set(ChatField::Model).and_then(json::string);
        self.answer(&asked, |said, model| write_chat(said, model.or(requested.as_deref()), key))
    }

    fn answer(
        &self,
        asked: &Asked<'_>,
        write: impl FnOnce(&Said<'_>, Option<&str>) -> Vec<u8>,
    ) -> Outcome {
        let mut rng = Rng::new(asked.key, 1);
        let reply = self.step(asked.outputs);
        let latency = reply.and_then(|(_, reply)| reply.latency).unwrap_or(self.config.latency);
        let drawn = latency.draw(&mut rng);
        let fault = self.config.errors.draw(&mut Rng::new(asked.key, 2));
        let (delay, timings) = self.time(reply.map(|(_, reply)| reply), drawn);
        let mut said = match reply {
            Some((at, reply)) => self.scripted(at, reply),
            None => self.made_up(asked),
        };
        said.usage = Some(said.usage.unwrap_or_else(|| estimate(&said, asked.input_length)));
        let body = write(&said, self.config.model.as_deref());
        Outcome { body, delay, fault, server_timing: timings.map(server_timing) }
    }

    /// The reply of a step: each reply is followed by as many tool outputs as it has calls.
    fn step(&self, outputs: usize) -> Option<(usize, &ScriptedReply)> {
        let script = &self.config.script;
        let mut left = outputs;
        for (at, reply) in script.iter().enumerate() {
            let calls = reply.tool_calls.len().max(1);
            if left < calls {
                return Some((at, reply));
            }
            left -= calls;
        }
        script.last().map(|reply| (script.len() - 1, reply))
    }

    fn scripted<'a>(&'a self, at: usize, reply: &'a ScriptedReply) -> Said<'a> {
        let calls = reply.tool_calls.iter().zip(&self.arguments[at]);
        Said {
            text: reply.text.as_deref(),
            reasoning: reply.reasoning.as_deref(),
            calls: calls
                .map(|(call, arguments)| (call.name.as_str(), arguments.as_str().into()))
                .collect(),
            usage: reply.usage.map(|usage| Usage {
                input_tokens: usage.input_tokens,
                cached_tokens: usage.cached_tokens,
                output_tokens: usage.output_tokens,
                reasoning_tokens: usage.reasoning_tokens,
                total_tokens: usage.input_tokens + usage.output_tokens,
            }),
            finish: reply.finish,
        }
    }

    /// Without a script: the tool whose turn it is, or the answer.
    fn made_up<'a>(&'a self, asked: &Asked<'a>) -> Said<'a> {
        let mut said = Said {
            text: None,
            reasoning: None,
            calls: Vec::new(),
            usage: None,
            finish: Finish::Stop,
        };
        let tool = if asked.may_call { tool_at(asked.tools, asked.outputs) } else { None };
        match tool {
            Some((name, schema)) => {
                let arguments = arguments::from_schema(schema, &mut Rng::new(asked.key, 3));
                said.calls.push((name, arguments.into()));
            }
            None => said.text = Some(self.config.answer.as_deref().unwrap_or(ANSWER)),
        }
        said
    }

    fn time(
        &self,
        reply: Option<&ScriptedReply>,
        drawn: Duration,
    ) -> (Duration, Option<EngineTimings>) {
        if let Some(engine) = reply.and_then(|reply| reply.engine) {
            let total = engine.queue_ms + engine.prefill_ms + engine.decode_ms;
            return (drawn.max(Duration::from_nanos((total * 1e6) as u64)), Some(engine));
        }
        let millis = drawn.as_secs_f64() * 1e3;
        let engine = self.config.engine.map(|shares| EngineTimings {
            queue_ms: millis * shares.queue_share,
            prefill_ms: millis * shares.prefill_share,
            decode_ms: millis * (1.0 - shares.queue_share - shares.prefill_share),
        });
        (drawn, engine)
    }
}

fn server_timing(engine: EngineTimings) -> String {
    format!(
        "queue;dur={:.3}, prefill;dur={:.3}, decode;dur={:.3}",
        engine.queue_ms, engine.prefill_ms, engine.decode_ms
    )
}

/// How many entries with `key` = `value` follow the last one of the user.
fn outputs_since_user(list: &str, key: &str, value: &str) -> usize {
    let mut outputs = 0;
    for (_, [role, kind]) in trusted::objects(list, |entry| entry.pick(["role", "type"])) {
        let found = if key == "role" { role } else { kind };
        if role == Some("\"user\"") {
            outputs = 0;
        } else if found == Some(value) {
            outputs += 1;
        }
    }
    outputs
}

/// Name and schema of the n-th function among the tools of either dialect.
fn tool_at(tools: &str, at: usize) -> Option<(&str, &str)> {
    let functions = trusted::objects(tools, |tool| {
        let [kind, function, mut name, mut parameters] =
            tool.pick(["type", "function", "name", "parameters"]);
        if let Some(function) = function {
            [name, parameters] = trusted::pick(function, ["name", "parameters"]);
        }
        let name = name.filter(|_| kind == Some("\"function\""))?;
        Some((name.strip_prefix('"')?.strip_suffix('"')?, parameters.unwrap_or("{}")))
    });
    functions.filter_map(|(_, function)| function).nth(at)
}

/// Counts of about one token per four bytes.
fn estimate(said: &Said<'_>, input_length: usize) -> Usage {
    let written = said.text.map_or(0, str::len)
        + said.reasoning.map_or(0, str::len)
        + said.calls.iter().map(|(name, arguments)| name.len() + arguments.len()).sum::<usize>();
    let (input_tokens, output_tokens) = (input_length as u64 / 4 + 1, written as u64 / 4 + 1);
    Usage {
        input_tokens,
        cached_tokens: Some(0),
        output_tokens,
        reasoning_tokens: Some(said.reasoning.map_or(0, |text| text.len() as u64 / 4)),
        total_tokens: input_tokens + output_tokens,
    }
}

fn write_responses(
    said: &Said<'_>,
    model: Option<&str>,
    request: &CreateParams<'_>,
    key: u64,
) -> Vec<u8> {
    let id = ids::hex(key, !key);
    let mut items = Vec::with_capacity(512);
    if let Some(reasoning) = said.reasoning {
        api::write_reasoning_item(&mut items, &["rs_", &id].concat(), [reasoning]);
    }
    if let Some(text) = said.text {
        api::write_message_item(&mut items, &["msg_", &id].concat(), text);
    }
    for (at, (name, arguments)) in said.calls.iter().enumerate() {
        api::write_function_call_item(&mut items, &call_id(key, at), name, arguments);
    }
    let head = ReplyHead {
        id: &["resp_", &id].concat(),
        created_at: f64::from(CREATED_AT),
        model: model.unwrap_or(MODEL),
        incomplete: match said.finish {
            Finish::Stop => None,
            Finish::Length => Some("max_output_tokens"),
            Finish::ContentFilter => Some("content_filter"),
        },
        usage: said.usage,
    };
    let mut out = Vec::with_capacity(items.len() + request.or_default(Field::Tools).len() + 1024);
    api::write_reply(&mut out, &head, request, &items);
    out
}

fn call_id(key: u64, at: usize) -> String {
    ["call_", &ids::hex(key, at as u64)].concat()
}

fn write_chat(said: &Said<'_>, model: Option<&str>, key: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(768);
    out.extend_from_slice(
        format!(
            r#"{{"id":"chatcmpl-{}","object":"chat.completion","created":{CREATED_AT},"model":"#,
            ids::hex(key, !key)
        )
        .as_bytes(),
    );
    json::write_string(&mut out, model.unwrap_or(MODEL));
    out.extend_from_slice(br#","choices":[{"index":0,"message":{"role":"assistant","content":"#);
    match said.text {
        Some(text) => json::write_string(&mut out, text),
        None => out.extend_from_slice(b"null"),
    }
    if let Some(reasoning) = said.reasoning {
        json::write_key(&mut out, "reasoning_content");
        json::write_string(&mut out, reasoning);
    }
    for (at, (name, arguments)) in said.calls.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b",\"tool_calls\":[{\"id\":" } else { b",{\"id\":" });
        json::write_string(&mut out, &call_id(key, at));
        out.extend_from_slice(br#","type":"function","function":{"name":"#);
        json::write_string(&mut out, name);
        json::write_key(&mut out, "arguments");
        json::write_string(&mut out, arguments);
        out.extend_from_slice(b"}}");
    }
    if !said.calls.is_empty() {
        out.push(b']');
    }
    let finish = match said.finish {
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Stop if said.calls.is_empty() => "stop",
        Finish::Stop => "tool_calls",
    };
    out.extend_from_slice(
        format!(r#"}},"logprobs":null,"finish_reason":"{finish}"}}],"usage":"#).as_bytes(),
    );
    write_chat_usage(&mut out, said.usage.unwrap_or_default());
    out.push(b'}');
    out
}

fn write_chat_usage(out: &mut Vec<u8>, usage: Usage) {
    let detail =
        |count: Option<u64>| count.map_or_else(|| "null".to_owned(), |count| count.to_string());
    out.extend_from_slice(
        format!(
            r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}},"completion_tokens_details":{{"reasoning_tokens":{}}}}}"#,
            usage.input_tokens,
            usage.output_tokens,
            usage.total_tokens,
            detail(usage.cached_tokens),
            detail(usage.reasoning_tokens),
        )
        .as_bytes(),
    );
}
