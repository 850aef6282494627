//! What telemetry does here and now: switches, groups with their cost, and counts of running processes.
//!
//! The counts come from the buffers that processes share as files, so that they can be read while a server hangs, and
//! no server has a route for them.

pub mod cost;
pub mod processes;
pub mod switches;

use std::time::Duration;

use gym_server::instance::Endpoint;

use crate::fleet::head::{INSTANCES_PATH, ServerInstance};
use crate::fleet::probe;

pub use processes::Processes;

/// How long the head server may take.
const HEAD_LIMIT: Duration = Duration::from_secs(2);

/// The instances of a running fleet; none when there is no head server.
pub async fn instances(head: &Endpoint) -> Vec<ServerInstance> {
    match probe::get(head.host(), head.port(), INSTANCES_PATH, HEAD_LIMIT).await {
        Ok((_, body)) => serde_json::from_slice(&body).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}
