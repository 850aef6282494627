//! Rollouts: how they ended, as the agent counts and shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gym_server::agent::{self, AgentServer};
use gym_server::client::{Client, ClientConfig};
use gym_server::http::{Call, HttpError, Reply, Service};
use gym_server::instance::{Endpoint, InstanceConfig, ServerType};
use gym_server::session::CookieJar;
use gym_telemetry::semconv;
use http::{Method, StatusCode};
use lens_otlp::encode::StatusCode as SpanStatus;

use crate::{Running, all_spans, count, run, server, telemetry};

/// An agent that does what the row says, with the help of a server behind it.
struct Obedient {
    behind: Endpoint,
}

impl AgentServer for Obedient {
    async fn run(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let row: serde_json::Value = serde_json::from_slice(&body).expect("a row");
        match row["do"].as_str().unwrap_or_default() {
            "refuse" => Ok(Reply::json_bytes("{}").status(StatusCode::UNPROCESSABLE_ENTITY)),
            "break" => Err(HttpError::failed("ValueError", "no")),
            "hang" => std::future::pending().await,
            "ask" => {
                let reply = call.post(&self.behind, "/slow").send().await?.ok()?;
                Ok(Reply::json_bytes(reply.body))
            }
            _ => Ok(Reply::json_bytes(r#"{"reward":1.0}"#)),
        }
    }

    async fn responses(&self, _: &Call, _: Bytes) -> Result<Reply, HttpError> {
        Ok(Reply::json_bytes("{}"))
    }

    async fn aggregate_metrics(&self, _: &Call, _: Bytes) -> Result<Reply, HttpError> {
        Ok(Reply::json_bytes("{}"))
    }
}

/// A server that asks one that never answers, and gives up in time.
fn impatient() -> Running {
    let silent = Endpoint::gym("silent", "127.0.0.1", server(vec![None]));
    let mut service = Service::new(ServerType::ResourcesServers, "impatient___i".to_owned());
    service.route(Method::POST, "/slow", move |call, _| {
        let silent = silent.clone();
        async move {
            let limit = Duration::from_millis(20);
            Ok(Reply::json_bytes(call.get(&silent, "/").limit(limit).send().await?.body))
        }
    });
    run(service, 1)
}

#[tokio::test]
async fn a_rollout_says_whether_it_succeeded_failed_ran_out_of_time_or_was_given_up() {
    telemetry();
    let behind = impatient();
    let instance = InstanceConfig {
        name: "obedient".to_owned(),
        server_type: ServerType::ResponsesApiAgents,
        implementation: "obedient".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        workers: 1,
        block: serde_json::Map::new(),
        global: Arc::default(),
    };
    let agent = run(agent::service(Obedient { behind: behind.endpoint() }, &instance), 1);
    let client = Client::new(ClientConfig::default());
    for (index, what) in ["succeed", "refuse", "break", "ask", "hang"].iter().enumerate() {
        let row = format!(r#"{{"do":"{what}","_ng_task_index":{index},"_ng_rollout_index":77}}"#);
        let request = client.post(&agent.endpoint(), "/run").body(row);
        if *what == "hang" {
            let dropped = tokio::time::timeout(Duration::from_millis(100), request.send()).await;
            assert!(dropped.is_err(), "it hangs");
        } else {
            let reply = request.send().await.expect("a reply");
            let timed_out = (*what == "ask").then_some("request_timeout");
            assert_eq!(reply.error_type(), timed_out, "{what}");
        }
    }
    // The server ends what was dropped when it hears of it.
    drop((agent, behind));
    let rollouts: BTreeMap<String, _> = all_spans()
        .into_iter()
        .filter(|span| {
            span.name == "gym.rollout" && span.text(semconv::ROLLOUT_ID).ends_with("-77")
        })
        .map(|span| (span.text(semconv::ROLLOUT_ID).to_owned(), span))
        .collect();
    let told = |id: &str| {
        let span = &rollouts[id];
        let text = |key| span.text(key).to_owned();
        (text(semconv::ROLLOUT_OUTCOME), text(semconv::ERROR_TYPE), span.status)
    };
    let says = |outcome: &str, error_type: &str, status| {
        (outcome.to_owned(), error_type.to_owned(), status)
    };
    assert_eq!(told("0-77"), says("success", "", SpanStatus::Unset));
    assert_eq!(told("1-77"), says("failure", "422", SpanStatus::Error));
    assert_eq!(told("2-77"), says("failure", "ValueError", SpanStatus::Error));
    assert_eq!(told("3-77"), says("timeout", "request_timeout", SpanStatus::Error));
    assert_eq!(told("4-77"), says("cancelled", "", SpanStatus::Unset));
    assert_eq!(rollouts["4-77"].attributes[semconv::CANCELLED], true);
    let ended =
        |outcome| count("gym.rollout.completed_total", &[(semconv::ROLLOUT_OUTCOME, outcome)]);
    assert_eq!(
        ["success", "failure", "timeout", "cancelled"].map(ended),
        [1, 2, 1, 1],
        "no other test makes rollouts"
    );
}

#[tokio::test]
async fn each_rollout_shows_one_session_on_two_workers_and_a_switch_is_flagged() {
    telemetry();
    let mut service = Service::new(ServerType::ResourcesServers, "tools___t".to_owned());
    for path in ["/seed_session", "/tool"] {
        service.route(Method::POST, path, |_, _| async { Ok(Reply::json_bytes("{}")) });
    }
    let tools = run(service, 2);
    let endpoint = tools.endpoint();
    // A client each: connections spread over the workers.
    let clients = [(); 4].map(|()| Client::new(ClientConfig::default()));
    let context = |rollout: &str| {
        lens::Context::empty().with_baggage(&[(semconv::ROLLOUT_ID, rollout.to_owned())])
    };
    let send = async |client: usize, rollout: &str, path: &str, cookies: &CookieJar| {
        let request = clients[client].post(&endpoint, path).cookies(cookies);
        request.context(context(rollout)).send().await.expect("a reply").cookies()
    };
    let none = CookieJar::default();
    let (one, two) = tokio::join!(
        send(0, "1-88", "/seed_session", &none),
        send(1, "2-88", "/seed_session", &none)
    );
    for step in 0..8 {
        tokio::join!(
            send(step % 4, "1-88", "/tool", &one),
            send((step + 1) % 4, "2-88", "/tool", &two)
        );
    }
    let of = |rollout: &str| {
        let mut spans = all_spans();
        spans.retain(|span| span.kind == "SERVER" && span.text(semconv::ROLLOUT_ID) == rollout);
        spans
    };
    let mut marks = Vec::new();
    for rollout in ["1-88", "2-88"] {
        let spans = of(rollout);
        assert_eq!(spans.len(), 9);
        let mark = spans[0].text(semconv::SESSION_MARK).to_owned();
        assert_eq!(mark.len(), 8, "{:?}", spans[0]);
        for span in &spans {
            assert_eq!(span.text(semconv::SESSION_MARK), mark, "one session");
            assert!(!span.attributes.contains_key(semconv::SESSION_CHANGED), "{span:?}");
        }
        marks.push(mark);
    }
    assert_ne!(marks[0], marks[1]);
    let session = one.iter().next().expect("a session").1;
    assert!(!session.contains(marks[0].as_str()), "a span does not give the session away");
    // The session of another rollout, and then none.
    send(0, "1-88", "/tool", &two).await;
    send(1, "2-88", "/tool", &none).await;
    for rollout in ["1-88", "2-88"] {
        let flagged = of(rollout);
        let flagged =
            flagged.iter().filter(|s| s.attributes.contains_key(semconv::SESSION_CHANGED));
        assert_eq!(flagged.count(), 1, "{rollout}");
    }
}
