//! What a span must look like on the wire, by the rules of OpenTelemetry: unique keys with the last value, limits
//! with counts of what they dropped, a status that OK makes final.

use std::collections::BTreeMap;

use lens::SpanKind;
use lens::config::SpanLimits;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

use crate::program::{Linked, Op, Said};

/// Low, so that random spans reach them.
pub const LIMITS: SpanLimits = SpanLimits {
    attributes: 6,
    attribute_value_chars: 41,
    events: 3,
    links: 2,
    event_attributes: 3,
    link_attributes: 3,
};

const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const SAMPLED: u32 = 1;

/// A value as one can compare it.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    Array(Vec<Seen>),
}

impl Seen {
    fn cut(self) -> Self {
        match self {
            Self::Text(text) => {
                Self::Text(text.chars().take(LIMITS.attribute_value_chars).collect())
            }
            Self::Array(values) => Self::Array(values.into_iter().map(Self::cut).collect()),
            other => other,
        }
    }

    fn of(said: &Said) -> Option<Self> {
        let ints = |values: &[i64]| Self::Array(values.iter().copied().map(Self::Int).collect());
        Some(match said {
            Said::Static(text) => Self::Text((*text).to_owned()),
            Said::Text(text) => Self::Text(text.clone()),
            Said::Bool(value) => Self::Bool(*value),
            Said::Int(value) => Self::Int(*value),
            // OTLP has no unsigned integers.
            Said::Unsigned(value) => Self::Int(i64::try_from(*value).unwrap_or(i64::MAX)),
            Said::Small(value) => Self::Int(i64::from(*value)),
            Said::Double(value) => Self::Double(*value),
            Said::Texts(values) => Self::Array(values.iter().cloned().map(Self::Text).collect()),
            Said::Ints(values) => ints(values),
            Said::Doubles(values) => {
                Self::Array(values.iter().copied().map(Self::Double).collect())
            }
            Said::Bools(values) => Self::Array(values.iter().copied().map(Self::Bool).collect()),
            Said::Mixed(values, text) => Self::Array(vec![ints(values), Self::Text(text.clone())]),
            Said::Missing => return None,
        })
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn read_attributes(pairs: &[KeyValue]) -> BTreeMap<String, Seen> {
    pairs.iter().map(|pair| (pair.key.clone(), read(pair.value.as_ref()))).collect()
}

fn read(value: Option<&opentelemetry_proto::tonic::common::v1::AnyValue>) -> Seen {
    match value.and_then(|value| value.value.as_ref()).expect("a value") {
        Value::StringValue(text) => Seen::Text(text.clone()),
        Value::BoolValue(value) => Seen::Bool(*value),
        Value::IntValue(value) => Seen::Int(*value),
        Value::DoubleValue(value) => Seen::Double(*value),
        Value::ArrayValue(array) => {
            Seen::Array(array.values.iter().map(|value| read(Some(value))).collect())
        }
        other => panic!("nobody said {other:?}"),
    }
}

/// Times that would be right.
#[derive(Clone, Copy, Debug)]
pub struct Range(u64, u64);

impl Range {
    pub fn new(from: u64, to: u64) -> Self {
        // What the clock is corrected by between two of its readings.
        const SLACK_NANOS: u64 = 2_000_000;
        Self(from - SLACK_NANOS, to + SLACK_NANOS)
    }

    pub fn exactly(at: u64) -> Self {
        Self(at, at)
    }

    pub fn contains(&self, at: &u64) -> bool {
        (self.0..=self.1).contains(at)
    }
}

#[derive(Clone, Debug)]
pub struct ExpectedEvent {
    pub name: String,
    /// `None` is now.
    pub at: Option<u64>,
    pub attributes: BTreeMap<String, Seen>,
    pub dropped_attributes: u32,
}

/// What was said on a span.
#[derive(Clone, Debug)]
pub struct Expected {
    pub scope: &'static str,
    pub name: String,
    pub kind: i32,
    pub flags: u32,
    pub trace_state: String,
    pub attributes: BTreeMap<String, Seen>,
    pub dropped_attributes: u32,
    pub events: Vec<ExpectedEvent>,
    pub dropped_events: u32,
    pub links: Vec<(String, String, u32)>,
    pub dropped_links: u32,
    pub status: (i32, String),
}

/// A span that ended and must arrive.
#[derive(Clone, Debug)]
pub struct Ended {
    pub trace_id: String,
    pub span_id: String,
    pub parent_id: String,
    pub start: Range,
    pub end: Range,
    pub now: Range,
    pub expected: Expected,
}

impl Expected {
    pub fn new(
        scope: &'static str,
        name: String,
        kind: SpanKind,
        remote_parent: bool,
        trace_state: &str,
    ) -> Self {
        let kind = match kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
            SpanKind::Producer => 4,
            SpanKind::Consumer => 5,
        };
        Self {
            scope,
            name,
            kind,
            flags: SAMPLED | HAS_IS_REMOTE | if remote_parent { IS_REMOTE } else { 0 },
            trace_state: trace_state.to_owned(),
            attributes: BTreeMap::new(),
            dropped_attributes: 0,
            events: Vec::new(),
            dropped_events: 0,
            links: Vec::new(),
            dropped_links: 0,
            status: (0, String::new()),
        }
    }

    /// Baggage of promoted keys is an attribute; an index is an integer where it looks like one.
    pub fn promote(&mut self, baggage: &[(&'static str, String)]) {
        for (key, value) in baggage {
            let index = if key.ends_with(".index") { value.parse().ok() } else { None };
            let value = index.map_or_else(|| Seen::Text(value.clone()), Seen::Int);
            self.attributes.insert((*key).to_owned(), value);
        }
    }

    pub fn link(&mut self, link: &Linked) {
        if link.trace_id == [0; 16] || link.span_id == [0; 8] {
            return;
        }
        if self.links.len() < LIMITS.links {
            let flags = SAMPLED | HAS_IS_REMOTE | IS_REMOTE;
            self.links.push((hex(&link.trace_id), hex(&link.span_id), flags));
        } else {
            self.dropped_links += 1;
        }
    }

    fn event(&mut self, name: &str, at: Option<u64>, attributes: Vec<(&str, Seen)>) {
        if self.events.len() == LIMITS.events {
            self.dropped_events += 1;
            return;
        }
        let (mut kept, mut dropped_attributes) = (BTreeMap::new(), 0);
        for (key, value) in attributes {
            if kept.len() < LIMITS.event_attributes || kept.contains_key(key) {
                kept.insert(key.to_owned(), value.cut());
            } else {
                dropped_attributes += 1;
            }
        }
        let name = name.to_owned();
        self.events.push(ExpectedEvent { name, at, attributes: kept, dropped_attributes });
    }

    fn fail(&mut self, message: &str) {
        const OK: i32 = 1;
        if self.status.0 != OK {
            self.status = (2, message.to_owned());
        }
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Set(key, said) => {
                let Some(value) = Seen::of(said) else { return };
                if self.attributes.len() < LIMITS.attributes || self.attributes.contains_key(*key) {
                    self.attributes.insert((*key).to_owned(), value.cut());
                } else {
                    self.dropped_attributes += 1;
                }
            }
            Op::Event(name, at, attributes) => {
                let attributes = attributes
                    .iter()
                    .filter_map(|(key, said)| Seen::of(said).map(|value| (*key, value)))
                    .collect();
                self.event(name, *at, attributes);
            }
            Op::Link(link) => self.link(link),
            Op::Rename(name) => self.name.clone_from(name),
            Op::Fail(message) => self.fail(message),
            Op::Ok => self.status = (1, String::new()),
            Op::Exception(kind, message) => {
                let attributes = vec![
                    ("exception.type", Seen::Text(kind.clone())),
                    ("exception.message", Seen::Text(message.clone())),
                ];
                self.event("exception", None, attributes);
                self.fail(message);
            }
        }
    }
}
