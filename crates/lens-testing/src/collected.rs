//! Spans with everything a test may ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use lens_otlp::DecodeError;
use lens_otlp::encode::StatusCode;
use lens_otlp::json::{put_hex, put_plain_value};
use lens_otlp::view::logs::LogView;
use lens_otlp::view::{AnyValue, Attributes, ScopeView, SpanView, resources};
use serde_json::Value;

/// One span as received.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedSpan {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// 16 hex digits; `None` for a root.
    pub parent_id: Option<String>,
    /// Name.
    pub name: String,
    /// `INTERNAL`, `SERVER`, `CLIENT`, `PRODUCER`, `CONSUMER` or `UNSPECIFIED`.
    pub kind: &'static str,
    /// Since the epoch.
    pub start_nanos: u64,
    /// Since the epoch.
    pub end_nanos: u64,
    /// Outcome.
    pub status: StatusCode,
    /// What the status says.
    pub status_message: String,
    /// By key; see [`repeated_keys`](Self::repeated_keys).
    pub attributes: BTreeMap<String, Value>,
    /// Keys that came more than once, which OTLP forbids.
    pub repeated_keys: Vec<String>,
    /// In the order of the wire.
    pub events: Vec<CollectedEvent>,
    /// In the order of the wire.
    pub links: Vec<CollectedLink>,
    /// Attributes, events and links that the sender dropped.
    pub dropped: (u64, u64, u64),
    /// W3C tracestate.
    pub trace_state: String,
    /// `Span.flags`.
    pub flags: u32,
    /// Name of the instrumentation scope.
    pub scope: String,
    /// Attributes of the resource.
    pub resource: Arc<BTreeMap<String, Value>>,
}

impl CollectedSpan {
    /// An attribute's text, or the empty string.
    pub fn text(&self, key: &str) -> &str {
        self.attributes.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// `service.name` of its resource, or the empty string.
    pub fn service(&self) -> &str {
        let name = self.resource.get(lens::semconv::SERVICE_NAME);
        name.and_then(Value::as_str).unwrap_or_default()
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedEvent {
    /// Name.
    pub name: String,
    /// Since the epoch.
    pub unix_nanos: u64,
    /// By key.
    pub attributes: BTreeMap<String, Value>,
    /// Attributes that the sender dropped.
    pub dropped_attributes: u64,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedLink {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// By key.
    pub attributes: BTreeMap<String, Value>,
    /// Attributes that the sender dropped.
    pub dropped_attributes: u64,
}

/// Reads an encoded `ExportTraceServiceRequest`.
///
/// # Errors
///
/// When anything in it is malformed.
pub fn decode(request: &[u8]) -> Result<Vec<CollectedSpan>, DecodeError> {
    let mut spans = Vec::new();
    for resource in resources(request) {
        let resource = resource?;
        let attributes = Arc::new(read_attributes(resource.attributes())?.0);
        for scope in resource.scopes() {
            let scope = scope?;
            for span in scope.spans() {
                spans.push(read_span(&span?, &scope, &attributes)?);
            }
        }
    }
    Ok(spans)
}

/// A received log record.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedLog {
    /// Lower-case hex, or empty.
    pub trace_id: String,
    /// Lower-case hex, or empty.
    pub span_id: String,
    /// E.g. `INFO`.
    pub severity: String,
    /// What it says; empty when that is no text.
    pub body: String,
    /// When it happened.
    pub unix_nanos: u64,
    /// Name of its event, or empty.
    pub event_name: String,
    /// Name and version of its instrumentation scope.
    pub scope: (String, String),
    /// By key.
    pub attributes: BTreeMap<String, Value>,
    /// Of the process.
    pub resource: Arc<BTreeMap<String, Value>>,
}

/// Reads an encoded `ExportLogsServiceRequest`.
///
/// # Errors
///
/// When anything in it is malformed.
pub fn decode_logs(request: &[u8]) -> Result<Vec<CollectedLog>, DecodeError> {
    let mut logs = Vec::new();
    for resource in resources(request) {
        let resource = resource?;
        let attributes = Arc::new(read_attributes(resource.attributes())?.0);
        for scope in resource.scopes() {
            let scope = scope?;
            for record in scope.items() {
                let log = LogView::read(record?)?;
                logs.push(CollectedLog {
                    trace_id: hex(log.trace_id),
                    span_id: hex(log.span_id),
                    severity: log.severity_text.to_owned(),
                    body: match log.body {
                        AnyValue::String(text) => text.to_owned(),
                        _ => String::new(),
                    },
                    unix_nanos: log.time_nanos,
                    event_name: log.event_name.to_owned(),
                    scope: (scope.name.to_owned(), scope.version.to_owned()),
                    attributes: read_attributes(log.attributes())?.0,
                    resource: Arc::clone(&attributes),
                });
            }
        }
    }
    Ok(logs)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    put_hex(&mut out, bytes);
    out
}

type Pairs = (BTreeMap<String, Value>, Vec<String>);

pub(crate) fn read_attributes(attributes: Attributes<'_>) -> Result<Pairs, DecodeError> {
    let (mut found, mut repeated) = (BTreeMap::new(), Vec::new());
    for pair in attributes {
        let (key, value) = pair?;
        let mut text = String::new();
        put_plain_value(&mut text, &value)?;
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if found.insert(key.to_owned(), value).is_some() {
            repeated.push(key.to_owned());
        }
    }
    Ok((found, repeated))
}

fn read_span(
    span: &SpanView<'_>,
    scope: &ScopeView<'_>,
    resource: &Arc<BTreeMap<String, Value>>,
) -> Result<CollectedSpan, DecodeError> {
    let (attributes, repeated_keys) = read_attributes(span.attributes())?;
    let mut events = Vec::new();
    for event in span.events() {
        let event = event?;
        events.push(CollectedEvent {
            name: event.name.to_owned(),
            unix_nanos: event.unix_nanos,
            attributes: read_attributes(event.attributes())?.0,
            dropped_attributes: event.dropped_attributes,
        });
    }
    let mut links = Vec::new();
    for link in span.links() {
        let link = link?;
        links.push(CollectedLink {
            trace_id: hex(link.trace_id),
            span_id: hex(link.span_id),
            attributes: read_attributes(link.attributes())?.0,
            dropped_attributes: link.dropped_attributes,
        });
    }
    Ok(CollectedSpan {
        trace_id: hex(span.trace_id),
        span_id: hex(span.span_id),
        parent_id: (!span.parent_id.is_empty()).then(|| hex(span.parent_id)),
        name: span.name.to_owned(),
        kind: span.kind_name(),
        start_nanos: span.start_nanos,
        end_nanos: span.end_nanos,
        status: span.status,
        status_message: span.status_message.to_owned(),
        attributes,
        repeated_keys,
        events,
        links,
        dropped: (span.dropped_attributes, span.dropped_events, span.dropped_links),
        trace_state: span.trace_state.to_owned(),
        flags: span.flags,
        scope: scope.name.to_owned(),
        resource: Arc::clone(resource),
    })
}
