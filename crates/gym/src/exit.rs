//! What the process tells its caller.

use std::process::ExitCode;

use crate::fleet::FleetError;

/// How a command ended; the numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done; also the normal end of a ready fleet and a closed pipe.
    Done = 0,
    /// It worked and the answer is no: failed rollouts, a dead server, nothing found.
    Negative = 1,
    /// Usage, config or I/O.
    Usage = 2,
    /// Interrupted with work left.
    Interrupted = 130,
}

impl ExitStatus {
    /// The status an error stands for.
    pub fn of_error(error: &anyhow::Error) -> Self {
        for cause in error.chain() {
            if let Some(fleet) = cause.downcast_ref::<FleetError>() {
                return fleet.exit_status();
            }
            if let Some(io) = cause.downcast_ref::<std::io::Error>()
                && io.kind() == std::io::ErrorKind::BrokenPipe
            {
                return Self::Done;
            }
        }
        Self::Usage
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let error = anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe))
            .context("failed to print the table");
        assert_eq!(ExitStatus::of_error(&error), ExitStatus::Done);
    }

    #[test]
    fn an_error_nobody_classified_is_usage_config_or_io() {
        assert_eq!(ExitStatus::of_error(&anyhow::anyhow!("no such file")), ExitStatus::Usage);
    }
}
