//! A counter that every processor of the machine reads alike, in about ten nanoseconds.
//!
//! On x86-64 it is the time-stamp counter, where the processor says that it never stops and the kernel still trusts
//! it; elsewhere it is the monotonic clock in nanoseconds.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::enabled::process::PROCESS;

/// Which counter it is: not known yet.
pub(crate) const UNKNOWN: u8 = 0;
const MONOTONIC: u8 = 1;
#[cfg(target_arch = "x86_64")]
const TIME_STAMP: u8 = 2;

static BASE: OnceLock<Instant> = OnceLock::new();

/// Ticks of the counter.
#[inline]
pub(crate) fn read() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if PROCESS.counter.load(Ordering::Relaxed) == TIME_STAMP {
        // SAFETY: every x86-64 processor has the instruction; it has no other effect.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    read_slowly()
}

#[cold]
#[inline(never)]
fn read_slowly() -> u64 {
    if PROCESS.counter.load(Ordering::Relaxed) == UNKNOWN {
        choose();
        return read();
    }
    let base = *BASE.get_or_init(Instant::now);
    base.elapsed().as_nanos() as u64
}

/// Whether ticks are nanoseconds, so that nothing needs to be calibrated.
pub(crate) fn is_in_nanos() -> bool {
    if PROCESS.counter.load(Ordering::Relaxed) == UNKNOWN {
        choose();
    }
    PROCESS.counter.load(Ordering::Relaxed) == MONOTONIC
}

fn choose() {
    #[cfg(target_arch = "x86_64")]
    if is_invariant() && kernel_trusts_it() {
        PROCESS.counter.store(TIME_STAMP, Ordering::Relaxed);
        return;
    }
    PROCESS.counter.store(MONOTONIC, Ordering::Relaxed);
}

/// The processor's word: constant rate in all power states.
#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    const HIGHEST_EXTENDED: u32 = 0x8000_0000;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    __cpuid(HIGHEST_EXTENDED).eax >= POWER_MANAGEMENT
        && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
}

/// The kernel lists the counter only while its own watchdog finds it in step on all processors.
#[cfg(target_arch = "x86_64")]
fn kernel_trusts_it() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    std::fs::read_to_string(path)
        .is_ok_and(|known| known.split_ascii_whitespace().any(|name| name == "tsc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_never_goes_back_on_a_thread() {
        let mut last = read();
        for _ in 0..10_000 {
            let now = read();
            assert!(now >= last);
            last = now;
        }
    }
}
