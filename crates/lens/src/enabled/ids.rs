//! Trace and span ids.
//!
//! Each thread has a generator of its own, seeded from the operating system's randomness through the standard
//! library's hash keys, so that no seed set by a program can make two processes draw the same ids.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

use super::thread::{self, Thread};

/// Id of a trace; displays as 32 lower-case hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl TraceId {
    /// The id of 16 bytes in network order.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self { high: (number >> 64) as u64, low: number as u64 }
    }

    /// 16 bytes in network order.
    pub const fn to_bytes(self) -> [u8; 16] {
        ((self.high as u128) << 64 | self.low as u128).to_be_bytes()
    }

    /// Whether it is not all zeros.
    pub const fn is_valid(self) -> bool {
        self.high | self.low != 0
    }

    /// Takes one word of each stream, so that it has the entropy of both; after [`prepare`].
    #[inline(always)]
    pub(super) fn random(thread: &Thread) -> Self {
        let (high, low) = (next(thread, 0), next(thread, 1));
        Self { high, low: if high | low == 0 { 1 } else { low } }
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}{:016x}", self.high, self.low)
    }
}

/// Id of a span; displays as 16 lower-case hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub(super) u64);

impl SpanId {
    /// The id of 8 bytes in network order.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// 8 bytes in network order.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Whether it is not all zeros.
    pub const fn is_valid(self) -> bool {
        self.0 != 0
    }

    /// After [`prepare`].
    #[inline(always)]
    pub(super) fn random(thread: &Thread) -> Self {
        Self(next(thread, 0).max(1))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

#[cold]
#[inline(never)]
fn plant(thread: &Thread) {
    let keys = RandomState::new();
    let process = std::process::id();
    // Zero means that there is no seed.
    thread.ids[0].set(keys.hash_one((0, process)).max(1));
    thread.ids[1].set(keys.hash_one((1, process)));
}

/// Sees to it that [`next`] has something to begin with.
#[inline(always)]
pub(super) fn prepare(thread: &Thread) {
    if thread.ids[0].get() == 0 {
        plant(thread);
    }
}

/// The next of one stream (wyrand), after [`prepare`].
#[inline(always)]
fn next(thread: &Thread, stream: usize) -> u64 {
    let state = thread.ids[stream].get().wrapping_add(0xa076_1d64_78bd_642f);
    thread.ids[stream].set(state);
    let product = u128::from(state) * u128::from(state ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}

/// A random number that no seed of the program reaches.
pub(super) fn random() -> u64 {
    thread::with(|thread| {
        prepare(thread);
        next(thread, 0)
    })
}

/// After `fork` the child must not draw what its parent draws.
pub(super) fn reseed() {
    thread::with(plant);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_of_several_threads_are_distinct() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    thread::with(|thread| {
                        prepare(thread);
                        (0..5_000).map(|_| SpanId::random(thread)).collect::<Vec<_>>()
                    })
                })
            })
            .collect();
        let ids: HashSet<SpanId> =
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(ids.len(), 20_000);
        assert!(!ids.contains(&SpanId(0)));
    }

    #[test]
    fn ids_display_as_padded_hex() {
        let trace = TraceId::from_bytes(1_u128.to_be_bytes());
        assert_eq!(trace.to_string(), "00000000000000000000000000000001");
        assert_eq!(SpanId(0xab).to_string(), "00000000000000ab");
        assert_eq!(TraceId::from_bytes(trace.to_bytes()), trace);
    }
}
