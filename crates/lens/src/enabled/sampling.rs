//! Which traces are recorded, decided before anything is built.

use std::sync::atomic::Ordering;

use super::context::{FLAG_RANDOM, FLAG_SAMPLED, SpanContext};
use super::ids::{self, SpanId, TraceId};
use super::process::PROCESS;
use super::thread::Thread;
use crate::config::Sampler;

/// Sets the process's sampler.
///
/// The rank-aware sampler says besides whether this process records the traces that it begins; traces that others
/// began go on as they decided.
pub(super) fn set(sampler: Sampler, rank_aware: Option<bool>) {
    let parent_based = sampler.parent_based || rank_aware.is_some();
    PROCESS.is_parent_based.store(parent_based, Ordering::Relaxed);
    let ratio = if rank_aware == Some(false) { 0.0 } else { sampler.ratio };
    PROCESS.sampling_bound.store(bound(ratio), Ordering::Relaxed);
}

fn bound(ratio: f64) -> u64 {
    // The cast saturates, so 1.0 is every trace.
    (ratio.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u64
}

fn keeps(trace_id: TraceId) -> bool {
    let bound = PROCESS.sampling_bound.load(Ordering::Relaxed);
    bound == u64::MAX || trace_id.low < bound
}

/// The context of a new span below `parent` (invalid: a root).
#[inline(always)]
pub(super) fn child_of(thread: &Thread, parent: SpanContext) -> SpanContext {
    ids::prepare(thread);
    let span_id = SpanId::random(thread);
    if !parent.is_valid() {
        let trace_id = TraceId::random(thread);
        // Ids of ours are random in all their bits, which level 2 says with a flag.
        let flags = FLAG_RANDOM | if keeps(trace_id) { FLAG_SAMPLED } else { 0 };
        return SpanContext::with_flags(trace_id, span_id, flags, false);
    }
    let sampled = if PROCESS.is_parent_based.load(Ordering::Relaxed) {
        parent.is_sampled()
    } else {
        keeps(parent.trace_id())
    };
    let flags = parent.flags() & FLAG_RANDOM | u8::from(sampled);
    SpanContext::with_flags(parent.trace_id(), span_id, flags, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_keeps_about_its_share() {
        let bound = bound(0.25);
        let kept = crate::enabled::thread::with(|thread| {
            ids::prepare(thread);
            (0..20_000).filter(|_| TraceId::random(thread).low < bound).count()
        });
        assert!((4_500..5_500).contains(&kept), "{kept} of 20000");
        assert_eq!(super::bound(1.0), u64::MAX);
        assert_eq!(super::bound(0.0), 0);
    }
}
