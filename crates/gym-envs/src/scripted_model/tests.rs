use std::time::Duration;

use gym_server::api::chat::{ChatReply, ChatRequest};
use gym_server::api::{CreateParams, ItemKind, Response, Urls, Usage};
use serde_json::json;

use super::*;

fn engine(config: serde_json::Value) -> Engine {
    Engine::new(ScriptedModelConfig::from_value(config).expect("script"))
}

fn ask(engine: &Engine, body: &str) -> Outcome {
    let request = CreateParams::parse(body.as_bytes(), Urls::Without).expect(body);
    engine.responses(&request, engine.key(body.as_bytes(), 0))
}

fn ask_chat(engine: &Engine, body: &str) -> Outcome {
    engine.chat(&ChatRequest::parse(body.as_bytes()).expect(body), engine.key(body.as_bytes(), 0))
}

/// Texts, call names and arguments of a reply, in order.
fn said(outcome: &Outcome) -> Vec<String> {
    let reply = Response::parse(&outcome.body).expect("reply");
    let items = reply.items().map(|item| match item.kind {
        ItemKind::FunctionCall => format!("{}({})", item.name, item.arguments),
        _ => item.content.unwrap_or_default().to_owned(),
    });
    items.collect()
}

const TOOLS: &str = r#""tools":[{"type":"function","name":"look","parameters":{"type":"object","properties":{"n":{"type":"integer","minimum":4,"maximum":4}}},"strict":true},{"type":"web_search"},{"type":"function","name":"touch","parameters":{"type":"object","properties":{}},"strict":true}]"#;

fn after(outputs: usize) -> String {
    let output = r#"{"type":"function_call_output","call_id":"c","output":"o"}"#;
    let items: Vec<&str> =
        [r#"{"role":"user","content":"old"}"#, output, r#"{"role":"user","content":"x"}"#]
            .into_iter()
            .chain(std::iter::repeat_n(output, outputs))
            .collect();
    format!(r#"{{"input":[{}],{TOOLS}}}"#, items.join(","))
}

#[test]
fn without_a_script_each_tool_is_called_once_and_then_comes_the_answer() {
    let engine = engine(json!({"answer": "fine"}));
    assert_eq!(said(&ask(&engine, &after(0))), [r#"look({"n":4})"#]);
    assert_eq!(said(&ask(&engine, &after(1))), ["touch({})"]);
    let answer = ask(&engine, &after(2));
    assert_eq!(
        said(&answer),
        [r#"[{"annotations":[],"text":"fine","type":"output_text","logprobs":null}]"#]
    );
    assert_eq!((answer.delay, answer.fault, answer.server_timing), (Duration::ZERO, None, None));
    assert_eq!(said(&ask(&engine, r#"{"input":"x","tool_choice":"none"}"#)).len(), 1);
}

#[test]
fn a_script_advances_by_the_tool_outputs_since_the_last_user_message() {
    let engine = engine(json!([
        {"tool_calls": [{"name": "a", "arguments": {"k": 1}}, {"name": "b"}]},
        {"tool_calls": [{"name": "c", "arguments": "not json"}]},
        {"text": "end"},
    ]));
    assert_eq!(said(&ask(&engine, &after(0))), [r#"a({"k":1})"#, "b({})"]);
    assert_eq!(said(&ask(&engine, &after(2))), ["c(not json)"]);
    for outputs in [3, 9] {
        assert!(said(&ask(&engine, &after(outputs)))[0].contains("\"end\""));
    }
}

#[test]
fn usage_finish_and_engine_timings_are_as_scripted_and_timings_stay_out_of_the_body() {
    let engine = engine(json!([{
        "text": "cut", "reasoning": "why", "finish": "length",
        "usage": {"input_tokens": 5, "output_tokens": 7, "reasoning_tokens": 2},
        "engine": {"queue_ms": 1.5, "prefill_ms": 2, "decode_ms": 3}, "latency": 4,
    }]));
    let outcome = ask(&engine, r#"{"input":"x"}"#);
    assert_eq!(
        outcome.server_timing.as_deref(),
        Some("queue;dur=1.500, prefill;dur=2.000, decode;dur=3.000")
    );
    assert_eq!(outcome.delay, Duration::from_micros(6500));
    let body = String::from_utf8(outcome.body.clone()).expect("utf-8");
    assert!(!body.contains("dur"), "{body}");
    let reply = Response::parse(&outcome.body).expect("reply");
    assert!(reply.is_incomplete());
    let usage = Usage {
        input_tokens: 5,
        cached_tokens: None,
        output_tokens: 7,
        reasoning_tokens: Some(2),
        total_tokens: 12,
    };
    assert_eq!(reply.usage(), Some(usage));

    let outcome = ask_chat(&engine, r#"{"messages":[{"role":"user","content":"x"}]}"#);
    let reply = ChatReply::parse(&outcome.body).expect("reply");
    assert_eq!(
        (reply.finish_reason.as_deref(), reply.content.as_deref(), reply.reasoning.as_deref()),
        (Some("length"), Some("cut"), Some("why"))
    );
    assert_eq!(reply.usage(), Some(usage));
}

#[test]
fn engine_shares_split_the_drawn_latency() {
    let engine =
        engine(json!({"latency": 10, "engine": {"queue_share": 0.1, "prefill_share": 0.2}}));
    let timing = ask(&engine, r#"{"input":"x"}"#).server_timing;
    assert_eq!(timing.as_deref(), Some("queue;dur=1.000, prefill;dur=2.000, decode;dur=7.000"));
}

#[test]
fn chat_requests_get_the_same_script() {
    let engine = engine(json!({}));
    let tools = r#""tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"n":{"const":4}}}}}]"#;
    let outcome =
        ask_chat(&engine, &format!(r#"{{"messages":[{{"role":"user","content":"x"}}],{tools}}}"#));
    let reply = ChatReply::parse(&outcome.body).expect("reply");
    assert_eq!(reply.finish_reason.as_deref(), Some("tool_calls"));
    assert!(
        reply.tool_calls.is_some_and(
            |calls| calls.contains(r#""function":{"name":"look","arguments":"{\"n\":4}"}"#)
        ),
        "{reply:?}"
    );
    let messages = r#""messages":[{"role":"user","content":"x"},{"role":"assistant","content":null},{"role":"tool","tool_call_id":"c","content":"o"}]"#;
    let reply = ask_chat(&engine, &format!("{{{messages},{tools}}}"));
    assert_eq!(
        ChatReply::parse(&reply.body).expect("reply").finish_reason.as_deref(),
        Some("stop")
    );
}

#[test]
fn the_same_request_gets_the_same_reply_and_another_seed_another_latency() {
    let with_seed =
        |seed: u64| engine(json!({"seed": seed, "latency": "lognormal:20,1", "errors": "0.5:503"}));
    let body = after(0);
    assert_eq!(ask(&with_seed(1), &body), ask(&with_seed(1), &body));
    assert_ne!(ask(&with_seed(1), &body).delay, ask(&with_seed(2), &body).delay);
    let one = with_seed(1);
    assert_ne!(one.key(body.as_bytes(), 0), one.key(body.as_bytes(), 1));
}

#[test]
fn what_is_wrong_with_a_script_is_told_with_its_place() {
    let refused = |config: serde_json::Value| {
        let error = ScriptedModelConfig::from_value(config).expect_err("script");
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    };
    assert!(
        refused(json!([{"text": "x"}, {"txt": "y"}]))
            .starts_with("the script is not valid at `script[1]`: unknown field `txt`")
    );
    assert!(refused(json!([{}])).starts_with("`script[0]` of the script needs `text`"));
    assert!(refused(json!({"latncy": 1})).starts_with("`latncy` of the script is not a key"));
    assert!(refused(json!({"latency": "x"})).contains("expected a number of milliseconds"));
    assert!(
        refused(json!([{"text": "x", "engine": {"queue_ms": -1}}]))
            .starts_with("`script[0].engine` of the script needs")
    );
    assert!(
        refused(json!({"engine": {"queue_share": 0.9, "prefill_share": 0.2}}))
            .starts_with("`engine` of the script needs shares")
    );
}

#[test]
fn a_script_may_lie_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let read = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        ScriptedModelConfig::from_value(json!({ "script": path }))
    };
    let lines = read("replies.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n").expect("lines");
    let yaml = read("replies.yaml", "- text: a\n- text: b\n").expect("yaml");
    assert_eq!((lines.script.len(), yaml.script.len()), (2, 2));
    let error = read("bad.jsonl", "{\"text\": 1}\n{").expect_err("not JSON").to_string();
    assert!(error.contains("bad.jsonl") && error.contains("line 2"), "{error}");
    let error = ScriptedModelConfig::from_value(json!({"script": "/nowhere.yaml"}))
        .expect_err("no file")
        .to_string();
    assert!(error.contains("failed to read \"/nowhere.yaml\""), "{error}");
}
