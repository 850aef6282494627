//! One command that shows where rollouts spend their time.
//!
//! The demo runs `gym eval run` as anybody would, in a process of its own with an environment of
//! its own: whatever telemetry the caller's shell asks for neither reaches the demo nor is
//! disturbed by it. What it shows is read back from the store that this run left behind.

mod report;
mod rows;
mod run;
mod workspace;

pub use report::Report;
pub use run::{Outcome, collect};
pub use workspace::Workspace;
