//! Work with every form of site that `lens` has.

// The proof looks the functions up by name.
#![allow(unsafe_code)]
// A guard of this build has no destructor.
#![allow(clippy::drop_non_drop)]

use lens::logs::{self, Severity};
use lens::metrics::{Counter, Gauge, Histogram, UpDownCounter};
use lens::{Context, Group, InSpan as _, Span, SpanKind, Value, managed_span, span, trace_fn};

use crate::{Refused, Yields, block_on, may_fail, work};

static GROUP: Group = Group::new("proof.group").long_lived();
const SIZE: &str = "proof.key.size";
const TEXT: &str = "proof.key.text";

static REQUESTS: Counter = Counter::new("proof.metric.requests", "{request}", "proof.metric.text");
static IN_FLIGHT: UpDownCounter =
    UpDownCounter::new("proof.metric.flight", "1", "proof.metric.text");
static SHARE: Gauge = Gauge::new("proof.metric.share", "1", "proof.metric.text");
static DURATION: Histogram =
    Histogram::with_bounds("proof.metric.duration", "s", "proof.metric.text", &[0.125, 31.0625]);

/// What a program says at its start, without any effect in this build.
pub fn start() {
    static GROUPS: &[&Group] = &[&GROUP];
    lens::register("proof.namespace", GROUPS, &[("proof.preset", &["proof.group"])]);
    lens::promote_baggage_keys(&["proof.key.promoted"]);
    Gauge::observable("proof.metric.observed", "1", "proof.metric.text", || {
        vec![(vec![(SIZE, Value::from(1))], 0.5)]
    });
}

#[unsafe(export_name = "instrumented_guard")]
pub fn guard(value: u64) -> u64 {
    let mut guard =
        managed_span!(GROUP, "proof.span.guard", SIZE = value, TEXT = format!("{value}"));
    guard.set("proof.key.late", value > 3);
    let result = work(value);
    guard.set(SIZE, result);
    result
}

#[unsafe(export_name = "instrumented_nested_guards")]
pub fn nested_guards(value: u64) -> u64 {
    let _outer = managed_span!(GROUP, format!("proof.span.outer {value}"));
    let first = work(value);
    {
        let _inner = managed_span!(GROUP, "proof.span.inner", TEXT = first.to_string());
        work(first + 1)
    }
}

#[unsafe(export_name = "instrumented_scope_in_a_loop")]
pub fn scope_in_a_loop(value: u64) -> u64 {
    let mut sum = 0;
    for at in 0..value {
        let _each = managed_span!(GROUP, "proof.span.each", SIZE = at);
        sum ^= work(at);
    }
    sum
}

#[unsafe(export_name = "instrumented_expression")]
pub fn expression(value: u64) -> Result<u64, Refused> {
    managed_span!(GROUP, "proof.span.expression", SIZE = value => may_fail(value))
}

#[unsafe(export_name = "instrumented_ungrouped")]
pub fn ungrouped(value: u64) -> u64 {
    let _guard = span!("proof.span.ungrouped", SIZE = value);
    work(value)
}

#[unsafe(export_name = "instrumented_built")]
pub fn built(value: u64) -> u64 {
    let parent = Context::current();
    let span = Span::build(&GROUP, "proof.span.built")
        .kind(SpanKind::Client)
        .parent(&parent)
        .link(parent.span_context())
        .start_nanos(value)
        .start();
    let _inside = parent.with_span(&span).attach();
    let result = work(value);
    span.end_at(result);
    result
}

#[unsafe(export_name = "instrumented_spoken")]
pub fn spoken(value: u64) -> u64 {
    let mut span = Span::start(&GROUP, "proof.span.spoken");
    span.set(SIZE, value);
    span.set(TEXT, "proof.value.text");
    span.event(
        "proof.event.first",
        &[(SIZE, value.into()), (TEXT, Value::from_static("proof.value"))],
    );
    span.event_at("proof.event.second", value, &[]);
    span.link(span.context());
    span.update_name("proof.span.renamed");
    let result = match may_fail(value) {
        Ok(result) => {
            span.set_ok();
            result
        }
        Err(error) => {
            if span.is_recording() {
                span.record_exception("proof.exception", &error.to_string());
            }
            span.set_error("proof.status");
            9
        }
    };
    span.end();
    result
}

#[unsafe(export_name = "instrumented_future")]
pub fn future(value: u64) -> u64 {
    let mut span = Span::start(&GROUP, "proof.span.future");
    span.set(SIZE, value);
    block_on(
        async move {
            Yields(value).await;
            let first = managed_span!(GROUP, "proof.span.inside" => work(value));
            Yields(first & 3).await;
            work(first)
        }
        .in_span(span),
    )
}

#[unsafe(export_name = "instrumented_context_of_a_future")]
pub fn context_of_a_future(value: u64) -> u64 {
    let context = Context::current().with_span(&Span::start(&GROUP, "proof.span.carried"));
    block_on(
        async move {
            Yields(value).await;
            work(value)
        }
        .in_context(context),
    )
}

#[unsafe(export_name = "instrumented_traced")]
#[trace_fn(group = GROUP, name = "proof.span.traced")]
pub fn traced(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "instrumented_traced_result")]
#[trace_fn(group = GROUP, name = "proof.span.traced_result")]
pub fn traced_result(value: u64) -> Result<u64, Refused> {
    let first = may_fail(value)?;
    Ok(first + 1)
}

#[trace_fn(group = GROUP, name = "proof.span.fetch")]
async fn fetch(value: u64) -> Result<u64, Refused> {
    Yields(value & 3).await;
    let first = may_fail(value)?;
    Yields(first & 3).await;
    Ok(first + 1)
}

#[unsafe(export_name = "instrumented_traced_future")]
pub fn traced_future(value: u64) -> Result<u64, Refused> {
    block_on(fetch(value))
}

#[unsafe(export_name = "instrumented_metrics")]
pub fn metrics(value: u64) -> u64 {
    REQUESTS.add(1, &[("proof.key.route", Value::from_static("proof.value.route"))]);
    IN_FLIGHT.add(1, &[]);
    SHARE.set(0.5, &[(SIZE, value.into())]);
    let result = work(value);
    DURATION.record(result as f64, &[]);
    IN_FLIGHT.add(-1, &[]);
    result
}

#[unsafe(export_name = "instrumented_bound_metrics")]
pub fn bound_metrics(value: u64) -> u64 {
    let attributes = &[("proof.key.route", Value::from("proof.value.route"))];
    let (requests, duration) = (REQUESTS.bind(attributes), DURATION.bind(attributes));
    requests.add(value);
    let result = work(value);
    duration.record(result as f64);
    result
}

#[unsafe(export_name = "instrumented_propagation")]
pub fn propagation(value: u64) -> u64 {
    let context = Context::extract(|name| match name {
        "traceparent" => Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        _ => None,
    });
    let _current = context.attach();
    let span = Span::build(&GROUP, "proof.span.server").kind(SpanKind::Server).start();
    let mut headers = 0;
    Context::current().with_span(&span).inject(|_, value| headers += value.len() as u64);
    work(value + headers)
}

#[unsafe(export_name = "instrumented_baggage")]
pub fn baggage(value: u64) -> u64 {
    let mut context = Context::current();
    if GROUP.is_enabled() {
        context = context.with_baggage(&[("proof.key.promoted", value.to_string())]);
    }
    let extra = context.baggage("proof.key.promoted").map_or(0, |text| text.len() as u64);
    let _current = context.attach();
    work(value + extra)
}

#[unsafe(export_name = "instrumented_logs")]
pub fn logs(value: u64) -> u64 {
    logs::emit(Severity::Info, "proof.log.begin", &[(SIZE, value.into())]);
    may_fail(value).unwrap_or_else(|error| {
        if logs::is_enabled() {
            logs::emit(Severity::Error, &format!("proof.log.error {error}"), &[]);
        }
        5
    })
}
