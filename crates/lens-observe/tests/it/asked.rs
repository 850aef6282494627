//! Questions to a receiver with a store: they are answered about what was received a moment ago.

use std::sync::Arc;

use lens::semconv::live;
use lens_observe::receiver::Options;
use lens_observe::{Api, Intake, Keeper, Receiver};
use lens_otlp::encode::{
    LOG_ATTRIBUTES, LogParts, Scope, put_key_value, put_request, put_scope_item,
};
use lens_store::live::{Mark, Row};
use lens_store::query::{Measured, Search};
use lens_store::store::{Clock as _, Store, SystemClock};

use crate::support::{PROTOBUF, http, options, request, send};

fn start(folder: &std::path::Path) -> Receiver {
    let store = Store::open(folder, lens_store::store::Options::default()).expect("a store");
    let keeper = Arc::new(Keeper::new(store));
    let pages = Some(Arc::new(Api::new(Arc::clone(&keeper))) as _);
    Receiver::start(Options { pages, ..options() }, keeper as Arc<dyn Intake>).unwrap()
}

fn ask(receiver: &Receiver, path: &str) -> (u16, serde_json::Value) {
    let answer = send(http(receiver), "GET", path, "", b"");
    (answer.status, answer.json())
}

#[test]
fn queries_find_and_count_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = start(folder.path());
    let sent = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &request(7));
    assert_eq!(sent.status, 200);
    let (status, found) = ask(
        &receiver,
        "/api/v1/search?q=%7B+name+%3D+%22a+span%22+%7D+%7C+select(resource.service.name)&spans=2",
    );
    let found: Search = serde_json::from_value(found).unwrap();
    assert_eq!((status, found.traces.len(), found.looked.spans), (200, 1, 7));
    let set = &found.traces[0].sets[0];
    assert_eq!((set.matched, set.spans.len()), (7, 2));
    assert_eq!(set.spans[0].fields[0].1.to_string(), "wire-test");
    let count = "/api/v1/search?q=%7B%7D+%7C+quantile_over_time(duration,.5)+by+(name)";
    let (status, counted) = ask(&receiver, count);
    let counted: Measured = serde_json::from_value(counted).unwrap();
    // They start in 1970, which nobody believes.
    assert_eq!((status, counted.metrics.spans, counted.metrics.suspect), (200, 0, 7));
    let (status, refused) = ask(&receiver, "/api/v1/search?q=%7B+name+%3D+%7D");
    assert_eq!(status, 400);
    assert!(refused["message"].as_str().unwrap().contains("expected a field or a value"));
    let (status, refused) = ask(&receiver, "/api/v1/search?limit=many");
    assert_eq!((status, &refused["message"]), (400, &"limit is a number, not \"many\"".into()));
    assert_eq!(ask(&receiver, "/api/v1/search?query=x").0, 400);
}

#[test]
fn a_rollout_that_is_under_way_is_told_of_before_any_of_its_spans_ended() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = start(folder.path());
    let now_nanos = SystemClock.now_nanos();
    let mut attributes = Vec::new();
    for (key, value) in [
        (live::SPAN_NAME, "gym.rollout.attempt"),
        (live::SPAN_GROUP, "rollout"),
        ("nemo.gym.rollout.id", "3-1"),
    ] {
        put_key_value(&mut attributes, LOG_ATTRIBUTES, key, value);
    }
    put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_AGE_MILLIS, &90_000_i64);
    let parts = LogParts {
        time_nanos: now_nanos,
        observed_nanos: now_nanos,
        attributes: &attributes,
        span: Some(([1; 16], [2; 8])),
        event_name: live::HEARTBEAT_EVENT,
        ..LogParts::default()
    };
    let (mut record, mut items, mut body) = (Vec::new(), Vec::new(), Vec::new());
    parts.put(&mut record);
    put_scope_item(&mut items, &record);
    put_request(&mut body, &[], std::iter::once((Scope::default(), items.as_slice())));
    let sent = send(http(&receiver), "POST", "/v1/logs", PROTOBUF, &body);
    assert_eq!(sent.status, 200);
    let (status, told) = ask(&receiver, "/api/v1/in-flight");
    let rows: Vec<Row> = serde_json::from_value(told["rollouts"].clone()).unwrap();
    assert_eq!((status, rows.len(), rows[0].rollout_id.as_str()), (200, 1, "3-1"));
    // Open for 90 seconds, and nothing was heard of since it began.
    assert_eq!(
        (rows[0].mark, rows[0].stage.as_ref().unwrap().doing.as_str()),
        (Mark::Stalled, "dispatch")
    );
    assert!(rows[0].explanation.starts_with("stalled 9"), "{}", rows[0].explanation);
}
