//! Times the waits for limits on concurrency, one [`Site`] for each semaphore.
//!
//! Measured while group `concurrency` is on and metrics are; otherwise a wait costs one relaxed
//! load more than without.

use std::future::Future;
use std::sync::OnceLock;

use lens::Moment;
use lens::metrics::BoundHistogram;

use crate::{groups::CONCURRENCY, metrics::CONCURRENCY_QUEUE_WAIT, semconv};

/// A place at which work waits for its turn. A static: its handle is bound once.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    waits: OnceLock<BoundHistogram>,
}

impl Site {
    /// A site under one of the names in [`semconv::value::concurrency_site`].
    pub const fn new(name: &'static str) -> Self {
        Self { name, waits: OnceLock::new() }
    }

    /// Waits for a place. One that came is one sample; one that did not, or that nobody waited
    /// for to the end, is none.
    pub async fn wait<T, E>(&self, place: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        if !CONCURRENCY.is_enabled() || !lens::metrics::is_enabled() {
            return place.await;
        }
        let since = Moment::now();
        let place = place.await?;
        let millis = since.nanos_until(Moment::now()) as f64 * 1e-6;
        let site = || (semconv::CONCURRENCY_SITE, lens::Value::from_static(self.name));
        self.waits.get_or_init(|| CONCURRENCY_QUEUE_WAIT.bind(&[site()])).record(millis);
        Ok(place)
    }
}
