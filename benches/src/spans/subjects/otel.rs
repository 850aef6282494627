//! `opentelemetry_sdk` with its batch processor.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{Span as _, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanData, SpanExporter,
};
use opentelemetry_sdk::{Resource, trace};
use tokio::runtime::Runtime;

use super::Delivered;
use crate::Outcome;
use crate::workload::*;

/// Options that lose less and cost less than the defaults (2,048 and 512) where spans really leave the process.
const WIRE_QUEUE_SPANS: usize = 65_536;
const WIRE_BATCH_SPANS: usize = 4_096;
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether children become the current span, as `in_span` makes them, or get their parent by hand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Active,
    Explicit,
}

pub struct Otel {
    pub provider: SdkTracerProvider,
    pub tracer: SdkTracer,
    delivered: Arc<Delivered>,
    style: Style,
    /// What gRPC runs on.
    _runtime: Option<Runtime>,
}

/// Counts what the exporter inside took.
#[derive(Debug)]
pub struct Counting<E> {
    pub exporter: E,
    pub delivered: Arc<Delivered>,
}

impl<E: SpanExporter> SpanExporter for Counting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        if result.is_ok() {
            self.delivered.add(spans);
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Forgets spans.
#[derive(Debug)]
pub struct Forgetting;

impl SpanExporter for Forgetting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        drop(batch);
        Ok(())
    }
}

pub fn resource() -> Resource {
    Resource::builder_empty().with_service_name("bench").build()
}

/// An exporter over the wire, and the runtime that it needs.
pub fn wire_exporter(
    transport: Transport,
    endpoint: &str,
) -> Outcome<(opentelemetry_otlp::SpanExporter, Option<Runtime>)> {
    match transport {
        Transport::Http => {
            let exporter = opentelemetry_otlp::SpanExporter::builder()
                .with_http()
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(format!("{endpoint}/v1/traces"))
                .build()?;
            Ok((exporter, None))
        }
        Transport::Grpc => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let entered = runtime.enter();
            let exporter = opentelemetry_otlp::SpanExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .build()?;
            drop(entered);
            Ok((exporter, Some(runtime)))
        }
    }
}

impl Otel {
    pub fn start(destination: &Destination, style: Style) -> Outcome<Self> {
        let delivered = Arc::<Delivered>::default();
        let counted = Arc::clone(&delivered);
        let (processor, runtime) = match destination {
            Destination::Counted => {
                let exporter = Counting { exporter: Forgetting, delivered: counted };
                (BatchSpanProcessor::builder(exporter).build(), None)
            }
            Destination::Wire { transport, endpoint } => {
                let (exporter, runtime) = wire_exporter(*transport, endpoint)?;
                let exporter = Counting { exporter, delivered: counted };
                let config = BatchConfigBuilder::default()
                    .with_max_queue_size(WIRE_QUEUE_SPANS)
                    .with_max_export_batch_size(WIRE_BATCH_SPANS)
                    .build();
                let processor =
                    BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
                (processor, runtime)
            }
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_span_processor(processor)
            .build();
        let tracer = provider.tracer("bench");
        Ok(Self { provider, tracer, delivered, style, _runtime: runtime })
    }

    /// Nothing is sampled.
    pub fn off() -> Self {
        let provider = SdkTracerProvider::builder().with_sampler(trace::Sampler::AlwaysOff).build();
        let tracer = provider.tracer("bench");
        Self { provider, tracer, delivered: Arc::default(), style: Style::Active, _runtime: None }
    }
}

#[inline(always)]
pub fn attributes<const N: usize>(data: &Data) -> Vec<KeyValue> {
    let four = |fixed, text, number, flag| {
        [
            KeyValue::new(fixed, FIXED),
            KeyValue::new(text, data.text.clone()),
            KeyValue::new(number, data.number),
            KeyValue::new(flag, data.flag),
        ]
    };
    if N == 0 {
        return Vec::new();
    }
    let mut attributes = Vec::with_capacity(N);
    attributes.extend(four(FIXED_KEY, TEXT_KEY, NUMBER_KEY, FLAG_KEY));
    if N == 8 {
        attributes.extend(four(FIXED_KEY_2, TEXT_KEY_2, NUMBER_KEY_2, FLAG_KEY_2));
    }
    if N == WITH_CONTEXT {
        attributes.extend([
            KeyValue::new(ROLLOUT_ID, data.rollout_id.clone()),
            KeyValue::new(TASK_INDEX, data.task_index),
            KeyValue::new(ROLLOUT_INDEX, data.rollout_index),
            KeyValue::new(ATTEMPT_INDEX, data.attempt_index),
            KeyValue::new(COLLECTION_ID, data.collection_id.clone()),
        ]);
    }
    attributes
}

impl Subject for Otel {
    #[inline]
    fn group<const N: usize>(&self, data: &Data, between: &mut impl FnMut()) {
        let build = |name| {
            let builder = self.tracer.span_builder(name);
            if N == 0 { builder } else { builder.with_attributes(attributes::<N>(data)) }
        };
        between();
        let root = Context::current_with_span(build("root").start(&self.tracer));
        let current = (self.style == Style::Active).then(|| root.clone().attach());
        for _ in 1..SPANS {
            between();
            match self.style {
                Style::Active => {
                    let span = build("child").start(&self.tracer);
                    drop(Context::current_with_span(span).attach());
                }
                Style::Explicit => build("child").start_with_context(&self.tracer, &root).end(),
            }
        }
        between();
        drop(current);
        drop(root);
    }

    fn flush(&self) {
        // Fails only when it takes longer than its patience, which the count of delivered spans shows.
        let _ = self.provider.force_flush();
    }

    fn delivered(&self) -> u64 {
        self.delivered.get()
    }

    fn shut_down(&self) {
        let _ = self.provider.shutdown_with_timeout(PATIENCE);
    }
}
