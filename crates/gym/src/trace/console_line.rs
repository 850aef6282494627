//! One console record: ours, or the reference's.
//!
//! The two differ in where the ids are (`trace_id` at the top; `context.trace_id` with `0x`), in
//! `SpanKind.` before the kind, and in a `type` field that only ours has.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use lens_store::ids::{SpanId, TraceId};
use lens_store::trace::{Kind, Status, timestamp};

use super::encode::Draft;

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
    #[serde(borrow)]
    scope: Option<ScopeField<'a>>,
    #[serde(borrow)]
    trace_state: Option<Cow<'a, str>>,
    #[serde(default)]
    dropped_attributes: u32,
    #[serde(default)]
    dropped_events: u32,
    #[serde(default)]
    dropped_links: u32,
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

#[derive(Deserialize)]
struct ScopeField<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    version: Cow<'a, str>,
}

/// Where a span comes from, as its record says it.
pub struct Source<'a> {
    /// Attributes of the resource, as JSON text.
    pub resource: &'a str,
    /// Name of the instrumentation, or empty.
    pub scope_name: Cow<'a, str>,
    /// Its version, or empty.
    pub scope_version: Cow<'a, str>,
}

/// What a record is.
pub enum Sorted<'a> {
    /// A span and where it comes from.
    Span(Box<Draft>, Source<'a>),
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
    pub fn sort(mut self) -> Sorted<'a> {
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
        let (scope_name, scope_version) =
            self.scope.take().map_or_else(Default::default, |scope| (scope.name, scope.version));
        match self.into_span() {
            Some(span) => {
                Sorted::Span(Box::new(span), Source { resource, scope_name, scope_version })
            }
            None => Sorted::BrokenSpan,
        }
    }

    fn into_span(self) -> Option<Draft> {
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
        Some(Draft {
            trace_id: TraceId::parse(trace_id)?,
            span_id: SpanId::parse(span_id)?,
            parent_id: self.parent_id.as_deref().and_then(SpanId::parse),
            name: self.name.into_owned(),
            kind: Kind::from_name(&self.kind),
            start_nanos: timestamp::parse(self.start_time.as_deref()?)?,
            end_nanos,
            status,
            status_description: self
                .status
                .and_then(|status| status.description)
                .unwrap_or_default(),
            trace_state: self.trace_state.unwrap_or_default().into_owned(),
            attributes: parsed(self.attributes),
            events: parsed(self.events),
            links: parsed(self.links),
            dropped_attributes: self.dropped_attributes,
            dropped_events: self.dropped_events,
            dropped_links: self.dropped_links,
        })
    }
}

/// Nothing where it is of another make.
fn parsed<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}
