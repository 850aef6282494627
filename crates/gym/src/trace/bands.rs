//! Which band the spans of a rollout belong to: what `lens_store` needs to know of each, read from its name, process
//! and attributes.

use gym_telemetry::semconv;
use lens_store::{Band, Make, Partition, Piece, Timings, Wait, partition};
use serde_json::{Map, Value};

use super::foreign;
use super::rollout::{Rollout, Traces};
use super::span::role::{AGENT, MODEL, RESOURCES};
use super::span::{Kind, Span};
use super::timestamp;
use super::tree::Node;

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
    // Only these say more than their name.
    let has_more = span.kind == Kind::Client
        || span.attributes.contains(semconv::MODEL_DECODE_NANOS)
        || span.attributes.contains(semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE)
        || &*span.name == semconv::span::ROLLOUT_ATTEMPT;
    let attributes = if has_more { span.attributes() } else { Map::new() };
    let make = make(span, &attributes);
    Piece {
        parent: node.parent.map_or(0, |parent| parent.saturating_sub(first)),
        start_nanos: node.start_nanos,
        end_nanos: node.end_nanos,
        span_id: span.span_id.number(),
        make,
        is_server: span.kind == Kind::Server,
        waits: waits(span, node, make, &attributes),
        timings: timings(&attributes),
    }
}

fn make(span: &Span, attributes: &Map<String, Value>) -> Make {
    use semconv::span as name;
    let of_process = |of_resources| match span.resource.role {
        Some(AGENT) => Make::Known(Band::Agent),
        Some(MODEL) => Make::Known(Band::Model),
        Some(RESOURCES) => Make::Known(of_resources),
        _ => Make::Unknown,
    };
    match (&*span.name, span.kind) {
        (name::ROLLOUT_ATTEMPT, _) => Make::Attempt,
        (name::VERIFY, _) => Make::Known(Band::Verify),
        (name::ROLLOUT | name::AGENT_RESPONSES, _) => Make::Known(Band::Agent),
        (other, _) if other.starts_with(name::SANDBOX_PREFIX) => Make::Known(Band::Sandbox),
        (other, _) if other.starts_with(name::MODEL_PREFIX) => Make::Known(Band::Model),
        (other, _) if other.starts_with(name::GYM_PREFIX) => of_process(Band::Tool),
        (_, Kind::Client) => {
            let kind = attributes.get(semconv::HTTP_DESTINATION_KIND).and_then(Value::as_str);
            let to_model = span.resource.role == Some(MODEL)
                || kind == Some(semconv::value::destination::MODEL);
            Make::Client { to_model }
        }
        (served, Kind::Server) => of_process(match served.rsplit('/').next() {
            Some("verify") => Band::Verify,
            Some("seed_session") => Band::Setup,
            _ => Band::Tool,
        }),
        _ => Make::Unknown,
    }
}

fn waits(span: &Span, node: &Node, make: Make, attributes: &Map<String, Value>) -> Vec<Wait> {
    let number = |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_u64);
    match make {
        Make::Attempt => {
            let waited = number(attributes, semconv::ADMISSION_WAIT_NANOS).unwrap_or(0);
            let to_nanos = node.start_nanos.saturating_add(waited);
            vec![Wait { from_nanos: node.start_nanos, to_nanos, band: Band::Admission }]
        }
        Make::Client { .. } if span.events.contains(semconv::event::HTTP_ATTEMPT) => {
            let events = span.events();
            let attempts = events.iter().filter(|event| {
                event.get("name").is_some_and(|name| name == semconv::event::HTTP_ATTEMPT)
            });
            let waits = attempts.filter_map(|event| {
                let begun = timestamp::parse(event.get("timestamp")?.as_str()?)?;
                let begun = begun.saturating_add_signed(node.shift_nanos);
                let said = event.get("attributes")?.as_object()?;
                let backoff = number(said, semconv::HTTP_BACKOFF_NANOS).unwrap_or(0);
                let pool = number(said, semconv::HTTP_POOL_WAIT_NANOS).unwrap_or(0);
                Some([
                    Wait {
                        from_nanos: begun.saturating_sub(backoff),
                        to_nanos: begun,
                        band: Band::Retry,
                    },
                    Wait {
                        from_nanos: begun,
                        to_nanos: begun.saturating_add(pool),
                        band: Band::Pool,
                    },
                ])
            });
            waits.flatten().collect()
        }
        _ => Vec::new(),
    }
}

/// What the engine told a model server, or what an engine that traces says of itself in seconds.
fn timings(attributes: &Map<String, Value>) -> Option<Timings> {
    let nanos = |key: &str| attributes.get(key).and_then(Value::as_u64);
    let seconds = |key: &str| {
        let seconds =
            attributes.get(key)?.as_f64().filter(|seconds| (0.0..1e9).contains(seconds))?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in range"
        )]
        Some((seconds * 1e9) as u64)
    };
    let stage = |ours: &str, engines: &str| nanos(ours).or_else(|| seconds(engines));
    let queue = stage(semconv::MODEL_QUEUE_NANOS, semconv::GEN_AI_LATENCY_TIME_IN_QUEUE);
    let prefill =
        stage(semconv::MODEL_PREFILL_NANOS, semconv::GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL);
    let decode = stage(semconv::MODEL_DECODE_NANOS, semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE);
    (queue.is_some() || prefill.is_some() || decode.is_some()).then(|| Timings {
        queue_nanos: queue.unwrap_or(0),
        prefill_nanos: prefill.unwrap_or(0),
        decode_nanos: decode.unwrap_or(0),
    })
}

/// Where the requests went that nobody answered for, as `HTTP POST → host`.
pub fn unanswered(traces: &Traces, trace: usize, rollout: &Rollout, piece: usize) -> String {
    let span = traces.span(trace, rollout.node + piece);
    let attributes = span.attributes();
    let destination = [semconv::HTTP_DESTINATION_SERVER_NAME, semconv::SERVER_ADDRESS]
        .iter()
        .find_map(|key| attributes.get(*key)?.as_str().map(str::to_owned))
        .or_else(|| attributes.get(foreign::LEGACY_HTTP_TARGET)?.as_str().map(str::to_owned));
    format!("{} → {}", span.name, destination.as_deref().unwrap_or("?"))
}
