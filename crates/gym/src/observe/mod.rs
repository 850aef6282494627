//! Receiving, storing and showing the telemetry of fleets: `gym observe`, alone or beside a fleet.

mod child;
mod remote;

pub use child::{Observer, Ready};
pub use remote::{Remote, RemoteError, credentials_for};
