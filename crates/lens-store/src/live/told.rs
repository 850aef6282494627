//! Reads what log records and spans tell about rollouts.

use gym_telemetry::semconv;
use lens::semconv::{TRUNCATED, live};
use lens_otlp::DecodeError;
use lens_otlp::encode::StatusCode;
use lens_otlp::view::logs::LogView;
use lens_otlp::view::{AnyValue, SpanView};

use crate::ids::{SpanId, TraceId};

/// Kinds of OTLP spans that matter here.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// Longest piece of a notice that is kept.
const MAX_NOTICE_BYTES: usize = 200;

/// Which rollout something belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ids<'a> {
    pub(super) rollout: Option<&'a str>,
    pub(super) run: Option<&'a str>,
    pub(super) task: Option<i64>,
    pub(super) index: Option<i64>,
    pub(super) attempt: Option<i64>,
}

impl<'a> Ids<'a> {
    fn take(&mut self, key: &str, value: AnyValue<'a>) {
        match key {
            semconv::ROLLOUT_ID => self.rollout = text(value),
            semconv::COLLECTION_ID => self.run = text(value),
            semconv::TASK_INDEX => self.task = number(value),
            semconv::ROLLOUT_INDEX => self.index = number(value),
            semconv::ATTEMPT_INDEX => self.attempt = number(value),
            _ => {}
        }
    }
}

/// Something about a span that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alive<'a> {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    pub(super) name: &'a str,
    pub(super) group: &'a str,
    /// How long the span was open when this was said, by the clock of who said it.
    pub(super) age_nanos: u64,
    /// When this was said, by the same clock.
    pub(super) said_nanos: u64,
    /// Name of what it waits for, where its process knows.
    pub(super) stage: Option<&'a str>,
    pub(super) ids: Ids<'a>,
}

/// A request that is going to be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retried<'a> {
    pub(super) trace_id: TraceId,
    /// Its CLIENT span, which is not told of otherwise before it ends.
    pub(super) span_id: SpanId,
    /// Which request, and why.
    pub(super) text: &'a str,
    /// How many times it will have been sent again then.
    pub(super) resent: u32,
    /// How long until it is.
    pub(super) wait_nanos: u64,
    pub(super) said_nanos: u64,
    pub(super) ids: Ids<'a>,
}

/// What a log record tells.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told<'a> {
    /// A span is open.
    Alive(Alive<'a>),
    /// A request failed and is not given up.
    Retried(Retried<'a>),
    /// A warning about a trace.
    Notice { trace_id: TraceId, said_nanos: u64, text: &'a str },
    /// Nothing that matters here.
    Other,
}

impl<'a> Told<'a> {
    /// Reads an encoded `LogRecord`.
    pub(super) fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let log = LogView::read(message)?;
        let is_heartbeat = match log.event_name {
            live::OPEN_EVENT => false,
            live::HEARTBEAT_EVENT => true,
            semconv::event::NOTICE => return Ok(Self::notice(&log)),
            semconv::event::RETRY => return Self::retried(&log),
            _ => return Ok(Self::Other),
        };
        let Some((trace_id, span_id)) = ids_of(&log) else { return Ok(Self::Other) };
        let said_nanos = if log.observed_nanos == 0 { log.time_nanos } else { log.observed_nanos };
        let mut alive = Alive {
            trace_id,
            span_id,
            parent_id: None,
            name: "",
            group: "",
            age_nanos: said_nanos.saturating_sub(log.time_nanos),
            said_nanos,
            stage: None,
            ids: Ids::default(),
        };
        for pair in log.attributes() {
            let (key, value) = pair?;
            match key {
                live::SPAN_NAME => alive.name = text(value).unwrap_or_default(),
                live::SPAN_GROUP => alive.group = text(value).unwrap_or_default(),
                live::SPAN_PARENT_ID => alive.parent_id = text(value).and_then(SpanId::parse),
                live::SPAN_STAGE => alive.stage = text(value),
                live::SPAN_AGE_MILLIS if is_heartbeat => {
                    let millis = number(value).and_then(|millis| u64::try_from(millis).ok());
                    alive.age_nanos = millis.unwrap_or(0).saturating_mul(1_000_000);
                }
                _ => alive.ids.take(key, value),
            }
        }
        Ok(Self::Alive(alive))
    }

    fn notice(log: &LogView<'a>) -> Self {
        match (TraceId::from_bytes(log.trace_id), log.body) {
            (Some(trace_id), AnyValue::String(text)) => {
                Self::Notice { trace_id, said_nanos: log.time_nanos, text: short(text) }
            }
            _ => Self::Other,
        }
    }

    fn retried(log: &LogView<'a>) -> Result<Self, DecodeError> {
        let (Some((trace_id, span_id)), AnyValue::String(text)) = (ids_of(log), log.body) else {
            return Ok(Self::Other);
        };
        let mut retried = Retried {
            trace_id,
            span_id,
            text: short(text),
            resent: 1,
            wait_nanos: 0,
            said_nanos: log.time_nanos,
            ids: Ids::default(),
        };
        for pair in log.attributes() {
            let (key, value) = pair?;
            match key {
                semconv::HTTP_REQUEST_RESEND_COUNT => retried.resent = count(value),
                semconv::HTTP_BACKOFF_NANOS => {
                    let nanos = number(value).and_then(|nanos| u64::try_from(nanos).ok());
                    retried.wait_nanos = nanos.unwrap_or(0);
                }
                _ => retried.ids.take(key, value),
            }
        }
        Ok(Self::Retried(retried))
    }
}

fn ids_of(log: &LogView<'_>) -> Option<(TraceId, SpanId)> {
    Some((TraceId::from_bytes(log.trace_id)?, SpanId::from_bytes(log.span_id)?))
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NOTICE_BYTES)]
}

/// What a span that has ended tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended<'a> {
    pub(super) ids: Ids<'a>,
    /// Nobody's code ended it.
    pub(super) is_truncated: bool,
    /// How many times the request was sent again.
    pub(super) resent: u32,
    pub(super) is_client: bool,
    /// Nobody waited for it any longer.
    pub(super) is_cancelled: bool,
    pub(super) is_error: bool,
}

impl<'a> Ended<'a> {
    pub(super) fn read(span: &SpanView<'a>) -> Result<Self, DecodeError> {
        let mut ended = Self {
            is_client: span.kind == CLIENT,
            is_error: span.status == StatusCode::Error,
            ..Self::default()
        };
        for pair in span.attributes() {
            let (key, value) = pair?;
            match key {
                TRUNCATED => ended.is_truncated = matches!(value, AnyValue::Bool(true)),
                semconv::HTTP_REQUEST_RESEND_COUNT => ended.resent = count(value),
                semconv::CANCELLED => ended.is_cancelled = matches!(value, AnyValue::Bool(true)),
                _ => ended.ids.take(key, value),
            }
        }
        Ok(ended)
    }
}

/// Whether log records may have told of a span while it was open.
pub(super) fn may_have_been_told(span: &SpanView<'_>) -> bool {
    span.kind == SERVER || span.name.starts_with(semconv::span::GYM_PREFIX)
}

/// Which of the spans of a rollout can be its root: the lower number is the higher span.
pub(super) fn root_rank(name: &str) -> Option<u8> {
    match name {
        semconv::span::ROLLOUT_ATTEMPT => Some(0),
        super::RUN_REQUEST => Some(1),
        semconv::span::ROLLOUT => Some(2),
        _ => None,
    }
}

pub(super) fn text(value: AnyValue<'_>) -> Option<&str> {
    match value {
        AnyValue::String(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn count(value: AnyValue<'_>) -> u32 {
    number(value).and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// Baggage holds numbers as text.
pub(super) fn number(value: AnyValue<'_>) -> Option<i64> {
    match value {
        AnyValue::Int(number) => Some(number),
        AnyValue::String(text) => text.parse().ok(),
        _ => None,
    }
}
