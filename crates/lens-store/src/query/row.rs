//! What a query sees of a span, whatever form it is stored in.

use lens_otlp::view::{AnyValue, Attributes, SpanView};
use lens_otlp::wire::Fields;
use lens_otlp::{DecodeError, view::EventView};

use super::ast::{AttributeScope, Condition, Field, Test};
use super::value::{Owned, Value};
use crate::ids::{SpanId, TraceId};
use crate::raw::{Origin, RawSpan};

/// A span, as queries see it.
pub trait Row {
    /// Id of its trace.
    fn trace_id(&self) -> TraceId;
    /// Its start, Unix nanoseconds.
    fn start_nanos(&self) -> u64;
    /// Its times contradict each other, or say nothing.
    fn has_bad_times(&self) -> bool;
    /// Its own id.
    fn span_id(&self) -> SpanId;
    /// Id of its parent.
    fn parent_id(&self) -> Option<SpanId>;
    /// Hands over the values of a field until one is taken; whether one was. A field of one value has one, one that is
    /// missing none. Ids are not fields here.
    fn any(&self, field: &Field, take: &mut dyn FnMut(Value<'_>) -> bool) -> bool;
}

/// Whether a condition holds for a span. Nesting was bounded when it was read.
pub(crate) fn holds(condition: &Condition, row: &dyn Row) -> bool {
    match condition {
        Condition::Always(value) => *value,
        Condition::All(parts) => parts.iter().all(|part| holds(part, row)),
        Condition::Any(parts) => parts.iter().any(|part| holds(part, row)),
        Condition::Not(part) => !holds(part, row),
        Condition::Exists(field, wanted) => exists(field, row) == *wanted,
        Condition::Compare(_, Test::Trace(wanted, id)) => (row.trace_id() == *id) == *wanted,
        Condition::Compare(Field::SpanId, Test::Span(wanted, id)) => {
            (row.span_id() == *id) == *wanted
        }
        Condition::Compare(_, Test::Span(wanted, id)) => {
            row.parent_id().is_some_and(|parent| (parent == *id) == *wanted)
        }
        Condition::Compare(field, test) => row.any(field, &mut |value| test.holds(value)),
    }
}

fn exists(field: &Field, row: &dyn Row) -> bool {
    match field {
        Field::TraceId | Field::SpanId => true,
        Field::ParentId => row.parent_id().is_some(),
        field => row.any(field, &mut |_| true),
    }
}

/// What conditions see of the trace that a span is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceFacts {
    pub(crate) root_name: Option<String>,
    pub(crate) root_service: Option<String>,
    pub(crate) start_nanos: u64,
    pub(crate) duration_nanos: u64,
}

/// A span as it arrived.
pub(crate) struct SpanRow<'a> {
    pub(crate) raw: &'a RawSpan,
    pub(crate) view: SpanView<'a>,
    pub(crate) trace: Option<&'a TraceFacts>,
}

impl<'a> SpanRow<'a> {
    pub(crate) fn new(raw: &'a RawSpan) -> Result<Self, DecodeError> {
        Ok(Self { raw, view: raw.view()?, trace: None })
    }

    /// From its start to its end; nothing when it ends before it starts.
    pub(crate) fn duration_nanos(&self) -> u64 {
        u64::try_from(difference_nanos(&self.view)).unwrap_or(0)
    }
}

/// The time between start and end as columns hold it; an end before the start, or centuries behind it, is negative.
fn difference_nanos(view: &SpanView<'_>) -> i64 {
    view.end_nanos.wrapping_sub(view.start_nanos) as i64
}

/// The first value of a field, ids included.
pub(crate) fn value(field: &Field, row: &dyn Row) -> Option<Owned> {
    match field {
        Field::TraceId => Some(Owned::Text(row.trace_id().to_string())),
        Field::SpanId => Some(Owned::Text(row.span_id().to_string())),
        Field::ParentId => row.parent_id().map(|id| Owned::Text(id.to_string())),
        field => {
            let mut found = None;
            row.any(field, &mut |value| {
                found = Some(value.to_owned());
                true
            });
            found
        }
    }
}

/// An attribute of the process that spans come from.
pub(crate) fn resource_text<'a>(origin: &'a Origin, key: &str) -> Option<&'a str> {
    let mut attributes = Attributes::new(&origin.resource.message, 1).flatten();
    attributes.find_map(|(found, value)| match value {
        AnyValue::String(text) if found == key => Some(text),
        _ => None,
    })
}

/// Name (1) or version (2) of an instrumentation scope.
pub(crate) fn scope_text(origin: &Origin, number: u32) -> &str {
    let mut fields = Fields::new(&origin.scope).flatten();
    let found = fields.find_map(|(field, content)| (field == number).then_some(content));
    found.and_then(|content| content.text().ok()).unwrap_or("")
}

fn filled(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Whether there is an attribute of this key, and whether one of its values was taken.
pub(crate) fn attribute(
    attributes: Attributes<'_>,
    key: &str,
    take: &mut dyn FnMut(Value<'_>) -> bool,
) -> (bool, bool) {
    for (found, value) in attributes.flatten() {
        if found == key {
            return (true, any_value(value, take));
        }
    }
    (false, false)
}

/// An array has each of its values.
fn any_value(value: AnyValue<'_>, take: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
    match value {
        AnyValue::Array(array) => array.values().flatten().any(|value| take(scalar(value))),
        value => take(scalar(value)),
    }
}

fn scalar(value: AnyValue<'_>) -> Value<'_> {
    match value {
        AnyValue::String(text) => Value::Text(text),
        AnyValue::Int(number) => Value::Int(number),
        AnyValue::Double(number) => Value::Float(number),
        AnyValue::Bool(bool) => Value::Bool(bool),
        _ => Value::Other,
    }
}

pub(crate) fn nanos(nanos: u64) -> Value<'static> {
    Value::Int(i64::try_from(nanos).unwrap_or(i64::MAX))
}

impl Row for SpanRow<'_> {
    fn trace_id(&self) -> TraceId {
        self.raw.trace_id
    }

    fn start_nanos(&self) -> u64 {
        self.raw.start_nanos
    }

    fn has_bad_times(&self) -> bool {
        difference_nanos(&self.view) < 0 || self.view.start_nanos == 0
    }

    fn span_id(&self) -> SpanId {
        self.raw.span_id
    }

    fn parent_id(&self) -> Option<SpanId> {
        SpanId::from_bytes(self.view.parent_id)
    }

    fn any(&self, field: &Field, take: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
        let text = |text: Option<&str>, take: &mut dyn FnMut(Value<'_>) -> bool| {
            text.is_some_and(|text| take(Value::Text(text)))
        };
        let origin = &self.raw.origin;
        match field {
            Field::Name => take(Value::Text(self.view.name)),
            Field::Kind => take(Value::Kind(u8::try_from(self.view.kind).unwrap_or(0))),
            Field::Status => take(Value::Status(self.view.status)),
            Field::StatusMessage => text(filled(self.view.status_message), take),
            Field::Duration => take(nanos(self.duration_nanos())),
            Field::RootName => text(self.trace.and_then(|trace| trace.root_name.as_deref()), take),
            Field::RootServiceName => {
                text(self.trace.and_then(|trace| trace.root_service.as_deref()), take)
            }
            Field::TraceDuration => {
                self.trace.is_some_and(|trace| take(nanos(trace.duration_nanos)))
            }
            Field::TraceId | Field::SpanId | Field::ParentId => false,
            Field::EventName => {
                self.view.events().flatten().any(|event| take(Value::Text(event.name)))
            }
            Field::ScopeName => text(filled(scope_text(origin, 1)), take),
            Field::ScopeVersion => text(filled(scope_text(origin, 2)), take),
            Field::Attribute(scope, key) => self.attribute(*scope, key, take),
        }
    }
}

impl SpanRow<'_> {
    fn attribute(
        &self,
        scope: AttributeScope,
        key: &str,
        take: &mut dyn FnMut(Value<'_>) -> bool,
    ) -> bool {
        let origin = &self.raw.origin;
        let of_resource = Attributes::new(&origin.resource.message, 1);
        match scope {
            AttributeScope::Any => {
                let (is_there, is_taken) = attribute(self.view.attributes(), key, take);
                if is_there { is_taken } else { attribute(of_resource, key, take).1 }
            }
            AttributeScope::Span => attribute(self.view.attributes(), key, take).1,
            AttributeScope::Resource => attribute(of_resource, key, take).1,
            AttributeScope::Event => {
                let mut events = self.view.events().flatten();
                events.any(|event: EventView<'_>| attribute(event.attributes(), key, take).1)
            }
            AttributeScope::Instrumentation => {
                attribute(Attributes::new(&origin.scope, 3), key, take).1
            }
        }
    }
}
