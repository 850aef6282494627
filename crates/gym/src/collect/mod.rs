//! Collection of rollouts: rows in, rows out.
//!
//! [`PreparedRun`] prepares the rows, keeps a bounded number of rollouts in flight and writes one line for each. A rollout
//! that fails is a line in the failures file, never a missing row and never a reward of 0; the run goes on.
//!
//! # Guarantees
//!
//! * The files hold whole lines at any time; a rollout counts as done when its line is in the file.
//! * What is not in the output and not given up is made again by a resumed run.
//! * Nothing is known about the order of the lines: it is that of completion.

mod cancel;
mod collate;
mod dispatch;
mod driver;
mod error;
mod files;
mod fleet_agents;
mod members;
mod metrics;
mod output;
mod plan;
mod prepare;
mod progress;
mod prompt;
mod refusal;
mod reply;
mod resume;
mod run;
mod settings;
mod skills;
mod stats;
mod summary;
mod telemetry;

pub use cancel::{Cancel, Canceller, Stop, cancellation};
pub use error::CollectError;
pub use fleet_agents::FleetAgents;
pub use run::PreparedRun;
pub use settings::{
    CONCURRENCY_KEY, OptionsError, ROLLOUT_TIMEOUT_KEY, options, overrides, run_limits,
};
pub use summary::{CollectSummary, grouped};

#[cfg(test)]
mod tests;

#[cfg(test)]
mod traced_tests;

#[cfg(test)]
mod http_tests;
