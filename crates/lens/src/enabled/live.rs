//! Live events: log records about spans of long-lived groups that are open, so that work is seen while it runs.
//!
//! The exporter's thread finds them in the start records, ten times a second, so they cost the code that begins a span
//! nothing; what begins and ends between two looks is not told of, because the span itself is about to arrive. They go
//! through the ring of log records, which drops and counts what it has no room for. While the receiver is away nothing
//! is told: afterwards it would be old.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lens_otlp::encode::{LOG_ATTRIBUTES, LogParts, SPAN_ATTRIBUTES, SPAN_ID_AT, put_key_value};
use lens_otlp::json::put_hex;
use lens_otlp::view::SpanView;
use lens_otlp::wire::{Fields, put_bytes};

use super::logs::{self, Severity};
use super::pipeline::{self, Pipeline, writer};
use super::raw::records::{Record, Started};
use super::recording::Recording;
use super::value::Value;
use super::{clock, fields, group};
use crate::semconv::live;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Whether there is a receiver that shows them, and it answers.
static TOLD: AtomicBool = AtomicBool::new(false);

/// How the pipeline of log records is had: it is made when it is needed.
pub(super) type Taker = Box<dyn FnOnce() -> Option<&'static Pipeline> + Send>;

/// What the exporter's thread does about open spans.
#[derive(Default)]
pub(super) enum LiveEvents {
    /// Nothing.
    #[default]
    Off,
    /// Nothing yet: the receiver has not said that it shows them.
    Waiting(Taker, Duration),
    /// Tells of them.
    On(Watch),
}

impl LiveEvents {
    /// The receiver shows them.
    pub(super) fn begin(&mut self) {
        if let Self::Waiting(taker, heartbeat) = std::mem::take(self)
            && let Some(logs) = taker()
        {
            *self = Self::On(Watch::new(logs, heartbeat));
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(..))
    }

    /// Tells of the open spans of a pipeline, unless its receiver is away.
    pub(super) fn look(&mut self, spans: &Pipeline, is_away: bool) {
        let Self::On(watch) = self else { return };
        TOLD.store(!is_away, Ordering::Relaxed);
        if !is_away {
            watch.look(spans);
        }
    }
}

/// In a child, whose parent was told so.
pub(super) fn forget() {
    TOLD.store(false, Ordering::Relaxed);
}

/// Tells at once what happens in a span that is open; does nothing where nobody shows it.
pub(super) fn tell(
    recording: &Recording,
    event_name: &str,
    body: &str,
    attributes: &[(&'static str, Value)],
) {
    let is_told = TOLD.load(Ordering::Relaxed);
    let Some(pipeline) = is_told.then(pipeline::logs).flatten() else { return };
    let mut encoded = Vec::new();
    let mut rest = recording.shared().map_or(&[][..], |shared| shared.attributes.bytes());
    while let Some(field) = fields::first(rest) {
        let (shared, after) = rest.split_at(field.len);
        rest = after;
        if !attributes.iter().any(|(key, _)| key.as_bytes() == field.key) {
            put_as_log_attributes(&mut encoded, shared);
        }
    }
    logs::put_attributes(&mut encoded, attributes);
    let (span, now_nanos) = (recording.context(), clock::now_unix_nanos());
    let parts = LogParts {
        time_nanos: now_nanos,
        observed_nanos: now_nanos,
        severity_number: Severity::Info as u8,
        severity_text: Severity::Info.as_str(),
        body,
        attributes: &encoded,
        span: Some((span.trace_id().to_bytes(), span.span_id().to_bytes())),
        flags: u32::from(span.flags()),
        event_name,
    };
    push(pipeline, recording.scope, &parts);
}

fn push(logs: &'static Pipeline, scope: u16, parts: &LogParts<'_>) {
    let mut bytes = Vec::with_capacity(parts.attributes.len() + 160);
    parts.put(&mut bytes);
    writer::push_encoded(logs, scope, &bytes);
}

/// Takes over the attributes of a span's message: a `KeyValue` is the same wherever it is.
fn put_as_log_attributes(out: &mut Vec<u8>, message: &[u8]) -> Option<()> {
    for field in Fields::new(message) {
        if let (number, content) = field.ok()?
            && number == u32::from(SPAN_ATTRIBUTES)
        {
            put_bytes(out, LOG_ATTRIBUTES, content.bytes().ok()?);
        }
    }
    Some(())
}

/// Which spans are open, as far as they were told of.
pub(super) struct Watch {
    logs: &'static Pipeline,
    heartbeat: Duration,
    open: HashMap<Record, Open>,
    looks: u64,
    next_look: Instant,
    next_beat: Instant,
}

/// A span that was open at the last look.
struct Open {
    look: u64,
    scope: u16,
    trace_id: [u8; 16],
    span_id: [u8; 8],
    parent_id: Option<[u8; 8]>,
    flags: u32,
    start_nanos: u64,
    name: String,
    /// What every record says of it, encoded.
    attributes: Vec<u8>,
}

impl Watch {
    pub(super) fn new(logs: &'static Pipeline, heartbeat: Duration) -> Self {
        let now = Instant::now();
        let next_beat = now + heartbeat;
        Self { logs, heartbeat, open: HashMap::new(), looks: 0, next_look: now, next_beat }
    }

    /// Looks which spans are open in `spans`: tells of those that are new, and from time to time of the others.
    pub(super) fn look(&mut self, spans: &Pipeline) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        self.looks += 1;
        let look = self.looks;
        let mut new = Vec::new();
        spans.read_open(|record, started| {
            let known = self.open.get_mut(&record);
            if let Some(known) = known.filter(|known| known.is_in(started.message)) {
                known.look = look;
            } else if let Some(open) = Open::read(&started, look) {
                self.open.insert(record, open);
                new.push(record);
            }
        });
        self.open.retain(|_, open| open.look == look);
        if now >= self.next_beat {
            self.next_beat = now + self.heartbeat;
            self.beat(&new);
        }
        for open in new.iter().filter_map(|record| self.open.get(record)) {
            open.tell(self.logs, live::OPEN_EVENT, open.start_nanos, &open.attributes);
        }
    }

    fn beat(&self, new: &[Record]) {
        let stages = self.stages();
        let now_nanos = clock::now_unix_nanos();
        for (_, open) in self.open.iter().filter(|(record, _)| !new.contains(record)) {
            let mut attributes = open.attributes.clone();
            let age_millis = now_nanos.saturating_sub(open.start_nanos) / 1_000_000;
            let age_millis = i64::try_from(age_millis).unwrap_or(i64::MAX);
            put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_AGE_MILLIS, &age_millis);
            if let Some(stage) = stages.get(&open.span_id) {
                put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_STAGE, *stage);
            }
            open.tell(self.logs, live::HEARTBEAT_EVENT, now_nanos, &attributes);
        }
    }

    /// What each span waits for: the span below it that began last.
    fn stages(&self) -> HashMap<[u8; 8], &str> {
        let by_id: HashMap<_, _> = self.open.values().map(|open| (open.span_id, open)).collect();
        let mut in_order: Vec<&Open> = self.open.values().collect();
        in_order.sort_unstable_by_key(|open| open.start_nanos);
        let mut stages = HashMap::new();
        for open in in_order {
            let (mut above, mut steps) = (open.parent_id, 0);
            // A chain of parents is no longer than there are spans.
            while let Some(parent) = above.and_then(|id| by_id.get(&id))
                && steps < by_id.len()
            {
                stages.insert(parent.span_id, open.name.as_str());
                above = parent.parent_id;
                steps += 1;
            }
        }
        stages
    }
}

impl Open {
    fn read(started: &Started<'_>, look: u64) -> Option<Self> {
        let span = SpanView::read(started.message).ok()?;
        let parent_id = span.parent_id.try_into().ok();
        let mut attributes = Vec::new();
        put_as_log_attributes(&mut attributes, started.message)?;
        put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_NAME, span.name);
        let group = group::group_name(started.group);
        put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_GROUP, group);
        if !span.parent_id.is_empty() {
            let mut id = String::new();
            put_hex(&mut id, span.parent_id);
            put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_PARENT_ID, id.as_str());
        }
        Some(Self {
            look,
            scope: started.scope,
            trace_id: span.trace_id.try_into().ok()?,
            span_id: span.span_id.try_into().ok()?,
            parent_id,
            flags: span.flags & 0xff,
            start_nanos: span.start_nanos,
            name: span.name.to_owned(),
            attributes,
        })
    }

    /// Whether a record is still about this span.
    fn is_in(&self, message: &[u8]) -> bool {
        message.get(SPAN_ID_AT..).is_some_and(|rest| rest.starts_with(&self.span_id))
    }

    fn tell(&self, logs: &'static Pipeline, event_name: &str, time_nanos: u64, attributes: &[u8]) {
        let parts = LogParts {
            time_nanos,
            observed_nanos: clock::now_unix_nanos(),
            severity_number: Severity::Info as u8,
            severity_text: Severity::Info.as_str(),
            body: &self.name,
            attributes,
            span: Some((self.trace_id, self.span_id)),
            flags: self.flags,
            event_name,
        };
        push(logs, self.scope, &parts);
    }
}
