//! What becomes of what is received: it is stored, and what is in flight is known.
//!
//! # Guarantees
//!
//! * A sender that was told "accepted" sent something that survives the end of this process.
//! * What is in flight follows what is received at once; it is rebuilt from the next heartbeats after a start.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lens_store::live::{Counts, InFlight, Row, Settings};
use lens_store::store::{Clock, Refusal, Store, SystemClock};

use crate::intake::{Accepted, Incoming, Intake, Refused, Signal};
use crate::prometheus::{Expose, Kind, Page};

/// A store that is being filled.
#[derive(Debug)]
pub struct Keeper {
    store: Store,
    in_flight: Mutex<InFlight>,
    /// Why the store could not write the last request that it could not write.
    refusal: Mutex<Option<String>>,
}

impl Keeper {
    /// Fills a store.
    pub fn new(store: Store) -> Self {
        let in_flight = Mutex::new(InFlight::new(Settings::default()));
        Self { store, in_flight, refusal: Mutex::default() }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store, when nothing is received any more.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// Rollouts that are under way, and what was seen of such so far.
    pub fn in_flight(&self) -> (Vec<Row>, Counts) {
        let now_nanos = SystemClock.now_nanos();
        let mut in_flight = self.live();
        in_flight.tick(now_nanos);
        (in_flight.rows(now_nanos), in_flight.counts())
    }

    /// Forgets what is over although nobody said so. To be called every few seconds.
    pub fn tick(&self) {
        self.live().tick(SystemClock.now_nanos());
    }

    /// Why the store could not write a request since the last time this was asked.
    pub fn take_refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn live(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intake for Keeper {
    fn accept(&self, incoming: Incoming) -> Result<Accepted, Refused> {
        let Incoming { signal, encoding, body, request, is_again } = incoming;
        if signal == Signal::Logs && !is_again {
            // A request that cannot be walked is refused below.
            let _ = self.live().logs(&request, SystemClock.now_nanos());
        }
        let appended = self.store.append_looked_at(signal, encoding, body, request, |spans| {
            self.live().ended(spans, SystemClock.now_nanos());
        });
        match appended {
            Ok(appended) => Ok(Accepted { rejected: appended.rejected, message: appended.reason }),
            Err(refusal) => {
                // One that finds no room waits for it, and a bad one is its sender's.
                if matches!(refusal, Refusal::DiskFull { .. } | Refusal::Unavailable { .. }) {
                    let mut last = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
                    *last = Some(refusal.to_string());
                }
                Err(refused(refusal))
            }
        }
    }
}

/// Names of what the page at `/metrics` says of a store.
mod metric {
    pub(super) const MEMORY_SPANS: &str = "gym_observe_store_memory_spans";
    pub(super) const MEMORY_BYTES: &str = "gym_observe_store_memory_bytes";
    pub(super) const CARRIED_BYTES: &str = "gym_observe_store_carried_bytes";
    pub(super) const WAL_BYTES: &str = "gym_observe_store_wal_bytes";
    pub(super) const DAMAGED: &str = "gym_observe_store_damaged_files";
    pub(super) const IN_FLIGHT: &str = "gym_observe_in_flight_rollouts";
    pub(super) const ENDED: &str = "gym_observe_ended_rollouts";
    pub(super) const EXPIRED: &str = "gym_observe_expired_rollouts";
    pub(super) const REFUSED: &str = "gym_observe_refused_live_events";
}

impl Expose for Keeper {
    fn expose(&self, page: &mut Page) {
        let memory = self.store.memory();
        let (in_flight, counts) = {
            let live = self.live();
            (live.len(), live.counts())
        };
        let (gauge, counter) = (Kind::Gauge, Kind::Counter);
        for (name, kind, help, value) in [
            (metric::MEMORY_SPANS, gauge, "Spans that are in no file yet.", memory.spans),
            (metric::MEMORY_BYTES, gauge, "Bytes that wait for their file.", memory.bytes),
            (
                metric::CARRIED_BYTES,
                gauge,
                "Bytes of spans of traces that go on, kept from file to file.",
                self.store.carried_bytes(),
            ),
            (metric::WAL_BYTES, gauge, "Bytes of the log.", self.store.wal_bytes()),
            (metric::DAMAGED, gauge, "Files that are broken.", self.store.damage().len() as u64),
            (metric::IN_FLIGHT, gauge, "Rollouts that are under way.", in_flight as u64),
            (metric::ENDED, counter, "Rollouts whose end was seen.", counts.ended),
            (
                metric::EXPIRED,
                counter,
                "Rollouts that fell silent and were forgotten.",
                counts.expired,
            ),
            (metric::REFUSED, counter, "Live events that found no room.", counts.refused),
        ] {
            page.family(name, kind, help);
            page.value(&[], value as f64);
        }
    }
}

fn refused(refusal: Refusal) -> Refused {
    let reason = refusal.to_string();
    match refusal {
        Refusal::Overloaded { retry_after } => Refused::Overloaded { retry_after },
        Refusal::DiskFull { retry_after } => Refused::DiskFull { retry_after },
        Refusal::Unavailable { retry_after, .. } => Refused::Failed { reason, retry_after },
        Refusal::BadRequest(_) => Refused::Malformed(reason),
    }
}

/// How often [`Keeper::tick`] is worth calling.
pub const TICK: Duration = Duration::from_secs(2);
