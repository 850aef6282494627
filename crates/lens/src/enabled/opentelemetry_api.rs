//! A provider for libraries that use the API of OpenTelemetry: their spans become spans of this process.
//!
//! Both worlds share one current context. The API tells an observer when a context of its own becomes current, and that
//! one is then entered here too; so a span of ours below it has it as parent, and a span of the API has whatever is
//! innermost. The observer is one for the process: where the program has set another, only the second half holds.
//! Their spans belong to no group: they exist whenever spans do. The version of a tracer is not told.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::str::FromStr as _;
use std::sync::{Arc, Once};
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::context::{ContextObserver, GlobalContextObserver, ObserverContextView};
use opentelemetry::trace::{
    self, SpanBuilder, Status, TraceContextExt as _, TraceFlags, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Array, Context as ApiContext, InstrumentationScope, KeyValue};

use super::attributes::{AttributeValue as _, bit};
use super::clock;
use super::context::{Baggage, Context, Shared, SpanContext};
use super::current::{self, Depth};
use super::group::{ALWAYS, scope_of};
use super::ids::{SpanId, TraceId};
use super::span::Span;
use super::thread;
use super::value::Value;
use crate::SpanKind;

/// Makes tracers whose spans go where all spans of this process go.
///
/// `opentelemetry::global::set_tracer_provider(OpenTelemetryProvider::new())` gives it to every library. It may be made
/// before [`setup_telemetry`](crate::setup_telemetry); spans exist from then on.
#[derive(Clone, Copy, Debug)]
pub struct OpenTelemetryProvider(());

impl OpenTelemetryProvider {
    /// The provider of this process.
    pub fn new() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| GlobalContextObserver::set(Arc::new(Follower)));
        Self(())
    }
}

impl Default for OpenTelemetryProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl TracerProvider for OpenTelemetryProvider {
    type Tracer = OpenTelemetryTracer;

    fn tracer_with_scope(&self, scope: InstrumentationScope) -> OpenTelemetryTracer {
        OpenTelemetryTracer { scope: scope_of(scope.name()) }
    }
}

/// Makes spans of one scope.
#[derive(Clone, Copy, Debug)]
pub struct OpenTelemetryTracer {
    scope: u16,
}

impl Tracer for OpenTelemetryTracer {
    type Span = OpenTelemetrySpan;

    fn build_with_context(&self, builder: SpanBuilder, parent: &ApiContext) -> OpenTelemetrySpan {
        let parent = parent_of(parent);
        let kind = match builder.span_kind {
            None | Some(trace::SpanKind::Internal) => SpanKind::Internal,
            Some(trace::SpanKind::Server) => SpanKind::Server,
            Some(trace::SpanKind::Client) => SpanKind::Client,
            Some(trace::SpanKind::Producer) => SpanKind::Producer,
            Some(trace::SpanKind::Consumer) => SpanKind::Consumer,
        };
        let mut ours = Span::build(&ALWAYS, builder.name).kind(kind).parent(&parent);
        if let Some(start) = builder.start_time {
            ours = ours.start_nanos(unix_nanos(start));
        }
        let mut inner = ours.start();
        if let Some(recording) = inner.recording() {
            recording.scope = self.scope;
        }
        let state = parent.shared().and_then(|shared| shared.tracestate.as_deref());
        let state = state.and_then(|text| TraceState::from_str(text).ok()).unwrap_or_default();
        let context = theirs(inner.own_context().unwrap_or(parent.span_context()), state);
        let mut span = OpenTelemetrySpan { inner, context };
        trace::Span::set_attributes(&mut span, builder.attributes.into_iter().flatten());
        for event in builder.events.into_iter().flatten() {
            span.put_event(&event.name, unix_nanos(event.timestamp), &event.attributes);
        }
        for link in builder.links.into_iter().flatten() {
            trace::Span::add_link(&mut span, link.span_context, link.attributes);
        }
        span
    }
}

/// A span behind the API. It ends when it is dropped, if it was not ended before.
#[derive(Debug)]
pub struct OpenTelemetrySpan {
    inner: Span,
    context: trace::SpanContext,
}

impl OpenTelemetrySpan {
    fn put_event(&mut self, name: &str, unix_nanos: u64, attributes: &[KeyValue]) {
        if let Some(recording) = self.inner.recording() {
            recording.add_event(name, unix_nanos, &values(attributes));
        }
    }
}

impl trace::Span for OpenTelemetrySpan {
    fn add_event<T: Into<Cow<'static, str>>>(&mut self, name: T, attributes: Vec<KeyValue>) {
        self.put_event(&name.into(), clock::now_unix_nanos(), &attributes);
    }

    fn add_event_with_timestamp<T: Into<Cow<'static, str>>>(
        &mut self,
        name: T,
        timestamp: SystemTime,
        attributes: Vec<KeyValue>,
    ) {
        self.put_event(&name.into(), unix_nanos(timestamp), &attributes);
    }

    fn span_context(&self) -> &trace::SpanContext {
        &self.context
    }

    fn is_recording(&self) -> bool {
        self.inner.is_recording()
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        if let Some(recording) = self.inner.recording() {
            let key = attribute.key.as_str();
            value(&attribute.value).encode(&mut recording.message, key, bit(key));
        }
    }

    fn set_status(&mut self, status: Status) {
        match status {
            Status::Unset => {}
            Status::Ok => self.inner.set_ok(),
            Status::Error { description } => self.inner.set_error(description),
        }
    }

    fn update_name<T: Into<Cow<'static, str>>>(&mut self, name: T) {
        self.inner.update_name(name);
    }

    fn add_link(&mut self, context: trace::SpanContext, attributes: Vec<KeyValue>) {
        if let Some(recording) = self.inner.recording()
            && context.is_valid()
        {
            recording.add_link(ours(&context), &values(&attributes));
        }
    }

    fn end(&mut self) {
        drop(std::mem::take(&mut self.inner));
    }

    fn end_with_timestamp(&mut self, timestamp: SystemTime) {
        std::mem::take(&mut self.inner).end_at(unix_nanos(timestamp));
    }
}

fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn value(value: &opentelemetry::Value) -> Value {
    use opentelemetry::Value as Theirs;
    let texts = |values: &[opentelemetry::StringValue]| {
        values.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>()
    };
    match value {
        Theirs::Bool(value) => Value::Bool(*value),
        Theirs::I64(value) => Value::Int(*value),
        Theirs::F64(value) => Value::Double(*value),
        Theirs::String(text) => Value::from(text.as_str()),
        Theirs::Array(Array::Bool(values)) => Value::from(values.clone()),
        Theirs::Array(Array::I64(values)) => Value::from(values.clone()),
        Theirs::Array(Array::F64(values)) => Value::from(values.clone()),
        Theirs::Array(Array::String(values)) => Value::Array(texts(values)),
        // Whatever the API adds has a text.
        other => Value::from(other.as_str().into_owned()),
    }
}

fn values(attributes: &[KeyValue]) -> Vec<(&str, Value)> {
    attributes.iter().map(|pair| (pair.key.as_str(), value(&pair.value))).collect()
}

fn theirs(context: SpanContext, state: TraceState) -> trace::SpanContext {
    trace::SpanContext::new(
        trace::TraceId::from_bytes(context.trace_id().to_bytes()),
        trace::SpanId::from_bytes(context.span_id().to_bytes()),
        TraceFlags::new(context.flags()),
        context.is_remote(),
        state,
    )
}

fn ours(context: &trace::SpanContext) -> SpanContext {
    SpanContext::with_flags(
        TraceId::from_bytes(context.trace_id().to_bytes()),
        SpanId::from_bytes(context.span_id().to_bytes()),
        context.trace_flags().to_u8(),
        context.is_remote(),
    )
}

/// A context of the API as one of ours: its span, with the baggage of where we are; `None` without a span.
fn context_of(theirs: &ApiContext) -> Option<Context> {
    if !theirs.has_active_span() {
        return None;
    }
    let span = theirs.span();
    let span = span.span_context();
    if !span.is_valid() {
        return None;
    }
    let shared = Context::with_current(|current| current.shared().cloned());
    let state = span.trace_state().header();
    let same = shared.as_ref().map_or("", |shared| shared.tracestate.as_deref().unwrap_or(""));
    let shared = if same == state {
        shared
    } else {
        let tracestate = (!state.is_empty()).then(|| state.into_boxed_str());
        Some(Arc::new(match shared {
            Some(shared) => Shared { tracestate, ..Shared::clone(&shared) },
            None => Shared::new(tracestate, Baggage::default()),
        }))
    };
    Some(Context::from_parts(ours(span), shared))
}

/// The parent that a context of the API means: where it is the current one, what is current here, which may be a span of
/// ours inside of it.
fn parent_of(parent: &ApiContext) -> Context {
    let span_of = |context: &ApiContext| context.span().span_context().clone();
    if ApiContext::map_current(|current| span_of(current) == span_of(parent)) {
        return Context::current();
    }
    match parent.observer_view().as_ref().and_then(|view| view.as_any().downcast_ref::<View>()) {
        Some(View(context)) => context.clone(),
        None => context_of(parent).unwrap_or_else(Context::current),
    }
}

/// What a context of the API is to us, told when it is made.
struct View(Context);

impl ObserverContextView for View {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Enters here what becomes current there.
struct Follower;

thread_local! {
    /// Contexts of the API that this thread is in, by their views, and where they were entered here.
    static FOLLOWED: RefCell<Vec<(usize, Depth)>> = const { RefCell::new(Vec::new()) };
}

/// Tells contexts apart; zero is one without a view.
fn identity(context: &ApiContext) -> usize {
    let view = context.observer_view().as_ref();
    view.map_or(0, |view| Arc::as_ptr(view).cast::<()>().addr())
}

impl ContextObserver for Follower {
    fn make_view(&self, context: &ApiContext) -> Option<Arc<dyn ObserverContextView>> {
        // Without a span it is as good as where it is made.
        Some(Arc::new(View(context_of(context).unwrap_or_else(Context::current))))
    }

    fn on_context_enter(&self, _from: &ApiContext, to: &ApiContext) {
        let entered = if to.has_active_span() { context_of(to) } else { None };
        let depth = current::enter(entered.unwrap_or_else(Context::current));
        let _ = FOLLOWED.try_with(|followed| {
            if let Ok(mut followed) = followed.try_borrow_mut() {
                followed.push((identity(to), depth));
            }
        });
    }

    /// Leaves all that was entered above `to`: of guards dropped out of order the API tells only once.
    fn on_context_exit(&self, _from: &ApiContext, to: &ApiContext) {
        let left = FOLLOWED.try_with(|followed| {
            let mut followed = followed.try_borrow_mut().ok()?;
            followed.pop().map(|(_, depth)| {
                let mut left = depth;
                while followed.last().is_some_and(|(known, _)| *known != identity(to)) {
                    let Some((_, below)) = followed.pop() else { break };
                    left = below;
                }
                left
            })
        });
        if let Ok(Some(depth)) = left {
            thread::with(|thread| current::leave_for_good(thread, depth));
        }
    }
}
