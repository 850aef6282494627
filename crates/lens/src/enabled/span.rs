//! Spans: built where they run, encoded once when they end.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use lens_otlp::encode::{
    EVENT_ATTRIBUTES, FLAG_HAS_IS_REMOTE, FLAG_IS_REMOTE, LINK_ATTRIBUTES, Rare, SpanHead,
    SpanTail, StatusCode, put_event, put_link_with,
};

use super::attributes::{AttributeBytes, AttributeValue, ValueLimits};
use super::clock::{self, Ticks};
use super::context::{Context, Shared, SpanContext};
use super::group::Group;
use super::limited::Limited;
use super::pipeline::writer::{self, Ended, StartRecord};
use super::raw::fork;
use super::sampling;
use super::value::Value;
use crate::SpanKind;
use crate::config::SpanLimits;
use crate::semconv;

/// A stretch of work. Ends when it is dropped or by [`end`](Self::end), on any thread.
///
/// It is not current by itself: a guard, [`InSpan`](crate::InSpan) or [`Context::with_span`] makes it so.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    /// One pointer, so that a site whose group is off has next to nothing to make and to drop.
    inner: Option<Box<Recording>>,
}

type Attributes = Vec<(&'static str, Value)>;

/// What a span that exists is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It will be exported.
    Recording,
    /// Its trace is not sampled; its context flows.
    Unsampled,
    /// Its group is off, but the context it was to have as parent still flows through it.
    Through,
}

struct Recording {
    mode: Mode,
    scope: u16,
    /// The process that started it, as far as `fork` is concerned.
    generation: u64,
    context: SpanContext,
    shared: Option<Arc<Shared>>,
    name: Cow<'static, str>,
    start_nanos: u64,
    /// `None` when the start was given.
    start: Option<Ticks>,
    record: Option<StartRecord>,
    attributes: AttributeBytes,
    /// Whether `rare` holds anything.
    is_rare: bool,
    rare: RareParts,
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
            .field("name", &self.name)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// Recordings of ended spans, kept with their buffers for the next ones of this thread.
const POOLED: usize = 1024;
/// Buffers larger than this are not kept.
const POOLED_BYTES: usize = 8 << 10;

thread_local! {
    // Boxes: a span is moved by one pointer, and so is what it leaves behind.
    #[allow(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Recording>>> = const { RefCell::new(Vec::new()) };
}

impl Recording {
    #[inline]
    fn empty() -> Box<Self> {
        let pooled = POOL.try_with(|pool| pool.try_borrow_mut().ok()?.pop()).ok().flatten();
        pooled.unwrap_or_else(Self::fresh)
    }

    #[cold]
    fn fresh() -> Box<Self> {
        Box::new(Self {
            mode: Mode::Recording,
            scope: 0,
            generation: 0,
            context: SpanContext::default(),
            shared: None,
            name: Cow::Borrowed(""),
            start_nanos: 0,
            start: None,
            record: None,
            attributes: AttributeBytes::default(),
            is_rare: false,
            rare: RareParts::default(),
        })
    }

    #[inline]
    fn recycle(mut self: Box<Self>) {
        self.shared = None;
        if matches!(self.name, Cow::Owned(_)) {
            self.name = Cow::Borrowed("");
        }
        if self.is_rare {
            self.is_rare = false;
            self.rare.clear();
        }
        let bytes =
            self.attributes.capacity() + self.rare.events.capacity() + self.rare.links.capacity();
        if bytes > POOLED_BYTES {
            return;
        }
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut()
                && pool.len() < POOLED
            {
                pool.push(self);
            }
        });
    }

    #[inline]
    fn end_now_nanos(&self) -> u64 {
        let now = Ticks::now();
        match self.start {
            Some(start) => self.start_nanos + start.nanos_until(now),
            None => now.unix_nanos(),
        }
    }

    #[inline(always)]
    fn finish(mut self: Box<Self>, end_nanos: Option<u64>) {
        // A copy in a forked child is not the child's to export.
        if self.mode == Mode::Recording && self.generation == fork::generation() {
            let end_nanos = end_nanos.unwrap_or_else(|| self.end_now_nanos());
            self.with_ended(end_nanos, |ended| writer::push(self.scope, ended));
        }
        // Only now: whoever finds the process dead in between finds the span twice rather than not at all.
        if let Some(record) = self.record.take() {
            record.close();
        }
        self.recycle();
    }

    /// Lends the span as it is at `end_nanos`.
    #[inline]
    fn with_ended<R>(&self, end_nanos: u64, use_it: impl FnOnce(&Ended<'_>) -> R) -> R {
        let rare = self.is_rare || self.attributes.dropped() > 0 || self.shared.is_some();
        let rare = if rare { self.rare() } else { None };
        let end_nanos = end_nanos.max(self.start_nanos);
        let tail = SpanTail { name: &self.name, end_nanos, rare };
        use_it(&Ended {
            head_and_attributes: self.attributes.head_and_bytes(),
            head_len: self.attributes.head_len(),
            tail: &tail,
        })
    }

    fn rare(&self) -> Option<Rare<'_>> {
        let shared = self.shared.as_ref();
        let trace_state =
            shared.and_then(|shared| shared.tracestate.as_deref()).unwrap_or_default();
        let dropped_attributes = self.attributes.dropped();
        if !self.is_rare && trace_state.is_empty() && dropped_attributes == 0 {
            return None;
        }
        Some(Rare {
            trace_state,
            dropped_attributes,
            events: &self.rare.events,
            dropped_events: self.rare.dropped_events,
            links: &self.rare.links,
            dropped_links: self.rare.dropped_links,
            status: self.rare.status,
            status_message: &self.rare.status_message,
        })
    }

    fn add_event(&mut self, name: &str, unix_nanos: u64, attributes: &[(&'static str, Value)]) {
        let limits = limits();
        self.is_rare = true;
        let rare = &mut self.rare;
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

    fn add_link(&mut self, context: SpanContext, attributes: &[(&'static str, Value)]) {
        self.is_rare = true;
        let rare = &mut self.rare;
        let limits = limits();
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

    fn set_status(&mut self, status: StatusCode, message: Cow<'static, str>) {
        if self.rare.status != StatusCode::Ok {
            self.is_rare = true;
            self.rare.status = status;
            self.rare.status_message = message;
        }
    }
}

#[inline]
fn limits() -> &'static SpanLimits {
    super::handle::span_limits()
}

fn value_limits() -> ValueLimits {
    let limits = limits();
    ValueLimits { count: limits.attributes, value_chars: limits.attribute_value_chars }
}

/// Makes a span with more than a group and a name. Costs nothing further when the group is off.
#[derive(Debug)]
pub struct SpanBuilder {
    group: &'static Group,
    name: Cow<'static, str>,
    kind: SpanKind,
    parent: Option<Context>,
    links: Vec<(SpanContext, Attributes)>,
    start_nanos: Option<u64>,
}

impl SpanBuilder {
    /// What the span describes.
    pub fn kind(mut self, kind: SpanKind) -> Self {
        self.kind = kind;
        self
    }

    /// The parent, in place of the current context.
    pub fn parent(mut self, parent: &Context) -> Self {
        self.parent = Some(parent.clone());
        self
    }

    /// No parent: a trace of its own. Baggage of the current context still holds.
    pub fn root(mut self) -> Self {
        let context = self.parent.take().unwrap_or_else(Context::current);
        let baggage =
            context.shared().filter(|shared| !shared.baggage.is_empty()).map(|shared| match shared
                .tracestate
            {
                None => Arc::clone(shared),
                Some(_) => Arc::new(Shared { tracestate: None, ..Shared::clone(shared) }),
            });
        self.parent = Some(Context::from_parts(SpanContext::default(), baggage));
        self
    }

    /// A span of another trace that caused this one.
    pub fn link(self, context: SpanContext) -> Self {
        self.link_with(context, &[])
    }

    /// As [`SpanBuilder::link`], with attributes of the link; the last of a key wins.
    pub fn link_with(mut self, context: SpanContext, attributes: &[(&'static str, Value)]) -> Self {
        if context.is_valid() && self.group.is_enabled() {
            self.links.push((context, attributes.to_vec()));
        }
        self
    }

    /// The start, in place of now.
    pub fn start_nanos(mut self, unix_nanos: u64) -> Self {
        self.start_nanos = Some(unix_nanos);
        self
    }

    /// Starts it; disabled when the group is off, but then the given parent still becomes current where the span
    /// is entered.
    pub fn start(self) -> Span {
        if !self.group.is_enabled() {
            return self.parent.map_or(Span::disabled(), |parent| {
                Span::passing(Mode::Through, parent.span_context(), parent.shared().cloned())
            });
        }
        let Self { group, name, kind, parent, links, start_nanos } = self;
        let mut span = match &parent {
            Some(parent) => Span::begin(group, name, kind, parent, start_nanos),
            None => {
                Context::with_current(|parent| Span::begin(group, name, kind, parent, start_nanos))
            }
        };
        if let Some(recording) = span.recording() {
            for (link, attributes) in &links {
                recording.add_link(*link, attributes);
            }
        }
        span
    }
}

impl Span {
    /// A span that does not exist.
    #[inline(always)]
    pub const fn disabled() -> Self {
        Self { inner: None }
    }

    /// Starts a span below the current context; disabled when the group is off.
    #[inline]
    pub fn start(group: &'static Group, name: impl Into<Cow<'static, str>>) -> Self {
        if !group.is_enabled() {
            return Self::disabled();
        }
        let name = name.into();
        Context::with_current(|parent| Self::begin(group, name, SpanKind::Internal, parent, None))
    }

    /// A builder, for a kind, an explicit parent, links or a start time.
    pub fn build(group: &'static Group, name: impl Into<Cow<'static, str>>) -> SpanBuilder {
        let name = if group.is_enabled() { name.into() } else { Cow::Borrowed("") };
        SpanBuilder {
            group,
            name,
            kind: SpanKind::Internal,
            parent: None,
            links: Vec::new(),
            start_nanos: None,
        }
    }

    #[inline]
    pub(super) fn begin(
        group: &'static Group,
        name: Cow<'static, str>,
        kind: SpanKind,
        parent: &Context,
        start_nanos: Option<u64>,
    ) -> Self {
        let parent_span = parent.span_context();
        let context = sampling::child_of(parent_span);
        if !context.is_sampled() {
            return Self::passing(Mode::Unsampled, context, parent.shared().cloned());
        }
        let mut recording = Recording::empty();
        recording.mode = Mode::Recording;
        recording.scope = group.scope();
        recording.generation = fork::generation();
        recording.context = context;
        recording.name = name;
        match start_nanos {
            Some(start_nanos) => {
                recording.start_nanos = start_nanos;
                recording.start = None;
            }
            None => {
                let now = Ticks::now();
                recording.start_nanos = now.unix_nanos();
                recording.start = Some(now);
            }
        }
        let remote = if parent_span.is_remote() { FLAG_IS_REMOTE } else { 0 };
        recording.attributes.begin(&SpanHead {
            trace_id: context.trace_id().to_bytes(),
            span_id: context.span_id().to_bytes(),
            parent_id: parent_span.is_valid().then(|| parent_span.span_id().to_bytes()),
            kind: match kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
                SpanKind::Producer => 4,
                SpanKind::Consumer => 5,
            },
            start_nanos: recording.start_nanos,
            flags: u32::from(context.flags()) | FLAG_HAS_IS_REMOTE | remote,
        });
        if let Some(shared) = parent.shared() {
            recording.attributes.copy_from(&shared.attributes, limits().attributes);
            recording.shared = Some(Arc::clone(shared));
        }
        if group.is_long_lived() {
            let scope = recording.scope;
            recording.record = recording
                .with_ended(recording.start_nanos, |ended| writer::open_record(scope, ended));
        }
        Self { inner: Some(recording) }
    }

    /// A span that is not exported, but whose context work below it has.
    fn passing(mode: Mode, context: SpanContext, shared: Option<Arc<Shared>>) -> Self {
        let mut recording = Recording::empty();
        recording.mode = mode;
        recording.context = context;
        recording.shared = shared;
        Self { inner: Some(recording) }
    }

    #[inline]
    fn recording(&mut self) -> Option<&mut Recording> {
        self.inner.as_deref_mut().filter(|recording| recording.mode == Mode::Recording)
    }

    /// Whether there is anything to end.
    #[inline(always)]
    pub(super) fn exists(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether what is set on it will be exported.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.inner.as_deref().is_some_and(|recording| recording.mode == Mode::Recording)
    }

    /// Its ids; invalid when the span does not exist.
    pub fn context(&self) -> SpanContext {
        self.own_context().unwrap_or_default()
    }

    pub(super) fn own_context(&self) -> Option<SpanContext> {
        self.inner
            .as_deref()
            .filter(|recording| recording.mode != Mode::Through)
            .map(|recording| recording.context)
    }

    /// The context to run its work in; `None` leaves the current one.
    #[inline]
    pub(super) fn entered_context(&self) -> Option<Context> {
        self.inner
            .as_deref()
            .map(|recording| Context::from_parts(recording.context, recording.shared.clone()))
    }

    /// Sets an attribute; the last value of a key wins.
    #[inline(always)]
    pub fn set(&mut self, key: &'static str, value: impl AttributeValue) {
        if let Some(recording) = self.recording() {
            value.encode(&mut recording.attributes, key, value_limits());
        }
    }

    /// Sets attributes from elsewhere: arrays are dropped, values of keys to redact become `[REDACTED]`.
    ///
    /// `None` redacts [`semconv::DEFAULT_REDACT_KEYS`]. Keys compare without regard to case.
    pub fn set_attributes_redacted(
        &mut self,
        attributes: impl IntoIterator<Item = (String, Value)>,
        redact_keys: Option<&[&str]>,
    ) {
        let Some(recording) = self.recording() else { return };
        let redact_keys = redact_keys.unwrap_or(semconv::DEFAULT_REDACT_KEYS);
        for (key, value) in attributes {
            if redact_keys.iter().any(|redacted| redacted.eq_ignore_ascii_case(&key)) {
                semconv::REDACTED.encode(&mut recording.attributes, &key, value_limits());
            } else if !matches!(value, Value::Array(_)) {
                value.encode(&mut recording.attributes, &key, value_limits());
            }
        }
    }

    /// Adds an event, now.
    pub fn event(&mut self, name: &'static str, attributes: &[(&'static str, Value)]) {
        if let Some(recording) = self.recording() {
            recording.add_event(name, clock::now_unix_nanos(), attributes);
        }
    }

    /// Adds an event at a given time.
    pub fn event_at(
        &mut self,
        name: &'static str,
        unix_nanos: u64,
        attributes: &[(&'static str, Value)],
    ) {
        if let Some(recording) = self.recording() {
            recording.add_event(name, unix_nanos, attributes);
        }
    }

    /// Links a span of another trace; an invalid one is ignored.
    pub fn link(&mut self, context: SpanContext) {
        self.link_with(context, &[]);
    }

    /// As [`Span::link`], with attributes of the link; the last of a key wins.
    pub fn link_with(&mut self, context: SpanContext, attributes: &[(&'static str, Value)]) {
        if let Some(recording) = self.recording()
            && context.is_valid()
        {
            recording.add_link(context, attributes);
        }
    }

    /// Replaces the name.
    pub fn update_name(&mut self, name: impl Into<Cow<'static, str>>) {
        if let Some(recording) = self.recording() {
            recording.name = name.into();
        }
    }

    /// Sets the status ERROR, unless it is OK already.
    pub fn set_error(&mut self, description: impl Into<Cow<'static, str>>) {
        if let Some(recording) = self.recording() {
            recording.set_status(StatusCode::Error, description.into());
        }
    }

    /// Sets the status OK, which is final.
    pub fn set_ok(&mut self) {
        if let Some(recording) = self.recording() {
            recording.set_status(StatusCode::Ok, Cow::Borrowed(""));
        }
    }

    /// Adds an `exception` event and sets the status ERROR.
    pub fn record_exception(&mut self, exception_type: &str, message: &str) {
        let Some(recording) = self.recording() else { return };
        recording.add_event(
            semconv::EXCEPTION_EVENT,
            clock::now_unix_nanos(),
            &[
                (semconv::EXCEPTION_TYPE, exception_type.into()),
                (semconv::EXCEPTION_MESSAGE, message.into()),
            ],
        );
        self.set_error(message.to_owned());
    }

    /// Ends it now.
    pub fn end(self) {
        drop(self);
    }

    /// Ends it at a given time, not before its start.
    pub fn end_at(mut self, unix_nanos: u64) {
        self.finish(Some(unix_nanos));
    }

    /// Ends it, inlined into the one place that ends most spans.
    #[inline(always)]
    pub(super) fn end_here(&mut self) {
        if let Some(recording) = self.inner.take() {
            recording.finish(None);
        }
    }

    #[inline(never)]
    fn finish(&mut self, end_nanos: Option<u64>) {
        if let Some(recording) = self.inner.take() {
            recording.finish(end_nanos);
        }
    }
}

impl Default for Span {
    fn default() -> Self {
        Self::disabled()
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inner.is_some() {
            self.finish(None);
        }
    }
}
