//! The current context of a thread, and what it carries.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock, RwLock};

use super::attributes::{AttributeBytes, cut};
use super::current::{self, Depth};
use super::ids::{SpanId, TraceId};
use super::span::Span;

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

    /// Every key with its value.
    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let (text, entries): (&str, &[BaggageEntry]) = match self {
            Self::Plain(text) => (text, &[]),
            Self::Entries(entries) => ("", entries),
        };
        let plain = text.split(',').filter_map(|member| member.split_once('='));
        plain.chain(entries.iter().map(|entry| (&*entry.key, entry.value.as_str())))
    }

    pub(super) fn into_entries(self) -> Vec<BaggageEntry> {
        match self {
            Self::Entries(entries) => entries,
            plain @ Self::Plain(_) => {
                let entry = |(key, value): (&str, &str)| BaggageEntry {
                    key: match promoted_key(key) {
                        Some(key) => Cow::Borrowed(key),
                        None => Cow::Owned(key.to_owned()),
                    },
                    value: value.to_owned(),
                    metadata: String::new(),
                };
                plain.pairs().map(entry).collect()
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
        Self { tracestate, baggage, attributes, baggage_text: OnceLock::new() }
    }

    fn is_empty(&self) -> bool {
        self.tracestate.is_none() && self.baggage.is_empty()
    }
}

static PROMOTED: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());

/// Baggage entries of these keys become attributes of every span started below them.
///
/// A value of a key that ends in `.index` becomes an integer if it looks like one. Holds for contexts made later.
pub fn promote_baggage_keys(keys: &'static [&'static str]) {
    let mut promoted = PROMOTED.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    for key in keys {
        if !promoted.contains(key) {
            promoted.push(key);
        }
    }
}

/// The promoted key that reads like `key`, so that the keys of every rollout are not copied.
pub(super) fn promoted_key(key: &str) -> Option<&'static str> {
    let promoted = PROMOTED.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    promoted.iter().copied().find(|known| *known == key)
}

fn promoted_attributes(baggage: &Baggage) -> AttributeBytes {
    let mut attributes = AttributeBytes::default();
    if baggage.is_empty() {
        return attributes;
    }
    let value_chars = super::handle::span_limits().attribute_value_chars;
    let promoted = PROMOTED.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (key, value) in baggage.pairs().filter(|(key, _)| promoted.contains(key)) {
        let number = key.ends_with(".index").then(|| value.parse::<i64>().ok()).flatten();
        match number {
            Some(number) => attributes.put(key, &number),
            None => attributes.put(key, cut(value, value_chars)),
        }
    }
    attributes
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
        let baggage = if baggage.is_empty() {
            Baggage::of(entries)
        } else {
            let mut all = baggage.into_entries();
            for (key, value) in entries {
                put_entry(&mut all, key, value);
            }
            Baggage::Entries(all)
        };
        Self { span: self.span, shared: Some(Arc::new(Shared::new(tracestate, baggage))) }
    }

    /// The value of an entry of baggage.
    pub fn baggage(&self, key: &str) -> Option<&str> {
        let mut pairs = self.shared.as_ref()?.baggage.pairs();
        pairs.find(|(known, _)| *known == key).map(|(_, value)| value)
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
