//! Making the log survive a loss of power: five times a second, or before each acknowledgement.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

use super::{Shared, locked};

/// How far the log is safe.
#[derive(Debug)]
pub(super) struct Sync {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// Frames up to this one are safe.
    synced: u64,
    /// Frames after the first and up to the second are in doubt: the kernel failed to write some of them and does
    /// not try again.
    doubtful: (u64, u64),
    /// How it failed.
    failure: Option<io::ErrorKind>,
    /// Somebody is at it.
    is_running: bool,
    is_stopped: bool,
}

impl Sync {
    pub(super) fn new(synced: u64) -> Self {
        let progress = Progress {
            synced,
            doubtful: (0, 0),
            failure: None,
            is_running: false,
            is_stopped: false,
        };
        Self { progress: Mutex::new(progress), changed: Condvar::new() }
    }

    /// Whether a frame, or one before it, may not survive a loss of power, ever.
    pub(super) fn is_in_doubt(&self, seq: u64) -> bool {
        let doubtful = locked(&self.progress).doubtful;
        doubtful.0 < doubtful.1 && doubtful.0 < seq
    }

    /// Frames up to this one are in segments.
    pub(super) fn committed(&self, watermark: u64) {
        let mut progress = locked(&self.progress);
        progress.doubtful.0 = progress.doubtful.0.max(watermark.min(progress.doubtful.1));
        progress.synced = progress.synced.max(watermark);
        drop(progress);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        locked(&self.progress).is_stopped = true;
        self.changed.notify_all();
    }
}

impl Shared {
    /// Waits until a frame survives a loss of power. Those who wait together share one call.
    pub(super) fn sync_through(&self, seq: u64) -> io::Result<()> {
        let mut progress = locked(&self.sync.progress);
        loop {
            if progress.doubtful.0 < seq && seq <= progress.doubtful.1 {
                return Err(progress.failure.unwrap_or(io::ErrorKind::Other).into());
            }
            if progress.synced >= seq {
                return Ok(());
            }
            if progress.is_running {
                let waited = self.sync.changed.wait(progress);
                progress = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(progress);
            // Its failure is found in the next turn.
            self.sync_log().ok();
            progress = locked(&self.sync.progress);
        }
    }

    /// Makes everything that is in the log survive a loss of power.
    pub(super) fn sync_log(&self) -> io::Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut progress = locked(&self.sync.progress);
        while progress.is_running {
            let waited = self.sync.changed.wait(progress);
            progress = waited.unwrap_or_else(PoisonError::into_inner);
        }
        progress.is_running = true;
        drop(progress);

        let (files, last_seq) = locked(log).take_unsynced();
        let synced = files.iter().try_for_each(|file| file.sync());
        if synced.is_err() {
            // What follows goes into a file that is not in doubt.
            locked(log).rotate();
        }

        let mut progress = locked(&self.sync.progress);
        progress.is_running = false;
        match &synced {
            Ok(()) => progress.synced = progress.synced.max(last_seq),
            Err(error) => {
                progress.doubtful = (progress.synced, last_seq);
                progress.failure = Some(error.kind());
            }
        }
        drop(progress);
        self.sync.changed.notify_all();
        if synced.is_err() {
            self.maintenance.wake();
        }
        synced
    }

    pub(super) fn sync_until_stopped(&self) {
        let mut progress = locked(&self.sync.progress);
        while !progress.is_stopped {
            let waited = self.sync.changed.wait_timeout(progress, self.options.sync_interval);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
            let synced = progress.synced.max(progress.doubtful.1);
            if !progress.is_stopped && !progress.is_running {
                drop(progress);
                let last = self.log.as_ref().map_or(0, |log| locked(log).last_seq());
                if last > synced {
                    // Counted as doubt; the next one says more.
                    self.sync_log().ok();
                }
                progress = locked(&self.sync.progress);
            }
        }
    }
}
