//! The loop between a model and the tools of one resources server.
//!
//! `/run` seeds a session, answers through the agent's own `/v1/responses` (over HTTP, so that a
//! rollout looks the same whoever starts it), and has the answer verified. Bodies stay bytes from
//! the socket in to the socket out: what is added is spliced in (see [`Conversation`]).
//!
//! Cookies of a server are replaced by those of its last reply, never merged.

mod arguments;
mod conversation;

use std::borrow::Cow;

use bytes::Bytes;
use gym_server::agent::AgentServer;
use gym_server::api::{RunRequest, json};
use gym_server::client::Policy;
use gym_server::http::{Call, HttpError, Reply};
use gym_server::instance::{Endpoint, InstanceConfig, InstanceError};
use gym_server::resources::FromInstance;
use gym_server::rollout;
use gym_server::session::CookieJar;
use serde::Deserialize;
use serde_json::Value;

pub use conversation::{Conversation, InvalidReply, ToolCall, Turn};

const RESPONSES: &str = "/v1/responses";
const NO_METRICS: &[u8] = br#"{"group_level_metrics":[],"agent_metrics":{},"key_metrics":{}}"#;

/// The agent.
#[derive(Debug)]
pub struct SimpleAgent {
    own: Endpoint,
    resources: Endpoint,
    model: Endpoint,
    /// Model calls per answer; 0 is unlimited.
    max_steps: u64,
    skipped_reward: Option<f64>,
    /// Whether the rollout id travels in the paths of all calls.
    is_observed: bool,
    /// Whether it travels in those of model calls, which then capture token ids.
    captures_tokens: bool,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    max_steps: u64,
    #[serde(default)]
    skip_verification: bool,
    #[serde(default)]
    skip_verification_reward: f64,
    #[serde(default)]
    token_id_capture: bool,
}

impl FromInstance for SimpleAgent {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        let config: Config = instance.parse()?;
        let is_observed =
            instance.global_value("observability_enabled") == Some(&Value::Bool(true));
        Ok(Self {
            own: instance.own_endpoint(),
            resources: instance.endpoint_of("resources_server")?,
            model: instance.endpoint_of("model_server")?,
            max_steps: config.max_steps,
            skipped_reward: config.skip_verification.then_some(config.skip_verification_reward),
            is_observed,
            captures_tokens: config.token_id_capture,
        })
    }
}

impl AgentServer for SimpleAgent {
    async fn run(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let Opened { whole, open_len, params } = open(&body)?;
        drop(body);
        let seeded = call
            .post(&self.resources, &self.resources_path(call, "/seed_session"))
            .body(whole.clone())
            .cookies(call.cookies())
            .policy(Policy::InternalIdempotent)
            .send()
            .await?
            .ok()?;
        let answered = call
            .post(&self.own, &self.responses_path(call))
            .body(params)
            .cookies(&seeded.cookies())
            .send()
            .await?
            .ok()?;
        drop(seeded);
        let cookies = answered.cookies();
        let mut result = Vec::with_capacity(open_len + answered.body.len() + 64);
        result.extend_from_slice(&whole[..open_len]);
        result.extend_from_slice(b",\"response\":");
        result.extend_from_slice(&answered.body);
        drop(answered);
        if let Some(reward) = self.skipped_reward {
            result.extend_from_slice(b",\"reward\":");
            serde_json::to_writer(&mut result, &reward)
                .map_err(|error| HttpError::failed("ValueError", &error.to_string()))?;
            result.extend_from_slice(b",\"verification_skipped\":true}");
            return Ok(Reply::json_bytes(result));
        }
        result.push(b'}');
        drop(whole);
        let verified = call
            .post(&self.resources, &self.resources_path(call, "/verify"))
            .body(result)
            .cookies(&cookies)
            .send()
            .await?
            .ok()?;
        check_verified(&self.resources, &verified.body)?;
        Ok(Reply::json_bytes(verified.body))
    }

    async fn responses(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let mut conversation = Conversation::new(body, self.max_steps)?;
        let mut resources_cookies = Cow::Borrowed(call.cookies());
        let mut model_cookies = CookieJar::default();
        let path = match call.prefix() {
            Some(prefix) => Cow::Owned(format!("{prefix}{RESPONSES}")),
            None => Cow::Borrowed(RESPONSES),
        };
        loop {
            let replied = call
                .post(&self.model, &path)
                .body(conversation.model_request())
                .cookies(&model_cookies)
                .policy(Policy::InternalIdempotent)
                .send()
                .await?
                .ok()?;
            model_cookies = replied.cookies();
            let turn = conversation
                .accept_reply(replied.body)
                .map_err(|error| invalid(&self.model, &error))?;
            let Turn::CallTools(calls) = turn else { break };
            for tool in &calls {
                let arguments = match &tool.arguments {
                    Ok(arguments) => arguments.clone(),
                    Err(output) => {
                        conversation.accept_output(tool, output);
                        continue;
                    }
                };
                let replied = call
                    .post(&self.resources, &tool.path)
                    .body(arguments)
                    .cookies(&resources_cookies)
                    .send()
                    .await?;
                // Whatever the status: the model is to see what its call led to.
                conversation.accept_output(tool, &String::from_utf8_lossy(&replied.body));
                resources_cookies = Cow::Owned(replied.cookies());
            }
            if conversation.is_exhausted() {
                break;
            }
        }
        for (name, value) in resources_cookies.iter().chain(model_cookies.iter()) {
            call.set_cookie(name, value);
        }
        let response = conversation.finish().map_err(|error| invalid(&self.model, &error))?;
        Ok(Reply::json_bytes(response))
    }

    async fn aggregate_metrics(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        if self.skipped_reward.is_some() {
            return Ok(Reply::json_bytes(NO_METRICS));
        }
        let replied = call
            .post(&self.resources, "/aggregate_metrics")
            .body(body)
            .policy(Policy::InternalIdempotent)
            .send()
            .await?
            .ok()?;
        Ok(Reply::json_bytes(replied.body))
    }
}

impl SimpleAgent {
    fn resources_path<'a>(&self, call: &Call, path: &'a str) -> Cow<'a, str> {
        match call.rollout().filter(|_| self.is_observed) {
            Some(id) => Cow::Owned(format!("{}{id}{path}", rollout::PATH_PREFIX)),
            None => Cow::Borrowed(path),
        }
    }

    fn responses_path(&self, call: &Call) -> Cow<'static, str> {
        let Some(id) = call.rollout().filter(|_| self.is_observed || self.captures_tokens) else {
            return Cow::Borrowed(RESPONSES);
        };
        let capture = if self.captures_tokens { rollout::CAPTURE_SEGMENT } else { "" };
        Cow::Owned(format!("{}{id}{capture}{RESPONSES}", rollout::PATH_PREFIX))
    }
}

/// A run request in the forms in which it is sent on.
struct Opened {
    /// Every field, defaults filled in.
    whole: Bytes,
    /// Length of `whole` without its closing brace; members may follow.
    open_len: usize,
    /// The create params as they came.
    params: Bytes,
}

fn open(body: &Bytes) -> Result<Opened, HttpError> {
    let mut run = RunRequest::parse(body)?;
    // A response in the row is replaced by the one of this rollout.
    run.extras.retain(|(key, _)| key != "response");
    let mut whole = Vec::with_capacity(body.len() + 512);
    run.write_full_open(&mut whole);
    let open_len = whole.len();
    whole.push(b'}');
    let params = body.slice_ref(run.create_params_text.as_bytes());
    Ok(Opened { whole: Bytes::from(whole), open_len, params })
}

fn check_verified(server: &Endpoint, body: &[u8]) -> Result<(), HttpError> {
    let invalid = |reason: &str| {
        let message = format!("the verify reply of {} {reason}", server.name());
        HttpError::failed("ValidationError", &message)
    };
    let text = std::str::from_utf8(body).map_err(|_| invalid("is not UTF-8"))?;
    let members = json::members(text).ok_or_else(|| invalid("is not a JSON object"))?;
    let mut missing = ["responses_create_params", "response", "reward"].map(Some);
    for member in members {
        let (key, value) = member.map_err(|_| invalid("is not JSON"))?;
        if key == "reward" && json::kind(value) != json::Kind::Number {
            return Err(invalid("holds a `reward` that is not a number"));
        }
        for field in &mut missing {
            if *field == Some(&*key) {
                *field = None;
            }
        }
    }
    match missing.into_iter().flatten().next() {
        Some(field) => Err(invalid(&format!("has no `{field}`"))),
        None => Ok(()),
    }
}

fn invalid(server: &Endpoint, error: &InvalidReply) -> HttpError {
    let mut message = format!("{}: {error}", server.name());
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    HttpError::failed("ValidationError", &message)
}
