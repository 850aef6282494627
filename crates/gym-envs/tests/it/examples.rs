//! The example environments.

use gym_server::instance::ServerType;
use gym_server::session::CookieJar;
use serde_json::{Value, json};

use crate::host::{Host, json_of};

fn resources(implementation: &str, block: Value) -> Host {
    Host::start(ServerType::ResourcesServers, implementation, block, &[])
}

fn verify_body(output: Value, task: Value) -> String {
    let mut body = json!({
        "responses_create_params": {"input": [{"role": "user", "content": "hi"}]},
        "response": {
            "id": "r", "created_at": 1.0, "model": "m", "object": "response", "output": output,
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        },
    });
    let body_members = body.as_object_mut().expect("an object");
    body_members.extend(task.as_object().expect("an object").clone());
    body.to_string()
}

#[tokio::test]
async fn single_tool_call_tells_the_weather_and_rewards_everything() {
    let server = resources("example_single_tool_call", json!({}));
    let none = CookieJar::default();
    let reply = server.post("/get_weather", r#"{"city":"São Paulo"}"#, &none).await;
    assert_eq!(
        json_of(&reply),
        json!({"city": "São Paulo", "weather_description": "The weather in São Paulo is cold."})
    );
    assert!(reply.cookies().get("example_single_tool_call___under_test").is_some());
    let reply = server.post("/get_weather", "{}", &none).await;
    assert_eq!(reply.status, 422);
    assert_eq!(
        json_of(&reply),
        json!({"detail": [
            {"type": "missing", "loc": ["body", "city"], "msg": "Field required", "input": {}}
        ]})
    );
    let reply = server.post("/verify", &verify_body(json!([]), json!({"extra": 1})), &none).await;
    let verified = json_of(&reply);
    let keys: Vec<_> = verified.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["responses_create_params", "response", "reward"]);
    assert_eq!(verified["reward"], json!(1.0));
    assert_eq!(verified["responses_create_params"]["tool_choice"], json!("auto"));
}

#[tokio::test]
async fn multi_step_scores_the_last_hand_in() {
    let server = resources("example_multi_step", json!({}));
    let none = CookieJar::default();
    let reply = server.post("/get_synonym_value", r#"{"synonym":"Cold"}"#, &none).await;
    assert_eq!(reply.body, r#"{"synonym_value":386}"#);
    let reply = server.post("/extract_synonym_values", r#"{"synonym_values":[1]}"#, &none).await;
    assert_eq!(reply.body, r#"{"success":true}"#);

    let call = |arguments: &str| {
        json!({"type": "function_call", "call_id": "c", "name": "extract_synonym_values",
               "arguments": arguments})
    };
    let task = json!({
        "id": 7, "expected_synonyms": ["a", "b"], "expected_synonym_values": [97, 98],
        "minefield_label": "Cold", "minefield_label_value": 386,
    });
    let output = json!([call(r#"{"synonym_values":[1]}"#), call(r#"{"synonym_values":[98,97]}"#)]);
    let reply = server.post("/verify", &verify_body(output, task.clone()), &none).await;
    let mut verified = json_of(&reply);
    let score = verified.as_object_mut().expect("an object");
    score.remove("responses_create_params");
    score.remove("response");
    assert_eq!(
        verified,
        json!({
            "reward": 0.0, "parsed_synonym_values": [98, 97], "accuracy": false,
            "set_overlap": 1.0, "original_term_minefield_hit": false,
            "order_instruction_following_failure": true,
        })
    );
    let reply = server.post("/verify", &verify_body(json!([call("{")]), task), &none).await;
    assert_eq!(reply.status, 500);
    assert!(reply.cookies().is_empty());
    let reply = server.post("/verify", &verify_body(json!([]), json!({"id": 7})), &none).await;
    assert_eq!(reply.status, 422);
}

#[tokio::test]
async fn counters_belong_to_the_session_of_the_cookie() {
    let server = resources("example_session_state_mgmt", json!({}));
    let seeded =
        server.post("/seed_session", r#"{"initial_count":3}"#, &CookieJar::default()).await;
    assert_eq!(seeded.body, "{}");
    let session = seeded.cookies();
    let reply = server.post("/increment_counter", r#"{"count":4}"#, &session).await;
    assert_eq!(reply.body, r#"{"success":true}"#);
    assert_eq!(reply.cookies(), session);
    let reply = server.post("/get_counter_value", "{}", &session).await;
    assert_eq!(reply.body, r#"{"count":7}"#);
    let reply = server.post("/get_counter_value", "{}", &CookieJar::default()).await;
    assert_eq!(reply.body, r#"{"count":0}"#);

    let verify = verify_body(json!([]), json!({"expected_count": 7}));
    assert_eq!(json_of(&server.post("/verify", &verify, &session).await)["reward"], json!(1.0));
    let stranger = server.post("/verify", &verify, &CookieJar::default()).await;
    assert_eq!(json_of(&stranger)["reward"], json!(0.0));
    let reply = server.post("/seed_session", "{}", &CookieJar::default()).await;
    assert_eq!(reply.status, 422);
}

#[tokio::test]
async fn the_session_bound_is_configurable() {
    let server = resources("example_session_state_mgmt", json!({"max_sessions": 1}));
    let seed = r#"{"initial_count":3}"#;
    let first = server.post("/seed_session", seed, &CookieJar::default()).await.cookies();
    let second = server.post("/seed_session", seed, &CookieJar::default()).await.cookies();
    let verify = verify_body(json!([]), json!({"expected_count": 3}));
    assert_eq!(json_of(&server.post("/verify", &verify, &second).await)["reward"], json!(1.0));
    assert_eq!(json_of(&server.post("/verify", &verify, &first).await)["reward"], json!(0.0));
}
