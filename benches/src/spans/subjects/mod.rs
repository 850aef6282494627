//! The libraries, each set up as its documentation says.

pub mod fastrace;
pub mod lens;
pub mod otel;
pub mod tracing;

use std::sync::atomic::{AtomicU64, Ordering};

/// Spans that an exporter took.
#[derive(Debug, Default)]
pub struct Delivered(AtomicU64);

impl Delivered {
    pub fn add(&self, spans: usize) {
        self.0.fetch_add(spans as u64, Ordering::Release);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
