//! One tool, one call: the smallest environment.
//!
//! Every rollout is rewarded with 1.0, so what a run shows is the plumbing.

use std::sync::Arc;

use gym_server::http::{Call, HttpError};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::resources::{FromInstance, NoTask, ResourcesServer, Tools, VerifyRequest};
use serde::{Deserialize, Serialize};

/// The server.
#[derive(Debug)]
pub struct ExampleSingleToolCall;

/// Arguments of `get_weather`.
#[derive(Debug, Deserialize)]
pub struct WeatherArguments {
    city: String,
}

/// Result of `get_weather`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Weather {
    city: String,
    weather_description: String,
}

/// Score of a rollout.
#[derive(Debug, PartialEq, Serialize)]
pub struct Score {
    reward: f64,
}

impl ExampleSingleToolCall {
    async fn get_weather(
        self: Arc<Self>,
        _call: Call,
        arguments: WeatherArguments,
    ) -> Result<Weather, HttpError> {
        let weather_description = format!("The weather in {} is cold.", arguments.city);
        Ok(Weather { city: arguments.city, weather_description })
    }
}

impl FromInstance for ExampleSingleToolCall {
    fn from_instance(_instance: &InstanceConfig) -> Result<Self, InstanceError> {
        Ok(Self)
    }
}

impl ResourcesServer for ExampleSingleToolCall {
    type Task = NoTask;
    type Score = Score;

    fn tools(tools: &mut Tools<Self>) {
        tools.tool("get_weather", Self::get_weather);
    }

    async fn verify(
        &self,
        _call: &Call,
        _request: VerifyRequest<NoTask>,
    ) -> Result<Score, HttpError> {
        Ok(Score { reward: 1.0 })
    }
}
