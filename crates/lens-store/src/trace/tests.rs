use std::sync::Arc;

use bytes::Bytes;
use lens_otlp::encode::{
    EVENT_ATTRIBUTES, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, SpanParts, put_event, put_key_value,
};

use gym_telemetry::semconv;

use super::*;
use crate::ids::{SpanId, TraceId};
use crate::raw::{Origin, RawResource, RawSpan};

/// A span to be; times in milliseconds after a fixed second.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    pub(crate) trace: u8,
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) name: &'static str,
    pub(crate) kind: u8,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) server: (&'static str, &'static str),
    pub(crate) texts: Vec<(&'static str, &'static str)>,
    pub(crate) numbers: Vec<(&'static str, i64)>,
    pub(crate) doubles: Vec<(&'static str, f64)>,
    /// Begin, back-off before it, and wait for a connection of each attempt, milliseconds.
    pub(crate) attempts: Vec<(u64, i64, i64)>,
    pub(crate) truncated: bool,
    pub(crate) error: bool,
    pub(crate) seq: u64,
}

pub(crate) const SECOND: u64 = 1_767_323_045_000_000_000;
const MILLI: u64 = 1_000_000;

impl Default for Sketch {
    fn default() -> Self {
        Self {
            trace: 1,
            id: 1,
            parent: 0,
            name: "work",
            kind: 1,
            from: 0,
            to: 100,
            server: ("agent", "responses_api_agents"),
            texts: Vec::new(),
            numbers: Vec::new(),
            doubles: Vec::new(),
            attempts: Vec::new(),
            truncated: false,
            error: false,
            seq: 0,
        }
    }
}

impl Sketch {
    pub(crate) fn raw(&self) -> RawSpan {
        let mut resource = Vec::new();
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, semconv::SERVER_NAME, self.server.0);
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, semconv::SERVER_TYPE, self.server.1);
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, semconv::RUN_ID, "fleet");
        let mut attributes = Vec::new();
        for (key, value) in &self.texts {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, *value);
        }
        for (key, value) in &self.numbers {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, value);
        }
        for (key, value) in &self.doubles {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, value);
        }
        let mut events = Vec::new();
        for (at, backoff, pool) in &self.attempts {
            let at = SECOND + at * MILLI;
            put_event(&mut events, semconv::event::HTTP_ATTEMPT, at, 0, |out| {
                let nanos = |millis: i64| millis * 1_000_000;
                put_key_value(out, EVENT_ATTRIBUTES, semconv::HTTP_BACKOFF_NANOS, &nanos(*backoff));
                put_key_value(out, EVENT_ATTRIBUTES, semconv::HTTP_POOL_WAIT_NANOS, &nanos(*pool));
            });
        }
        if self.truncated {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, lens::semconv::TRUNCATED, &true);
        }
        let span_id = self.id.to_be_bytes();
        let parts = SpanParts {
            trace_id: [self.trace; 16],
            span_id,
            parent_id: (self.parent != 0).then(|| self.parent.to_be_bytes()),
            name: self.name,
            kind: self.kind,
            start_nanos: SECOND + self.from * MILLI,
            end_nanos: SECOND + self.to * MILLI,
            attributes: &attributes,
            events: &events,
            status: if self.error { Status::Error } else { Status::Unset },
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        RawSpan {
            trace_id: TraceId::from_bytes(&[self.trace; 16]).unwrap(),
            span_id: SpanId::from_bytes(&span_id).unwrap(),
            start_nanos: parts.start_nanos,
            message: message.into(),
            origin: Arc::new(Origin {
                resource: Arc::new(RawResource { message: resource.into(), schema_url: "".into() }),
                scope: Bytes::new(),
                schema_url: "".into(),
            }),
            ingest_seq: self.seq,
        }
    }
}

pub(crate) fn assemble(sketches: &[Sketch]) -> Traces {
    let mut reader = Reader::default();
    let spans = sketches.iter().map(|sketch| reader.read(sketch.raw()).unwrap());
    Traces::assemble(spans.collect())
}

/// Names, indented, with marks.
fn shape(traces: &Traces) -> String {
    let mut text = String::new();
    for trace in &traces.traces {
        for node in &trace.tree.nodes {
            let span = &traces.spans[node.span];
            let mark = if span.is_twin { " (twin)" } else { "" };
            text.push_str(&format!("{}{}{mark}\n", "  ".repeat(node.depth), span.name));
        }
    }
    text
}

fn sketch(id: u64, parent: u64, name: &'static str, from: u64, to: u64) -> Sketch {
    Sketch { id, parent, name, from, to, ..Sketch::default() }
}

#[test]
fn copies_count_once_complete_before_cut_off_then_the_later() {
    let whole = Sketch { to: 90, seq: 1, ..Sketch::default() };
    let later = Sketch { to: 95, seq: 2, ..Sketch::default() };
    let cut_off = Sketch { to: 50, seq: 3, truncated: true, ..Sketch::default() };
    for order in
        [[&whole, &later, &cut_off], [&cut_off, &later, &whole], [&later, &cut_off, &whole]]
    {
        let traces = assemble(&order.map(Clone::clone));
        let [span] = traces.spans.as_slice() else { panic!("one span is left") };
        assert_eq!((span.raw.ingest_seq, span.is_twin, span.is_truncated), (2, false, false));
    }
}

#[test]
fn other_spans_of_one_id_are_kept_and_marked() {
    let mut sketches = vec![
        sketch(1, 0, "first", 0, 100),
        sketch(1, 0, "other name", 0, 100),
        sketch(1, 0, "first", 5, 100),
        sketch(2, 1, "below", 10, 20),
        sketch(1, 0, "first", 0, 100),
    ];
    let shapes: Vec<String> = (0..sketches.len())
        .map(|_| {
            sketches.rotate_left(1);
            shape(&assemble(&sketches))
        })
        .collect();
    assert_eq!(shapes[0], "first (twin)\n  below\nother name (twin)\nfirst (twin)\n");
    assert!(shapes.iter().all(|shape| *shape == shapes[0]), "whatever the order of arrival");
}

/// Guarantees: spans are sent when they end; a row moves only when a span above it comes, and then with all below it.
#[test]
fn children_that_come_before_their_parent_keep_their_place() {
    let root = sketch(1, 0, "root", 0, 100);
    let first = sketch(2, 1, "first", 10, 40);
    let second = sketch(3, 1, "second", 50, 90);
    let below = [sketch(4, 2, "a", 11, 20), sketch(5, 2, "b", 21, 39), sketch(6, 3, "c", 55, 80)];
    let mut known: Vec<Sketch> = below.to_vec();
    let traces = assemble(&known);
    assert_eq!(shape(&traces), "  a\n  b\n  c\n");
    let places = &traces.traces[0].tree.placeholders;
    let told: Vec<_> =
        places.iter().map(|place| (place.span_id.number(), place.first, place.end)).collect();
    assert_eq!(told, [(2, 0, 2), (3, 2, 3)]);
    assert_eq!(places[0].end_nanos - places[0].start_nanos, 28 * MILLI);

    // The parent of one of them, whose own parent is still missing.
    known.push(first);
    assert_eq!(shape(&assemble(&known)), "  first\n    a\n    b\n  c\n");
    known.push(second);
    assert_eq!(shape(&assemble(&known)), "  first\n    a\n    b\n  second\n    c\n");
    let order = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let before = shape(&assemble(&known));
    known.push(root);
    let after = shape(&assemble(&known));
    assert_eq!(after, format!("root\n{before}"), "the rows below it stay where they were");
    assert_eq!(order(&after)[1..], order(&before));
}

/// Guarantees: a trace that is passed over without being put together has no rollout.
#[test]
fn a_root_of_a_rollout_is_never_overlooked() {
    let names = [
        "POST /run",
        "POST",
        "GET /run",
        "POST /ng-rollout/{rollout_id}/run",
        "POST /ng-rollout/{rollout_id}/verify",
        "gym.rollout",
        "gym.rollout.attempt",
        "gym.rollouts",
        "run",
        "",
    ];
    let targets = ["", "/run", "/ng-rollout/0-1/run?again=1", "/ng-rollout/0-1/verify"];
    let mut roots = 0;
    for name in names {
        for target in targets {
            for kind in 0..7 {
                let texts = match target {
                    "" => Vec::new(),
                    target => vec![("http.target", target)],
                };
                let sketch = Sketch { name, kind, texts, ..Sketch::default() };
                let is_root =
                    !assemble(std::slice::from_ref(&sketch)).traces[0].rollouts.is_empty();
                roots += usize::from(is_root);
                let may_be = may_be_rollout_root(&sketch.raw());
                assert!(may_be || !is_root, "{name:?} {target:?} {kind}");
                let is_plain = target.is_empty() && !name.ends_with("/run");
                let is_plain = is_plain && !name.is_empty();
                assert!(may_be == is_root || !is_plain, "{name:?} {kind} costs more than it must");
            }
        }
    }
    // As a server's two requests by name and one by target; of any other kind two names that no target changes.
    assert_eq!(roots, 4 + 4 + 1 + 2 * 2 * 6);
}

/// Guarantees: siblings whose missing parent is the same are beside each other, whatever lies between them in time.
#[test]
fn orphans_of_one_parent_lie_together() {
    let traces = assemble(&[
        sketch(2, 1, "a", 0, 10),
        sketch(3, 9, "other", 20, 30),
        sketch(4, 1, "b", 40, 50),
        sketch(5, 0, "start", 45, 60),
    ]);
    assert_eq!(shape(&traces), "  a\n  b\n  other\nstart\n");
}

#[test]
fn spans_of_impossible_times_are_kept_and_marked() {
    let mut spans: Vec<RawSpan> = [
        sketch(1, 0, "root", 0, 100),
        sketch(2, 1, "ends before it starts", 50, 40),
        sketch(3, 1, "zero", 60, 60),
    ]
    .iter()
    .map(Sketch::raw)
    .collect();
    for (id, start_nanos, end_nanos) in
        [(6, 0, 1), (7, u64::MAX, u64::MAX), (8, 1, u64::MAX), (9, SECOND, 0)]
    {
        let mut message = Vec::new();
        let parts = SpanParts {
            trace_id: [1; 16],
            span_id: u64::to_be_bytes(id),
            parent_id: Some(u64::to_be_bytes(1)),
            name: "odd",
            start_nanos,
            end_nanos,
            ..SpanParts::default()
        };
        parts.put(&mut message);
        let span_id = SpanId::from_bytes(&id.to_be_bytes()).unwrap();
        spans.push(RawSpan { span_id, start_nanos, message: message.into(), ..spans[0].clone() });
    }
    let mut reader = Reader::default();
    let traces = Traces::assemble(spans.into_iter().map(|raw| reader.read(raw).unwrap()).collect());
    assert_eq!(traces.traces[0].tree.nodes.len(), 7);
    let marked = |id: u64| {
        let span = traces.spans.iter().find(|span| span.raw.span_id.number() == id).unwrap();
        (span.ends_before_start, span.is_truncated, span.duration_nanos())
    };
    assert_eq!(marked(2), (true, false, 0));
    assert_eq!(marked(3), (false, false, 0));
    assert_eq!(marked(9), (false, true, 0), "open");
    assert_eq!(marked(8), (false, false, u64::MAX - 1));
}

mod random {
    use proptest::prelude::*;

    use super::*;

    fn any_sketch() -> impl Strategy<Value = Sketch> {
        let name = prop::sample::select(vec!["gym.rollout", "POST /run", "HTTP POST", "x"]);
        (1_u64..12, 0_u64..12, name, 0_u64..40, 0_u64..40, 0_u8..6, 0_u64..3).prop_map(
            |(id, parent, name, from, to, kind, seq)| Sketch {
                id,
                parent,
                name,
                from,
                to,
                kind,
                seq,
                ..Sketch::default()
            },
        )
    }

    proptest! {
        /// Guarantees: every span has one place, and the places do not depend on the order of arrival.
        #[test]
        fn every_span_has_one_place_whatever_spans_say_of_each_other(
            sketches in prop::collection::vec(any_sketch(), 0..30),
            turn in 0_usize..30,
        ) {
            let traces = assemble(&sketches);
            for trace in &traces.traces {
                let mut seen: Vec<usize> = trace.tree.nodes.iter().map(|node| node.span).collect();
                seen.sort_unstable();
                seen.dedup();
                prop_assert_eq!(seen.len(), traces.spans.len());
                for (at, node) in trace.tree.nodes.iter().enumerate() {
                    prop_assert!(node.end > at && node.end <= trace.tree.nodes.len());
                    if let Some(parent) = node.parent {
                        prop_assert!(parent < at && node.end <= trace.tree.nodes[parent].end);
                        prop_assert_eq!(node.depth, trace.tree.nodes[parent].depth + 1);
                    }
                }
            }
            let mut turned = sketches.clone();
            turned.rotate_left(turn.min(sketches.len()));
            prop_assert_eq!(shape(&assemble(&turned)), shape(&traces));
        }

        /// Guarantees: the bands of every rollout add up to its wall clock, and its path has no gap and no overlap.
        #[test]
        fn the_path_of_any_rollout_is_a_partition_of_it(
            sketches in prop::collection::vec(any_sketch(), 1..40),
        ) {
            let traces = assemble(&sketches);
            for (trace, rollout) in traces.rollouts() {
                let root = &traces.traces[trace].tree.nodes[rollout.node];
                let path = bands_of(&traces, trace, rollout);
                let mut at = root.start_nanos;
                for segment in &path.segments {
                    prop_assert_eq!(segment.from_nanos, at);
                    prop_assert!(segment.to_nanos > at);
                    at = segment.to_nanos;
                }
                prop_assert!(at == root.end_nanos || path.segments.is_empty() && root.duration_nanos() == 0);
                prop_assert_eq!(path.bands().total_nanos(), root.duration_nanos());
            }
        }
    }
}
