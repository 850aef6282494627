//! The current context of a thread, and what it carries.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock};

use super::attributes::{self, AttributeBytes};
use super::current::{self, Depth};
use super::ids::{SpanId, TraceId};
use super::plain_baggage::Promoted;
use super::raw::published::Published;
use super::span::Span;
use super::{lock, plain_baggage};

/// What identifies a span across processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanContext {
    trace_id: TraceId,
    span_id: SpanId,
    flags: u8,
    remote: bool,
}

/// W3C: the trace is recorded.
pub(super) const FLAG_SAMPLED: u8 = 1;
/// W3C level 2: the trace id is random in its last 56 bits.
pub(super) const FLAG_RANDOM: u8 = 2;

impl SpanContext {
    /// A context of known ids; `sampled` says whether its trace is recorded.
    pub const fn new(trace_id: TraceId, span_id: SpanId, sampled: bool) -> Self {
        Self { trace_id, span_id, flags: sampled as u8, remote: false }
    }

    pub(super) const fn with_flags(
        trace_id: TraceId,
        span_id: SpanId,
        flags: u8,
        remote: bool,
    ) -> Self {
        Self { trace_id, span_id, flags, remote }
    }

    /// The trace.
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// The span.
    pub const fn span_id(&self) -> SpanId {
        self.span_id
    }

    /// Whether both ids are not zero.
    pub const fn is_valid(&self) -> bool {
        self.trace_id.is_valid() && self.span_id.is_valid()
    }

    /// Whether its trace is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & FLAG_SAMPLED != 0
    }

    /// Whether it came from another process.
    pub const fn is_remote(&self) -> bool {
        self.remote
    }

    pub(super) const fn flags(&self) -> u8 {
        self.flags
    }
}

/// One entry of baggage.
#[derive(Clone, Debug)]
pub(super) struct BaggageEntry {
    pub key: Cow<'static, str>,
    pub value: String,
    /// Properties as they came, without the leading semicolon.
    pub metadata: String,
}

/// Entries of baggage. Every request of a rollout carries some, and most only pass them on.
#[derive(Clone, Debug)]
pub(super) enum Baggage {
    /// A header that reads as we would write it, with unique keys and nothing to decode.
    Plain(Box<str>),
    Entries(Vec<BaggageEntry>),
}

impl Default for Baggage {
    fn default() -> Self {
        Self::Entries(Vec::new())
    }
}

impl Baggage {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => text.is_empty(),
            Self::Entries(entries) => entries.is_empty(),
        }
    }

    pub(super) fn into_entries(self) -> Vec<BaggageEntry> {
        match self {
            Self::Entries(entries) => entries,
            Self::Plain(text) => {
                let entry = |(key, value): (&str, &str)| BaggageEntry {
                    key: match promoted_key(key) {
                        Some(key) => Cow::Borrowed(key),
                        None => Cow::Owned(key.to_owned()),
                    },
                    value: value.to_owned(),
                    metadata: String::new(),
                };
                text.split(',').filter_map(|member| member.split_once('=')).map(entry).collect()
            }
        }
    }
}

/// Adds an entry, replacing one of the same key.
pub(super) fn put_entry(entries: &mut Vec<BaggageEntry>, key: &'static str, value: &str) {
    entries.retain(|entry| entry.key != key);
    entries.push(BaggageEntry {
        key: Cow::Borrowed(key),
        value: value.to_owned(),
        metadata: String::new(),
    });
}

/// What contexts of one request share.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub tracestate: Option<Box<str>>,
    pub baggage: Baggage,
    /// Promoted baggage, encoded once.
    pub attributes: AttributeBytes,
    /// The `baggage` header of entries, written once.
    pub baggage_text: OnceLock<Box<str>>,
}

impl Shared {
    pub(super) fn new(tracestate: Option<Box<str>>, baggage: Baggage) -> Self {
        let attributes = promoted_attributes(&baggage);
        Self::read(tracestate, baggage, attributes)
    }

    /// Of baggage whose promoted entries are encoded already.
    pub(super) fn read(
        tracestate: Option<Box<str>>,
        baggage: Baggage,
        attributes: AttributeBytes,
    ) -> Self {
        Self { tracestate, baggage, attributes, baggage_text: OnceLock::new() }
    }

    fn is_empty(&self) -> bool {
        self.tracestate.is_none() && self.baggage.is_empty()
    }
}

static PROMOTED: Published<Vec<Promoted>> = Published::nothing();

/// Baggage entries of these keys become attributes of every span started below them.
///
/// A value of a key that ends in `.index` becomes an integer if it looks like one. Holds for contexts made later.
pub fn promote_baggage_keys(keys: &'static [&'static str]) {
    static CHANGES: Mutex<()> = Mutex::new(());
    let _alone = lock(&CHANGES);
    let mut promoted = promoted_keys().to_vec();
    for key in keys {
        if promoted.iter().all(|known| known.key != *key) {
            promoted.push(Promoted::new(key));
        }
    }
    if promoted.len() > promoted_keys().len() {
        PROMOTED.set(Box::leak(Box::new(promoted)));
    }
}

/// In the order of their promotion.
#[inline]
pub(super) fn promoted_keys() -> &'static [Promoted] {
    PROMOTED.get().map_or(&[], Vec::as_slice)
}

/// The promoted key that reads like `key`, so that the keys of every rollout are not copied.
pub(super) fn promoted_key(key: &str) -> Option<&'static str> {
    promoted_keys().iter().map(|known| known.key).find(|known| *known == key)
}

/// Characters of a promoted entry's value at most.
#[inline]
pub(super) fn promoted_chars() -> usize {
    super::handle::span_limits().attribute_value_chars
}

pub(super) fn promoted_attributes(baggage: &Baggage) -> AttributeBytes {
    let entries = match baggage {
        Baggage::Plain(text) => {
            return plain_baggage::read(text, promoted_keys()).unwrap_or_default();
        }
        Baggage::Entries(entries) => entries,
    };
    let (mut fields, mut seen) = (Vec::new(), [0; 4]);
    // Of repeated keys none is left in entries.
    for entry in entries {
        if let Some(promoted) = promoted_keys().iter().find(|known| known.key == entry.key) {
            promoted.put(&mut fields, &entry.value, promoted_chars());
            attributes::mark(&mut seen, promoted.key);
        }
    }
    AttributeBytes::of_fields(fields, seen)
}

/// Where work belongs: the current span (maybe of another process), tracestate and baggage.
///
/// Cloning costs one reference count.
#[derive(Clone, Default)]
pub struct Context {
    span: SpanContext,
    shared: Option<Arc<Shared>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Context").field("span", &self.span).finish_non_exhaustive()
    }
}

impl Context {
    pub(super) const EMPTY: Self = Self {
        span: SpanContext::with_flags(TraceId { high: 0, low: 0 }, SpanId(0), 0, false),
        shared: None,
    };

    pub(super) fn from_parts(span: SpanContext, shared: Option<Arc<Shared>>) -> Self {
        Self { span, shared }
    }

    pub(super) fn into_parts(self) -> (SpanContext, Option<Arc<Shared>>) {
        (self.span, self.shared)
    }

    /// Becomes another, where it is; it shares nothing yet.
    #[inline(always)]
    pub(super) fn fill(&mut self, span: SpanContext, shared: Option<Arc<Shared>>) {
        debug_assert!(self.shared.is_none(), "the place is empty");
        self.span = span;
        // The compiler is not asked to drop what is not there.
        std::mem::forget(std::mem::replace(&mut self.shared, shared));
    }

    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }

    /// Drops what it shares with others.
    #[inline(always)]
    pub(super) fn let_go(&mut self) {
        if let Some(shared) = self.shared.take() {
            drop(shared);
        }
    }

    /// The context of this thread, or of the future that it polls.
    pub fn current() -> Self {
        Self::with_current(Self::clone)
    }

    /// Lends the current context without cloning it.
    #[inline]
    pub(super) fn with_current<R>(read: impl FnOnce(&Self) -> R) -> R {
        current::with(|context| read(context.unwrap_or(&Self::EMPTY)))
    }

    /// A context without a span, tracestate and baggage.
    pub const fn empty() -> Self {
        Self::EMPTY
    }

    /// The context of work below a span; this context when the span does not exist.
    pub fn with_span(&self, span: &Span) -> Self {
        let Some(own) = span.own_context() else { return self.clone() };
        let shared = match &self.shared {
            // Vendor state belongs to its trace.
            Some(shared) if shared.tracestate.is_some() && own.trace_id != self.span.trace_id => {
                let shared = Shared { tracestate: None, ..Shared::clone(shared) };
                (!shared.is_empty()).then(|| Arc::new(shared))
            }
            other => other.clone(),
        };
        Self { span: own, shared }
    }

    /// This context with entries of baggage added or replaced; unchanged while telemetry is off.
    pub fn with_baggage(&self, entries: &[(&'static str, String)]) -> Self {
        if !super::handle::is_active() {
            return self.clone();
        }
        let (tracestate, baggage) = match &self.shared {
            Some(shared) => (shared.tracestate.clone(), shared.baggage.clone()),
            None => (None, Baggage::default()),
        };
        let shared = if baggage.is_empty() {
            let (baggage, attributes) = Baggage::of(entries);
            Shared::read(tracestate, baggage, attributes)
        } else {
            let mut all = baggage.into_entries();
            for (key, value) in entries {
                put_entry(&mut all, key, value);
            }
            Shared::new(tracestate, Baggage::Entries(all))
        };
        Self { span: self.span, shared: Some(Arc::new(shared)) }
    }

    /// The value of an entry of baggage.
    pub fn baggage(&self, key: &str) -> Option<&str> {
        match &self.shared.as_ref()?.baggage {
            Baggage::Plain(text) => {
                let mut rest: &str = text;
                loop {
                    let end = rest.find(',');
                    let value = rest.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
                    match (value, end) {
                        (Some(value), Some(end)) => return value.get(..end - key.len() - 1),
                        (Some(value), None) => return Some(value),
                        (None, end) => rest = rest.get(end? + 1..)?,
                    }
                }
            }
            Baggage::Entries(entries) => {
                entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
            }
        }
    }

    /// The span below which work happens; invalid when there is none.
    pub const fn span_context(&self) -> SpanContext {
        self.span
    }

    /// Makes it current on this thread until the guard is dropped.
    pub fn attach(self) -> ContextGuard {
        ContextGuard { depth: current::enter(self), not_send: PhantomData }
    }
}

/// Leaves the context again; not `Send`, because it belongs to one thread.
#[derive(Debug)]
#[must_use = "the context is current only while the guard lives"]
pub struct ContextGuard {
    depth: Depth,
    not_send: PhantomData<*const ()>,
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        super::thread::with(|thread| current::leave_for_good(thread, self.depth));
    }
}
