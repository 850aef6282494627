//! The process that a span comes from.

use gym_telemetry::semconv;
use lens_otlp::view::Attributes;
use serde_json::{Map, Value};

use super::plain::{self, scalar_text};
use crate::raw::RawResource;

/// What the processes of a Gym are called.
pub mod role {
    /// Supervisor and driver.
    pub const DRIVER: &str = "driver";
    /// Runs rollouts.
    pub const AGENT: &str = "agent server";
    /// Answers for a model.
    pub const MODEL: &str = "model server";
    /// Tools, sessions, verification.
    pub const RESOURCES: &str = "resources server";
}

/// The process a span comes from; shared by all its spans.
#[derive(Debug)]
pub struct Resource {
    /// Its attributes.
    pub attributes: Map<String, Value>,
    /// Name of the instance (`policy_model`), else of the service.
    pub instance: String,
    /// `agent server`, `driver`, …, when it is one of the Gym's.
    pub role: Option<&'static str>,
    /// Tells one process from another.
    pub process_key: String,
    /// Id of its fleet, or empty.
    pub run: String,
}

impl Resource {
    /// Reads an encoded `Resource` and names the process.
    pub fn read(raw: &RawResource) -> Self {
        Self::new(plain::map(Attributes::new(&raw.message, 1)))
    }

    fn new(attributes: Map<String, Value>) -> Self {
        let text = |key: &str| attributes.get(key).map(scalar_text).filter(|text| !text.is_empty());
        let service = text(semconv::SERVICE_NAME);
        let instance = text(semconv::SERVER_NAME)
            .or_else(|| {
                service.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name).to_owned())
            })
            .unwrap_or_else(|| "unknown process".to_owned());
        let role = match text(semconv::SERVER_TYPE).as_deref() {
            Some(semconv::value::ORCHESTRATOR) => Some(role::DRIVER),
            Some("responses_api_agents") => Some(role::AGENT),
            Some("responses_api_models") => Some(role::MODEL),
            Some("resources_servers") => Some(role::RESOURCES),
            _ => None,
        };
        let process_key = [
            lens::semconv::HOST_NAME,
            semconv::PROCESS_PID,
            lens::semconv::SERVICE_INSTANCE_ID,
            semconv::SERVICE_NAME,
        ]
        .map(|key| text(key).unwrap_or_default())
        .join("\u{1f}");
        let run = text(semconv::RUN_ID).unwrap_or_default();
        Self { attributes, instance, role, process_key, run }
    }
}
