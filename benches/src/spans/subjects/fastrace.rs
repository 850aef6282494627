//! `fastrace`, alone and with `fastrace-opentelemetry`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::local::LocalSpan;
use fastrace::{Span, flush, set_reporter};
use fastrace_opentelemetry::OpenTelemetryReporter;
use opentelemetry::InstrumentationScope;
use tokio::runtime::Runtime;

use super::Delivered;
use super::otel::{Counting, Forgetting, resource, wire_exporter};
use crate::Outcome;
use crate::workload::*;

/// How long spans wait where they really leave the process; the default is ten seconds.
const WIRE_INTERVAL: Duration = Duration::from_millis(10);

pub struct Fastrace {
    delivered: Arc<Delivered>,
    _runtime: Option<Arc<Runtime>>,
}

struct CountingReporter(Arc<Delivered>);

impl Reporter for CountingReporter {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        self.0.add(spans.len());
    }
}

impl Fastrace {
    /// With a reporter that counts.
    pub fn start() -> Self {
        let delivered = Arc::<Delivered>::default();
        set_reporter(CountingReporter(Arc::clone(&delivered)), Config::default());
        Self { delivered, _runtime: None }
    }

    /// With the reporter of OpenTelemetry.
    pub fn with_opentelemetry(destination: &Destination) -> Outcome<Self> {
        let delivered = Arc::<Delivered>::default();
        let counted = Arc::clone(&delivered);
        let scope = InstrumentationScope::builder("bench").build();
        match destination {
            Destination::Counted => {
                let exporter = Counting { exporter: Forgetting, delivered: counted };
                let reporter = OpenTelemetryReporter::new(exporter, Cow::Owned(resource()), scope);
                set_reporter(reporter, Config::default());
                Ok(Self { delivered, _runtime: None })
            }
            Destination::Wire { transport, endpoint } => {
                let (exporter, runtime) = wire_exporter(*transport, endpoint)?;
                let exporter = Counting { exporter, delivered: counted };
                let mut reporter =
                    OpenTelemetryReporter::new(exporter, Cow::Owned(resource()), scope);
                let runtime = runtime.map(Arc::new);
                if let Some(runtime) = runtime.clone() {
                    reporter = reporter.with_block_on(move |export| runtime.block_on(export));
                }
                set_reporter(reporter, Config::default().report_interval(WIRE_INTERVAL));
                Ok(Self { delivered, _runtime: runtime })
            }
        }
    }
}

type Property = (&'static str, Cow<'static, str>);

#[inline(always)]
fn four(
    fixed: &'static str,
    text: &'static str,
    number: &'static str,
    flag: &'static str,
    data: &Data,
) -> [Property; 4] {
    [
        (fixed, FIXED.into()),
        (text, data.text.clone().into()),
        (number, data.number.to_string().into()),
        (flag, if data.flag { "true" } else { "false" }.into()),
    ]
}

#[inline(always)]
pub fn properties(data: &Data) -> [Property; 4] {
    four(FIXED_KEY, TEXT_KEY, NUMBER_KEY, FLAG_KEY, data)
}

#[inline(always)]
fn again(data: &Data) -> [Property; 4] {
    four(FIXED_KEY_2, TEXT_KEY_2, NUMBER_KEY_2, FLAG_KEY_2, data)
}

#[inline(always)]
fn ids(data: &Data) -> [Property; 5] {
    [
        (ROLLOUT_ID, data.rollout_id.clone().into()),
        (TASK_INDEX, data.task_index.to_string().into()),
        (ROLLOUT_INDEX, data.rollout_index.to_string().into()),
        (ATTEMPT_INDEX, data.attempt_index.to_string().into()),
        (COLLECTION_ID, data.collection_id.clone().into()),
    ]
}

/// Both kinds of span have the same methods and no common trait.
macro_rules! with_attributes {
    ($n:expr, $span:expr, $data:expr) => {
        match $n {
            0 => $span,
            4 => $span.with_properties(|| properties($data)),
            WITH_CONTEXT => {
                $span.with_properties(|| properties($data).into_iter().chain(ids($data)))
            }
            _ => $span.with_properties(|| properties($data).into_iter().chain(again($data))),
        }
    };
}

impl Subject for Fastrace {
    #[inline]
    fn group<const N: usize>(&self, data: &Data, between: &mut impl FnMut()) {
        between();
        let root = with_attributes!(N, Span::root("root", SpanContext::random()), data);
        let current = root.set_local_parent();
        for _ in 1..SPANS {
            between();
            drop(with_attributes!(N, LocalSpan::enter_with_local_parent("child"), data));
        }
        between();
        drop(current);
        drop(root);
    }

    fn flush(&self) {
        flush();
    }

    fn delivered(&self) -> u64 {
        self.delivered.get()
    }
}
