//! A layer for `tracing`: spans of libraries that use it become spans of the group `tracing`, events log records.
//!
//! Both worlds share one context: a `tracing` span hangs below the current lens span, is current for what runs inside
//! it, and a log record carries the ids of whatever span is current. The group is asked at every span, so that the
//! layer may be installed before telemetry is set up.

use std::fmt;

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::context::Context;
use super::current::{self, Depth};
use super::group::{Group, register};
use super::logs::{self, LogRecord, Severity};
use super::span::Span;
use super::thread::{self, exports};
use super::value::Value;
use crate::semconv;

static TRACING: Group = Group::new(super::group::TRACING);
static GROUPS: &[&Group] = &[&TRACING];

/// Feeds spans and events of `tracing` to lens.
#[derive(Clone, Copy, Debug)]
pub struct TracingLayer {
    least: Level,
}

impl TracingLayer {
    /// A layer for spans of every level and events of at least `least`; registers the group `tracing`.
    pub fn new(least: Level) -> Self {
        register(semconv::TRACING_SCOPE, GROUPS, &[]);
        Self { least }
    }

    /// Makes it the program's subscriber, alone; false when the program has one already.
    pub fn install(self) -> bool {
        use tracing_subscriber::layer::SubscriberExt as _;
        let subscriber = tracing_subscriber::registry().with(self);
        tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(subscriber))
            .is_ok()
    }
}

/// What a `tracing` span carries of ours.
struct Ours {
    span: Span,
    /// The context for work inside.
    context: Context,
    /// Where it is entered: more than once, if its code enters it again inside itself.
    entered: Vec<Depth>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TracingLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: LayerContext<'_, S>) {
        if !TRACING.is_enabled() || exports() {
            return;
        }
        let Some(theirs) = context.span(id) else { return };
        let mut builder = Span::build(&TRACING, attributes.metadata().name());
        if attributes.is_root() {
            builder = builder.root();
        } else if let Some(parent) = attributes.parent().and_then(|parent| context.span(parent))
            && let Some(ours) = parent.extensions().get::<Ours>()
        {
            builder = builder.parent(&ours.context);
        }
        let mut span = builder.start();
        attributes.record(&mut OnSpan(&mut span));
        let inside = Context::current().with_span(&span);
        theirs.extensions_mut().insert(Ours { span, context: inside, entered: Vec::new() });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: LayerContext<'_, S>) {
        if let Some(theirs) = context.span(id)
            && let Some(ours) = theirs.extensions_mut().get_mut::<Ours>()
        {
            values.record(&mut OnSpan(&mut ours.span));
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, context: LayerContext<'_, S>) {
        let cause = context
            .span(follows)
            .and_then(|cause| cause.extensions().get::<Ours>().map(|ours| ours.span.context()));
        if let Some(cause) = cause
            && let Some(theirs) = context.span(id)
            && let Some(ours) = theirs.extensions_mut().get_mut::<Ours>()
        {
            ours.span.link(cause);
        }
    }

    fn on_enter(&self, id: &Id, context: LayerContext<'_, S>) {
        if let Some(theirs) = context.span(id)
            && let Some(ours) = theirs.extensions_mut().get_mut::<Ours>()
        {
            let depth = current::enter(ours.context.clone());
            ours.entered.push(depth);
        }
    }

    fn on_exit(&self, id: &Id, context: LayerContext<'_, S>) {
        if let Some(theirs) = context.span(id)
            && let Some(ours) = theirs.extensions_mut().get_mut::<Ours>()
            && let Some(depth) = ours.entered.pop()
        {
            thread::with(|thread| current::leave_for_good(thread, depth));
        }
    }

    fn on_close(&self, id: Id, context: LayerContext<'_, S>) {
        if let Some(theirs) = context.span(&id) {
            // Ends here, not when the registry gets round to using the place again.
            drop(theirs.extensions_mut().remove::<Ours>());
        }
    }

    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > self.least || !logs::is_enabled() || exports() {
            return;
        }
        let mut fields = OnRecord::default();
        event.record(&mut fields);
        logs::emit_record(&LogRecord {
            severity: severity(*metadata.level()),
            body: &fields.message,
            attributes: &fields.attributes,
            event_name: event_name(metadata.name()),
            target: metadata.target(),
        });
    }
}

/// The name that an event was given; one that has none is called after its place in the source.
fn event_name(name: &'static str) -> &'static str {
    if name.starts_with("event ") { "" } else { name }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::TRACE => Severity::Trace,
        Level::DEBUG => Severity::Debug,
        Level::INFO => Severity::Info,
        Level::WARN => Severity::Warn,
        Level::ERROR => Severity::Error,
    }
}

/// Fields of a span as attributes.
struct OnSpan<'a>(&'a mut Span);

impl Visit for OnSpan<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.set(field.name(), value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.set(field.name(), value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.set(field.name(), value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.set(field.name(), value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.set(field.name(), value);
    }
    fn record_error(&mut self, _: &Field, value: &(dyn std::error::Error + 'static)) {
        let message = value.to_string();
        self.0.set(semconv::EXCEPTION_MESSAGE, message.as_str());
        self.0.set_error(message);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.set(field.name(), format!("{value:?}"));
    }
}

/// Fields of an event: the message is the body, the others are attributes.
#[derive(Default)]
struct OnRecord {
    message: String,
    attributes: Vec<(&'static str, Value)>,
}

impl OnRecord {
    fn put(&mut self, field: &Field, value: Value) {
        self.attributes.push((field.name(), value));
    }
}

/// The field that holds what an event says.
const MESSAGE: &str = "message";

impl Visit for OnRecord {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            value.clone_into(&mut self.message);
        } else {
            self.put(field, value.into());
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            self.message = format!("{value:?}");
        } else {
            self.put(field, format!("{value:?}").into());
        }
    }
}
