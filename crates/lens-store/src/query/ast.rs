//! A query that was read.

use regex_lite::Regex;

use super::value::Literal;
use crate::ids::{SpanId, TraceId};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Query {
    /// Which spans.
    pub(crate) spans: Spanset,
    /// What is done with them, one after the other.
    pub(crate) stages: Vec<Stage>,
    /// What is counted of them, instead of being listed.
    pub(crate) metric: Option<Metric>,
}

/// A set of spans of one trace.
#[derive(Clone, Debug)]
pub(crate) enum Spanset {
    /// Those for which this holds; nothing holds for all.
    Filter(Option<Condition>),
    /// Spans of two sets.
    Pair(Pair, Box<(Self, Self)>),
}

/// How two sets are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    /// Those of both, where neither is empty.
    Both,
    /// Those of both.
    Either,
    /// Those of the second whose parent is in the first.
    Child,
    /// Those of the second that are below one of the first.
    Descendant,
    /// Those of the second that are the parent of one of the first.
    Parent,
    /// Those of the second that are above one of the first.
    Ancestor,
    /// Those of the second that share their parent with another of the first.
    Sibling,
}

/// What holds for a span.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Always(bool),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// A field has, or has not, a value.
    Exists(Field, bool),
    Compare(Field, Test),
}

/// What a field is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Value(Op, Literal),
    /// Whether the pattern has to match, all of the text.
    Pattern(bool, Box<Regex>),
    /// Whether it has to be this trace.
    Trace(bool, TraceId),
    /// Whether it has to be this span.
    Span(bool, SpanId),
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Op {
    pub(crate) fn from_symbol(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "=" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            _ => return None,
        })
    }
}

/// Something that a span, or its trace, has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Name of the span.
    Name,
    /// Its kind.
    Kind,
    /// Its status.
    Status,
    /// What its status says.
    StatusMessage,
    /// From its start to its end.
    Duration,
    /// Name of the root of its trace.
    RootName,
    /// Service of the root of its trace.
    RootServiceName,
    /// From the first start to the last end in its trace.
    TraceDuration,
    /// Id of its trace.
    TraceId,
    /// Its own id.
    SpanId,
    /// Id of its parent.
    ParentId,
    /// Names of its events.
    EventName,
    /// Name of its instrumentation scope.
    ScopeName,
    /// Version of its instrumentation scope.
    ScopeVersion,
    /// An attribute.
    Attribute(AttributeScope, Box<str>),
}

/// Where an attribute is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttributeScope {
    /// On the span, then on its process.
    Any,
    /// On the span.
    Span,
    /// On its process.
    Resource,
    /// On its events.
    Event,
    /// On its instrumentation scope.
    Instrumentation,
}

impl Field {
    /// As queries write it.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Name => "name",
            Self::Kind => "kind",
            Self::Status => "status",
            Self::StatusMessage => "statusMessage",
            Self::Duration => "duration",
            Self::RootName => "rootName",
            Self::RootServiceName => "rootServiceName",
            Self::TraceDuration => "traceDuration",
            Self::TraceId => "trace:id",
            Self::SpanId => "span:id",
            Self::ParentId => "span:parentID",
            Self::EventName => "event:name",
            Self::ScopeName => "instrumentation:name",
            Self::ScopeVersion => "instrumentation:version",
            Self::Attribute(scope, key) => {
                let scope = match scope {
                    AttributeScope::Any => "",
                    AttributeScope::Span => "span",
                    AttributeScope::Resource => "resource",
                    AttributeScope::Event => "event",
                    AttributeScope::Instrumentation => "instrumentation",
                };
                return format!("{scope}.{key}");
            }
        };
        name.to_owned()
    }

    /// Whether the rest of the trace is needed to know it.
    pub(crate) fn is_of_trace(&self) -> bool {
        matches!(self, Self::RootName | Self::RootServiceName | Self::TraceDuration)
    }
}

/// A step after the spans are chosen.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Keeps of each set those for which this holds.
    Filter(Option<Condition>),
    /// Splits each set by a value.
    By(Field),
    /// Shows fields of the spans.
    Select(Vec<Field>),
    /// Keeps the sets of which this holds.
    Aggregate(Aggregate, Op, f64),
}

/// A number of a set of spans.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Aggregate {
    Count,
    Average(Field),
    Sum(Field),
    Min(Field),
    Max(Field),
}

/// Numbers over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Of what.
    pub(crate) function: Function,
    /// For each combination of these.
    pub(crate) by: Vec<Field>,
}

/// What is computed for each step of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Function {
    /// Spans per second.
    Rate,
    Count,
    Sum(Field),
    Average(Field),
    Min(Field),
    Max(Field),
    Quantile(Field, Vec<f64>),
}

impl Metric {
    /// Whether its numbers are nanoseconds.
    pub fn is_of_time(&self) -> bool {
        matches!(self.function.field(), Some(Field::Duration | Field::TraceDuration))
    }
}

impl Function {
    /// The field that it needs.
    pub(crate) fn field(&self) -> Option<&Field> {
        match self {
            Self::Rate | Self::Count => None,
            Self::Sum(field)
            | Self::Average(field)
            | Self::Min(field)
            | Self::Max(field)
            | Self::Quantile(field, _) => Some(field),
        }
    }
}

impl Query {
    /// What is counted, when spans are not listed.
    pub fn metric(&self) -> Option<&Metric> {
        self.metric.as_ref()
    }

    /// Whether a span can be judged without the others of its trace.
    pub(crate) fn is_of_single_spans(&self) -> bool {
        let needs =
            |condition: &Option<Condition>| condition.as_ref().is_some_and(Condition::needs_trace);
        let filter = match &self.spans {
            Spanset::Filter(condition) => !needs(condition),
            Spanset::Pair(..) => false,
        };
        let metric = self.metric.iter().all(|metric| {
            let mut fields = metric.by.iter().chain(metric.function.field());
            !fields.any(Field::is_of_trace)
        });
        let stages = self.stages.iter().all(|stage| match stage {
            Stage::Filter(condition) => !needs(condition),
            Stage::Select(_) => true,
            Stage::By(_) | Stage::Aggregate(..) => false,
        });
        filter && metric && stages
    }
}

impl Condition {
    /// The fields that it asks for.
    pub(crate) fn fields(&self, out: &mut Vec<Field>) {
        match self {
            Self::Always(_) => {}
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.fields(out)),
            Self::Not(part) => part.fields(out),
            Self::Exists(field, _) | Self::Compare(field, _) => out.push(field.clone()),
        }
    }

    pub(crate) fn needs_trace(&self) -> bool {
        match self {
            Self::Always(_) => false,
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::needs_trace),
            Self::Not(part) => part.needs_trace(),
            Self::Exists(field, _) | Self::Compare(field, _) => field.is_of_trace(),
        }
    }
}
