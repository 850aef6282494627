//! The face without telemetry: every item is there, holds nothing and does nothing.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use crate::config::LensConfig;
use crate::{PipelineSnapshot, SetupError, SpanKind};

pub mod detect;
pub mod metrics;

/// A named switch over a set of spans; always off in this build.
#[derive(Debug)]
pub struct Group(());

/// The group of [`span!`](crate::span!).
pub static ALWAYS: Group = Group::new("");

impl Group {
    /// A group by name.
    pub const fn new(_name: &'static str) -> Self {
        Self(())
    }

    /// The group as it is.
    pub const fn long_lived(self) -> Self {
        self
    }

    /// Empty in this build.
    pub const fn name(&self) -> &'static str {
        ""
    }

    /// `false`.
    #[inline(always)]
    pub const fn is_enabled(&self) -> bool {
        false
    }
}

/// `false`.
#[inline(always)]
pub fn is_span_group_enabled(_name: &str) -> bool {
    false
}

/// Does nothing.
#[inline(always)]
pub fn begin_truncation() {}

/// Does nothing.
pub fn register_export_strategy(
    _name: &str,
    _decide: impl Fn(&crate::config::ExportCandidate) -> bool + Send + Sync + 'static,
) {
}

/// A preset: its name and the groups or presets that it stands for.
pub type Preset = (&'static str, &'static [&'static str]);

/// Does nothing.
#[inline(always)]
pub fn register(
    _namespace: &'static str,
    _groups: &'static [&'static Group],
    _presets: &'static [Preset],
) {
}

/// What a comma list of groups and presets means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSelection {
    /// Names of the groups that are on, sorted.
    pub names: Vec<&'static str>,
    /// One line for each unknown name.
    pub warnings: Vec<String>,
}

/// Nothing is registered in this build.
pub fn resolve_groups(_spec: &str) -> GroupSelection {
    GroupSelection::default()
}

macro_rules! hex_id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(());

        impl fmt::Display for $name {
            fn fmt(&self, _formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                Ok(())
            }
        }
    };
}

hex_id!(TraceId, "Id of a trace; displays as nothing in this build.");
hex_id!(SpanId, "Id of a span; displays as nothing in this build.");

/// What identifies a span across processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanContext(());

impl SpanContext {
    /// The trace.
    pub const fn trace_id(&self) -> TraceId {
        TraceId(())
    }
    /// The span.
    pub const fn span_id(&self) -> SpanId {
        SpanId(())
    }
    /// `false`.
    pub const fn is_valid(&self) -> bool {
        false
    }
    /// `false`.
    pub const fn is_sampled(&self) -> bool {
        false
    }
    /// `false`.
    pub const fn is_remote(&self) -> bool {
        false
    }
}

/// An attribute's value; holds nothing in this build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value(());

impl Value {
    /// A string that is not copied.
    pub const fn from_static(_text: &'static str) -> Self {
        Self(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, _formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

macro_rules! value_from {
    ($($type:ty),*) => {
        $(impl From<$type> for Value {
            #[inline(always)]
            fn from(_value: $type) -> Self {
                Self(())
            }
        })*
    };
}

value_from!(
    &str,
    String,
    Cow<'static, str>,
    std::sync::Arc<str>,
    bool,
    i64,
    u64,
    i32,
    u32,
    i16,
    u16,
    i8,
    u8,
    isize,
    usize,
    f64,
    f32,
    Vec<String>,
    Vec<&str>,
    Vec<i64>,
    Vec<f64>,
    Vec<bool>,
    Vec<Value>
);

/// What [`Span::set`] takes.
pub trait AttributeValue {}

impl<T> AttributeValue for T {}

/// Attributes that many spans have in common; none in this build.
#[derive(Clone, Debug, Default)]
pub struct AttributeSet(());

impl AttributeSet {
    /// An empty set.
    #[inline(always)]
    pub const fn new(_attributes: &[(&'static str, Value)]) -> Self {
        Self(())
    }
}

/// A moment that nobody measures from.
#[derive(Clone, Copy, Debug)]
pub struct Moment(());

impl Moment {
    /// Nothing.
    #[inline(always)]
    pub const fn now() -> Self {
        Self(())
    }
    /// Zero.
    #[inline(always)]
    pub const fn nanos_until(self, _later: Self) -> u64 {
        0
    }
    /// Zero.
    #[inline(always)]
    pub const fn unix_nanos(self) -> u64 {
        0
    }
}

/// A span that never exists.
#[derive(Debug, Default)]
pub struct Span(());

/// Makes a span with more than a group and a name.
#[derive(Debug)]
pub struct SpanBuilder(());

impl SpanBuilder {
    /// What the span describes.
    #[inline(always)]
    pub fn kind(self, _kind: SpanKind) -> Self {
        self
    }
    /// The parent, in place of the current context.
    #[inline(always)]
    pub fn parent(self, _parent: &Context) -> Self {
        self
    }
    /// No parent: a trace of its own.
    #[inline(always)]
    pub fn root(self) -> Self {
        self
    }
    /// A span of another trace that caused this one.
    #[inline(always)]
    pub fn link(self, _context: SpanContext) -> Self {
        self
    }
    /// A span of another trace that caused this one, with attributes.
    #[inline(always)]
    pub fn link_with(self, _context: SpanContext, _attributes: &[(&'static str, Value)]) -> Self {
        self
    }
    /// The start, in place of now.
    #[inline(always)]
    pub fn start_nanos(self, _unix_nanos: u64) -> Self {
        self
    }
    /// Starts it.
    #[inline(always)]
    pub fn start(self) -> Span {
        Span(())
    }
}

impl Span {
    /// A span that does nothing.
    #[inline(always)]
    pub const fn disabled() -> Self {
        Self(())
    }
    /// A span that does nothing.
    #[inline(always)]
    pub fn start(_group: &'static Group, _name: impl Into<Cow<'static, str>>) -> Self {
        Self(())
    }
    /// A builder that does nothing.
    #[inline(always)]
    pub fn build(_group: &'static Group, _name: impl Into<Cow<'static, str>>) -> SpanBuilder {
        SpanBuilder(())
    }
    /// `false`.
    #[inline(always)]
    pub const fn is_recording(&self) -> bool {
        false
    }
    /// An invalid context.
    #[inline(always)]
    pub const fn context(&self) -> SpanContext {
        SpanContext(())
    }
    /// Does nothing.
    #[inline(always)]
    pub fn set(&mut self, _key: &'static str, _value: impl AttributeValue) {}
    /// Does nothing.
    #[inline(always)]
    pub fn set_attributes_redacted(
        &mut self,
        _attributes: impl IntoIterator<Item = (String, Value)>,
        _redact_keys: Option<&[&str]>,
    ) {
    }
    /// Does nothing.
    #[inline(always)]
    pub fn event(&mut self, _name: &'static str, _attributes: &[(&'static str, Value)]) {}
    /// Does nothing.
    #[inline(always)]
    pub fn event_at(
        &mut self,
        _name: &'static str,
        _unix_nanos: u64,
        _attributes: &[(&'static str, Value)],
    ) {
    }
    /// Does nothing.
    #[inline(always)]
    pub fn tell(
        &self,
        _event_name: &'static str,
        _body: &str,
        _attributes: &[(&'static str, Value)],
    ) {
    }
    /// Does nothing.
    #[inline(always)]
    pub fn event_of_numbers(
        &mut self,
        _name: &'static str,
        _unix_nanos: u64,
        _attributes: &[(&'static str, i64)],
    ) {
    }
    /// Does nothing.
    #[inline(always)]
    pub fn set_all(&mut self, _set: &AttributeSet) {}
    /// Does nothing.
    #[inline(always)]
    pub fn link(&mut self, _context: SpanContext) {}
    /// Does nothing.
    #[inline(always)]
    pub fn link_with(&mut self, _context: SpanContext, _attributes: &[(&'static str, Value)]) {}
    /// Does nothing.
    #[inline(always)]
    pub fn update_name(&mut self, _name: impl Into<Cow<'static, str>>) {}
    /// Does nothing.
    #[inline(always)]
    pub fn set_error(&mut self, _description: impl Into<Cow<'static, str>>) {}
    /// Does nothing.
    #[inline(always)]
    pub fn set_ok(&mut self) {}
    /// `false`: nothing is recorded.
    #[inline(always)]
    pub fn record_panic(&mut self) -> bool {
        false
    }
    /// Does nothing.
    #[inline(always)]
    pub fn record_exception(&mut self, _exception_type: &str, _message: &str) {}
    /// Does nothing.
    #[inline(always)]
    pub fn end(self) {}
    /// Does nothing.
    #[inline(always)]
    pub fn end_at(self, _unix_nanos: u64) {}
}

/// The guard of [`managed_span!`](crate::managed_span!).
#[derive(Debug)]
pub struct SpanGuard {
    span: Span,
    not_send: PhantomData<*const ()>,
}

impl SpanGuard {
    /// A guard that does nothing.
    #[inline(always)]
    pub fn open(_group: &'static Group, _name: impl Into<Cow<'static, str>>) -> Self {
        Self::disabled()
    }
    /// A guard that does nothing.
    #[inline(always)]
    pub const fn enter(_span: Span) -> Self {
        Self::disabled()
    }
    /// A guard that does nothing.
    #[inline(always)]
    pub const fn disabled() -> Self {
        Self { span: Span(()), not_send: PhantomData }
    }
}

impl std::ops::Deref for SpanGuard {
    type Target = Span;
    fn deref(&self) -> &Span {
        &self.span
    }
}

impl std::ops::DerefMut for SpanGuard {
    fn deref_mut(&mut self) -> &mut Span {
        &mut self.span
    }
}

/// A context that is always empty.
#[derive(Clone, Debug, Default)]
pub struct Context(());

/// Ends the attachment of a context.
#[derive(Debug)]
#[must_use]
pub struct ContextGuard(PhantomData<*const ()>);

impl Context {
    /// The empty context.
    #[inline(always)]
    pub const fn current() -> Self {
        Self(())
    }
    /// The empty context.
    #[inline(always)]
    pub const fn empty() -> Self {
        Self(())
    }
    /// The empty context.
    #[inline(always)]
    pub fn with_span(&self, _span: &Span) -> Self {
        Self(())
    }
    /// The empty context.
    #[inline(always)]
    pub fn with_baggage(&self, _entries: &[(&'static str, String)]) -> Self {
        Self(())
    }
    /// The empty context.
    #[inline(always)]
    pub fn refused() -> Self {
        Self(())
    }
    /// The empty context.
    #[inline(always)]
    pub fn with_tracestate_entry(&self, _key: &str, _value: &str) -> Self {
        Self(())
    }
    /// `None`.
    #[inline(always)]
    pub fn baggage(&self, _key: &str) -> Option<&str> {
        None
    }
    /// An invalid context.
    #[inline(always)]
    pub const fn span_context(&self) -> SpanContext {
        SpanContext(())
    }
    /// Does nothing.
    #[inline(always)]
    pub fn attach(self) -> ContextGuard {
        ContextGuard(PhantomData)
    }
    /// The empty context.
    #[inline(always)]
    pub fn extract<'a>(_get: impl Fn(&str) -> Option<&'a str>) -> Self {
        Self(())
    }
    /// The empty context.
    #[inline(always)]
    pub const fn from_header_values(
        _traceparent: Option<&[u8]>,
        _tracestate: Option<&[u8]>,
        _baggage: Option<&[u8]>,
    ) -> Self {
        Self(())
    }
    /// `None`.
    #[inline(always)]
    pub const fn traceparent(&self) -> Option<[u8; 55]> {
        None
    }
    /// `None`.
    #[inline(always)]
    pub const fn tracestate(&self) -> Option<&str> {
        None
    }
    /// `None`.
    #[inline(always)]
    pub const fn baggage_text(&self) -> Option<&str> {
        None
    }
    /// The empty context.
    #[inline(always)]
    pub fn from_bytes(_text: &[u8]) -> Self {
        Self(())
    }
    /// Empty.
    #[inline(always)]
    pub const fn to_bytes(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Does nothing.
    #[inline(always)]
    pub fn inject_env(&self, _set: impl FnMut(&'static str, &str)) {}
    /// Does nothing.
    #[inline(always)]
    pub fn inject(&self, _set: impl FnMut(&'static str, &str)) {}
    /// The empty context.
    #[inline(always)]
    pub fn from_env(_get: impl Fn(&str) -> Option<String>) -> Self {
        Self(())
    }
}

/// Does nothing.
#[inline(always)]
pub fn promote_baggage_keys(_keys: &'static [&'static str]) {}

/// Runs a future inside a span or context.
pub trait InSpan: Future + Sized {
    /// The future as it is.
    #[inline(always)]
    fn in_span(self, _span: Span) -> Self {
        self
    }
    /// The future as it is.
    #[inline(always)]
    fn try_in_span<T, E: fmt::Display>(self, _span: Span) -> Self
    where
        Self: Future<Output = Result<T, E>>,
    {
        self
    }
    /// The future as it is.
    #[inline(always)]
    fn in_context(self, _context: Context) -> Self {
        self
    }
}

impl<F: Future> InSpan for F {}

/// Does nothing.
#[inline(always)]
pub fn install_bridges() {}

/// Does nothing: no span ends.
#[inline(always)]
pub fn on_span_end(_hook: Option<fn(&mut Span)>) {}

/// Reports that telemetry is not compiled in.
///
/// # Errors
///
/// [`SetupError::NotCompiledIn`] when the config enables telemetry.
pub fn setup_telemetry(config: LensConfig) -> Result<TelemetryHandle, SetupError> {
    if config.enabled { Err(SetupError::NotCompiledIn) } else { Ok(TelemetryHandle(())) }
}

/// `None`: nothing runs.
#[inline(always)]
pub const fn current_handle() -> Option<TelemetryHandle> {
    None
}

/// Nothing: no buffer is read without telemetry.
pub fn spools(_folder: &std::path::Path) -> Vec<crate::Spool> {
    Vec::new()
}

/// Nothing, as [`spools`].
pub fn pipelines(_folder: &std::path::Path) -> Vec<crate::PipelineState> {
    Vec::new()
}

/// Nothing is exported in this build.
pub fn export_decision(_config: &LensConfig) -> (bool, Option<String>) {
    (false, None)
}

/// Nothing can be sent.
///
/// # Errors
///
/// Always [`SetupError::NotCompiledIn`].
pub fn probe(_config: &LensConfig, _limit: Duration) -> Result<Vec<crate::Probe>, SetupError> {
    Err(SetupError::NotCompiledIn)
}

/// Nothing, as [`spools`].
pub fn leftovers(_folder: &std::path::Path) -> Vec<crate::Leftover> {
    Vec::new()
}

/// A handle to nothing.
#[derive(Clone, Debug)]
pub struct TelemetryHandle(());

impl TelemetryHandle {
    /// `false`.
    pub const fn is_exporting(&self) -> bool {
        false
    }
    /// `true`: nothing is left.
    pub fn force_flush(&self, _timeout: Duration) -> bool {
        true
    }
    /// `true`: nothing is left.
    pub fn shutdown(&self, _timeout: Duration) -> bool {
        true
    }
    /// All zeros.
    pub fn snapshot(&self) -> PipelineSnapshot {
        PipelineSnapshot::default()
    }
    /// All zeros.
    pub fn log_snapshot(&self) -> PipelineSnapshot {
        PipelineSnapshot::default()
    }
    /// `true`: nobody looks.
    pub fn adopt_dead(&self, _timeout: Duration) -> bool {
        true
    }
    /// Nothing was asked for.
    pub fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Log records that nobody takes.
pub mod logs {
    use super::Value;

    pub use crate::log_record::LogRecord;
    pub use crate::severity::Severity;

    /// `false`.
    #[inline(always)]
    pub const fn is_enabled() -> bool {
        false
    }

    /// Does nothing.
    #[inline(always)]
    pub fn emit_record(_record: &LogRecord<'_>) {}

    /// Does nothing.
    #[inline(always)]
    pub fn emit(_severity: Severity, _body: &str, _attributes: &[(&'static str, Value)]) {}
}

/// Zero in this build.
#[inline(always)]
pub const fn now_unix_nanos() -> u64 {
    0
}

#[doc(hidden)]
pub mod __private {
    use std::future::Future;

    use super::Span;

    pub struct Outcome<'a, T>(pub &'a T);

    /// The future as it is.
    #[inline(always)]
    pub fn trace_block<F: Future, R: FnOnce(&mut Span, &F::Output)>(
        _span: Span,
        future: F,
        _record: R,
    ) -> F {
        future
    }

    pub trait RecordError {
        #[inline(always)]
        fn lens_record(&self, _span: &mut Span) {}
    }
    impl<T> RecordError for &&Outcome<'_, T> {}
    pub trait RecordOpaqueError {}
    pub trait RecordAny {}
}
