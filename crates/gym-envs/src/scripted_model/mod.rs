//! A model that answers by itself: deterministic, for tests, demonstrations and load.
//!
//! It replays a script, or calls every declared tool once and then answers; latency and faults are drawn from a seed.

mod arguments;
mod config;
mod engine;
mod fault;
mod latency;
mod random;
mod server;

pub use config::{
    EngineShares, EngineTimings, Finish, ScriptError, ScriptedCall, ScriptedModelConfig,
    ScriptedReply, ScriptedUsage,
};
pub use engine::{Engine, Outcome};
pub use fault::{Fault, Faults, FaultsError, HANG};
pub use latency::{Latency, LatencyError};
pub(crate) use server::deliver;
pub use server::{ScriptedModel, read_script};

#[cfg(test)]
mod tests;
