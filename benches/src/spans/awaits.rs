//! A spawned task with one span of four attributes over three awaits, less the same task without.

use std::future::Future;
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::context::FutureExt as _;
use opentelemetry::trace::{TraceContextExt as _, Tracer as _};
use tokio::runtime::Runtime;
use tracing::Instrument as _;

use crate::subjects::otel::{self, Otel, Style};
use crate::subjects::{fastrace as fast, lens as ours, tracing as theirs};
use crate::workload::*;
use crate::{Outcome, Sample, allocator, clocks, median};

const TASKS: usize = 1000;
const TURNS: usize = 40;
const WARM_UP_TURNS: usize = 5;

async fn work() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

fn tasks<F: Future<Output = ()> + Send + 'static>(runtime: &Runtime, make: impl Fn() -> F) {
    runtime.block_on(async {
        for _ in 0..TASKS {
            // Only a panic could fail it, and that would have been printed.
            let _ = tokio::spawn(make()).await;
        }
    });
}

fn beside_bare<F: Future<Output = ()> + Send + 'static>(
    subject: &impl Subject,
    make: impl Fn() -> F,
) -> Outcome<Sample> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (mut wall, mut thread) = (Vec::new(), Vec::new());
    for at in 0..WARM_UP_TURNS + TURNS {
        let (cpu, started) = (clocks::thread_nanos(), Instant::now());
        tasks(&runtime, work);
        let (bare, bare_cpu) = (started.elapsed(), clocks::thread_nanos() - cpu);
        let (cpu, started) = (clocks::thread_nanos(), Instant::now());
        tasks(&runtime, &make);
        let (traced, traced_cpu) = (started.elapsed(), clocks::thread_nanos() - cpu);
        subject.flush();
        if at >= WARM_UP_TURNS {
            let nanos = traced.as_nanos() as f64 - bare.as_nanos() as f64;
            wall.push(nanos / TASKS as f64);
            thread.push((traced_cpu - bare_cpu) / TASKS as f64);
        }
    }
    let (bare, _) = allocator::count(|| tasks(&runtime, work));
    let (traced, _) = allocator::count(|| tasks(&runtime, &make));
    subject.flush();
    let made = ((WARM_UP_TURNS + TURNS + 1) * TASKS) as u64;
    if subject.delivered() != made {
        return Err(format!("{made} spans were made and {} delivered", subject.delivered()).into());
    }
    Ok(Sample::from_iter([
        ("wall", median(&wall)),
        ("thread", median(&thread)),
        ("allocations", (traced.calls as f64 - bare.calls as f64) / TASKS as f64),
        ("bytes", (traced.bytes as f64 - bare.bytes as f64) / TASKS as f64),
    ]))
}

pub fn run(subject: &str) -> Outcome<Sample> {
    let data: &'static Data = Box::leak(Box::new(Data::new()));
    match subject {
        "lens" => {
            let lens = ours::Lens::start(&Destination::Counted, ours::Ring::Private)?;
            beside_bare(&lens, || {
                let mut span = lens::Span::start(&ours::ON, "task");
                span.set(FIXED_KEY, FIXED);
                span.set(TEXT_KEY, data.text.as_str());
                span.set(NUMBER_KEY, data.number);
                span.set(FLAG_KEY, data.flag);
                lens::InSpan::in_span(work(), span)
            })
        }
        "fastrace" => {
            let fastrace = fast::Fastrace::start();
            beside_bare(&fastrace, || {
                let context = fastrace::collector::SpanContext::random();
                let span = fastrace::Span::root("task", context);
                let span = span.with_properties(|| fast::properties(data));
                fastrace::future::FutureExt::in_span(work(), span)
            })
        }
        "otel" => {
            let otel = Otel::start(&Destination::Counted, Style::Active)?;
            let tracer = otel.tracer.clone();
            beside_bare(&otel, || {
                let builder = tracer.span_builder("task");
                let span = builder.with_attributes(otel::attributes::<4>(data)).start(&tracer);
                work().with_context(Context::current_with_span(span))
            })
        }
        "tracing-otel" => {
            let tracing = theirs::Tracing::start(&Destination::Counted)?;
            beside_bare(&tracing, || work().instrument(theirs::child::<4>(data)))
        }
        other => Err(format!("unknown subject {other}").into()),
    }
}
