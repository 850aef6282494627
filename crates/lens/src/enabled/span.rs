//! Spans: built where they run, encoded once when they end.

use std::borrow::Cow;
use std::sync::Arc;

use lens_otlp::encode::{FLAG_HAS_IS_REMOTE, FLAG_IS_REMOTE, SpanHead, StatusCode};

use super::attributes::{AttributeValue, bit};
use super::clock::{self, Ticks};
use super::context::{Context, Shared, SpanContext};
use super::group::Group;
use super::ids::{SpanId, TraceId};
use super::live;
use super::raw::fork;
use super::recording::{Mode, Recording};
use super::sampling;
use super::thread::{self, Thread};
use super::value::Value;
use crate::SpanKind;
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
            Some(parent) => Span::begin_on_thread(group, &name, kind, parent, start_nanos),
            None => Context::with_current(|parent| {
                Span::begin_on_thread(group, &name, kind, parent, start_nanos)
            }),
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
        Self::start_enabled(group, &name.into())
    }

    #[inline(never)]
    fn start_enabled(group: &'static Group, name: &str) -> Self {
        Context::with_current(|parent| {
            Self::begin_on_thread(group, name, SpanKind::Internal, parent, None)
        })
    }

    fn begin_on_thread(
        group: &'static Group,
        name: &str,
        kind: SpanKind,
        parent: &Context,
        start_nanos: Option<u64>,
    ) -> Self {
        thread::with(|thread| Self::begin(thread, group, name, kind, parent, start_nanos).0)
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

    /// Starts a span, and gives its context.
    #[inline(always)]
    pub(super) fn begin(
        thread: &Thread,
        group: &'static Group,
        name: &str,
        kind: SpanKind,
        parent: &Context,
        start_nanos: Option<u64>,
    ) -> (Self, SpanContext) {
        let parent_span = parent.span_context();
        let context = sampling::child_of(thread, parent_span);
        if !context.is_sampled() {
            // In parts, so that the context of one that is sampled need not be in memory.
            let (trace_id, span_id) = (context.trace_id(), context.span_id());
            return (Self::unsampled(trace_id, span_id, context.flags(), parent), context);
        }
        let mut recording = Recording::take(thread);
        recording.mode = Mode::Recording;
        recording.scope = group.scope();
        recording.generation = fork::generation();
        recording.start = Ticks::now();
        recording.start_nanos = match start_nanos {
            Some(start_nanos) => {
                recording.start_is_given();
                start_nanos
            }
            None => recording.start.unix_nanos(),
        };
        let remote = if parent_span.is_remote() { FLAG_IS_REMOTE } else { 0 };
        let head = SpanHead {
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
            end_nanos: recording.start_nanos,
            flags: u32::from(context.flags()) | FLAG_HAS_IS_REMOTE | remote,
        };
        recording.message.begin(&head, name);
        if let Some(shared) = parent.shared() {
            recording.share(shared);
        }
        if group.is_long_lived() {
            recording.open_record(group.number());
        }
        (Self { inner: Some(recording) }, context)
    }

    #[cold]
    #[inline(never)]
    fn unsampled(trace_id: TraceId, span_id: SpanId, flags: u8, parent: &Context) -> Self {
        let context = SpanContext::with_flags(trace_id, span_id, flags, false);
        Self::passing(Mode::Unsampled, context, parent.shared().cloned())
    }

    /// A span that is not exported, but whose context work below it has.
    #[cold]
    fn passing(mode: Mode, context: SpanContext, shared: Option<Arc<Shared>>) -> Self {
        let mut recording = thread::with(Recording::take);
        recording.mode = mode;
        recording.pass(context, shared);
        Self { inner: Some(recording) }
    }

    #[inline]
    pub(super) fn recording(&mut self) -> Option<&mut Recording> {
        self.inner.as_deref_mut().filter(|recording| recording.mode == Mode::Recording)
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
            .map(Recording::context)
    }

    /// The context to run its work in; `None` leaves the current one.
    #[inline(always)]
    pub(super) fn entered_context(&self) -> Option<Context> {
        self.inner
            .as_deref()
            .map(|recording| Context::from_parts(recording.context(), recording.shared().cloned()))
    }

    /// Sets an attribute; the last value of a key wins.
    #[inline(always)]
    pub fn set(&mut self, key: &'static str, value: impl AttributeValue) {
        if let Some(recording) = &mut self.inner {
            value.encode(&mut recording.message, key, bit(key));
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
                semconv::REDACTED.encode(&mut recording.message, &key, bit(&key));
            } else if !matches!(value, Value::Array(_)) {
                value.encode(&mut recording.message, &key, bit(&key));
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

    /// Adds an event at a given time whose attributes are numbers. Their keys must differ.
    pub fn event_of_numbers(
        &mut self,
        name: &'static str,
        unix_nanos: u64,
        attributes: &[(&'static str, i64)],
    ) {
        if let Some(recording) = self.recording() {
            recording.add_event_of_numbers(name, unix_nanos, attributes);
        }
    }

    /// Tells a receiver that shows work under way, at once and in a log record, what happens in this open span. Nothing
    /// is told where live events are off, and the span itself does not say it. The last value of a key wins, also over
    /// what the span's context has.
    pub fn tell(&self, event_name: &'static str, body: &str, attributes: &[(&'static str, Value)]) {
        if let Some(recording) = &self.inner
            && recording.mode == Mode::Recording
        {
            live::tell(recording, event_name, body, attributes);
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
            recording.message.set_name(&name.into());
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

    /// A span of what it holds.
    pub(super) fn of(recording: Box<Recording>) -> Self {
        Self { inner: Some(recording) }
    }

    /// What it holds; nothing is ended.
    pub(super) fn into_recording(mut self) -> Option<Box<Recording>> {
        self.inner.take()
    }

    /// Ends it now.
    pub fn end(self) {
        drop(self);
    }

    /// Ends it at a given time, not before its start.
    pub fn end_at(mut self, unix_nanos: u64) {
        if let Some(recording) = self.inner.take() {
            thread::with(|thread| recording.finish_unusual(thread, Some(unix_nanos)));
        }
    }

    /// Ends it, inlined into the one place that ends most spans.
    #[inline(always)]
    pub(super) fn end_here(mut self, thread: &Thread) {
        if let Some(recording) = self.inner.take() {
            recording.finish(thread);
        }
    }
}

#[inline(never)]
fn finish(recording: Box<Recording>) {
    thread::with(|thread| recording.finish(thread));
}

impl Default for Span {
    #[inline(always)]
    fn default() -> Self {
        Self::disabled()
    }
}

impl Drop for Span {
    /// What ends is passed by value, so that a site whose group is off keeps its span in a register.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(recording) = self.inner.take() {
            finish(recording);
        }
    }
}
