//! One span as read back, small enough to hold millions.
//!
//! Attributes and events stay JSON text until somebody looks; what every view needs (ids, times,
//! name, status, rollout id) is taken out while reading.

use std::fmt;
use std::sync::Arc;

use gym_telemetry::semconv;
use serde_json::{Map, Value};

use super::foreign;

/// Id of a trace, never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TraceId(u128);

/// Id of a span, never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SpanId(u64);

impl TraceId {
    /// 32 hex digits, with or without `0x`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = hex_digits(text, 32)?;
        u128::from_str_radix(digits, 16).ok().filter(|id| *id != 0).map(Self)
    }
}

impl SpanId {
    /// 16 hex digits, with or without `0x`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = hex_digits(text, 16)?;
        u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0).map(Self)
    }
}

fn hex_digits(text: &str, length: usize) -> Option<&str> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    (digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then_some(digits)
}

impl SpanId {
    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

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
    pub fn from_otlp(number: i64) -> Self {
        match number {
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Internal,
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

/// How a span ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Nothing was said.
    Unset,
    /// Declared successful.
    Ok,
    /// Failed.
    Error,
}

impl Status {
    /// `UNSET`, `OK`, `ERROR`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unset => "UNSET",
            Self::Ok => "OK",
            Self::Error => "ERROR",
        }
    }
}

/// What the processes of a Gym are called.
pub mod role {
    /// Supervisor and driver.
    pub const DRIVER: &str = "driver";
    /// Runs rollouts.
    pub const AGENT: &str = "agent server";
    /// Answers for a model.
    pub const MODEL: &str = "model server";
    /// Tools, sessions, verification.
    pub const RESOURCES: &str = "resources server";
}

/// The process a span comes from; shared by all its spans.
#[derive(Debug)]
pub struct Resource {
    /// Its attributes.
    pub attributes: Map<String, Value>,
    /// Name of the instance (`policy_model`), else of the service.
    pub instance: String,
    /// `agent server`, `driver`, …, when it is one of the Gym's.
    pub role: Option<&'static str>,
    /// Tells one process from another.
    pub process_key: String,
}

impl Resource {
    /// Names the process that these attributes describe.
    pub fn new(attributes: Map<String, Value>) -> Self {
        let text = |key: &str| attributes.get(key).map(scalar_text).filter(|text| !text.is_empty());
        let service = text(semconv::SERVICE_NAME);
        let instance = text(semconv::SERVER_NAME)
            .or_else(|| {
                service.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name).to_owned())
            })
            .unwrap_or_else(|| "unknown process".to_owned());
        let role = match text(semconv::SERVER_TYPE).as_deref() {
            Some(semconv::value::ORCHESTRATOR) => Some(role::DRIVER),
            Some("responses_api_agents") => Some(role::AGENT),
            Some("responses_api_models") => Some(role::MODEL),
            Some("resources_servers") => Some(role::RESOURCES),
            _ => None,
        };
        let process_key = [
            lens::semconv::HOST_NAME,
            semconv::PROCESS_PID,
            lens::semconv::SERVICE_INSTANCE_ID,
            semconv::SERVICE_NAME,
        ]
        .map(|key| text(key).unwrap_or_default())
        .join("\u{1f}");
        Self { attributes, instance, role, process_key }
    }
}

/// One span.
#[derive(Clone, Debug)]
pub struct Span {
    /// Id of its trace.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span that caused it.
    pub parent_id: Option<SpanId>,
    /// Its name, with control characters replaced and rollout prefixes cut.
    pub name: Arc<str>,
    /// Which side of what it is.
    pub kind: Kind,
    /// When it started, Unix nanoseconds.
    pub start_nanos: u64,
    /// When it ended; never before the start.
    pub end_nanos: u64,
    /// How it ended.
    pub status: Status,
    /// What its status says.
    pub status_description: Option<Box<str>>,
    /// The rollout it belongs to.
    pub rollout_id: Option<Arc<str>>,
    /// One of Python's per-event ASGI spans, of interest to nobody but its author.
    pub is_asgi_event: bool,
    /// It was closed by somebody else, or never.
    pub is_truncated: bool,
    /// JSON object.
    pub attributes: Box<str>,
    /// JSON array of `{name, timestamp, attributes}`; empty text when there are none.
    pub events: Box<str>,
    /// JSON array; empty text when there are none.
    pub links: Box<str>,
    /// The process it comes from.
    pub resource: Arc<Resource>,
}

impl Span {
    /// Its attributes.
    pub fn attributes(&self) -> Map<String, Value> {
        serde_json::from_str(&self.attributes).unwrap_or_default()
    }

    /// Its events as JSON.
    pub fn events(&self) -> Vec<Value> {
        serde_json::from_str(&self.events).unwrap_or_default()
    }

    /// Its links as JSON.
    pub fn links(&self) -> Vec<Value> {
        serde_json::from_str(&self.links).unwrap_or_default()
    }

    /// Wall clock between start and end.
    pub fn duration_nanos(&self) -> u64 {
        self.end_nanos - self.start_nanos
    }
}

/// What the readers hand over; [`SpanDraft::finish`] takes out what every view needs.
pub struct SpanDraft {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    pub name: String,
    pub kind: Kind,
    pub start_nanos: u64,
    /// `None`: still open.
    pub end_nanos: Option<u64>,
    pub status: Status,
    pub status_description: Option<String>,
    pub attributes: Box<str>,
    pub events: Box<str>,
    pub links: Box<str>,
}

impl SpanDraft {
    /// The span of this draft in this process; `intern` shares equal texts.
    pub fn finish(self, resource: Arc<Resource>, mut intern: impl FnMut(&str) -> Arc<str>) -> Span {
        let facts = Facts::of(&self.attributes);
        let name = display_name(&self.name, facts.target.as_deref());
        Span {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_id: self.parent_id,
            name: intern(&name),
            kind: self.kind,
            start_nanos: self.start_nanos,
            end_nanos: self.end_nanos.unwrap_or(self.start_nanos).max(self.start_nanos),
            status: self.status,
            status_description: self
                .status_description
                .filter(|text| !text.is_empty())
                .map(String::into_boxed_str),
            rollout_id: facts.rollout_id.as_deref().map(&mut intern),
            is_asgi_event: facts.is_asgi_event,
            is_truncated: facts.is_truncated || self.end_nanos.is_none(),
            attributes: self.attributes,
            events: self.events,
            links: self.links,
            resource,
        }
    }
}

/// What is looked up in the attributes of every span.
#[derive(Default)]
struct Facts {
    rollout_id: Option<String>,
    target: Option<String>,
    is_asgi_event: bool,
    is_truncated: bool,
}

impl Facts {
    fn of(attributes: &str) -> Self {
        let mut facts = Self::default();
        // Most attributes are none of these: the text decides whether parsing is worth it.
        let wanted = [
            semconv::ROLLOUT_ID,
            foreign::ASGI_EVENT_TYPE,
            lens::semconv::TRUNCATED,
            foreign::ROLLOUT_PATH_PREFIX,
        ];
        if !wanted.iter().any(|key| attributes.contains(key)) {
            return facts;
        }
        let Ok(map) = serde_json::from_str::<Map<String, Value>>(attributes) else { return facts };
        facts.is_asgi_event = map.contains_key(foreign::ASGI_EVENT_TYPE);
        facts.is_truncated = map.get(lens::semconv::TRUNCATED) == Some(&Value::Bool(true));
        facts.target = map.get(foreign::LEGACY_HTTP_TARGET).map(scalar_text);
        facts.rollout_id = map.get(semconv::ROLLOUT_ID).map(scalar_text).or_else(|| {
            let path = [semconv::URL_PATH, semconv::URL_FULL, foreign::LEGACY_HTTP_TARGET]
                .iter()
                .find_map(|key| map.get(*key)?.as_str())?;
            rollout_in_path(path).map(|(id, _)| id.to_owned())
        });
        facts
    }
}

/// Rollout id and the rest of `…/ng-rollout/<id>/verify`.
fn rollout_in_path(path: &str) -> Option<(&str, &str)> {
    let (_, tail) = path.split_once(foreign::ROLLOUT_PATH_PREFIX)?;
    let end = tail.find('/')?;
    (end > 0).then(|| (&tail[..end], &tail[end..]))
}

/// The reference names a request under `/ng-rollout/<id>` after the prefixed route, or after no
/// route at all; the prefix says nothing that the rollout id does not.
fn display_name(name: &str, target: Option<&str>) -> String {
    let name = match (name.split_once(' '), target.and_then(rollout_in_path)) {
        (Some((method, path)), _) if path.starts_with(foreign::ROLLOUT_PATH_PREFIX) => {
            match rollout_in_path(path) {
                Some((_, rest)) => format!("{method} {rest}"),
                None => name.to_owned(),
            }
        }
        (None, Some((_, rest))) => {
            format!("{name} {}", rest.split('?').next().unwrap_or(rest))
        }
        _ => name.to_owned(),
    };
    if name.is_empty() { "(no name)".to_owned() } else { printable(&name) }
}

/// The text without characters that move the cursor or change colours.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A scalar as plain text; anything else as JSON.
pub fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_with_and_without_prefix_and_zero_is_none() {
        let id = TraceId::parse("0x0af7651916cd43dd8448eb211c80319c").unwrap();
        assert_eq!(id.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(TraceId::parse("0AF7651916CD43DD8448EB211C80319C"), Some(id));
        assert_eq!(TraceId::parse(&"0".repeat(32)), None);
        assert_eq!(SpanId::parse("b7ad6b716920333"), None);
        assert_eq!(SpanId::parse("+7ad6b7169203331"), None);
    }

    #[test]
    fn a_prefixed_route_is_named_like_the_route() {
        assert_eq!(
            display_name("POST /ng-rollout/{rollout_id}/v1/responses", None),
            "POST /v1/responses"
        );
        assert_eq!(display_name("POST", Some("/ng-rollout/0-0/verify?x=1")), "POST /verify");
        assert_eq!(display_name("POST", Some("/nowhere")), "POST");
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        assert_eq!(display_name("a\u{1b}[31mb\n", None), "a\u{fffd}[31mb\u{fffd}");
    }
}
