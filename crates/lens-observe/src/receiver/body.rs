//! Reading bodies within bounds: of one request, of all that are in flight, and of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::counters::Reason;
use super::denial::Denial;

/// How much of a request that is refused is read and thrown away, so that its sender gets to the answer.
const DRAIN_BYTES: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Bytes that all requests in flight may hold together.
#[derive(Debug)]
pub(super) struct Budget {
    held: AtomicUsize,
    limit_bytes: usize,
    retry_after: Duration,
}

impl Budget {
    pub(super) fn new(limit_bytes: usize, retry_after: Duration) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit_bytes, retry_after })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub(super) fn hold(self: &Arc<Self>) -> Held {
        Held { budget: Arc::clone(self), bytes: 0 }
    }
}

/// The share of one request; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    /// Takes more, or says that there is none.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Denial> {
        let taken = self.budget.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        if taken > self.budget.limit_bytes {
            return Err(Denial::busy(self.budget.retry_after));
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bounds of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub limit_bytes: usize,
    pub timeout: Duration,
}

/// Smaller bodies are copied out of the buffer that the connection reads into, so that keeping one keeps no more: the
/// buffer may be as large as the longest frame, which is a few of these.
const COPY_BELOW_BYTES: usize = 128 << 10;

/// Reads a body to its end. A large one that comes in a single piece is not copied. `begin` sees what comes first, and
/// may refuse the rest or tell how long the whole will be.
pub(super) async fn read(
    body: &mut Incoming,
    held: &mut Held,
    bounds: Bounds,
    begin: impl Fn(&[u8]) -> Result<Option<usize>, Denial>,
) -> Result<Bytes, Denial> {
    let declared = body.size_hint().lower();
    if declared > bounds.limit_bytes as u64 {
        return Err(Denial::too_large(bounds.limit_bytes));
    }
    let reading = async {
        let (mut whole, mut pieces, mut expected) = (Bytes::new(), BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(Denial::new(Reason::CutOff, "the body ended early"));
            };
            let Ok(data) = frame.into_data() else { continue };
            held.grow(data.len())?;
            if whole.len() + pieces.len() + data.len() > bounds.limit_bytes {
                return Err(Denial::too_large(bounds.limit_bytes));
            }
            if whole.is_empty() && pieces.is_empty() {
                expected = begin(&data)?;
                whole = data;
                continue;
            }
            if pieces.is_empty() {
                // This is within the limit, and memory that nothing comes for is never touched.
                let expected = expected.unwrap_or(0).max(declared as usize);
                pieces.reserve(expected.max(whole.len() + data.len()));
                pieces.extend_from_slice(&std::mem::take(&mut whole));
            }
            pieces.extend_from_slice(&data);
        }
        Ok(match whole.len() {
            0 => pieces.freeze(),
            1..COPY_BELOW_BYTES => Bytes::copy_from_slice(&whole),
            _ => whole,
        })
    };
    match tokio::time::timeout(bounds.timeout, reading).await {
        Ok(read) => read,
        Err(_) => {
            let message = format!("the body did not come within {:?}", bounds.timeout);
            Err(Denial::new(Reason::TooSlow, message))
        }
    }
}

/// Reads what is left of a refused request and throws it away: a sender that is cut off while it still writes sees a
/// broken connection instead of the reason.
pub(super) async fn drain(body: &mut Incoming) {
    let mut left = DRAIN_BYTES;
    let draining = async {
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, draining).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_is_given_back_also_when_there_was_too_little() {
        let budget = Budget::new(100, Duration::from_secs(1));
        let mut held = budget.hold();
        held.grow(60).unwrap();
        let mut other = budget.hold();
        let denial = other.grow(50).unwrap_err();
        assert_eq!(
            (denial.reason, denial.retry_after),
            (Reason::Overloaded, Some(Duration::from_secs(1)))
        );
        drop(other);
        assert_eq!(budget.held_bytes(), 60);
        drop(held);
        assert_eq!(budget.held_bytes(), 0);
    }
}
