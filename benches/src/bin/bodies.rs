//! What reading and writing the bodies of one rollout costs, operation by operation.
//!
//! Each operation alternates with its peer, which reads the same bytes into `serde_json::Value` and writes them
//! again, so that a noisy machine disturbs both alike. Prints the best of many short rounds, in nanoseconds, and the ratio.
//!
//! ```text
//! (cd benches && cargo run --release --bin bodies)
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gym_envs::scripted_model::{Engine, ScriptedModelConfig};
use gym_envs::simple_agent::{Conversation, Turn};
use gym_server::api::{CreateParams, RunRequest, Urls};
use gym_server::model::{Dialect, finish, prepare};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[allow(dead_code, reason = "a part of the program, which is no library")]
#[path = "../../../crates/gym/src/collect/members.rs"]
mod members;

const ROW: &str = r#"{"responses_create_params": {"input": [{"role": "developer", "content": "You answer travel questions."}, {"role": "user", "content": "Do I need a coat in Oslo?"}], "tools": [{"type": "function", "name": "get_weather", "description": "Weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}, "strict": true}]},"agent_ref":{"type":"responses_api_agents","name":"example_single_tool_call_simple_agent"},"_ng_task_index":3,"_ng_rollout_index":120}"#;

const WEATHER: &str = r#"{"city":"Oslo","weather_description":"The weather in Oslo is cold."}"#;

const ROUNDS: usize = 100;

fn main() {
    let only: Option<String> = std::env::args().nth(1);
    let bodies = Bodies::make();
    let engine = engine();
    println!("{:34} {:>7} {:>9} {:>9} {:>6}", "operation", "bytes", "ns", "peer ns", "ratio");
    let mut total = 0.0;
    let mut measure = |name: &str, peer: &[&[u8]], operation: &dyn Fn()| {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return;
        }
        let mut own = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..ROUNDS {
            own.push(nanos(operation));
            theirs.push(nanos(&|| peer.iter().for_each(|text| value_round_trip(text))));
        }
        let (own, theirs) = (least(own), least(theirs));
        total += own;
        let bytes: usize = peer.iter().map(|text| text.len()).sum();
        println!("{name:34} {bytes:7} {own:9.0} {theirs:9.0} {:6.3}", own / theirs);
    };
    let Bodies { row, whole, params, first, call, second, answer, response, verify, verified } =
        &bodies;
    let parse = |body: &Bytes| {
        black_box(CreateParams::parse(black_box(body), Urls::With).is_ok());
    };
    measure("parse request of 2 items", &[first], &|| parse(first));
    measure("parse request of 4 items", &[second], &|| parse(second));
    measure("scripted answer, call", &[first], &|| {
        black_box(answered(&engine, black_box(first)));
    });
    measure("scripted answer, text", &[second], &|| {
        black_box(answered(&engine, black_box(second)));
    });
    measure("conversation of 2 model calls", &[params, call, answer], &|| {
        black_box(conversed(params, call, answer));
    });
    measure("run request, read and in full", &[row], &|| {
        let run = RunRequest::parse(black_box(row)).expect("run request");
        let mut out = Vec::with_capacity(row.len() + 512);
        run.write_full(&mut out);
        black_box(out);
    });
    measure("verification, read and in full", &[verify], &|| {
        black_box(verified_reply(black_box(verify)));
    });
    measure("result row of the driver", &[verified], &|| {
        let text = std::str::from_utf8(black_box(verified)).expect("text");
        let members = members::Members::parse(text).expect("object");
        black_box(members.get("_ng_no_persist"));
        black_box(members.get("_ng_failure_class"));
        black_box(members.get("reward"));
        black_box(members.is_compact());
        let mut out = Vec::with_capacity(text.len() + 256);
        let changes = [
            ("_ng_task_index", "3"),
            ("_ng_rollout_index", "120"),
            ("agent_ref", r#"{"name":"example_single_tool_call_simple_agent"}"#),
        ];
        members.splice_into(&changes, &mut out);
        black_box(out);
    });
    println!("{:34} {:7} {total:9.0}", "all", "");
    black_box((whole, response));
}

/// The bodies of one rollout, in the order in which they come up.
struct Bodies {
    row: Bytes,
    whole: Bytes,
    params: Bytes,
    first: Bytes,
    call: Bytes,
    second: Bytes,
    answer: Bytes,
    response: Bytes,
    verify: Bytes,
    verified: Bytes,
}

impl Bodies {
    fn make() -> Self {
        let engine = engine();
        let row = Bytes::from_static(ROW.as_bytes());
        let run = RunRequest::parse(&row).expect("run request");
        let mut whole = Vec::new();
        run.write_full(&mut whole);
        let params = row.slice_ref(run.create_params_text.as_bytes());
        let mut conversation = Conversation::new(params.clone(), 0).expect("request");
        let first = conversation.model_request();
        let call = answered(&engine, &first);
        let Ok(Turn::CallTools(calls)) = conversation.accept_reply(call.clone()) else {
            panic!("a call of a tool");
        };
        conversation.accept_output(&calls[0], WEATHER);
        let second = conversation.model_request();
        let answer = answered(&engine, &second);
        assert!(matches!(conversation.accept_reply(answer.clone()), Ok(Turn::Done)));
        let response = conversation.finish().expect("response");
        let mut verify = whole.clone();
        verify.pop();
        verify.extend_from_slice(b",\"response\":");
        verify.extend_from_slice(&response);
        verify.push(b'}');
        let verified = verified_reply(&verify);
        Self {
            row: row.clone(),
            whole: whole.into(),
            params,
            first,
            call,
            second,
            answer,
            response,
            verify: verify.into(),
            verified: verified.into(),
        }
    }
}

fn engine() -> Engine {
    let config: ScriptedModelConfig = serde_json::from_str("{}").expect("config");
    Engine::new(config)
}

/// All that a model server does with a body.
fn answered(engine: &Engine, body: &Bytes) -> Bytes {
    let prepared = prepare(Dialect::Responses, body).expect("request");
    let request = CreateParams::trust(&prepared.body);
    let outcome = engine.responses(&request, engine.key(&prepared.body, 7));
    finish(&prepared, outcome.body.into()).expect("reply").body
}

fn conversed(params: &Bytes, call: &Bytes, answer: &Bytes) -> Bytes {
    let mut conversation = Conversation::new(params.clone(), 0).expect("request");
    black_box(conversation.model_request());
    let Ok(Turn::CallTools(calls)) = conversation.accept_reply(call.clone()) else {
        panic!("a call of a tool");
    };
    conversation.accept_output(&calls[0], WEATHER);
    black_box(conversation.model_request());
    assert!(matches!(conversation.accept_reply(answer.clone()), Ok(Turn::Done)));
    conversation.finish().expect("response")
}

fn verified_reply(body: &[u8]) -> Vec<u8> {
    let parsed = RunRequest::parse(body).expect("run request");
    let response = parsed.response().expect("response");
    let mut out = Vec::with_capacity(body.len() + 2048);
    out.extend_from_slice(b"{\"responses_create_params\":");
    parsed.create_params.write_full(&mut out);
    out.extend_from_slice(b",\"response\":");
    response.write_full(&mut out);
    out.extend_from_slice(b",\"reward\":1.0}");
    out
}

fn value_round_trip(text: &[u8]) {
    let value: Value = serde_json::from_slice(black_box(text)).expect("JSON");
    black_box(serde_json::to_vec(&value).expect("JSON"));
}

/// Nanoseconds of one call, over enough calls for the clock.
fn nanos(operation: &dyn Fn()) -> f64 {
    let started = Instant::now();
    let mut calls = 0u32;
    loop {
        for _ in 0..16 {
            operation();
        }
        calls += 16;
        let elapsed = started.elapsed();
        if elapsed > Duration::from_micros(400) {
            return elapsed.as_nanos() as f64 / f64::from(calls);
        }
    }
}

fn least(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}
