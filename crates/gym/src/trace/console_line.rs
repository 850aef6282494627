//! One console record: ours, or the reference's.
//!
//! The two differ in where the ids are (`trace_id` at the top; `context.trace_id` with `0x`), in
//! `SpanKind.` before the kind, and in a `type` field that only ours has.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::span::{Kind, SpanDraft, SpanId, Status, TraceId};
use super::timestamp;

#[derive(Deserialize)]
pub struct ConsoleRecord<'a> {
    #[serde(borrow, default, rename = "type")]
    record_type: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    context: Option<Context<'a>>,
    #[serde(borrow)]
    trace_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    span_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    start_time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    end_time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<StatusField<'a>>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
    #[serde(borrow)]
    events: Option<&'a RawValue>,
    #[serde(borrow)]
    links: Option<&'a RawValue>,
    #[serde(borrow)]
    resource: Option<ResourceField<'a>>,
    body: Option<IgnoredAny>,
    resource_metrics: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Context<'a> {
    #[serde(borrow)]
    trace_id: Cow<'a, str>,
    #[serde(borrow)]
    span_id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct StatusField<'a> {
    #[serde(borrow, default)]
    status_code: Cow<'a, str>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct ResourceField<'a> {
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
}

/// What a record is.
pub enum Sorted<'a> {
    /// A span and the attributes of its resource, as JSON text.
    Span(SpanDraft, &'a str),
    /// A metric.
    Metric,
    /// A log record.
    Log,
    /// Looks like a span, but lacks what a span must have.
    BrokenSpan,
    /// JSON of another make.
    Other,
}

impl<'a> ConsoleRecord<'a> {
    /// Tells spans from the rest.
    pub fn sort(self) -> Sorted<'a> {
        match &*self.record_type {
            "metric" => return Sorted::Metric,
            "log" => return Sorted::Log,
            "span" => {}
            _ if self.resource_metrics.is_some() => return Sorted::Metric,
            _ if self.start_time.is_none() && self.body.is_some() => return Sorted::Log,
            _ if self.start_time.is_none() => return Sorted::Other,
            _ => {}
        }
        let resource = self.resource.as_ref().and_then(|field| field.attributes);
        let resource = resource.map_or("{}", RawValue::get);
        match self.into_span() {
            Some(span) => Sorted::Span(span, resource),
            None => Sorted::BrokenSpan,
        }
    }

    fn into_span(self) -> Option<SpanDraft> {
        let (trace_id, span_id) = match (&self.trace_id, &self.span_id, &self.context) {
            (Some(trace_id), Some(span_id), _) => (&**trace_id, &**span_id),
            (_, _, Some(context)) => (&*context.trace_id, &*context.span_id),
            _ => return None,
        };
        let end_nanos = match &self.end_time {
            Some(text) => Some(timestamp::parse(text)?),
            None => None,
        };
        let status =
            self.status.as_ref().map_or(Status::Unset, |status| match &*status.status_code {
                "ERROR" => Status::Error,
                "OK" => Status::Ok,
                _ => Status::Unset,
            });
        Some(SpanDraft {
            trace_id: TraceId::parse(trace_id)?,
            span_id: SpanId::parse(span_id)?,
            parent_id: self.parent_id.as_deref().and_then(SpanId::parse),
            name: self.name.into_owned(),
            kind: Kind::from_name(&self.kind),
            start_nanos: timestamp::parse(self.start_time.as_deref()?)?,
            end_nanos,
            status,
            status_description: self.status.and_then(|status| status.description),
            attributes: object_text(self.attributes),
            events: array_text(self.events),
            links: array_text(self.links),
        })
    }
}

fn object_text(raw: Option<&RawValue>) -> Box<str> {
    raw.map(RawValue::get).filter(|text| text.starts_with('{')).unwrap_or("{}").into()
}

fn array_text(raw: Option<&RawValue>) -> Box<str> {
    raw.map(RawValue::get)
        .filter(|text| text.starts_with('[') && !text[1..].trim_start().starts_with(']'))
        .unwrap_or("")
        .into()
}
