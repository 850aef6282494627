//! Bands of one rollout, computed by hand: with every choice of span groups, with clocks that differ, with an engine.

use gym_telemetry::semconv;

use super::tests::{Sketch, assemble};
use super::*;
use crate::rollouts::rows_of;

const DRIVER: (&str, &str) = ("orchestrator", "orchestrator");
const AGENT: (&str, &str) = ("simple_agent", "responses_api_agents");
const MODEL: (&str, &str) = ("policy_model", "responses_api_models");
const TOOLS: (&str, &str) = ("weather", "resources_servers");

/// What makes a span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Rollout,
    Client,
    Server,
    Agent,
    ModelCall,
    Verify,
}
use Group::*;

const ALL: [Group; 6] = [Rollout, Client, Server, Agent, ModelCall, Verify];

/// The rollout with all groups on: 200 ms, of which it waited 20 for its slot.
fn rollout() -> Vec<(Group, Sketch)> {
    let span = |id, parent, name, from, to, server| Sketch {
        id,
        parent,
        name,
        kind: match name {
            "HTTP POST" => 3,
            name if name.starts_with("POST ") => 2,
            _ => 1,
        },
        from,
        to,
        server,
        ..Sketch::default()
    };
    let engine = vec![
        (semconv::MODEL_QUEUE_NANOS, 10_000_000),
        (semconv::MODEL_PREFILL_NANOS, 20_000_000),
        (semconv::MODEL_DECODE_NANOS, 20_000_000),
    ];
    let waited = vec![(semconv::ADMISSION_WAIT_NANOS, 20_000_000)];
    vec![
        (Rollout, Sketch { numbers: waited, ..span(1, 0, "gym.rollout.attempt", 0, 200, DRIVER) }),
        (Client, span(2, 1, "HTTP POST", 20, 200, DRIVER)),
        (Server, span(3, 2, "POST /run", 21, 199, AGENT)),
        (Rollout, span(4, 3, "gym.rollout", 22, 198, AGENT)),
        (Client, span(5, 4, "HTTP POST", 24, 30, AGENT)),
        (Server, span(6, 5, "POST /seed_session", 25, 29, TOOLS)),
        (Client, span(7, 4, "HTTP POST", 32, 150, AGENT)),
        (Server, span(8, 7, "POST /v1/responses", 33, 149, AGENT)),
        (Agent, span(9, 8, "gym.agent.responses", 34, 148, AGENT)),
        (Client, Sketch { attempts: vec![(36, 0, 2)], ..span(10, 9, "HTTP POST", 36, 100, AGENT) }),
        (Server, span(11, 10, "POST /v1/responses", 38, 99, MODEL)),
        (
            ModelCall,
            Sketch { numbers: engine, ..span(12, 11, "gym.model.responses", 39, 98, MODEL) },
        ),
        (Client, span(13, 12, "HTTP POST", 40, 97, MODEL)),
        (Client, span(14, 9, "HTTP POST", 104, 144, AGENT)),
        (Server, span(15, 14, "POST /get_weather", 105, 143, TOOLS)),
        (Client, span(16, 4, "HTTP POST", 152, 190, AGENT)),
        (Server, span(17, 16, "POST /verify", 153, 189, TOOLS)),
        (Verify, span(18, 17, "gym.verify", 154, 188, TOOLS)),
    ]
}

/// With these groups on: what is left hangs below the nearest span that is there, as context does.
fn with(groups: &[Group]) -> Vec<Sketch> {
    let all = rollout();
    let is_on = |id: u64| groups.contains(&all[id as usize - 1].0);
    let mut left: Vec<Sketch> = Vec::new();
    for (group, sketch) in &all {
        if groups.contains(group) {
            let mut parent = sketch.parent;
            while parent != 0 && !is_on(parent) {
                parent = all[parent as usize - 1].1.parent;
            }
            left.push(Sketch { parent, ..sketch.clone() });
        }
    }
    left
}

/// Milliseconds of each band.
fn bands(sketches: &[Sketch]) -> Vec<(&'static str, u64)> {
    let rows = rows_of(&assemble(sketches), None);
    let [row] = rows.as_slice() else { panic!("one rollout: {rows:?}") };
    assert_eq!(row.bands.total_nanos(), row.wall_nanos);
    let bands = row.bands.iter().filter(|(_, nanos)| *nanos > 0);
    bands.map(|(band, nanos)| (band.name(), nanos / 1_000_000)).collect()
}

#[test]
fn with_all_groups_every_band_is_there() {
    let expected = [
        ("admission", 20),
        ("setup", 4),
        ("pool", 2),
        ("network", 11),
        ("queue", 10),
        ("prefill", 20),
        ("decode", 20),
        ("model", 11),
        ("tool", 38),
        ("verify", 36),
        ("agent", 28),
    ];
    // The preset `per_rollout` leaves out nothing that this rollout has.
    assert_eq!(bands(&with(&ALL)), expected);
}

#[test]
fn with_the_preset_default_model_calls_are_not_split() {
    let expected = [
        ("admission", 20),
        ("setup", 4),
        ("pool", 2),
        ("network", 11),
        ("model", 61),
        ("tool", 38),
        ("verify", 36),
        ("agent", 28),
    ];
    assert_eq!(bands(&with(&[Rollout, Client, Server])), expected);
}

#[test]
fn without_requests_the_way_between_processes_is_time_of_the_caller() {
    let expected = [
        ("admission", 21),
        ("setup", 4),
        ("queue", 10),
        ("prefill", 20),
        ("decode", 20),
        ("model", 11),
        ("tool", 38),
        ("verify", 36),
        ("agent", 39),
        ("other", 1),
    ];
    assert_eq!(bands(&with(&[Rollout, Server, Agent, ModelCall, Verify])), expected);
}

#[test]
fn without_servers_requests_that_nobody_answers_for_are_other() {
    let expected = [
        ("admission", 20),
        ("pool", 2),
        ("queue", 10),
        ("prefill", 20),
        ("decode", 20),
        ("model", 9),
        ("verify", 34),
        ("agent", 24),
        ("other", 61),
    ];
    assert_eq!(bands(&with(&[Rollout, Client, Agent, ModelCall, Verify])), expected);
}

#[test]
fn with_rollouts_alone_all_is_the_agents() {
    assert_eq!(bands(&with(&[Rollout])), [("admission", 22), ("agent", 176), ("other", 2)]);
    let expected = [("admission", 22), ("verify", 34), ("agent", 142), ("other", 2)];
    assert_eq!(bands(&with(&[Rollout, Verify])), expected);
}

/// The agent's clock is five seconds ahead: its spans are moved by as little as puts the served request into the one that
/// was made, so a millisecond that was on the way back is now on the way there. What other servers did below moves with it,
/// and back to the begin of its request: the wait for a connection is no longer to be seen.
#[test]
fn a_clock_that_is_ahead_is_corrected_by_as_little_as_it_takes() {
    let mut sketches = with(&ALL);
    for sketch in sketches.iter_mut().filter(|sketch| sketch.server == AGENT) {
        sketch.from += 5_000;
        sketch.to += 5_000;
        for (at, ..) in &mut sketch.attempts {
            *at += 5_000;
        }
    }
    let expected = [
        ("admission", 20),
        ("setup", 4),
        ("network", 13),
        ("queue", 10),
        ("prefill", 20),
        ("decode", 20),
        ("model", 11),
        ("tool", 38),
        ("verify", 36),
        ("agent", 28),
    ];
    assert_eq!(bands(&sketches), expected);
    assert!(rows_of(&assemble(&sketches), None)[0].clock_corrected);
    assert!(!rows_of(&assemble(&with(&ALL)), None)[0].clock_corrected);
}

/// Guarantees: what runs beside the path, begins after its parent, or is in a sandbox is where the rules say.
#[test]
fn work_beside_the_path_and_after_the_end_has_no_share_and_a_sandbox_has_its_own() {
    let mut sketches = with(&ALL);
    let of_tools = |id, parent, name, from, to| Sketch {
        id,
        parent,
        name,
        from,
        to,
        server: TOOLS,
        ..Sketch::default()
    };
    // Inside of the tool: ten milliseconds in a sandbox, and a copy beside the last four of them.
    sketches.push(of_tools(30, 15, "gym.sandbox.exec", 110, 120));
    sketches.push(of_tools(31, 15, "gym.sandbox.exec", 116, 119));
    // The agent went on after its reply.
    sketches.push(of_tools(32, 4, "gym.sandbox.exec", 300, 400));
    let bands = bands(&sketches);
    assert!(bands.contains(&("sandbox", 10)) && bands.contains(&("tool", 28)), "{bands:?}");
    assert!(bands.contains(&("agent", 28)), "{bands:?}");
}

#[test]
fn a_pause_before_a_retry_is_cut_out_of_its_request() {
    let mut sketches = with(&ALL);
    let call = sketches.iter_mut().find(|sketch| sketch.id == 16).unwrap();
    call.to = 195;
    call.attempts = vec![(152, 0, 0), (194, 4, 1)];
    let bands = bands(&sketches);
    assert!(bands.contains(&("retry", 4)) && bands.contains(&("pool", 3)), "{bands:?}");
}

/// An engine that traces joins the trace of the rollout and says in seconds what it did, as vLLM does.
#[test]
fn queue_prefill_and_decode_of_an_engine_are_where_they_belong_and_sum_to_its_span() {
    let latencies = vec![
        (semconv::GEN_AI_LATENCY_TIME_IN_QUEUE, 0.01),
        (semconv::GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL, 0.02),
        (semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE, 0.07),
    ];
    let span = |id, parent, name, kind, from, to, server| Sketch {
        id,
        parent,
        name,
        kind,
        from,
        to,
        server,
        ..Sketch::default()
    };
    let engine = ("vllm", "");
    let sketches = [
        span(1, 0, "POST /run", 2, 0, 130, AGENT),
        span(2, 1, "gym.rollout", 1, 1, 129, AGENT),
        span(3, 2, "HTTP POST", 3, 4, 124, AGENT),
        span(4, 3, "POST /v1/responses", 2, 5, 123, MODEL),
        span(5, 4, "HTTP POST", 3, 10, 120, MODEL),
        Sketch { doubles: latencies, ..span(6, 5, "llm_request", 2, 14, 114, engine) },
    ];
    let expected = [
        ("network", 12),
        ("queue", 10),
        ("prefill", 20),
        ("decode", 70),
        ("model", 8),
        ("agent", 10),
    ];
    assert_eq!(bands(&sketches), expected);
    let traces = assemble(&sketches);
    let (trace, rollout) = traces.rollouts().next().unwrap();
    let engine: Vec<_> = bands_of(&traces, trace, rollout)
        .segments
        .iter()
        .filter(|segment| segment.piece == 5)
        .map(|segment| (segment.band.name(), segment.nanos() / 1_000_000))
        .collect();
    assert_eq!(engine, [("queue", 10), ("prefill", 20), ("decode", 70)]);
}
