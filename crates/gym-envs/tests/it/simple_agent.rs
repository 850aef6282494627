//! The agent between a model and a resources server that play scripts.

use gym_server::instance::ServerType;
use gym_server::session::CookieJar;
use serde_json::{Value, json};

use crate::fake::{Answer, Fake, Request};
use crate::host::{Host, json_of};

fn agent(resources: &Fake, model: &Fake, mut block: Value) -> Host {
    let members = block.as_object_mut().expect("an object");
    for (field, name) in [("resources_server", "tools"), ("model_server", "policy_model")] {
        members.insert(field.to_owned(), json!({"type": "any_type", "name": name}));
    }
    let others = [("tools", resources.address), ("policy_model", model.address)];
    Host::start(ServerType::ResponsesApiAgents, "simple_agent", block, &others)
}

fn response(output: Value, usage: Value) -> String {
    json!({
        "id": "resp", "created_at": 1.0, "model": "m", "object": "response", "output": output,
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "usage": usage,
    })
    .to_string()
}

fn call(name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": format!("call_{name}"), "name": name, "arguments": arguments})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg", "role": "assistant", "status": "completed",
           "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

/// A model that calls `name` once and then answers.
async fn model_that_calls(name: &'static str, arguments: &'static str) -> Fake {
    Fake::start(move |index, _| {
        let output = if index == 0 { call(name, arguments) } else { message("Cold.") };
        Answer::ok(response(json!([output]), Value::Null)).cookie(&format!("model={index}; path=/"))
    })
    .await
}

fn resources_script(index: usize, request: &Request) -> Answer {
    let name = request.path.rfind('/').map_or("", |slash| &request.path[slash..]);
    let body = match name {
        "/seed_session" => "{}".to_owned(),
        "/verify" => {
            let mut reply: Value = serde_json::from_str(&request.body).expect("JSON");
            reply["reward"] = json!(0.5);
            reply["extra"] = json!("kept");
            reply.to_string()
        }
        "/aggregate_metrics" => r#"{"agent_metrics":{"a":1}}"#.to_owned(),
        _ => r#"{"weather":"cold"}"#.to_owned(),
    };
    Answer::ok(body).cookie(&format!("tools={index}; path=/; httponly"))
}

const RUN: &str = r#"{"responses_create_params":{"input":"hi","temperature":null},"expected":[1],"_ng_task_index":3,"_ng_rollout_index":0}"#;

#[tokio::test]
async fn a_rollout_is_seeded_answered_and_verified_with_the_cookies_of_each_reply() {
    let resources = Fake::start(resources_script).await;
    let model = model_that_calls("get_weather", r#"{"city": "Oslo"}"#).await;
    let agent = agent(&resources, &model, json!({}));
    let reply = agent.post("/run", RUN, &CookieJar::default()).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let result = json_of(&reply);
    assert_eq!(result["reward"], json!(0.5));
    assert_eq!(result["extra"], json!("kept"));
    assert_eq!(result["expected"], json!([1]));

    let seen = resources.seen();
    let paths: Vec<_> = seen.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/seed_session", "/get_weather", "/verify"]);
    let seed: Value = serde_json::from_str(&seen[0].body).expect("JSON");
    assert_eq!(seed["responses_create_params"]["tool_choice"], json!("auto"));
    assert_eq!(seed["responses_create_params"]["input"], json!("hi"));
    assert_eq!(seed["expected"], json!([1]));
    assert_eq!(seen[1].body, r#"{"city": "Oslo"}"#);
    assert_eq!(seen[1].cookies, "tools=0");
    // The verifier gets what the loop ended with: the tool's cookie, the model's, the agent's own.
    assert!(seen[2].cookies.contains("tools=1"), "{}", seen[2].cookies);
    assert!(seen[2].cookies.contains("model=1"), "{}", seen[2].cookies);
    let verify: Value = serde_json::from_str(&seen[2].body).expect("JSON");
    let output = verify["response"]["output"].as_array().expect("a list");
    let kinds: Vec<_> = output.iter().map(|item| item["type"].as_str().expect("a type")).collect();
    assert_eq!(kinds, ["function_call", "function_call_output", "message"]);
    assert_eq!(output[1]["output"], json!(r#"{"weather":"cold"}"#));

    let seen = model.seen();
    assert_eq!(seen.len(), 2);
    // Only what was set is sent on, and null counts as set.
    assert_eq!(seen[0].body, r#"{"input":[{"content":"hi","role":"user"}],"temperature":null}"#);
    assert_eq!((seen[0].cookies.as_str(), seen[1].cookies.as_str()), ("", "model=0"));
    let second: Value = serde_json::from_str(&seen[1].body).expect("JSON");
    assert_eq!(second["input"].as_array().map(Vec::len), Some(3));
    assert_eq!(second["input"][2].as_object().map(|item| item.len()), Some(3));
}

#[tokio::test]
async fn the_answer_re_issues_every_cookie() {
    let resources = Fake::start(resources_script).await;
    let model = model_that_calls("get_weather", "{}").await;
    let agent = agent(&resources, &model, json!({}));
    let mut cookies = CookieJar::default();
    cookies.insert("tools", "seeded");
    let reply = agent.post("/v1/responses", r#"{"input":[]}"#, &cookies).await;
    let issued = reply.cookies();
    assert_eq!(issued.get("tools"), Some("0"));
    assert_eq!(issued.get("model"), Some("1"));
    assert!(issued.get("simple_agent___under_test").is_some());
    assert_eq!(resources.seen()[0].cookies, "tools=seeded");
}

#[tokio::test]
async fn broken_arguments_and_failing_tools_are_told_to_the_model() {
    let resources = Fake::start(|_, _| Answer::ok(r#"{"detail":"Not Found"}"#).status(404)).await;
    let model = Fake::start(|index, _| {
        let output = match index {
            0 => json!([call("a", "{'city'}"), call("b", "{}")]),
            _ => json!([message("Sorry.")]),
        };
        Answer::ok(response(output, Value::Null))
    })
    .await;
    let agent = agent(&resources, &model, json!({}));
    let reply = agent.post("/v1/responses", r#"{"input":[]}"#, &CookieJar::default()).await;
    assert_eq!(reply.status, 200);
    let output = json_of(&reply)["output"].clone();
    assert_eq!(
        output[2],
        json!({
            "call_id": "call_a",
            "output": r#"{"error": "Invalid tool call arguments: JSONDecodeError('Expecting property name enclosed in double quotes: line 1 column 2 (char 1)')"}"#,
            "type": "function_call_output", "id": null, "status": null,
        })
    );
    assert_eq!(output[3]["output"], json!(r#"{"detail":"Not Found"}"#));
    assert_eq!(resources.seen().len(), 1);
}

#[tokio::test]
async fn max_steps_ends_the_loop_after_the_tools_of_the_last_step() {
    let resources = Fake::start(resources_script).await;
    let model =
        Fake::start(|_, _| Answer::ok(response(json!([call("a", "{}")]), Value::Null))).await;
    let agent = agent(&resources, &model, json!({"max_steps": 3}));
    let reply = agent.post("/v1/responses", r#"{"input":[]}"#, &CookieJar::default()).await;
    assert_eq!(json_of(&reply)["output"].as_array().map(Vec::len), Some(6));
    assert_eq!(model.seen().len(), 3);
    assert_eq!(resources.seen().len(), 3);
}

#[tokio::test]
async fn a_failing_model_fails_the_rollout_and_is_quoted() {
    let resources = Fake::start(resources_script).await;
    let model = Fake::start(|_, _| Answer::ok(r#"{"detail":"too long"}"#).status(400)).await;
    let agent = agent(&resources, &model, json!({}));
    let reply = agent.post("/run", RUN, &CookieJar::default()).await;
    assert_eq!(reply.status, 500);
    let text = json_of(&reply);
    let text = text.as_str().expect("a JSON string");
    assert!(text.starts_with("Hit an exception in simple_agent___under_test calling"), "{text}");
    assert!(text.contains("too long"), "{text}");
    assert!(!resources.seen().iter().any(|request| request.path == "/verify"));
}

#[tokio::test]
async fn garbage_from_the_model_names_the_model() {
    let resources = Fake::start(resources_script).await;
    let model = Fake::start(|_, _| Answer::ok("<html>")).await;
    let agent = agent(&resources, &model, json!({}));
    let reply = agent.post("/v1/responses", r#"{"input":[]}"#, &CookieJar::default()).await;
    assert_eq!(reply.status, 500);
    let text = json_of(&reply);
    let text = text.as_str().expect("a JSON string");
    assert!(text.starts_with("ValidationError('policy_model: model reply is not"), "{text}");
}

#[tokio::test]
async fn a_verify_reply_without_reward_fails_the_rollout() {
    let resources = Fake::start(|_, request| match request.path.as_str() {
        "/verify" => Answer::ok(r#"{"responses_create_params":{},"response":{}}"#),
        _ => Answer::ok("{}"),
    })
    .await;
    let model = model_that_calls("a", "{}").await;
    let agent = agent(&resources, &model, json!({}));
    let reply = agent.post("/run", RUN, &CookieJar::default()).await;
    assert_eq!(reply.status, 500);
    assert_eq!(
        json_of(&reply),
        json!("ValidationError('the verify reply of tools has no `reward`')")
    );
}

#[tokio::test]
async fn skipped_verification_is_said_in_the_result() {
    let resources = Fake::start(resources_script).await;
    let model = model_that_calls("a", "{}").await;
    let block = json!({"skip_verification": true, "skip_verification_reward": 0.25});
    let agent = agent(&resources, &model, block);
    let result = json_of(&agent.post("/run", RUN, &CookieJar::default()).await);
    assert_eq!(result["reward"], json!(0.25));
    assert_eq!(result["verification_skipped"], json!(true));
    assert_eq!(result["expected"], json!([1]));
    assert!(!resources.seen().iter().any(|request| request.path == "/verify"));
    let none = CookieJar::default();
    let metrics = agent.post("/aggregate_metrics", r#"{"verify_responses":[]}"#, &none);
    assert_eq!(
        metrics.await.body,
        r#"{"group_level_metrics":[],"agent_metrics":{},"key_metrics":{}}"#
    );
}

#[tokio::test]
async fn aggregate_metrics_come_from_the_resources_server() {
    let resources = Fake::start(resources_script).await;
    let model = model_that_calls("a", "{}").await;
    let agent = agent(&resources, &model, json!({}));
    let body = r#"{"verify_responses":[{"reward":1.0}]}"#;
    let reply = agent.post("/aggregate_metrics", body, &CookieJar::default()).await;
    assert_eq!(reply.body, r#"{"agent_metrics":{"a":1}}"#);
    assert_eq!(resources.seen()[0].body, body);
}

#[tokio::test]
async fn a_run_without_create_params_is_refused() {
    let resources = Fake::start(resources_script).await;
    let model = model_that_calls("a", "{}").await;
    let agent = agent(&resources, &model, json!({}));
    let reply = agent.post("/run", "{}", &CookieJar::default()).await;
    assert_eq!(reply.status, 422);
    assert_eq!(json_of(&reply)["detail"][0]["loc"], json!(["body", "responses_create_params"]));
    let reply = agent.post("/v1/responses", r#"{"inputs":[]}"#, &CookieJar::default()).await;
    assert_eq!(reply.status, 422);
    assert!(resources.seen().is_empty());
}

#[tokio::test]
async fn observed_rollouts_carry_their_id_in_every_path() {
    let resources = Fake::start(resources_script).await;
    let model = model_that_calls("get_weather", "{}").await;
    let observed = agent(&resources, &model, json!({"observability_enabled": true}));
    let reply = observed.post("/run", RUN, &CookieJar::default()).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let paths: Vec<_> = resources.seen().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/ng-rollout/3-0/seed_session", "/get_weather", "/ng-rollout/3-0/verify"]);
    assert_eq!(model.seen()[0].path, "/ng-rollout/3-0/v1/responses");
    let model = model_that_calls("get_weather", "{}").await;
    let captured = agent(&resources, &model, json!({"token_id_capture": true}));
    captured.post("/run", RUN, &CookieJar::default()).await;
    assert_eq!(model.seen()[0].path, "/ng-rollout/3-0/training-token-capture/v1/responses");
    assert_eq!(resources.seen()[3].path, "/seed_session");
}
