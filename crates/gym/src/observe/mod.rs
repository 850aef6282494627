//! Receiving, storing and showing the telemetry of fleets: `gym observe`, alone or beside a fleet.

mod child;

pub use child::{Observer, Ready};
