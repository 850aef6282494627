//! Spans with ids that say where they come from, in requests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;

use bytes::Bytes;
use gym_telemetry::semconv;
use lens_otlp::encode::{
    RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request,
    put_scope_item,
};
use lens_store::ids::TraceId;
use lens_store::store::{Appended, Refusal, Snapshot, Store};
use lens_store::wal::{Encoding, Signal};

/// A span that is known by a number; every fourth number begins a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbered {
    pub number: u64,
    pub start_nanos: u64,
}

/// Spans of one trace.
const OF_TRACE: u64 = 4;

/// Spreads numbers over the ids.
fn spread(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Numbered {
    pub fn trace_id(self) -> TraceId {
        let trace = self.number / OF_TRACE;
        let bytes = (u128::from(spread(trace)) << 64 | u128::from(trace + 1)).to_be_bytes();
        TraceId::from_bytes(&bytes).expect("not zero")
    }

    pub fn span_id(self) -> [u8; 8] {
        (self.number + 1).to_be_bytes()
    }

    pub fn message(self) -> Vec<u8> {
        self.message_with(Vec::new(), "work", None)
    }

    /// The same as a part of a rollout: the first span of a trace is its root, and two traces are a run.
    pub fn rollout_message(self) -> Vec<u8> {
        let trace = self.number / OF_TRACE;
        let mut attributes = Vec::new();
        let mut put =
            |key, value: &str| put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, value);
        put(semconv::ROLLOUT_ID, &format!("0-{}", trace % 2));
        put(semconv::COLLECTION_ID, &format!("{:012x}", trace / 2));
        if !self.number.is_multiple_of(OF_TRACE) {
            let root = Self { number: trace * OF_TRACE, ..self }.span_id();
            return self.message_with(attributes, "work", Some(root));
        }
        put(semconv::ROLLOUT_OUTCOME, semconv::value::outcome::SUCCESS);
        self.message_with(attributes, semconv::span::ROLLOUT_ATTEMPT, None)
    }

    fn message_with(self, mut attributes: Vec<u8>, name: &str, parent: Option<[u8; 8]>) -> Vec<u8> {
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "number", &(self.number as i64));
        let parts = SpanParts {
            trace_id: self.trace_id().to_bytes(),
            span_id: self.span_id(),
            parent_id: parent,
            name,
            start_nanos: self.start_nanos,
            end_nanos: self.start_nanos.saturating_add(5),
            attributes: &attributes,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        message
    }
}

pub fn request(messages: impl IntoIterator<Item = Vec<u8>>) -> Bytes {
    let mut items = Vec::new();
    for message in messages {
        put_scope_item(&mut items, &message);
    }
    let mut resource = Vec::new();
    put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "tested");
    let mut out = Vec::new();
    let scope = Scope { name: "s", version: "" };
    put_request(&mut out, &resource, std::iter::once((scope, items.as_slice())));
    out.into()
}

pub fn append(
    store: &Store,
    spans: impl IntoIterator<Item = Numbered>,
) -> Result<Appended, Refusal> {
    send(store, request(spans.into_iter().map(Numbered::message)))
}

pub fn send(store: &Store, request: Bytes) -> Result<Appended, Refusal> {
    store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request)
}

/// How often each span is found, of those with these numbers.
pub fn found(snapshot: &Snapshot, numbers: std::ops::Range<u64>) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    let mut trace = numbers.start / OF_TRACE;
    while trace * OF_TRACE < numbers.end {
        let id = Numbered { number: trace * OF_TRACE, start_nanos: 0 }.trace_id();
        for span in snapshot.trace(id).expect("readable") {
            let number = u64::from_be_bytes(span.span_id.to_bytes()) - 1;
            *found.entry(number).or_default() += 1;
        }
        trace += 1;
    }
    found
}

/// Rows of spans, wherever they are; copies count.
pub fn rows(snapshot: &Snapshot) -> u64 {
    snapshot.manifest().spans() + snapshot.memory_span_count() as u64
}

/// A folder in memory where the system has one: what is tested here is not the disk, which others may be waiting for.
pub fn folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a folder")
}
