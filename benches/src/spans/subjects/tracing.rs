//! `tracing` with `tracing-opentelemetry` over `opentelemetry_sdk`, without the extras that the layer adds.

use tracing::Span;
use tracing_subscriber::layer::SubscriberExt as _;

use super::otel::{Otel, Style};
use crate::Outcome;
use crate::workload::*;

pub struct Tracing(Otel);

impl Tracing {
    pub fn start(destination: &Destination) -> Outcome<Self> {
        let otel = Otel::start(destination, Style::Active)?;
        let layer = tracing_opentelemetry::layer()
            .with_tracer(otel.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false);
        // Only our spans: those of the HTTP client that exports would be traced in turn.
        let own = tracing_subscriber::EnvFilter::new("off,spans=info");
        let subscriber = tracing_subscriber::registry().with(own).with(layer);
        tracing::subscriber::set_global_default(subscriber)?;
        Ok(Self(otel))
    }
}

/// The name of a span is part of its site.
macro_rules! site {
    ($n:expr, $name:literal, $data:expr) => {
        match $n {
            0 => tracing::info_span!($name),
            4 => tracing::info_span!(
                $name,
                bench.fixed = FIXED,
                bench.text = $data.text.as_str(),
                bench.number = $data.number,
                bench.flag = $data.flag
            ),
            WITH_CONTEXT => tracing::info_span!(
                $name,
                bench.fixed = FIXED,
                bench.text = $data.text.as_str(),
                bench.number = $data.number,
                bench.flag = $data.flag,
                nemo.gym.rollout.id = $data.rollout_id.as_str(),
                nemo.gym.task.index = $data.task_index,
                nemo.gym.rollout.index = $data.rollout_index,
                nemo.gym.attempt.index = $data.attempt_index,
                nemo.gym.collection.id = $data.collection_id.as_str()
            ),
            _ => tracing::info_span!(
                $name,
                bench.fixed = FIXED,
                bench.text = $data.text.as_str(),
                bench.number = $data.number,
                bench.flag = $data.flag,
                bench.fixed.again = FIXED,
                bench.text.again = $data.text.as_str(),
                bench.number.again = $data.number,
                bench.flag.again = $data.flag
            ),
        }
    };
}

#[inline(always)]
pub fn child<const N: usize>(data: &Data) -> Span {
    site!(N, "child", data)
}

impl Subject for Tracing {
    #[inline]
    fn group<const N: usize>(&self, data: &Data, between: &mut impl FnMut()) {
        between();
        let root = site!(N, "root", data).entered();
        for _ in 1..SPANS {
            between();
            drop(child::<N>(data).entered());
        }
        between();
        drop(root);
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn delivered(&self) -> u64 {
        self.0.delivered()
    }

    fn shut_down(&self) {
        self.0.shut_down();
    }
}
