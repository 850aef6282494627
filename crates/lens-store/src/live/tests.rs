use std::collections::BTreeMap;

use bytes::Bytes;
use gym_telemetry::semconv;
use lens::semconv::{TRUNCATED, live};
use lens_otlp::encode::{
    LOG_ATTRIBUTES, LogParts, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, StatusCode,
    put_key_value, put_request, put_scope_item,
};
use proptest::prelude::*;

use super::*;
use crate::raw;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;

/// A process that tells of its spans.
#[derive(Clone)]
struct Sender {
    resource: Vec<u8>,
    /// How far its clock is from the receiver's.
    ahead_nanos: i64,
}

impl Sender {
    fn new(server: &str, server_type: &str, pid: i64) -> Self {
        let mut resource = Vec::new();
        let mut put = |key: &str, value: &str| {
            put_key_value(&mut resource, RESOURCE_ATTRIBUTES, key, value);
        };
        put(semconv::SERVER_NAME, server);
        put(semconv::SERVER_TYPE, server_type);
        put(semconv::RUN_ID, "fleet");
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, semconv::PROCESS_PID, &pid);
        Self { resource, ahead_nanos: 0 }
    }

    fn request(&self, items: &[Vec<u8>]) -> Vec<u8> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        items.iter().for_each(|item| put_scope_item(&mut all, item));
        let scope = Scope { name: semconv::SCOPE, version: "" };
        put_request(&mut out, &self.resource, std::iter::once((scope, all.as_slice())));
        out
    }

    fn clock(&self, nanos: u64) -> u64 {
        nanos.saturating_add_signed(self.ahead_nanos)
    }
}

/// A span of a rollout, and who it is in. Times are the receiver's.
#[derive(Clone)]
struct Work<'a> {
    sender: &'a Sender,
    name: &'a str,
    trace: u128,
    id: u64,
    parent: u64,
    rollout: Option<(i64, i64)>,
    start: u64,
}

impl Work<'_> {
    fn attributes(&self, field: u8) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some((task, index)) = self.rollout {
            let mut put = |key: &str, value: String| {
                put_key_value(&mut out, field, key, value.as_str());
            };
            put(semconv::ROLLOUT_ID, format!("{task}-{index}"));
            put(semconv::TASK_INDEX, task.to_string());
            put(semconv::ROLLOUT_INDEX, index.to_string());
            put(semconv::ATTEMPT_INDEX, "0".to_owned());
            put(semconv::COLLECTION_ID, "aaaabbbbcccc".to_owned());
        }
        out
    }

    fn record(&self, event_name: &str, at: u64, stage: Option<&str>) -> Vec<u8> {
        let mut attributes = self.attributes(LOG_ATTRIBUTES);
        put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_NAME, self.name);
        put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_GROUP, "server");
        if self.parent != 0 {
            let parent = format!("{:016x}", self.parent);
            put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_PARENT_ID, parent.as_str());
        }
        let is_beat = event_name == live::HEARTBEAT_EVENT;
        if is_beat {
            let age = i64::try_from((at - self.start) / 1_000_000).unwrap();
            put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_AGE_MILLIS, &age);
        }
        if let Some(stage) = stage {
            put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_STAGE, stage);
        }
        let parts = LogParts {
            time_nanos: self.sender.clock(if is_beat { at } else { self.start }),
            observed_nanos: self.sender.clock(at),
            body: self.name,
            attributes: &attributes,
            span: Some((self.trace.to_be_bytes(), self.id.to_be_bytes())),
            event_name,
            ..LogParts::default()
        };
        let mut out = Vec::new();
        parts.put(&mut out);
        out
    }

    /// The record of a begin comes a tenth of a second later.
    fn open(&self, live: &mut InFlight) {
        let at = self.start + SECOND / 10;
        let record = self.record(live::OPEN_EVENT, at, None);
        live.logs(&self.sender.request(&[record]), at).unwrap();
    }

    fn beat(&self, live: &mut InFlight, at: u64) {
        let record = self.record(live::HEARTBEAT_EVENT, at, None);
        live.logs(&self.sender.request(&[record]), at).unwrap();
    }

    fn end_with(&self, live: &mut InFlight, at: u64, status: StatusCode, more: &[(&str, i64)]) {
        let mut attributes = self.attributes(SPAN_ATTRIBUTES);
        for (key, value) in more {
            if matches!(*key, TRUNCATED | semconv::CANCELLED) {
                put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, &true);
            } else {
                put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, value);
            }
        }
        let parts = SpanParts {
            trace_id: self.trace.to_be_bytes(),
            span_id: self.id.to_be_bytes(),
            name: self.name,
            kind: match self.name {
                "POST" => 3,
                name if name.starts_with("POST ") => 2,
                _ => 1,
            },
            start_nanos: self.sender.clock(self.start),
            end_nanos: self.sender.clock(at),
            status,
            attributes: &attributes,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        let request: Bytes = self.sender.request(&[message]).into();
        live.ended(&raw::decode(&request, 1).unwrap().spans, at);
    }

    fn end(&self, live: &mut InFlight, at: u64) {
        self.end_with(live, at, StatusCode::Unset, &[]);
    }
}

fn driver() -> Sender {
    Sender::new("driver", semconv::value::ORCHESTRATOR, 1)
}

fn agent() -> Sender {
    Sender::new("weather_agent", "responses_api_agents", 2)
}

fn resources() -> Sender {
    Sender::new("weather", "resources_servers", 3)
}

fn attempt(sender: &Sender, trace: u128, rollout: (i64, i64), start: u64) -> Work<'_> {
    let (name, rollout) = (semconv::span::ROLLOUT_ATTEMPT, Some(rollout));
    Work { sender, name, trace, id: 1, parent: 0, rollout, start }
}

fn inner<'a>(above: &Work<'_>, sender: &'a Sender, name: &'a str, id: u64, start: u64) -> Work<'a> {
    let (trace, rollout) = (above.trace, above.rollout);
    Work { sender, name, trace, id, parent: id + 1000, rollout, start }
}

fn marks(live: &InFlight, at: u64) -> Vec<Mark> {
    live.rows(at).iter().map(|row| row.mark).collect()
}

/// Guarantees: one rollout of a group that waits for ever is named with its server and what happened last, with the
/// first heartbeat, and as stalled from then on.
#[test]
fn a_rollout_that_hangs_is_named_within_a_heartbeat() {
    let (driver, agent, resources) = (driver(), agent(), resources());
    let mut live = InFlight::new(Settings::default());
    let mut hanging = Vec::new();
    for index in 0..16_i64 {
        let trace = 100 + u128::try_from(index).unwrap();
        let root = attempt(&driver, trace, (7, index), START);
        let run = inner(&root, &agent, RUN_REQUEST, 2, START + SECOND);
        let verify = inner(&root, &resources, "POST /verify", 3, START + 2 * SECOND);
        for work in [&root, &run, &verify] {
            work.open(&mut live);
        }
        if index == 11 {
            hanging.extend([root.clone(), run.clone(), verify.clone()]);
            continue;
        }
        for (work, after) in [(&verify, 3), (&run, 4), (&root, 5)] {
            work.end(&mut live, START + after * SECOND);
        }
    }
    let at = START + 7 * SECOND;
    hanging.iter().for_each(|work| work.beat(&mut live, at));
    let rows = live.rows(at);
    let [row] = rows.as_slice() else { panic!("{rows:#?}") };
    assert_eq!((row.run.as_str(), row.rollout_id.as_str()), ("aaaabbbbcccc", "7-11"));
    assert_eq!((row.task_index, row.rollout_index), (Some(7), Some(11)));
    assert_eq!(row.agent, "weather_agent");
    assert_eq!(row.group, GroupState { running: 1, ended: 15 });
    assert_eq!(row.last_event.to_string(), "POST /verify began in weather, 5 s ago");
    assert_eq!(row.explanation, "in verify, server weather");
    assert_eq!((row.mark, row.age_nanos), (Mark::Running, 7 * SECOND));

    for beat in 2..20 {
        let at = START + beat * 5 * SECOND;
        hanging.iter().for_each(|work| work.beat(&mut live, at));
        live.tick(at);
    }
    let rows = live.rows(START + 96 * SECOND);
    assert_eq!(rows[0].mark, Mark::Stalled);
    assert_eq!(rows[0].explanation, "stalled 94 s in verify, server weather");

    for (work, after) in hanging.iter().rev().zip([97, 98, 99]) {
        work.end(&mut live, START + after * SECOND);
    }
    assert!(live.is_empty() && live.rows(START + 100 * SECOND).is_empty());
}

#[test]
fn an_end_that_was_lost_heals_a_begin_that_was_lost_is_made_up_for() {
    let (driver, agent) = (driver(), agent());
    let mut live = InFlight::new(Settings::default());
    let root = attempt(&driver, 1, (0, 0), START);
    let run = inner(&root, &agent, RUN_REQUEST, 2, START + SECOND);
    // Neither begin came.
    run.beat(&mut live, START + 5 * SECOND);
    root.beat(&mut live, START + 5 * SECOND);
    assert_eq!(live.rows(START + 6 * SECOND)[0].explanation, "in agent, server weather_agent");
    // The end of the run was lost; its process tells of other work.
    let other = attempt(&agent, 2, (0, 1), START + 6 * SECOND);
    for beat in 2..6 {
        let at = START + beat * 5 * SECOND;
        root.beat(&mut live, at);
        other.beat(&mut live, at);
        live.tick(at);
    }
    let rows = live.rows(START + 26 * SECOND);
    assert_eq!(rows[0].stage.as_ref().unwrap().span, semconv::span::ROLLOUT_ATTEMPT);
    assert_eq!((live.counts().healed, live.len()), (1, 2));
}

/// Guarantees: an entry whose end was lost becomes unknown after three heartbeats that did not come, then goes.
#[test]
fn an_entry_without_heartbeats_becomes_unknown_and_goes() {
    let driver = driver();
    let settings = Settings { forget_after_nanos: 60 * SECOND, ..Settings::default() };
    let mut live = InFlight::new(settings);
    attempt(&driver, 1, (0, 0), START).open(&mut live);
    assert_eq!(marks(&live, START + 15 * SECOND), [Mark::Running]);
    let rows = live.rows(START + 17 * SECOND);
    assert_eq!(rows[0].mark, Mark::Unknown);
    assert_eq!(rows[0].explanation, "no heartbeat for 16 s, last in dispatch, server driver");
    live.tick(START + 60 * SECOND);
    assert_eq!(live.len(), 1);
    live.tick(START + 61 * SECOND);
    assert!(live.is_empty());
    assert_eq!((live.counts().expired, live.groups.values().next().unwrap().running), (1, 0));
}

#[test]
fn a_process_is_dead_when_its_spans_were_cut_off_or_when_it_alone_is_silent() {
    let (driver, agent, resources) = (driver(), agent(), resources());
    let mut live = InFlight::new(Settings::default());
    let cut = attempt(&driver, 1, (0, 0), START);
    let cut_run = inner(&cut, &agent, RUN_REQUEST, 2, START + SECOND);
    let silent = attempt(&driver, 2, (0, 1), START);
    let silent_verify = inner(&silent, &resources, "POST /verify", 2, START + SECOND);
    let fine = attempt(&driver, 3, (0, 2), START);
    for work in [&cut, &cut_run, &silent, &silent_verify, &fine] {
        work.open(&mut live);
    }
    cut_run.end_with(&mut live, START + 2 * SECOND, StatusCode::Unset, &[(TRUNCATED, 1)]);
    for beat in 1..5 {
        for work in [&cut, &silent, &fine] {
            work.beat(&mut live, START + beat * 5 * SECOND);
        }
    }
    let at = START + 20 * SECOND;
    assert_eq!(marks(&live, at), [Mark::Dead, Mark::Dead, Mark::Running]);
    let rows = live.rows(at);
    assert_eq!(rows[0].explanation, "dead in agent, server weather_agent: it ended 18 s ago");
    assert_eq!(rows[0].last_event.what, Happened::CutOff);
    assert_eq!(rows[1].explanation, "dead in verify, server weather: it is silent for 18 s");
    // When nobody is heard, that says nothing of a process.
    let at = START + 40 * SECOND;
    assert_eq!(marks(&live, at), [Mark::Dead, Mark::Unknown, Mark::Unknown]);
    // Somebody goes on with the rollout that was cut off.
    inner(&cut, &agent, RUN_REQUEST, 9, at).open(&mut live);
    assert_eq!(marks(&live, at + SECOND)[0], Mark::Running);
    // The driver itself is gone: nobody goes on.
    cut.end_with(&mut live, at + SECOND, StatusCode::Unset, &[(TRUNCATED, 1)]);
    inner(&cut, &agent, "POST /v1/responses", 10, at + SECOND).open(&mut live);
    assert_eq!(marks(&live, at + 2 * SECOND)[0], Mark::Dead);
}

#[test]
fn a_record_that_comes_after_the_end_of_its_span_brings_nothing_back() {
    let (driver, agent) = (driver(), agent());
    let mut live = InFlight::new(Settings::default());
    let root = attempt(&driver, 1, (0, 0), START);
    let run = inner(&root, &agent, RUN_REQUEST, 2, START);
    root.open(&mut live);
    root.end(&mut live, START + SECOND);
    root.beat(&mut live, START + 2 * SECOND);
    // Its own end is still on its way, that of the rollout is known.
    run.open(&mut live);
    assert!(live.is_empty());
    // A short one whose end overtook its begin.
    let short = attempt(&driver, 2, (0, 1), START);
    short.end(&mut live, START + SECOND);
    short.open(&mut live);
    assert!(live.is_empty());
}

#[test]
fn rows_keep_their_places_when_more_becomes_known() {
    let (driver, agent) = (driver(), agent());
    let mut live = InFlight::new(Settings::default());
    let roots: Vec<_> = (0..20_i64)
        .map(|index| {
            let start = START + u64::try_from(index % 5).unwrap() * SECOND;
            attempt(&driver, 1 + u128::try_from(index).unwrap(), (0, index), start)
        })
        .collect();
    let runs: Vec<_> = roots
        .iter()
        .map(|root| inner(root, &agent, RUN_REQUEST, 2, root.start + 10 * SECOND))
        .collect();
    // The inner spans are known first, in some order.
    for at in [3, 17, 0, 9, 1, 19, 4, 12, 2, 5, 6, 7, 8, 10, 11, 13, 14, 15, 16, 18] {
        runs[at].open(&mut live);
    }
    let order = |live: &InFlight| -> Vec<String> {
        live.rows(START + 20 * SECOND).into_iter().map(|row| row.rollout_id).collect()
    };
    let first = order(&live);
    for root in roots.iter().rev() {
        root.open(&mut live);
        assert_eq!(order(&live), first);
    }
    runs[7].end(&mut live, START + 30 * SECOND);
    roots[7].end(&mut live, START + 30 * SECOND);
    let without: Vec<_> = first.into_iter().filter(|id| id != "0-7").collect();
    assert_eq!(order(&live), without);
}

#[test]
fn ages_do_not_depend_on_clocks_that_agree() {
    let mut driver = driver();
    driver.ahead_nanos = -3_600 * SECOND as i64;
    let mut agent = agent();
    agent.ahead_nanos = 7_200 * SECOND as i64;
    let mut live = InFlight::new(Settings::default());
    let root = attempt(&driver, 1, (0, 0), START);
    let run = inner(&root, &agent, RUN_REQUEST, 2, START + SECOND);
    let responses = inner(&root, &agent, "POST /v1/responses", 3, START + 2 * SECOND);
    for work in [&root, &run, &responses] {
        work.open(&mut live);
    }
    responses.end(&mut live, START + 4 * SECOND);
    root.beat(&mut live, START + 5 * SECOND);
    run.beat(&mut live, START + 5 * SECOND);
    let rows = live.rows(START + 6 * SECOND);
    assert_eq!(rows[0].age_nanos, 6 * SECOND);
    assert_eq!(rows[0].stage.as_ref().unwrap().open_nanos, 5 * SECOND);
    let last = rows[0].last_event.to_string();
    assert_eq!(last, "POST /v1/responses ended in weather_agent, 2 s ago");
}

#[test]
fn retries_failures_and_warnings_are_what_happened_last() {
    let (driver, agent) = (driver(), agent());
    let mut live = InFlight::new(Settings::default());
    let root = attempt(&driver, 1, (0, 0), START);
    root.open(&mut live);
    let call = inner(&root, &agent, "POST", 5, START + SECOND);
    let resent = [(semconv::HTTP_REQUEST_RESEND_COUNT, 4)];
    call.end_with(&mut live, START + 3 * SECOND, StatusCode::Error, &resent);
    let row = live.rows(START + 4 * SECOND).remove(0);
    assert_eq!((row.retries, row.last_event.what), (4, Happened::Failed));
    let notice = LogParts {
        time_nanos: START + 5 * SECOND,
        body: "policy_model answers 503: again in 2 s",
        span: Some((1_u128.to_be_bytes(), 5_u64.to_be_bytes())),
        event_name: semconv::event::NOTICE,
        ..LogParts::default()
    };
    let mut record = Vec::new();
    notice.put(&mut record);
    live.logs(&agent.request(&[record]), START + 5 * SECOND).unwrap();
    let row = live.rows(START + 6 * SECOND).remove(0);
    assert_eq!(
        row.last_event.to_string(),
        "policy_model answers 503: again in 2 s warned in weather_agent, 1 s ago"
    );
    // A warning is no step: the rollout may stall while it is being repeated.
    assert_eq!(row.moved_ago_nanos, 3 * SECOND);
}

/// A CLIENT span of `above`, `resent` times by now and again in `wait` nanoseconds.
fn retry(above: &Work<'_>, id: u64, resent: i64, wait: u64, at: u64) -> Vec<u8> {
    let mut attributes = above.attributes(LOG_ATTRIBUTES);
    let wait = i64::try_from(wait).unwrap();
    for (key, value) in
        [(semconv::HTTP_REQUEST_RESEND_COUNT, resent), (semconv::HTTP_BACKOFF_NANOS, wait)]
    {
        put_key_value(&mut attributes, LOG_ATTRIBUTES, key, &value);
    }
    let parts = LogParts {
        time_nanos: above.sender.clock(at),
        observed_nanos: above.sender.clock(at),
        body: "request to models.example (status 429)",
        attributes: &attributes,
        span: Some((above.trace.to_be_bytes(), id.to_be_bytes())),
        event_name: semconv::event::RETRY,
        ..LogParts::default()
    };
    let mut record = Vec::new();
    parts.put(&mut record);
    above.sender.request(&[record])
}

/// Guarantees: a request that is being repeated is counted and named while it is, once, in whatever order records and
/// spans come, and its rollout is not taken for one that stands still.
#[test]
fn a_request_that_is_being_repeated_is_seen_while_it_is() {
    let (driver, agent) = (driver(), agent());
    let mut live = InFlight::new(Settings::default());
    let root = attempt(&driver, 1, (0, 0), START);
    let run = inner(&root, &agent, semconv::span::AGENT_RESPONSES, 2, START + SECOND);
    root.open(&mut live);
    run.open(&mut live);
    for (resent, at) in [(1, 2), (2, 3), (2, 3)] {
        let request = retry(&run, 7, resent, 120 * SECOND, START + at * SECOND);
        live.logs(&request, START + at * SECOND).unwrap();
    }
    let row = live.rows(START + 4 * SECOND).remove(0);
    assert_eq!((row.retries, row.mark), (2, Mark::Retrying));
    let agent_told = "in agent, server weather_agent: request to models.example (status 429)";
    assert_eq!(row.explanation, agent_told);
    assert_eq!(
        row.last_event.to_string(),
        "request to models.example (status 429) is retried in weather_agent, 1 s ago"
    );
    // It waits as long as it was asked to; a minute after that it is late.
    for (at, mark) in [(120, Mark::Retrying), (182, Mark::Retrying), (184, Mark::Stalled)] {
        root.beat(&mut live, START + at * SECOND);
        run.beat(&mut live, START + at * SECOND);
        assert_eq!(marks(&live, START + at * SECOND), [mark], "{at}");
    }
    // Its span says the same, and what comes behind it brings nothing back.
    let request = inner(&root, &agent, "POST", 7, START + 2 * SECOND);
    let resent = [(semconv::HTTP_REQUEST_RESEND_COUNT, 3)];
    request.end_with(&mut live, START + 185 * SECOND, StatusCode::Unset, &resent);
    live.logs(&retry(&run, 7, 3, SECOND, START + 184 * SECOND), START + 186 * SECOND).unwrap();
    let row = live.rows(START + 186 * SECOND).remove(0);
    assert_eq!((row.retries, row.mark), (3, Mark::Running));
    // Nor does the span itself, when it arrives again.
    request.end_with(&mut live, START + 186 * SECOND, StatusCode::Unset, &resent);
    assert_eq!(live.rows(START + 186 * SECOND)[0].retries, 3);
    // Another request is another one. It is given up while it waits, and was not sent again.
    let told = |resent, at| retry(&run, 8, resent, u64::MAX / 4, START + at * SECOND);
    live.logs(&told(1, 187), START + 187 * SECOND).unwrap();
    let row = live.rows(START + 187 * SECOND).remove(0);
    assert_eq!((row.retries, row.mark), (4, Mark::Retrying));
    let request = inner(&root, &agent, "POST", 8, START + 186 * SECOND);
    let cancelled = [(semconv::CANCELLED, 1)];
    request.end_with(&mut live, START + 188 * SECOND, StatusCode::Unset, &cancelled);
    live.logs(&told(1, 187), START + 188 * SECOND).unwrap();
    let row = live.rows(START + 188 * SECOND).remove(0);
    assert_eq!((row.retries, row.mark), (3, Mark::Running));
    // More requests at once than are kept apart: those that find no room are counted as such, and by their spans.
    for resent in 1..=2 {
        for other in 100..200 {
            let request = retry(&run, other, resent, SECOND, START + 189 * SECOND);
            live.logs(&request, START + 189 * SECOND).unwrap();
        }
    }
    assert_eq!((live.rows(START + 189 * SECOND)[0].retries, live.counts().refused), (131, 72));
    for other in 100..200 {
        let request = inner(&root, &agent, "POST", other, START + 189 * SECOND);
        let resent = [(semconv::HTTP_REQUEST_RESEND_COUNT, 2)];
        request.end_with(&mut live, START + 190 * SECOND, StatusCode::Unset, &resent);
    }
    assert_eq!(live.rows(START + 190 * SECOND)[0].retries, 203);
    // Of a rollout that is not known nothing begins.
    let unknown = attempt(&driver, 2, (0, 1), START);
    live.logs(&retry(&unknown, 9, 1, SECOND, START + SECOND), START + SECOND).unwrap();
    assert_eq!(live.len(), 1);
    // Nor is it another rollout's of the same trace.
    let other = Work { rollout: Some((5, 5)), ..run.clone() };
    live.logs(&retry(&other, 9, 1, SECOND, START + 191 * SECOND), START + 191 * SECOND).unwrap();
    let row = live.rows(START + 191 * SECOND).remove(0);
    assert_eq!((row.retries, row.mark), (203, Mark::Running));
}

#[test]
fn the_stage_that_a_process_names_is_shown_where_the_span_itself_is_not_known() {
    let agent = agent();
    let mut live = InFlight::new(Settings::default());
    let rollout = Some((0, 0));
    let name = semconv::span::ROLLOUT;
    let root = Work { sender: &agent, name, trace: 1, id: 1, parent: 9, rollout, start: START };
    let at = START + 5 * SECOND;
    let record = root.record(live::HEARTBEAT_EVENT, at, Some(semconv::span::AGENT_RESPONSES));
    live.logs(&agent.request(&[record]), at).unwrap();
    assert_eq!(live.rows(at)[0].stage.as_ref().unwrap().span, semconv::span::AGENT_RESPONSES);
}

/// Guarantees: the number of things held does not depend on how many rollouts there were, ends lost or not.
#[test]
fn memory_is_flat_however_many_rollouts_there_were_and_what_finds_no_room_comes_in_later() {
    let settings = Settings { max_rollouts: 1000, max_processes: 50, ..Settings::default() };
    let mut live = InFlight::new(settings);
    let driver = driver();
    let process = live.processes.heard(Attributes::new(&driver.resource, 1), START);
    let told = |number: u64, at: u64| Alive {
        trace_id: TraceId::from_bytes(&u128::from(number + 1).to_be_bytes()).unwrap(),
        span_id: crate::ids::SpanId::from_bytes(&1_u64.to_be_bytes()).unwrap(),
        parent_id: None,
        name: semconv::span::ROLLOUT_ATTEMPT,
        group: "rollout",
        age_nanos: 0,
        said_nanos: at,
        stage: None,
        ids: Ids { task: Some(number as i64 / 4), index: Some(0), ..Ids::default() },
    };
    let mut any = Vec::new();
    let ids = ([1; 16], [1; 8]);
    SpanParts { trace_id: ids.0, span_id: ids.1, ..SpanParts::default() }.put(&mut any);
    let any_span = raw::decode(&driver.request(&[any]).into(), 0).unwrap().spans.remove(0);
    let mut most = BTreeMap::new();
    // A million takes half a minute unoptimised.
    let rollouts = if cfg!(debug_assertions) { 200_000_u64 } else { 1_000_000 };
    for number in 0..rollouts {
        let at = START + number * SECOND / 100;
        let id = format!("{number}-0");
        let alive = told(number, at);
        let alive = Alive { ids: Ids { rollout: Some(&id), ..alive.ids }, ..alive };
        live.told(&Told::Alive(alive), process, at);
        if number % 100 == 0 {
            // A process that is soon gone, with a name of its own and a rollout that never ends.
            let name = format!("server {number}");
            let one = Sender::new(&name, "resources_servers", number as i64);
            let process = live.processes.heard(Attributes::new(&one.resource, 1), at);
            let lost = Alive { trace_id: told(u64::MAX - number - 1, at).trace_id, ..alive };
            live.told(&Told::Alive(lost), process, at);
        }
        let (trace_id, span_id) = (alive.trace_id, alive.span_id);
        let span = RawSpan { trace_id, span_id, start_nanos: at, ..any_span.clone() };
        // One in fifty ends is lost.
        if number % 50 != 0 {
            let ended = Ended { ids: alive.ids, ..Ended::default() };
            live.recent.insert((span.trace_id, span.span_id));
            live.end(&span, (alive.name, at), &ended, (process, at));
        }
        if number % 1000 == 0 {
            live.tick(at);
            let held = [
                ("rollouts", live.len()),
                ("traces", live.traces.len()),
                ("processes", live.processes.len()),
                ("groups", live.groups.len()),
                ("ends", live.recent.len()),
                ("names", live.names.len()),
            ];
            for (what, held) in held {
                let most = most.entry(what).or_insert(0);
                *most = held.max(*most);
            }
        }
    }
    assert!(most["rollouts"] <= 1000 && most["traces"] <= 1000, "{most:?}");
    assert!(most["processes"] <= 50 && most["groups"] <= 2001, "{most:?}");
    assert!(most["ends"] <= MAX_RECENT && most["names"] <= 4096, "{most:?}");
    let counts = live.counts();
    assert!(counts.ended > rollouts / 10 * 9 && counts.expired > rollouts / 100, "{counts:?}");
    assert_eq!(counts.begun, counts.ended + counts.expired + live.len() as u64);

    // Full: the next is refused, and comes in with a heartbeat once there is room.
    let mut live = InFlight::new(Settings { max_rollouts: 1, ..Settings::default() });
    let (first, second) = (attempt(&driver, 1, (0, 0), START), attempt(&driver, 2, (0, 1), START));
    first.open(&mut live);
    second.open(&mut live);
    assert_eq!((live.len(), live.counts().refused), (1, 1));
    first.end(&mut live, START + SECOND);
    second.beat(&mut live, START + 5 * SECOND);
    assert_eq!(live.rows(START + 5 * SECOND)[0].rollout_id, "0-1");
}

#[test]
fn many_rollouts_of_one_foreign_trace_are_rows_of_their_own() {
    let agent = agent();
    let mut live = InFlight::new(Settings::default());
    let name = RUN_REQUEST;
    let work = |index: u64| Work {
        sender: &agent,
        name,
        trace: 1,
        id: index + 1,
        parent: 5000,
        rollout: Some((0, index as i64)),
        start: START,
    };
    (0..256).for_each(|index| work(index).open(&mut live));
    assert_eq!(live.len(), 256);
    // The last one is alone, and another's end comes again.
    (0..255).chain([7]).for_each(|index| work(index).end(&mut live, START + SECOND));
    let rows = live.rows(START + 2 * SECOND);
    assert_eq!((rows.len(), rows[0].rollout_id.as_str()), (1, "0-255"));
}

proptest! {
    #[test]
    fn no_bytes_break_it(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut live = InFlight::new(Settings::default());
        let _ = live.logs(&bytes, START);
        let driver = driver();
        let root = attempt(&driver, 1, (0, 0), START);
        let record = root.record(live::HEARTBEAT_EVENT, START + SECOND, Some("x"));
        let mut request = driver.request(&[record]);
        let at = place.index(request.len());
        request[at] = value;
        let _ = live.logs(&request, START);
        live.tick(u64::MAX);
        live.rows(0);
    }
}
