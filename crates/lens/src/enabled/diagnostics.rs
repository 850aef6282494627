//! What lens itself has to say, on stderr: each thing once, so that trouble with telemetry never floods a log.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// One thing, and whether it was said.
#[derive(Debug)]
pub(super) struct Said(AtomicBool);

/// An exporter of the program's own failed badly.
pub(super) static EXPORTER_PANIC: Said = Said::new();

impl Said {
    pub(super) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Says it, if it was not said before.
    pub(super) fn say(&self, what: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            // Nobody can be told that stderr is gone.
            let _ = writeln!(std::io::stderr(), "warning: telemetry: {what}");
        }
    }
}
