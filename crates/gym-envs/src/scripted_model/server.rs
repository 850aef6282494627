//! The script engine as a model server, and what both servers that use it share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use gym_server::api::CreateParams;
use gym_server::api::chat::ChatRequest;
use gym_server::config::parse_yaml;
use gym_server::http::{Call, Delivery, HttpError, Reply};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::model::server::{ModelServer, SERVER_TIMING};
use gym_server::resources::FromInstance;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::config::ScriptedModelConfig;
use super::engine::{Engine, Outcome};
use super::fault::{Fault, HANG};
use super::random::hash;

/// The server.
#[derive(Debug)]
pub struct ScriptedModel {
    engine: Engine,
    repeats: Repeats,
}

impl ScriptedModel {
    /// A server with this script.
    pub fn new(config: ScriptedModelConfig) -> Self {
        let repeats = Repeats::new(&config);
        Self { engine: Engine::new(config), repeats }
    }

    /// The key of a request: its bytes, its rollout and, where chance plays, how often it came before.
    fn key(&self, call: &Call, body: &[u8]) -> u64 {
        let rollout = call.rollout().map_or(0, |rollout| hash(0, rollout.as_str().as_bytes()));
        let key = self.engine.key(body, rollout);
        match self.repeats.count(key) {
            0 => key,
            repeat => self.engine.key(body, rollout ^ repeat),
        }
    }

    /// Answers a prepared body.
    pub(crate) fn answer_responses(&self, call: &Call, body: &[u8]) -> Outcome {
        self.engine.responses(&CreateParams::trust(body), self.key(call, body))
    }

    /// Answers a prepared body.
    pub(crate) fn answer_chat(&self, call: &Call, body: &[u8]) -> Outcome {
        self.engine.chat(&ChatRequest::trust(body), self.key(call, body))
    }

    pub(crate) fn config(&self) -> &ScriptedModelConfig {
        self.engine.config()
    }
}

impl FromInstance for ScriptedModel {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        let field = |path: &str, reason: String| InstanceError::Field {
            instance: instance.name.clone(),
            path: path.to_owned(),
            reason,
        };
        let mut instance = instance.clone();
        if let Some(Value::String(file)) = instance.block.get("script") {
            let script = read_script(Path::new(file)).map_err(|error| field("script", error))?;
            instance.block.insert("script".to_owned(), script);
        }
        let config: ScriptedModelConfig = instance.parse()?;
        config.check().map_err(|error| field("script", error.to_string()))?;
        Ok(Self::new(config))
    }
}

/// Reads a file of replies: YAML, JSON, or one JSON reply a line (`.jsonl`).
pub fn read_script(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("failed to read {path:?}: {error}"))?;
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let replies = lines.map(|(at, line)| {
            serde_json::from_str(line)
                .map_err(|error| format!("{path:?}, line {}: {error}", at + 1))
        });
        return replies.collect::<Result<_, _>>().map(Value::Array);
    }
    parse_yaml(&text, &path.display().to_string()).map_err(|error| error.to_string())
}

impl ModelServer for ScriptedModel {
    async fn responses(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let outcome = self.answer_responses(call, &body);
        Ok(deliver(
            outcome,
            |status| json!({"detail": format!("injected failure with status {status}")}),
        )
        .await)
    }

    async fn chat_completions(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let outcome = self.answer_chat(call, &body);
        Ok(deliver(
            outcome,
            |status| json!({"detail": format!("injected failure with status {status}")}),
        )
        .await)
    }
}

/// Waits as long as the reply takes, and makes it, or what comes in its place.
pub(crate) async fn deliver(outcome: Outcome, failure: impl FnOnce(u16) -> Value) -> Reply {
    if !outcome.delay.is_zero() {
        tokio::time::sleep(outcome.delay).await;
    }
    let mut reply = Reply::json_bytes(outcome.body);
    if let Some(timings) =
        outcome.server_timing.and_then(|timings| HeaderValue::try_from(timings).ok())
    {
        reply = reply.header(SERVER_TIMING, timings);
    }
    match outcome.fault {
        None => reply,
        Some(Fault::Reset) => reply.delivery(Delivery::Broken),
        Some(Fault::SlowBody { millis }) => {
            reply.delivery(Delivery::Slow(std::time::Duration::from_millis(millis)))
        }
        Some(Fault::Hang) => {
            tokio::time::sleep(HANG).await;
            reply
        }
        Some(Fault::Status { status, retry_after }) => {
            let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let failed = Reply::json_bytes(failure(status).to_string()).status(code);
            match retry_after {
                Some(seconds) => failed.header(header::RETRY_AFTER, HeaderValue::from(seconds)),
                None => failed,
            }
        }
    }
}

/// How often a request came before, so that a repeated one draws anew and a run can still be repeated.
#[derive(Debug)]
struct Repeats(Option<Mutex<HashMap<u64, u64>>>);

/// Requests that are told apart; beyond that, counting starts over.
const MAX_KEYS: usize = 65_536;

impl Repeats {
    /// Counts only where something is drawn.
    fn new(config: &ScriptedModelConfig) -> Self {
        let varies = |latency| !matches!(latency, super::Latency::Fixed { .. });
        let draws = config.errors.rate > 0.0
            || varies(config.latency)
            || config.script.iter().filter_map(|reply| reply.latency).any(varies);
        Self(draws.then(Mutex::default))
    }

    fn count(&self, key: u64) -> u64 {
        let Some(counts) = &self.0 else { return 0 };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_KEYS {
            counts.clear();
        }
        let count = counts.entry(key).or_default();
        let before = *count;
        *count += 1;
        before
    }
}
