//! A resources server whose parts are slow on purpose, by amounts that its config says: a report of where time went
//! must find them again.
//!
//! Its tool and its verifier sleep; in every `planted_every`th task the first rollout meets a tool that sleeps
//! `planted_millis` more. Laid out and run as `calculator.rs` is.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gym_server::http::{Call, HttpError};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::program::serve_resources;
use gym_server::resources::{FromInstance, ResourcesServer, Tools, VerifyRequest};
use gym_telemetry::semconv;
use serde::{Deserialize, Serialize};

/// The block of the instance.
#[derive(Deserialize)]
struct SlowParts {
    #[serde(default)]
    tool_millis: u64,
    #[serde(default)]
    verify_millis: u64,
    /// 0 plants nothing.
    #[serde(default)]
    planted_every: u64,
    #[serde(default)]
    planted_millis: u64,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    url: String,
}

#[derive(Serialize)]
struct Found {
    length: usize,
}

#[derive(Deserialize)]
struct Task {}

#[derive(Serialize)]
struct Score {
    reward: f64,
}

/// An index of the rollout that is being served.
fn index(key: &'static str) -> Option<u64> {
    lens::Context::current().baggage(key)?.parse().ok()
}

impl SlowParts {
    async fn browse(self: Arc<Self>, _: Call, page: Page) -> Result<Found, HttpError> {
        let is_planted = self.planted_every > 0
            && index(semconv::ROLLOUT_INDEX) == Some(0)
            && index(semconv::TASK_INDEX).is_some_and(|task| task % self.planted_every == 0);
        let extra = if is_planted { self.planted_millis } else { 0 };
        tokio::time::sleep(Duration::from_millis(self.tool_millis + extra)).await;
        Ok(Found { length: page.url.len() })
    }
}

impl FromInstance for SlowParts {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        instance.parse()
    }
}

impl ResourcesServer for SlowParts {
    type Task = Task;
    type Score = Score;

    fn tools(tools: &mut Tools<Self>) {
        tools.tool("browse", Self::browse);
    }

    async fn verify(&self, _: &Call, _: VerifyRequest<Task>) -> Result<Score, HttpError> {
        tokio::time::sleep(Duration::from_millis(self.verify_millis)).await;
        Ok(Score { reward: 1.0 })
    }
}

fn main() -> ExitCode {
    serve_resources::<SlowParts>()
}
