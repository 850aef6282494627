//! Wall time, CPU time and what the kernel says of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

fn nanos(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time of this thread.
pub fn thread_nanos() -> f64 {
    nanos(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process, also of those that are gone.
pub fn process_nanos() -> f64 {
    nanos(ClockId::ProcessCPUTime)
}

/// A number behind a name in a `status` file of `/proc`.
fn status(path: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(f64::NAN)
}

/// Resident memory of this process, shared mappings included.
pub fn resident_bytes() -> f64 {
    status("/proc/self/status", "VmRSS") * 1024.0
}

/// How often this thread gave its core away to wait for something.
pub fn waits_of_this_thread() -> f64 {
    status("/proc/thread-self/status", "voluntary_ctxt_switches")
}

/// The processor's own counter, for single spans: reading it costs less than a system clock, and touches no memory.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    nanos_per_tick: f64,
}

impl Ticks {
    /// Finds out how long a tick is.
    pub fn calibrated() -> Self {
        let (started, first) = (Instant::now(), Self::now());
        while started.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let last = Self::now();
        Self { nanos_per_tick: started.elapsed().as_nanos() as f64 / (last - first) as f64 }
    }

    /// Everything before has happened, nothing after has begun.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn now() -> u64 {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: both instructions are part of every x86-64 processor and touch no memory.
        unsafe {
            _mm_lfence();
            let ticks = _rdtsc();
            _mm_lfence();
            ticks
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub fn now() -> u64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    pub fn nanos(self, ticks: u64) -> f64 {
        ticks as f64 * self.nanos_per_tick
    }
}
