//! What a span that exists holds: in one piece, used again by the next span of the thread that ends it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use lens_otlp::encode::{
    EVENT_ATTRIBUTES, FLAG_HAS_IS_REMOTE, FLAG_IS_REMOTE, LINK_ATTRIBUTES, Rare, StatusCode,
    put_event, put_link_with,
};
use lens_otlp::event::put_event_of_numbers;

use super::attributes::bit;
use super::clock::{self, Ticks};
use super::context::{Shared, SpanContext};
use super::limited::Limited;
use super::message::SpanMessage;
use super::pipeline::writer::{self, Ended, StartRecord};
use super::raw::fork;
use super::span_end;
use super::thread::Thread;
use super::truncated;
use super::value::Value;
use crate::config::SpanLimits;
use crate::semconv::TRUNCATED;

/// What a span that exists is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It will be exported.
    Recording,
    /// Its trace is not sampled; its context flows.
    Unsampled,
    /// Its group is off, but the context it was to have as parent still flows through it.
    Through,
}

/// In the order of use: what every span touches lies together, with the bytes of the message behind it.
#[repr(C)]
pub(super) struct Recording {
    /// The next of those that are kept, while this one is kept itself.
    pub(super) next_idle: Option<Box<Self>>,
    pub(super) start: Ticks,
    pub(super) start_nanos: u64,
    /// The process that started it, as far as `fork` is concerned.
    pub(super) generation: u32,
    shared: Option<Arc<Shared>>,
    pub(super) mode: Mode,
    /// Whether its start is no reading of the clock.
    start_is_given: bool,
    pub(super) scope: u16,
    pub(super) message: SpanMessage,
    /// The context that is passed on by what is no span.
    passed: SpanContext,
    record: Option<StartRecord>,
    rare: Option<Box<RareParts>>,
}

/// What most spans do not have.
#[derive(Default)]
struct RareParts {
    events: Vec<u8>,
    event_count: usize,
    dropped_events: u32,
    links: Vec<u8>,
    link_count: usize,
    dropped_links: u32,
    status: StatusCode,
    status_message: Cow<'static, str>,
}

impl RareParts {
    fn clear(&mut self) {
        self.events.clear();
        self.links.clear();
        (self.event_count, self.link_count) = (0, 0);
        (self.dropped_events, self.dropped_links) = (0, 0);
        self.status = StatusCode::Unset;
        self.status_message = Cow::Borrowed("");
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Recording")
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

/// Buffers larger than this are not kept.
const KEPT_BYTES: usize = 8 << 10;

#[inline]
fn limits() -> &'static SpanLimits {
    super::handle::span_limits()
}

impl Recording {
    /// One to use; what it holds is of no meaning.
    #[inline(always)]
    pub(super) fn take(thread: &Thread) -> Box<Self> {
        match thread.take_idle() {
            Some(recording) => recording,
            None => Self::fresh(),
        }
    }

    #[cold]
    #[inline(never)]
    fn fresh() -> Box<Self> {
        Box::new(Self {
            mode: Mode::Recording,
            start_is_given: false,
            scope: 0,
            generation: 0,
            start_nanos: 0,
            start: Ticks::default(),
            passed: SpanContext::default(),
            shared: None,
            message: SpanMessage::closed(),
            record: None,
            rare: None,
            next_idle: None,
        })
    }

    /// Takes over what contexts below it have too.
    #[inline]
    pub(super) fn share(&mut self, shared: &Arc<Shared>) {
        self.message.copy_from(&shared.attributes);
        self.message.is_unusual |= shared.tracestate.is_some();
        self.shared = Some(Arc::clone(shared));
    }

    /// Passes a context on without being a span.
    pub(super) fn pass(&mut self, context: SpanContext, shared: Option<Arc<Shared>>) {
        self.passed = context;
        self.message.close();
        self.message.is_unusual = true;
        self.shared = shared;
    }

    /// The context of work below it.
    #[inline]
    pub(super) fn context(&self) -> SpanContext {
        if self.mode == Mode::Recording { self.message.context() } else { self.passed }
    }

    /// The start is none that the end can be measured from.
    pub(super) fn start_is_given(&mut self) {
        (self.start_is_given, self.message.is_unusual) = (true, true);
    }

    #[inline(always)]
    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }

    /// Notes that it is open, for whoever ends it if its code does not.
    #[cold]
    pub(super) fn open_record(&mut self, group: u16) {
        let record = self.with_ended(|ended| writer::open_record([self.scope, group], ended));
        self.record = record;
        self.message.is_unusual = true;
    }

    #[inline(always)]
    pub(super) fn finish(mut self: Box<Self>, thread: &Thread) {
        if self.message.is_unusual || self.generation != fork::generation() || span_end::is_hooked()
        {
            return self.finish_unusual(thread, None);
        }
        let end_nanos = self.start_nanos + self.start.nanos_until(Ticks::now());
        writer::push(thread, self.scope, &mut self.message, end_nanos);
        if self.shared.is_some() {
            self.shared = None;
        }
        thread.give_idle(self);
    }

    /// Ends it, whatever there is to it.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_unusual(mut self: Box<Self>, thread: &Thread, end_nanos: Option<u64>) {
        let is_ours = self.record.as_ref().is_none_or(StartRecord::begin_end);
        // A copy in a forked child is not the child's to export.
        if is_ours && self.mode == Mode::Recording && self.generation == fork::generation() {
            if self.record.is_some() && truncated::has_begun() {
                self.truncate();
            }
            let now = Ticks::now();
            let end_nanos = end_nanos.unwrap_or_else(|| {
                if self.start_is_given {
                    now.unix_nanos()
                } else {
                    self.start_nanos + self.start.nanos_until(now)
                }
            });
            if span_end::is_hooked() {
                match span_end::call(self) {
                    Some(recording) => self = recording,
                    None => return,
                }
            }
            self.message.set_end(end_nanos.max(self.start_nanos));
            self.with_ended(|ended| writer::push_ended(thread, self.scope, ended));
        }
        // Only now: whoever finds the process dead in between finds the span twice rather than not at all.
        if let Some(record) = self.record.take().filter(|_| is_ours) {
            record.close();
        }
        self.shared = None;
        self.start_is_given = false;
        self.message.clear();
        let mut bytes = self.message.spilled_capacity();
        if let Some(rare) = &mut self.rare {
            rare.clear();
            bytes += rare.events.capacity() + rare.links.capacity();
        }
        if bytes <= KEPT_BYTES {
            thread.give_idle(self);
        }
    }

    /// Says that it is not its code that ends it.
    #[cold]
    fn truncate(&mut self) {
        self.message.put_bool(TRUNCATED, bit(TRUNCATED), true);
        self.add_event::<&str>(TRUNCATED, clock::now_unix_nanos(), &[]);
        let rare = self.rare();
        if rare.status == StatusCode::Ok {
            rare.status = StatusCode::Unset;
        }
    }

    /// Lends the span as it is.
    fn with_ended<R>(&self, use_it: impl FnOnce(&Ended<'_>) -> R) -> R {
        let nothing = RareParts::default();
        let rare = self.rare.as_deref().unwrap_or(&nothing);
        let shared = self.shared.as_ref();
        let trace_state =
            shared.and_then(|shared| shared.tracestate.as_deref()).unwrap_or_default();
        use_it(&Ended {
            message: self.message.bytes(),
            head_len: self.message.head_len(),
            rare: Rare {
                trace_state,
                dropped_attributes: self.message.dropped(),
                events: &rare.events,
                dropped_events: rare.dropped_events,
                links: &rare.links,
                dropped_links: rare.dropped_links,
                status: rare.status,
                status_message: &rare.status_message,
            },
        })
    }

    fn rare(&mut self) -> &mut RareParts {
        self.message.is_unusual = true;
        self.rare.get_or_insert_default()
    }

    pub(super) fn add_event<K: AsRef<str> + Copy>(
        &mut self,
        name: &str,
        unix_nanos: u64,
        attributes: &[(K, Value)],
    ) {
        let limits = limits();
        let rare = self.rare();
        if rare.event_count >= limits.events {
            rare.dropped_events += 1;
            return;
        }
        rare.event_count += 1;
        let attributes = Limited::new(attributes, limits.event_attributes);
        put_event(&mut rare.events, name, unix_nanos, attributes.dropped(), |out| {
            attributes.put(out, EVENT_ATTRIBUTES, limits.attribute_value_chars);
        });
    }

    /// An event whose attributes are numbers with keys that differ.
    pub(super) fn add_event_of_numbers(
        &mut self,
        name: &str,
        unix_nanos: u64,
        attributes: &[(&'static str, i64)],
    ) {
        let limits = limits();
        let rare = self.rare();
        if rare.event_count >= limits.events {
            rare.dropped_events += 1;
            return;
        }
        rare.event_count += 1;
        let (kept, dropped) = attributes.split_at(attributes.len().min(limits.event_attributes));
        put_event_of_numbers(&mut rare.events, name, unix_nanos, kept, dropped.len() as u32);
    }

    pub(super) fn add_link<K: AsRef<str> + Copy>(
        &mut self,
        context: SpanContext,
        attributes: &[(K, Value)],
    ) {
        let limits = limits();
        let rare = self.rare();
        if rare.link_count >= limits.links {
            rare.dropped_links += 1;
            return;
        }
        rare.link_count += 1;
        let remote = if context.is_remote() { FLAG_IS_REMOTE } else { 0 };
        let attributes = Limited::new(attributes, limits.link_attributes);
        put_link_with(
            &mut rare.links,
            &context.trace_id().to_bytes(),
            &context.span_id().to_bytes(),
            u32::from(context.flags()) | FLAG_HAS_IS_REMOTE | remote,
            attributes.dropped(),
            |out| attributes.put(out, LINK_ATTRIBUTES, limits.attribute_value_chars),
        );
    }

    pub(super) fn set_status(&mut self, status: StatusCode, message: Cow<'static, str>) {
        let rare = self.rare();
        if rare.status != StatusCode::Ok {
            rare.status = status;
            rare.status_message = message;
        }
    }
}
