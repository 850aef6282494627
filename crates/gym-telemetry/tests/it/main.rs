//! Behaviour of the crate through its public face.

mod block;
mod conformance;
mod docs;
mod groups;
mod handover;
mod lifecycle;
mod names;
mod otlp;
mod precedence;
mod rows;
mod sampling;

use std::collections::BTreeMap;

use gym_telemetry::TelemetryConfig;
use serde_json::Value;

/// An environment.
fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A block that reads well.
fn block(json: Value) -> TelemetryConfig {
    TelemetryConfig::from_block(&json).expect("a good block")
}
