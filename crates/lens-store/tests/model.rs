//! A store says what a naive model in memory says, whatever arrives in whatever order, and whatever happens between.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lens_otlp::encode::{SPAN_ATTRIBUTES, SpanParts, put_key_value};
use lens_store::ids::TraceId;
use lens_store::store::{Clock, Options, Snapshot, Store};
use lens_store::wal::{Encoding, Signal};
use proptest::prelude::*;

/// Midday of some day.
const NOW: u64 = 1_764_417_600_000_000_000;
const DAY: u64 = 86_400_000_000_000;

#[derive(Debug)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now_nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// From a small world, so that spans repeat.
#[derive(Clone, Debug)]
struct Given {
    trace: u8,
    span: u8,
    start_nanos: u64,
    name: &'static str,
    is_truncated: bool,
    /// Tells copies apart.
    mark: u32,
}

impl Given {
    fn message(&self) -> Vec<u8> {
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "mark", &i64::from(self.mark));
        if self.is_truncated {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, lens::semconv::TRUNCATED, &true);
        }
        let parts = SpanParts {
            trace_id: trace_id(self.trace).to_bytes(),
            span_id: [self.span; 8],
            name: self.name,
            start_nanos: self.start_nanos,
            end_nanos: self.start_nanos.saturating_add(7),
            attributes: &attributes,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        message
    }
}

fn trace_id(trace: u8) -> TraceId {
    TraceId::from_bytes(&[trace; 16]).expect("not zero")
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Given>),
    Flush,
    Compact,
    /// As after a kill.
    Reopen,
    /// Time passes.
    Wait(u64),
}

fn given() -> impl Strategy<Value = Given> {
    let starts = prop_oneof![
        8 => Just(NOW),
        4 => Just(NOW - 1),
        2 => Just(NOW - DAY),
        1 => Just(0),
        1 => Just(NOW + 9 * DAY),
        1 => Just(u64::MAX),
    ];
    let names = prop_oneof![3 => Just("work"), 1 => Just("other")];
    (1..=4_u8, 1..=4_u8, starts, names, any::<bool>(), any::<u32>()).prop_map(
        |(trace, span, start_nanos, name, is_truncated, mark)| Given {
            trace,
            span,
            start_nanos,
            name,
            is_truncated,
            mark,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => prop::collection::vec(given(), 1..6).prop_map(Step::Append),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => (1..3 * DAY).prop_map(Step::Wait),
    ]
}

/// Trace, start, span, name.
type Key = (u8, u64, u8, &'static str);

/// Of all that arrived under one key, what counts.
#[derive(Debug, Default)]
struct Model(BTreeMap<Key, (bool, Vec<u8>)>);

impl Model {
    fn append(&mut self, given: &Given) {
        let key = (given.trace, given.start_nanos, given.span, given.name);
        let new = (given.is_truncated, given.message());
        match self.0.get_mut(&key) {
            // What is complete beats what was cut off, then what came later.
            Some(old) if given.is_truncated && !old.0 => {}
            Some(old) => *old = new,
            None => drop(self.0.insert(key, new)),
        }
    }

    fn check(&self, snapshot: &Snapshot) {
        for trace in 1..=4 {
            let expected: BTreeSet<Vec<u8>> = (self.0.iter())
                .filter(|(key, _)| key.0 == trace)
                .map(|(_, (_, message))| sorted_fields(message))
                .collect();
            let spans = snapshot.trace(trace_id(trace)).expect("readable");
            let order = |span: &lens_store::raw::RawSpan| (span.start_nanos, span.span_id);
            assert!(spans.is_sorted_by_key(order));
            let found: BTreeSet<Vec<u8>> =
                spans.iter().map(|span| sorted_fields(&span.message)).collect();
            assert_eq!(found.len(), spans.len(), "no copies");
            assert_eq!(found, expected);
        }
        let ids: BTreeSet<u8> = self.0.keys().map(|key| key.0).collect();
        let found: Vec<u8> = ["01", "02", "03", "04"]
            .iter()
            .flat_map(|prefix| snapshot.find_by_prefix(prefix, 9).expect("readable"))
            .map(|id| id.to_bytes()[0])
            .collect();
        assert_eq!(found, ids.into_iter().collect::<Vec<_>>());
    }
}

/// What a span says, without the order in which it says it.
fn sorted_fields(message: &[u8]) -> Vec<u8> {
    let view = lens_otlp::view::SpanView::read(message).expect("a span");
    let mut attributes: Vec<String> =
        view.attributes().map(|pair| format!("{:?}", pair.expect("readable"))).collect();
    attributes.sort();
    format!(
        "{:?} {:?} {} {} {} {attributes:?}",
        view.trace_id, view.span_id, view.name, view.start_nanos, view.end_nanos
    )
    .into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_says_what_a_model_says(steps in prop::collection::vec(step(), 1..24)) {
        let folder = support::folder();
        let clock = Arc::new(SetClock(AtomicU64::new(NOW)));
        let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
        let options = Options { clock: as_clock, background: false, ..Options::default() };
        let mut store = Some(Store::open(folder.path(), options.clone()).expect("a store"));
        let mut model = Model::default();
        for step in &steps {
            let open = store.as_ref().expect("open");
            match step {
                Step::Append(spans) => {
                    let request = support::request(spans.iter().map(Given::message));
                    let appended =
                        open.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request);
                    prop_assert!(appended.is_ok_and(|appended| appended.rejected == 0));
                    spans.iter().for_each(|span| model.append(span));
                }
                Step::Flush => drop(open.flush().expect("written")),
                Step::Compact => drop(open.compact().expect("written")),
                Step::Wait(nanos) => drop(clock.0.fetch_add(*nanos, Ordering::Relaxed)),
                Step::Reopen => {
                    drop(store.take());
                    store = Some(Store::open(folder.path(), options.clone()).expect("a store"));
                }
            }
            model.check(&store.as_ref().expect("open").snapshot());
        }
        model.check(&Store::open_read_only(folder.path()).expect("readable").snapshot());
        prop_assert_eq!(store.expect("open").damage(), []);
    }
}
