//! Which band the spans of a rollout belong to: what `lens_store` needs to know of each, read from its name, process
//! and attributes.

use gym_telemetry::semconv;
use lens_otlp::encode::{EVENT_ATTRIBUTES, SPAN_ATTRIBUTES, SPAN_EVENTS};
use lens_otlp::view::{AnyValue, key_value};

use super::foreign;
use super::reader::Said;
use super::resource::role::{AGENT, MODEL, RESOURCES};
use super::rollout::{Rollout, Traces};
use super::scan::{self, Content, Scan};
use super::span::{Kind, Span};
use super::tree::Node;
use crate::{Band, Make, Partition, Piece, Timings, Wait, partition};

/// The wall clock of a rollout as bands. Pieces are the nodes from the rollout's root on.
pub fn bands_of(traces: &Traces, trace: usize, rollout: &Rollout) -> Partition {
    let nodes = &traces.traces[trace].tree.nodes;
    let first = rollout.node;
    let pieces: Vec<Piece> = nodes[first..nodes[first].end]
        .iter()
        .map(|node| piece(&traces.spans[node.span], node, first))
        .collect();
    partition(&pieces)
}

fn piece(span: &Span, node: &Node, first: usize) -> Piece {
    let make = make(span);
    Piece {
        parent: node.parent.map_or(0, |parent| parent.saturating_sub(first)),
        start_nanos: node.start_nanos,
        end_nanos: node.end_nanos,
        span_id: span.raw.span_id.number(),
        make,
        is_server: span.kind == Kind::Server,
        waits: waits(span, node, make),
        timings: span.said.has(Said::TIMINGS).then(|| timings(span)).flatten(),
    }
}

fn make(span: &Span) -> Make {
    use semconv::span as name;
    let of_process = |of_resources| match span.resource.role {
        Some(AGENT) => Make::Known(Band::Agent),
        Some(MODEL) => Make::Known(Band::Model),
        Some(RESOURCES) => Make::Known(of_resources),
        _ => Make::Unknown,
    };
    let name = &*span.name;
    if name.starts_with(name::GYM_PREFIX) {
        return match name {
            name::ROLLOUT_ATTEMPT => Make::Attempt,
            name::VERIFY => Make::Known(Band::Verify),
            name::ROLLOUT | name::AGENT_RESPONSES => Make::Known(Band::Agent),
            other if other.starts_with(name::SANDBOX_PREFIX) => Make::Known(Band::Sandbox),
            other if other.starts_with(name::MODEL_PREFIX) => Make::Known(Band::Model),
            _ => of_process(Band::Tool),
        };
    }
    match span.kind {
        Kind::Client => {
            let to_model = span.resource.role == Some(MODEL) || span.said.has(Said::TO_MODEL);
            Make::Client { to_model }
        }
        Kind::Server if has_last_segment(name, "verify") => of_process(Band::Verify),
        Kind::Server if has_last_segment(name, "seed_session") => of_process(Band::Setup),
        Kind::Server => of_process(Band::Tool),
        _ => Make::Unknown,
    }
}

/// Whether this is what follows the last slash of a path.
fn has_last_segment(path: &str, segment: &str) -> bool {
    path.strip_suffix(segment).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

fn waits(span: &Span, node: &Node, make: Make) -> Vec<Wait> {
    match make {
        Make::Attempt => {
            let waited = span.count(semconv::ADMISSION_WAIT_NANOS).unwrap_or(0);
            let to_nanos = node.start_nanos.saturating_add(waited);
            vec![Wait { from_nanos: node.start_nanos, to_nanos, band: Band::Admission }]
        }
        Make::Client { .. } => {
            let mut waits = Vec::new();
            let Some(first) = span.first_event else { return waits };
            for event in scan::fields(&span.raw.message[first as usize..], SPAN_EVENTS) {
                put_waits(event, node.shift_nanos, &mut waits);
            }
            waits
        }
        _ => Vec::new(),
    }
}

/// What an attempt waited before it began, and for its connection; nothing for events of another make.
fn put_waits(event: &[u8], shift_nanos: i64, waits: &mut Vec<Wait>) {
    let (mut begun, mut name, mut backoff, mut pool): (u64, &[u8], _, _) = (0, &[], 0, 0);
    let mut scan = Scan(event);
    while let Ok(Some(field)) = scan.next_likely(EVENT_ATTRIBUTES) {
        match field {
            (1, Content::Fixed(nanos)) => begun = nanos,
            (2, Content::Bytes(bytes)) => name = bytes,
            (3, Content::Bytes(pair)) => {
                let place = match scan::key(pair) {
                    key if key == semconv::HTTP_BACKOFF_NANOS.as_bytes() => &mut backoff,
                    key if key == semconv::HTTP_POOL_WAIT_NANOS.as_bytes() => &mut pool,
                    _ => continue,
                };
                *place = scan::count(pair).unwrap_or(0);
            }
            _ => {}
        }
    }
    if name != semconv::event::HTTP_ATTEMPT.as_bytes() || begun == 0 {
        return;
    }
    let begun = begun.saturating_add_signed(shift_nanos);
    let mut put = |from_nanos: u64, to_nanos: u64, band| {
        if from_nanos < to_nanos {
            waits.push(Wait { from_nanos, to_nanos, band });
        }
    };
    put(begun.saturating_sub(backoff), begun, Band::Retry);
    put(begun, begun.saturating_add(pool), Band::Pool);
}

/// Queue, prefill and decode, as a model server tells them in nanoseconds and an engine that traces in seconds.
const STAGES: [(&str, &str); 3] = [
    (semconv::MODEL_QUEUE_NANOS, semconv::GEN_AI_LATENCY_TIME_IN_QUEUE),
    (semconv::MODEL_PREFILL_NANOS, semconv::GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL),
    (semconv::MODEL_DECODE_NANOS, semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE),
];

/// Field number of `Span.attributes`.
const ATTRIBUTES: u64 = SPAN_ATTRIBUTES as u64;

/// What the engine told a model server, or what an engine that traces says of itself.
fn timings(span: &Span) -> Option<Timings> {
    let (mut ours, mut engines) = ([None; 3], [None; 3]);
    let mut scan = Scan(&span.raw.message);
    while let Ok(Some((number, content))) = scan.next_likely(SPAN_ATTRIBUTES) {
        let (ATTRIBUTES, Content::Bytes(pair)) = (number, content) else { continue };
        let key = scan::key(pair);
        for (stage, (in_nanos, in_seconds)) in STAGES.iter().enumerate() {
            if key == in_nanos.as_bytes() {
                ours[stage] = scan::count(pair);
            } else if key == in_seconds.as_bytes() {
                engines[stage] = key_value(pair).ok().and_then(|(_, value)| seconds(&value?));
            }
        }
    }
    let [queue, prefill, decode] = [0, 1, 2].map(|at: usize| ours[at].or(engines[at]));
    (queue.is_some() || prefill.is_some() || decode.is_some()).then(|| Timings {
        queue_nanos: queue.unwrap_or(0),
        prefill_nanos: prefill.unwrap_or(0),
        decode_nanos: decode.unwrap_or(0),
    })
}

/// Seconds as nanoseconds.
fn seconds(value: &AnyValue<'_>) -> Option<u64> {
    let seconds = match value {
        AnyValue::Double(seconds) => *seconds,
        AnyValue::Int(seconds) => *seconds as f64,
        _ => return None,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    (0.0..1e9).contains(&seconds).then_some((seconds * 1e9) as u64)
}

/// Where a rollout spent most of a band: what ran there and in which server, or who was called.
pub fn place_of(traces: &Traces, trace: usize, rollout: &Rollout, band: Band) -> Option<String> {
    let mut nanos: Vec<(String, u64)> = Vec::new();
    for segment in bands_of(traces, trace, rollout).segments {
        if segment.band != band {
            continue;
        }
        let span = traces.span(trace, rollout.node + segment.piece);
        let place = if span.kind == Kind::Client {
            called(span)
        } else {
            format!("{} in {}", span.name, span.resource.instance)
        };
        match nanos.iter_mut().find(|(known, _)| *known == place) {
            Some((_, sum)) => *sum += segment.nanos(),
            None => nanos.push((place, segment.nanos())),
        }
    }
    nanos.into_iter().max_by_key(|(_, nanos)| *nanos).map(|(place, _)| place)
}

/// Where the requests went that nobody answered for, as `HTTP POST → host`.
pub fn unanswered(traces: &Traces, trace: usize, rollout: &Rollout, piece: usize) -> String {
    called(traces.span(trace, rollout.node + piece))
}

fn called(span: &Span) -> String {
    let destination = [
        semconv::HTTP_DESTINATION_SERVER_NAME,
        semconv::SERVER_ADDRESS,
        foreign::LEGACY_HTTP_TARGET,
    ]
    .iter()
    .find_map(|key| span.text(key));
    format!("{} → {}", span.name, destination.unwrap_or("?"))
}
