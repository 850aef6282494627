//! The supervisor: one process per instance, their output, their health, their end.

pub mod guard;
mod head;
mod port_holder;
mod probe;
mod pump;
mod reference_lines;

use crate::exit::ExitStatus;

/// Why a fleet could not start or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// Ctrl-C or SIGTERM before every server was ready.
    #[error("interrupted while servers were starting")]
    Interrupted,
}

impl FleetError {
    /// The exit status of a command that failed with this.
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Interrupted => ExitStatus::Interrupted,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        None
    }
}
