//! Spans for tests, and parts that hold them.

use std::ops::Range;

use bytes::Bytes;
use lens_otlp::encode::{
    ArrayValue, EVENT_ATTRIBUTES, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts,
    StatusCode, put_event, put_key_value, put_request, put_scope_item,
};

use crate::ids::TraceId;
use crate::query::row::SpanRow;
use crate::query::{Filter, Part, Row, Source};
use crate::raw::{self, RawSpan};

pub const SECOND: u64 = 1_000_000_000;
pub const MILLI: u64 = 1_000_000;
pub const START: u64 = 1_800_000_000 * SECOND;

/// A span that is described.
#[derive(Clone, Debug)]
pub struct Described {
    pub trace: u128,
    pub id: u64,
    pub parent: u64,
    pub name: &'static str,
    pub kind: u8,
    pub status: StatusCode,
    pub start: u64,
    /// Added to the start with a wrap: huge ones make a span end before it starts.
    pub duration: u64,
    pub service: &'static str,
    pub text: Option<&'static str>,
    pub number: Option<i64>,
    pub double: Option<f64>,
    pub flag: Option<bool>,
    pub list: &'static [i64],
    pub event: Option<&'static str>,
}

impl Default for Described {
    fn default() -> Self {
        Self {
            trace: 1,
            id: 1,
            parent: 0,
            name: "root",
            kind: 1,
            status: StatusCode::Unset,
            start: START,
            duration: SECOND,
            service: "driver",
            text: None,
            number: None,
            double: None,
            flag: None,
            list: &[],
            event: None,
        }
    }
}

impl Described {
    pub fn raw(&self) -> RawSpan {
        raw::decode(&self.request(), 1).unwrap().spans.remove(0)
    }

    /// An export request with this span.
    pub fn request(&self) -> Bytes {
        let mut resource = Vec::new();
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", self.service);
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "where", "resource");
        let mut attributes = Vec::new();
        if let Some(text) = self.text {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, "text", text);
        }
        if let Some(number) = self.number {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, "number", &number);
        }
        if let Some(double) = self.double {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, "double", &double);
        }
        if let Some(flag) = self.flag {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, "flag", &flag);
        }
        if !self.list.is_empty() {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, "list", &ArrayValue(self.list));
        }
        let mut events = Vec::new();
        if let Some(name) = self.event {
            put_event(&mut events, name, self.start, 0, |out| {
                put_key_value(out, EVENT_ATTRIBUTES, "why", name);
            });
        }
        let parts = SpanParts {
            trace_id: self.trace.to_be_bytes(),
            span_id: self.id.to_be_bytes(),
            parent_id: (self.parent != 0).then(|| self.parent.to_be_bytes()),
            name: self.name,
            kind: self.kind,
            start_nanos: self.start,
            end_nanos: self.start.wrapping_add(self.duration),
            status: self.status,
            attributes: &attributes,
            events: &events,
            ..SpanParts::default()
        };
        let (mut message, mut items, mut request) = (Vec::new(), Vec::new(), Vec::new());
        parts.put(&mut message);
        put_scope_item(&mut items, &message);
        let scope = Scope { name: "scope", version: "1" };
        put_request(&mut request, &resource, std::iter::once((scope, items.as_slice())));
        request.into()
    }
}

/// Parts in memory.
pub struct Parts(pub Vec<Vec<RawSpan>>);

pub const BELIEVED: Range<u64> = START - 30 * 86_400 * SECOND..START + 86_400 * SECOND;

impl Source for Parts {
    type Error = std::convert::Infallible;

    fn parts(&self) -> Vec<Part> {
        let part = |spans: &Vec<RawSpan>| {
            let starts = || spans.iter().map(|span| span.start_nanos);
            Part {
                starts: starts().min().unwrap_or(0)..=starts().max().unwrap_or(0),
                spans: spans.len() as u64,
                believed: BELIEVED,
            }
        };
        self.0.iter().map(part).collect()
    }

    fn scan(
        &self,
        part: usize,
        _: Option<usize>,
        filter: &Filter,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, Self::Error> {
        // Every other part hands over what passes, the others everything.
        for span in &self.0[part] {
            let row = SpanRow::new(span).unwrap();
            if part.is_multiple_of(2) || filter.passes(&row) {
                take(&row);
            }
        }
        Ok(self.0[part].len() as u64)
    }

    fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, Self::Error> {
        Ok(self.0.iter().flatten().filter(|span| span.trace_id == id).cloned().collect())
    }
}
