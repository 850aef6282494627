//! Exemplars: of each bucket (or point) the first measurement since the last export, with its trace.
//!
//! The first, so that all others cost one load: what a point has is a bit, and where the bit is set nothing is done.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use lens_otlp::metrics::{Exemplar, Number};

use crate::config::ExemplarFilter;
use crate::enabled::context::{Context, SpanContext};
use crate::enabled::{clock, lock};

const TRACE_BASED: u8 = 0;
const ALWAYS_ON: u8 = 1;
const ALWAYS_OFF: u8 = 2;

static FILTER: AtomicU8 = AtomicU8::new(TRACE_BASED);

pub(super) fn set_filter(filter: ExemplarFilter) {
    let filter = match filter {
        ExemplarFilter::TraceBased => TRACE_BASED,
        ExemplarFilter::AlwaysOn => ALWAYS_ON,
        ExemplarFilter::AlwaysOff => ALWAYS_OFF,
    };
    FILTER.store(filter, Ordering::Relaxed);
}

/// The exemplars of one point.
#[derive(Debug, Default)]
pub(super) struct Exemplars {
    /// One bit for each bucket that has one; those beyond the last bit share it.
    taken: AtomicU64,
    kept: Mutex<Vec<Exemplar>>,
}

impl Exemplars {
    /// Offers a measurement that went to `bucket`.
    #[inline]
    pub(super) fn offer(&self, bucket: usize, value: Number) {
        let filter = FILTER.load(Ordering::Relaxed);
        let bit = 1 << bucket.min(63);
        if filter == ALWAYS_OFF || self.taken.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        let span = Context::with_current(Context::span_context);
        if filter == ALWAYS_ON || span.is_sampled() {
            self.keep(bit, value, span);
        }
    }

    #[cold]
    fn keep(&self, bit: u64, value: Number, span: SpanContext) {
        if self.taken.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let ids = (span.trace_id().to_bytes(), span.span_id().to_bytes());
            let span = span.is_valid().then_some(ids);
            let exemplar = Exemplar { value, time_nanos: clock::now_unix_nanos(), span };
            lock(&self.kept).push(exemplar);
        }
    }

    /// Takes what was kept since the last time.
    pub(super) fn take(&self) -> Vec<Exemplar> {
        if self.taken.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut kept = lock(&self.kept);
        self.taken.store(0, Ordering::Relaxed);
        std::mem::take(&mut *kept)
    }
}
