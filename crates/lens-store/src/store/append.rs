//! What happens to a request before it is acknowledged.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::error::{Appended, Refusal};
use super::memory::Batch;
use super::options::Durability;
use super::{Shared, Store, locked};
use crate::raw::{self, RawSpan};
use crate::vfs::is_full;
use crate::wal::{Encoding, Signal};

/// When to come again with what was not taken.
const SOON: Duration = Duration::from_secs(1);
/// A disk does not get empty so fast.
const LATER: Duration = Duration::from_secs(10);

/// A request taken apart.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) batch: Batch,
    pub(super) appended: Appended,
}

/// Takes a request apart.
pub(super) fn take_apart(signal: Signal, request: &Bytes) -> Result<Taken, lens_otlp::DecodeError> {
    let (batch, rejected, reason) = match signal {
        Signal::Traces => {
            let decoded = raw::decode(request, 0)?;
            let reason = decoded.reason.map(|reason| reason.to_string());
            (Batch::of_spans(decoded.spans), decoded.refused, reason)
        }
        Signal::Logs => {
            let decoded = raw::decode_logs(request, 0)?;
            (Batch::Logs(decoded.items), decoded.refused, decoded.reason.map(|r| r.to_string()))
        }
        Signal::Metrics => {
            let decoded = raw::decode_metrics(request, 0)?;
            (Batch::Metrics(decoded.items), decoded.refused, decoded.reason.map(|r| r.to_string()))
        }
    };
    Ok(Taken { batch, appended: Appended { rejected, reason } })
}

impl Store {
    /// Takes a request. `body` is what was received, as `encoding` says; `request` is the protobuf in it. Once this
    /// returns, a kill of the process loses nothing of it (W-1), and every [`Snapshot`](super::Snapshot) has it.
    ///
    /// # Errors
    ///
    /// When nothing of it was taken. After [`Refusal::Unavailable`] a part of it may turn up nevertheless, which does
    /// no harm when it is sent again.
    pub fn append(
        &self,
        signal: Signal,
        encoding: Encoding,
        body: Bytes,
        request: Bytes,
    ) -> Result<Appended, Refusal> {
        self.append_looked_at(signal, encoding, body, request, |_| {})
    }

    /// As [`Store::append`]; `look` sees the spans before they are kept. Those of a request that there is no room for it
    /// sees when they come again, and twice where the room was taken by another meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Store::append`].
    pub fn append_looked_at(
        &self,
        signal: Signal,
        encoding: Encoding,
        body: Bytes,
        request: Bytes,
        look: impl FnOnce(&[RawSpan]),
    ) -> Result<Appended, Refusal> {
        self.shared.append(signal, encoding, &body, &request, look)
    }
}

impl Shared {
    fn append<'a>(
        &self,
        signal: Signal,
        encoding: Encoding,
        body: &'a Bytes,
        request: &'a Bytes,
        look: impl FnOnce(&[RawSpan]),
    ) -> Result<Appended, Refusal> {
        let log = self.log.as_ref().ok_or_else(|| Refusal::Unavailable {
            reason: super::StoreError::ReadOnly.to_string(),
            retry_after: LATER,
        })?;
        if request.len() > self.options.max_request_bytes {
            let limit = self.options.max_request_bytes;
            return Err(Refusal::BadRequest(format!("longer than {limit} bytes")));
        }
        // What there is no room for need not be taken apart.
        self.admit(locked(log).bytes() + body.len() as u64, request.len())?;
        let taken = take_apart(signal, request);
        let Taken { mut batch, appended } =
            taken.map_err(|error| Refusal::BadRequest(error.to_string()))?;
        if let Batch::Spans { spans, .. } = &batch {
            look(spans);
        }
        if batch.len() == 0 {
            // Nothing to find again.
            return Ok(appended);
        }
        let arrived_nanos = self.options.clock.now_nanos();
        let seq = {
            let mut log = locked(log);
            self.admit(log.bytes() + body.len() as u64, request.len())?;
            let seq = log
                .append(signal, encoding, arrived_nanos, body)
                .map_err(|error| refusal(&error))?;
            batch.set_seq(seq);
            self.state().active.push(batch, seq, arrived_nanos, request.len());
            seq
        };
        if self.is_flush_due(arrived_nanos) {
            self.maintenance.wake();
        }
        if self.options.durability == Durability::Power {
            self.sync_through(seq).map_err(|error| refusal(&error))?;
        }
        Ok(appended)
    }

    /// Bounds what waits to be written, in memory and on disk.
    fn admit(&self, wal_bytes: u64, request_bytes: usize) -> Result<(), Refusal> {
        let memory_bytes = self.memory_stats().bytes + request_bytes as u64;
        let fits = wal_bytes <= self.options.max_wal_bytes
            && memory_bytes <= self.options.max_memory_bytes;
        if fits { Ok(()) } else { Err(Refusal::Overloaded { retry_after: SOON }) }
    }
}

fn refusal(error: &io::Error) -> Refusal {
    if is_full(error) {
        return Refusal::DiskFull { retry_after: LATER };
    }
    Refusal::Unavailable { reason: error.to_string(), retry_after: SOON }
}
