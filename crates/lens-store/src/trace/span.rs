//! One span: encoded as it came, with what every view needs beside it.

use std::sync::Arc;

use lens_otlp::encode::SPAN_ATTRIBUTES;
pub use lens_otlp::encode::StatusCode as Status;
use lens_otlp::view::{AnyValue, EventView, SpanView, key_value};
use serde_json::{Map, Value, json};

use super::reader::Said;
use super::resource::Resource;
use super::{plain, scan, timestamp};
use crate::ids::SpanId;
use crate::raw::RawSpan;

/// Which side of what a span is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Work inside a process.
    Internal,
    /// A request being served.
    Server,
    /// A request being made.
    Client,
    /// A message being sent.
    Producer,
    /// A message being received.
    Consumer,
}

impl Kind {
    /// From `SERVER`, `SpanKind.SERVER` or `SPAN_KIND_SERVER`; what is unknown is internal.
    pub fn from_name(name: &str) -> Self {
        let name = name.strip_prefix("SpanKind.").unwrap_or(name);
        match name.strip_prefix("SPAN_KIND_").unwrap_or(name) {
            "SERVER" => Self::Server,
            "CLIENT" => Self::Client,
            "PRODUCER" => Self::Producer,
            "CONSUMER" => Self::Consumer,
            _ => Self::Internal,
        }
    }

    /// From the number of the OTLP enumeration.
    pub fn from_otlp(number: u64) -> Self {
        match number {
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Internal,
        }
    }

    /// The number of the OTLP enumeration.
    pub fn to_otlp(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Server => 2,
            Self::Client => 3,
            Self::Producer => 4,
            Self::Consumer => 5,
        }
    }

    /// `SERVER` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "INTERNAL",
            Self::Server => "SERVER",
            Self::Client => "CLIENT",
            Self::Producer => "PRODUCER",
            Self::Consumer => "CONSUMER",
        }
    }
}

/// One span.
#[derive(Clone, Debug)]
pub struct Span {
    /// As it came: ids, start, and everything that is not below.
    pub raw: RawSpan,
    /// The span that caused it.
    pub parent_id: Option<SpanId>,
    /// Its name, with control characters replaced and rollout prefixes cut.
    pub name: Arc<str>,
    /// Which side of what it is.
    pub kind: Kind,
    /// When it ended, Unix nanoseconds; never before the start.
    pub end_nanos: u64,
    /// How it ended.
    pub status: Status,
    /// The rollout it belongs to.
    pub rollout_id: Option<Arc<str>>,
    /// One of Python's per-event ASGI spans, of interest to nobody but its author.
    pub is_asgi_event: bool,
    /// It was closed by somebody else, or never.
    pub is_truncated: bool,
    /// It said that it ended before it started.
    pub ends_before_start: bool,
    /// Another span has its id and is not a copy of it.
    pub is_twin: bool,
    /// What its attributes are worth looking at for.
    pub(crate) said: Said,
    /// Where in its message its events begin, when it has any.
    pub(crate) first_event: Option<u32>,
    /// The process it comes from.
    pub resource: Arc<Resource>,
}

impl Span {
    /// When it started, Unix nanoseconds.
    pub fn start_nanos(&self) -> u64 {
        self.raw.start_nanos
    }

    /// Wall clock between start and end.
    pub fn duration_nanos(&self) -> u64 {
        self.end_nanos - self.raw.start_nanos
    }

    fn view(&self) -> Option<SpanView<'_>> {
        self.raw.view().ok()
    }

    /// What its status says.
    pub fn status_description(&self) -> Option<&str> {
        self.view().map(|view| view.status_message).filter(|text| !text.is_empty())
    }

    /// Its attributes as JSON.
    pub fn attributes(&self) -> Map<String, Value> {
        self.view().map(|view| plain::map(view.attributes())).unwrap_or_default()
    }

    /// An attribute.
    pub fn attribute(&self, key: &str) -> Option<AnyValue<'_>> {
        key_value(self.pair(key)?).ok().map(|(_, value)| value.unwrap_or(AnyValue::Empty))
    }

    /// An attribute as it is encoded; of several with one key the last.
    fn pair(&self, key: &str) -> Option<&[u8]> {
        let pairs = scan::pairs(&self.raw.message, SPAN_ATTRIBUTES);
        pairs.filter(|(known, _)| *known == key.as_bytes()).last().map(|(_, pair)| pair)
    }

    /// An attribute that is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.attribute(key)? {
            AnyValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// An attribute that counts something.
    pub fn count(&self, key: &str) -> Option<u64> {
        scan::count(self.pair(key)?)
    }

    /// An attribute that is a number.
    pub fn double(&self, key: &str) -> Option<f64> {
        match self.attribute(key)? {
            AnyValue::Double(number) => Some(number),
            AnyValue::Int(number) => Some(number as f64),
            _ => None,
        }
    }

    /// Its events.
    pub fn event_views(&self) -> impl Iterator<Item = EventView<'_>> {
        let view = self.first_event.and_then(|_| self.view());
        view.into_iter().flat_map(|view| view.events().map_while(Result::ok))
    }

    /// Its events as JSON: `{name, timestamp, attributes}`.
    pub fn events(&self) -> Vec<Value> {
        let event = |event: EventView<'_>| {
            let time = (event.unix_nanos > 0).then(|| timestamp::to_rfc3339(event.unix_nanos));
            json!({
                "name": event.name,
                "timestamp": time,
                "attributes": plain::map(event.attributes()),
            })
        };
        self.event_views().map(event).collect()
    }

    /// Its links as JSON: `{trace_id, span_id, attributes}`.
    pub fn links(&self) -> Vec<Value> {
        let hex = |bytes: &[u8]| {
            let mut text = String::with_capacity(2 * bytes.len());
            lens_otlp::json::put_hex(&mut text, bytes);
            text
        };
        let links = self.view().into_iter().flat_map(|view| view.links().map_while(Result::ok));
        links
            .map(|link| {
                json!({
                    "trace_id": hex(link.trace_id),
                    "span_id": hex(link.span_id),
                    "attributes": plain::map(link.attributes()),
                })
            })
            .collect()
    }
}
