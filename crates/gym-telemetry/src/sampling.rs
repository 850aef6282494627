//! What this process, its host and its GPUs do while it works.
//!
//! CPU and memory are read where a span ends, by the thread that ends it, so that the number belongs to that span; at
//! most once an interval, whoever comes first. GPUs take a program to ask, so a thread does that.
//!
//! Guarantee: what is not switched on has no thread, reads no file and is not called.

mod cpu;
mod gpu;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lens::{Context, Span};

use crate::{
    host_memory::{HostMemory, PROC, UNSUPPORTED},
    metrics,
    notice::notice,
    resolve::Resolved,
    semconv,
};

static CPU: Due = Due::never();
static MEMORY: Due = Due::never();
static GPUS: Mutex<Option<gpu::Sampler>> = Mutex::new(None);

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Starts what the settings switch on.
pub(crate) fn start(settings: &Resolved, env: &BTreeMap<String, String>) {
    let now = lens::now_unix_nanos();
    let has_metrics = lens::metrics::is_enabled();
    if settings.cpu_sampling_enabled.value {
        cpu::begin();
        CPU.every(seconds(settings.cpu_min_resample_interval_s.value), now);
    }
    let samples_memory = settings.memory_sampling_enabled.value && has_metrics;
    if samples_memory && !cfg!(target_os = "linux") {
        notice(UNSUPPORTED);
    } else if samples_memory {
        // The first span tells already: nothing has to be compared with what was before.
        MEMORY.every(seconds(settings.memory_min_resample_interval_s.value), 0);
    }
    if CPU.is_ever() || MEMORY.is_ever() {
        lens::on_span_end(Some(at_span_end));
    }
    if settings.gpu_sampling_enabled.value && has_metrics {
        let interval = seconds(settings.gpu_sample_interval_s.value);
        *GPUS.lock().unwrap_or_else(PoisonError::into_inner) = gpu::Sampler::start(env, interval);
    }
}

/// Ends it; what was sampled last still goes out.
pub(crate) fn stop() {
    lens::on_span_end(None);
    CPU.stop();
    MEMORY.stop();
    GPUS.lock().unwrap_or_else(PoisonError::into_inner).take();
}

fn at_span_end(span: &mut Span) {
    let now = lens::now_unix_nanos();
    if CPU.claim(now)
        && let Some(percent) = cpu::percent_since_last()
    {
        span.set(semconv::CPU_PERCENT, percent);
        // The span is current no longer, and the gauge's exemplar is to name it.
        let _current = Context::current().with_span(span).attach();
        metrics::PROCESS_CPU_PERCENT.set(percent, &[]);
    }
    if MEMORY.claim(now)
        && let Some(memory) = HostMemory::read(Path::new(PROC))
    {
        metrics::HOST_MEMORY_USED_MIB.set(memory.used_bytes() as f64 / MEBIBYTE, &[]);
        metrics::HOST_MEMORY_TOTAL_MIB.set(memory.total_bytes as f64 / MEBIBYTE, &[]);
    }
}

/// A number of seconds from the settings, which are positive.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// When something is due again; any thread may ask, and one of them gets it.
struct Due {
    next_nanos: AtomicU64,
    interval_nanos: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Due {
    const fn never() -> Self {
        Self { next_nanos: AtomicU64::new(NEVER), interval_nanos: AtomicU64::new(0) }
    }

    /// Due an interval after `from_nanos`, and then again.
    fn every(&self, interval: Duration, from_nanos: u64) {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(NEVER);
        self.interval_nanos.store(nanos, Ordering::Relaxed);
        let next = if from_nanos == 0 { 0 } else { from_nanos.saturating_add(nanos) };
        self.next_nanos.store(next, Ordering::Relaxed);
    }

    fn stop(&self) {
        self.next_nanos.store(NEVER, Ordering::Relaxed);
    }

    fn is_ever(&self) -> bool {
        self.next_nanos.load(Ordering::Relaxed) != NEVER
    }

    /// Whether it is due and nobody else has it.
    fn claim(&self, now_nanos: u64) -> bool {
        let next = self.next_nanos.load(Ordering::Relaxed);
        if now_nanos < next {
            return false;
        }
        let after = now_nanos.saturating_add(self.interval_nanos.load(Ordering::Relaxed));
        self.next_nanos.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_claimed_once_an_interval() {
        let due = Due::never();
        assert!(!due.claim(u64::MAX - 1) && !due.is_ever());
        due.every(Duration::from_nanos(10), 100);
        assert!(!due.claim(109));
        assert!(due.claim(115));
        assert!(!due.claim(115) && !due.claim(124));
        assert!(due.claim(125));
        due.stop();
        assert!(!due.claim(u64::MAX - 1) && !due.is_ever());
        due.every(Duration::from_nanos(10), 0);
        assert!(due.claim(1), "nothing to wait for");
    }

    #[test]
    fn of_many_threads_one_gets_what_is_due() {
        let due = Due::never();
        due.every(Duration::from_secs(3600), 1);
        let now = 3_600_000_000_001;
        let claimed = || (0..100).filter(|_| due.claim(now)).count();
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(claimed)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(total, 1);
    }
}
