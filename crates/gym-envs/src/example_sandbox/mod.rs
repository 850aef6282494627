//! One tool that runs what the model writes, in a sandbox of its own for each call.
//!
//! Files do not outlive a call, so that nothing is left when a rollout never comes to its end. A rollout scores 1 when
//! the output of one of its commands contains what its row expects.

use std::sync::Arc;
use std::time::Duration;

use gym_server::api::ItemKind;
use gym_server::http::{Call, HttpError};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::resources::{FromInstance, ResourcesServer, Tools, VerifyRequest};
use gym_server::sandbox::{self, Command, Limits, LocalProcesses, Output, Retries, Stream};
use serde::{Deserialize, Serialize};

/// The server.
#[derive(Debug)]
pub struct ExampleSandbox {
    provider: LocalProcesses,
    limits: Limits,
}

/// The block; what is not said is as in [`Limits`].
#[derive(Deserialize)]
struct Config {
    wall_seconds: Option<f64>,
    cpu_seconds: Option<u64>,
    memory_bytes: Option<u64>,
    output_bytes: Option<usize>,
}

/// Arguments of `run_command`.
#[derive(Deserialize)]
pub struct RunArguments {
    command: String,
}

/// Result of `run_command`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Ran {
    return_code: i32,
    stdout: String,
    stderr: String,
    is_truncated: bool,
    /// Why it was ended, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<&'static str>,
}

/// What a row says about its task.
#[derive(Debug, Deserialize)]
pub struct Task {
    expected_output: String,
}

/// Score of a rollout.
#[derive(Debug, PartialEq, Serialize)]
pub struct Score {
    reward: f64,
}

impl ExampleSandbox {
    async fn run_command(
        self: Arc<Self>,
        _call: Call,
        arguments: RunArguments,
    ) -> Result<Ran, HttpError> {
        let failed =
            |error: sandbox::SandboxError| HttpError::failed("SandboxError", &error.to_string());
        let mut sandbox =
            sandbox::start(&self.provider, Retries::default()).await.map_err(failed)?;
        let output = sandbox.exec(&Command::shell(&arguments.command), &self.limits).await;
        sandbox.stop().await;
        output.map(Ran::from).map_err(failed)
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |stream: &Stream| String::from_utf8_lossy(&stream.bytes).into_owned();
        Self {
            return_code: output.return_code,
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            is_truncated: output.stdout.is_truncated || output.stderr.is_truncated,
            ended_by: output.ended.error_type(),
        }
    }
}

impl FromInstance for ExampleSandbox {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        let config: Config = instance.parse()?;
        let defaults = Limits::default();
        let wall = config.wall_seconds.map(Duration::try_from_secs_f64).transpose();
        let wall = wall.map_err(|error| InstanceError::Field {
            instance: instance.name.clone(),
            path: "wall_seconds".to_owned(),
            reason: error.to_string(),
        })?;
        let limits = Limits {
            wall: wall.unwrap_or(defaults.wall),
            cpu: config.cpu_seconds.map_or(defaults.cpu, Duration::from_secs),
            memory_bytes: config.memory_bytes.unwrap_or(defaults.memory_bytes),
            output_bytes: config.output_bytes.unwrap_or(defaults.output_bytes),
            ..defaults
        };
        Ok(Self { provider: LocalProcesses::default(), limits })
    }
}

impl ResourcesServer for ExampleSandbox {
    type Task = Task;
    type Score = Score;

    fn tools(tools: &mut Tools<Self>) {
        tools.tool("run_command", Self::run_command);
    }

    async fn verify(&self, _call: &Call, request: VerifyRequest<Task>) -> Result<Score, HttpError> {
        let items = request.output_items();
        let outputs = items.iter().filter(|item| item.kind == ItemKind::FunctionCallOutput);
        let mut contents = outputs.filter_map(|item| item.content);
        let is_there = contents.any(|content| content.contains(&request.task.expected_output));
        Ok(Score { reward: if is_there { 1.0 } else { 0.0 } })
    }
}
