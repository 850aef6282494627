//! The page that Prometheus scrapes: received metrics, durations of received spans, and the receiver's own counters.
//!
//! Everything is kept as the numbers that the page shows, and nothing is read from the store: a scrape costs a walk over
//! these numbers. All of them are bounded, see [`MetricsLimits`].

mod names;
mod own;
mod page;
mod received;
mod spans;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lens_store::raw;

pub use names::Kind;
pub use page::{Format, Page};

use crate::intake::Signal;
use crate::receiver::Snapshot;
use received::ReceivedMetrics;
use spans::SpanDurations;

/// Bounds of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsLimits {
    /// Samples (lines) of received metrics.
    pub samples: usize,
    /// Combinations of service, span name, kind and status.
    pub span_series: usize,
    /// Series of a process that has sent no metrics for so long go.
    pub stale_after: Duration,
}

impl Default for MetricsLimits {
    fn default() -> Self {
        Self { samples: 200_000, span_series: 5_000, stale_after: Duration::from_secs(300) }
    }
}

/// More families for the page, e.g. of a store.
pub trait Expose: Send + Sync {
    /// Writes them.
    fn expose(&self, page: &mut Page);
}

/// What the page shows.
pub struct Metrics {
    received: Mutex<ReceivedMetrics>,
    spans: Mutex<SpanDurations>,
    more: Vec<Arc<dyn Expose>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Nothing yet, besides what others expose.
    pub fn new(limits: MetricsLimits, more: Vec<Arc<dyn Expose>>) -> Self {
        Self {
            received: Mutex::new(ReceivedMetrics::new(limits.samples, limits.stale_after)),
            spans: Mutex::new(SpanDurations::new(limits.span_series)),
            more,
        }
    }

    /// Takes what was accepted. What is malformed in it was refused, so an error ends the walk and says nothing new.
    pub fn take(&self, signal: Signal, request: &Bytes, rejected: u64, now: Instant) {
        let _ = match signal {
            Signal::Metrics => locked(&self.received).take(request, now),
            Signal::Traces if rejected == 0 => locked(&self.spans).take(request),
            Signal::Traces => self.take_spans_one_by_one(request),
            Signal::Logs => Ok(()),
        };
    }

    fn take_spans_one_by_one(&self, request: &Bytes) -> Result<(), lens_otlp::DecodeError> {
        let decoded = raw::decode(request, 0)?;
        let mut spans = locked(&self.spans);
        for span in &decoded.spans {
            let attributes = lens_otlp::view::Attributes::new(&span.origin.resource.message, 1);
            spans.span(spans::service(attributes)?, &spans::Head::read(&span.message)?);
        }
        Ok(())
    }

    /// The page as it is now.
    pub fn page(&self, format: Format, snapshot: &Snapshot, now: Instant) -> String {
        let mut page = Page::new(format);
        {
            let mut received = locked(&self.received);
            received.forget_silent(now);
            received.put(&mut page);
            let spans = locked(&self.spans);
            spans.put(&mut page);
            own::put_page(&mut page, &received, &spans);
        }
        own::put_receiver(&mut page, snapshot);
        for more in &self.more {
            more.expose(&mut page);
        }
        page.finish()
    }
}
