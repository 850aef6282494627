//! A counter per session: the test of whether a caller keeps its cookies.
//!
//! Counters live in memory, at most `max_sessions` of them (default 65,536); when they are all
//! taken, the session that was idle longest is forgotten and a rollout still using it scores 0.

mod store;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gym_server::http::{Call, HttpError, Reply};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::resources::{FromInstance, ResourcesServer, Tools, VerifyRequest};
use gym_server::typed;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use store::Sessions;

/// The server.
#[derive(Debug)]
pub struct ExampleSessionStateMgmt {
    counters: Mutex<Sessions<i64>>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default = "default_max_sessions")]
    max_sessions: usize,
}

fn default_max_sessions() -> usize {
    65_536
}

/// Body of `seed_session`.
#[derive(Debug, Deserialize)]
struct Seed {
    initial_count: i64,
}

/// Arguments of `increment_counter`.
#[derive(Debug, Deserialize)]
pub struct IncrementArguments {
    count: i64,
}

/// Result of `increment_counter`.
#[derive(Debug, Serialize)]
pub struct Incremented {
    success: bool,
}

/// Result of `get_counter_value`.
#[derive(Debug, Serialize)]
pub struct CounterValue {
    count: i64,
}

/// What a row says about its task.
#[derive(Debug, Deserialize)]
pub struct Task {
    expected_count: i64,
}

/// Score of a rollout.
#[derive(Debug, PartialEq, Serialize)]
pub struct Score {
    reward: f64,
}

impl ExampleSessionStateMgmt {
    fn with_counters<R>(&self, use_counters: impl FnOnce(&mut Sessions<i64>) -> R) -> R {
        use_counters(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn increment_counter(
        self: Arc<Self>,
        call: Call,
        arguments: IncrementArguments,
    ) -> Result<Incremented, HttpError> {
        self.with_counters(|counters| {
            let counter = counters.get_or_insert(call.session_id(), 0);
            *counter = counter.saturating_add(arguments.count);
        });
        Ok(Incremented { success: true })
    }

    async fn get_counter_value(
        self: Arc<Self>,
        call: Call,
        _arguments: IgnoredAny,
    ) -> Result<CounterValue, HttpError> {
        let count = self.with_counters(|counters| *counters.get_or_insert(call.session_id(), 0));
        Ok(CounterValue { count })
    }
}

impl FromInstance for ExampleSessionStateMgmt {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        let config: Config = instance.parse()?;
        Ok(Self { counters: Mutex::new(Sessions::new(config.max_sessions)) })
    }
}

impl ResourcesServer for ExampleSessionStateMgmt {
    type Task = Task;
    type Score = Score;

    fn tools(tools: &mut Tools<Self>) {
        tools.tool("increment_counter", Self::increment_counter);
        tools.tool("get_counter_value", Self::get_counter_value);
    }

    async fn seed_session(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let seed: Seed = typed::body(&body)?;
        self.with_counters(|counters| {
            counters.get_or_insert(call.session_id(), seed.initial_count);
        });
        Ok(Reply::json_bytes(&b"{}"[..]))
    }

    async fn verify(&self, call: &Call, request: VerifyRequest<Task>) -> Result<Score, HttpError> {
        let count = self.with_counters(|counters| counters.get(call.session_id()).copied());
        let reward = if count == Some(request.task.expected_count) { 1.0 } else { 0.0 };
        Ok(Score { reward })
    }
}
