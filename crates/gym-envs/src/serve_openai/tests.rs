//! The endpoint, and the model servers in front of it, over real sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gym_server::api::{CreateParams, Response, Urls};
use gym_server::instance::InstanceConfig;
use serde_json::json;

use super::*;

/// A server that ends with the test.
struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends");
        }
    }
}

fn serve(address: SocketAddr, run: impl FnOnce(watch::Receiver<bool>) + Send + 'static) -> Running {
    let (stop, stopped) = watch::channel(false);
    Running { address, stop, thread: Some(std::thread::spawn(move || run(stopped))) }
}

fn endpoint(config: Value, api_key: Option<&str>) -> Running {
    let options = OpenAiOptions {
        config: ScriptedModelConfig::from_value(config).expect("script"),
        api_key: api_key.map(str::to_owned),
        workers: 1,
    };
    let server =
        OpenAiServer::bind("127.0.0.1:0".parse().expect("address"), options).expect("a free port");
    serve(server.address(), |stopped| server.serve(stopped).expect("serves"))
}

/// A built-in model server with this block.
fn model_server(implementation: &str, block: Value) -> Running {
    let instance = InstanceConfig {
        name: "policy_model".into(),
        server_type: ServerType::ResponsesApiModels,
        implementation: implementation.into(),
        host: "127.0.0.1".into(),
        port: 0,
        workers: 1,
        block: block.as_object().cloned().expect("object"),
        global: Arc::new(Value::Null),
    };
    let service = crate::builtin::service(&instance).expect("built in and valid");
    let server = Server::bind("127.0.0.1", 0).expect("a free port");
    serve(server.address(), move |stopped| {
        server.serve(Arc::new(service), &ServeOptions::default(), stopped).expect("serves")
    })
}

fn vllm(upstream: &Running, more: Value) -> Running {
    let mut block = json!({"base_url": format!("http://{}/v1", upstream.address), "api_key": "k", "model": "m",
                           "return_token_id_information": false, "uses_reasoning_parser": true});
    for (key, value) in more.as_object().expect("object") {
        block[key] = value.clone();
    }
    model_server("vllm_model", block)
}

fn openai(upstream: &Running) -> Running {
    let url = format!("http://{}/v1", upstream.address);
    model_server(
        "openai_model",
        json!({"openai_base_url": url, "openai_api_key": "k", "openai_model": "m"}),
    )
}

/// Status line and headers in one text, and the body.
fn ask(server: &Running, request: &str, headers: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let head = format!(
        "{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).expect("sends");
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    (head.to_owned(), body.to_owned())
}

fn responses(server: &Running, body: &str) -> (String, String) {
    ask(server, "POST /v1/responses", "", body)
}

const TOOL: &str = r#""tools":[{"type":"function","name":"look","description":"d","parameters":{"type":"object","properties":{"city":{"const":"Oslo"}}},"strict":true}]"#;

#[test]
fn a_required_key_is_asked_for_on_every_route() {
    let server = endpoint(json!({"model": "tiny"}), Some("secret"));
    for request in ["GET /v1/models", "POST /v1/responses", "POST /v1/chat/completions"] {
        let (head, body) = ask(&server, request, "authorization: Bearer wrong\r\n", "{}");
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        assert_eq!(
            body,
            r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#
        );
    }
    let (head, body) = ask(&server, "GET /v1/models", "authorization: Bearer secret\r\n", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(
        body,
        r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1700000000,"owned_by":"gym"}]}"#
    );
}

#[test]
fn unknown_keys_are_ignored_and_wrong_ones_refused_in_the_words_of_the_api() {
    let server = endpoint(json!({"answer": "fine"}), None);
    let (head, body) = responses(&server, r#"{"input":"x","top_k":3}"#);
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("\"fine\""), "{head} {body}");
    let (head, body) = responses(&server, r#"{"top_k":3}"#);
    assert!(
        head.starts_with("HTTP/1.1 400 ") && body.starts_with(r#"{"error":{"message":"#),
        "{head} {body}"
    );
}

#[test]
fn both_dialects_stream_when_asked() {
    let server = endpoint(json!({"answer": "fine"}), None);
    let (head, body) = responses(&server, r#"{"input":"x","stream":true}"#);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(
        body.starts_with("event: response.created\n")
            && body.contains("event: response.completed\n"),
        "{body}"
    );
    let (_, body) =
        ask(&server, "POST /v1/chat/completions", "", r#"{"messages":[],"stream":true}"#);
    assert!(
        body.contains(r#""delta": {"content": "fine"}"#) && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
}

#[test]
fn engine_timings_travel_in_a_header_through_the_model_servers() {
    let script = json!([{"text": "x", "engine": {"queue_ms": 1, "prefill_ms": 2, "decode_ms": 3}}]);
    let upstream = endpoint(script.clone(), None);
    for server in [
        vllm(&upstream, json!({})),
        openai(&upstream),
        model_server("scripted_model", json!({"script": script})),
    ] {
        let started = Instant::now();
        let (head, body) = responses(&server, r#"{"input":"x"}"#);
        assert!(
            head.contains("server-timing: queue;dur=1.000, prefill;dur=2.000, decode;dur=3.000"),
            "{head}"
        );
        assert!(started.elapsed().as_millis() >= 6 && !body.contains("dur="), "{body}");
    }
}

#[test]
fn vllm_model_speaks_chat_upstream_and_responses_down() {
    let script = json!([{"reasoning": "hm", "tool_calls": [{"name": "look", "arguments": {"city": "Oslo"}}]}, {"reasoning": "ok", "text": "cold"}]);
    let upstream = endpoint(script, None);
    let server = vllm(&upstream, json!({}));
    let question = r#"{"role":"user","content":"x"}"#;
    let (head, body) = responses(&server, &format!(r#"{{"input":[{question}],{TOOL}}}"#));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    let reply = Response::parse(body.as_bytes()).expect("reply");
    let kinds: Vec<String> =
        reply.items().map(|item| format!("{}{}", item.item_type, item.arguments)).collect();
    assert_eq!(kinds, ["reasoning", r#"function_call{"city":"Oslo"}"#]);

    let output = r#"{"type":"function_call_output","call_id":"c","output":"o"}"#;
    let input = format!("[{question},{},{output}]", reply.output_elements());
    let (_, body) = responses(&server, &format!(r#"{{"input":{input},{TOOL}}}"#));
    let reply = Response::parse(body.as_bytes()).expect("reply");
    assert_eq!(gym_server::api::output_text(reply.output()), "cold");
    assert!(body.contains(r#""summary":[{"text":"ok","type":"summary_text"}]"#), "{body}");

    let (_, body) = ask(
        &server,
        "POST /v1/chat/completions",
        "",
        r#"{"messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"o"}]}"#,
    );
    assert!(
        body.contains(r#""content":"<think>ok</think>cold""#)
            && !body.contains("reasoning_content"),
        "{body}"
    );
}

#[test]
fn messages_work_on_top_of_responses() {
    let server = model_server("scripted_model", json!({"answer": "fine"}));
    let (head, body) = ask(
        &server,
        "POST /v1/messages",
        "",
        r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#,
    );
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    assert!(
        body.contains(r#""content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn""#),
        "{body}"
    );
}

#[test]
fn openai_model_passes_the_reply_through() {
    let upstream = endpoint(json!({"answer": "fine"}), Some("k"));
    let body = r#"{"input":"x","model":"m"}"#;
    let (_, direct) = ask(&upstream, "POST /v1/responses", "authorization: Bearer k\r\n", body);
    let (head, passed) = responses(&openai(&upstream), body);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(direct, passed);
}

#[test]
fn a_refusing_upstream_is_a_500_with_its_body_quoted() {
    let upstream = endpoint(json!({}), Some("other"));
    for server in [openai(&upstream), vllm(&upstream, json!({}))] {
        let (head, body) = responses(&server, r#"{"input":"x"}"#);
        assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
        assert!(
            body.contains("calling an inner server: b'") && body.contains("Incorrect API key"),
            "{body}"
        );
        let (head, body) = responses(&server, r#"{"input":"x","stream":true}"#);
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body.contains("event: response.failed"),
            "{head} {body}"
        );
    }
}

#[test]
fn what_cannot_be_converted_is_a_500_and_what_is_wrong_a_422() {
    let upstream = endpoint(json!({}), None);
    let server = vllm(&upstream, json!({}));
    let (head, body) = responses(&server, r#"{"input":[{"type":"mcp_call"}]}"#);
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert_eq!(
        body,
        r#""ValueError('items of type \"mcp_call\" are not supported by chat completions')""#
    );
    let (head, body) = responses(&server, r#"{"inputs":"x"}"#);
    assert!(head.starts_with("HTTP/1.1 422 "), "{head}");
    assert!(
        body.starts_with(
            r#"{"detail":[{"type":"missing","loc":["body","input"],"msg":"Field required""#
        ),
        "{body}"
    );
}

#[test]
fn a_status_reset_or_slow_body_is_what_the_client_sees() {
    let failing = |errors: &str| endpoint(json!({"errors": errors, "answer": "fine"}), None);
    let (head, body) = responses(&failing("1:503"), r#"{"input":"x"}"#);
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(
        body,
        r#"{"error":{"message":"injected failure with status 503","type":"server_error","param":null,"code":null}}"#
    );

    let (_, body) = responses(&failing("1:reset"), r#"{"input":"x"}"#);
    assert_eq!(body, "");

    let started = Instant::now();
    let (head, body) = responses(&failing("1:slow_body=60"), r#"{"input":"x"}"#);
    assert!(started.elapsed().as_millis() >= 60 && head.starts_with("HTTP/1.1 200 "), "{head}");
    Response::parse(body.as_bytes()).expect("the body is complete in the end");
}

#[test]
fn a_failure_that_may_pass_is_tried_again_by_the_model_servers() {
    let upstream = endpoint(json!({"errors": "0.5:503", "answer": "fine", "seed": 3}), None);
    let server = openai(&upstream);
    for at in 0..4 {
        let (head, body) = responses(&server, &format!(r#"{{"input":"question {at}"}}"#));
        assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("\"fine\""), "{head} {body}");
    }
}

#[test]
fn a_long_context_is_an_incomplete_reply() {
    // A plain listener stands for an engine that refuses.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("address");
    let engine = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).expect("reads");
        let body = r#"{"error":{"message":"This model's maximum context length is 10 tokens"}}"#;
        let reply = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(reply.as_bytes()).expect("answers");
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    });
    let server = model_server(
        "vllm_model",
        json!({"base_url": [format!("http://{address}/v1")], "api_key": "k", "model": "m", "return_token_id_information": false,
               "uses_reasoning_parser": false, "default_headers": {"x-team": "blue"}}),
    );
    let (head, body) = responses(&server, r#"{"input":"x"}"#);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    assert!(
        body.contains(r#""incomplete_details":{"reason":"max_output_tokens"}"#)
            && body.contains(r#""usage":null"#),
        "{body}"
    );
    let request = engine.join().expect("engine");
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(
        request.contains("authorization: Bearer k\r\n") && request.contains("x-team: blue\r\n"),
        "{request}"
    );
}

#[test]
fn a_native_engine_gets_the_responses_request_itself() {
    let upstream = endpoint(json!({"answer": "fine"}), None);
    let server = vllm(&upstream, json!({"is_responses_native": true}));
    let (head, body) = responses(&server, r#"{"input":"x","temperature":0.25}"#);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    assert!(
        body.contains(r#""temperature":0.25"#)
            && body.contains(r#""model":"m""#)
            && body.contains("\"fine\""),
        "{body}"
    );
}

/// Guarantees: the work for one reply stays in the tens of microseconds even in an unoptimised build.
#[test]
fn a_reply_without_latency_costs_microseconds() {
    let engine = crate::scripted_model::Engine::new(ScriptedModelConfig::default());
    let body =
        format!(r#"{{"input":[{{"role":"user","content":"{}"}}],{TOOL}}}"#, "word ".repeat(300));
    let mut best = u128::MAX;
    for _ in 0..200 {
        let started = Instant::now();
        let request = CreateParams::parse(body.as_bytes(), Urls::With).expect("request");
        let outcome = engine.responses(&request, engine.key(body.as_bytes(), 0));
        best = best.min(started.elapsed().as_nanos());
        assert!(!outcome.body.is_empty());
    }
    assert!(best < 1_000_000, "{best} ns");
}
