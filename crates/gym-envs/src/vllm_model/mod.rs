//! A model behind an OpenAI-compatible engine such as vLLM, which is spoken to in the chat dialect.
//!
//! Responses requests are converted on the way up and replies on the way down; reasoning travels as think tags or
//! reasoning items. Not supported, and refused when configured: token ids for training, rendering of chat templates.

mod audio;
mod completions;
mod config;
mod from_chat;
mod thinking;
mod to_chat;
mod upstream;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gym_server::api::{CreateParams, Object, Response, Urls};
use gym_server::client::{ClientReply, Policy};
use gym_server::http::{Call, HttpError, Reply};
use gym_server::instance::{Endpoint, InstanceConfig, InstanceError};
use gym_server::model::server::{ModelServer, SERVER_TIMING};
use gym_server::resources::FromInstance;
use http::{HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

pub use config::{Secret, VllmModelConfig};
pub(crate) use config::{or_empty, text};
pub use to_chat::{ToChatError, to_chat};

use crate::openai_model::{field_error, headers};
use upstream::Additions;

/// The server.
#[derive(Debug)]
pub struct VllmModel {
    config: VllmModelConfig,
    additions: Additions,
    replicas: Vec<Endpoint>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl FromInstance for VllmModel {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        let config: VllmModelConfig = instance.parse()?;
        if let Some((key, reason)) = config.unsupported() {
            return Err(field_error(instance, key, reason));
        }
        let replicas = config.base_url.iter().map(|url| Endpoint::model(url));
        let replicas = replicas
            .collect::<Result<_, _>>()
            .map_err(|error| field_error(instance, "base_url", &error.to_string()))?;
        let headers =
            headers(&config.default_headers, config.api_key.reveal()).map_err(|name| {
                field_error(
                    instance,
                    &format!("default_headers.{name}"),
                    "is not a valid HTTP header",
                )
            })?;
        Ok(Self { additions: Additions::new(&config), config, replicas, headers })
    }
}

impl ModelServer for VllmModel {
    async fn responses(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let params = CreateParams::parse(&body, Urls::With)?;
        if self.config.is_responses_native {
            let mut object = Object::default();
            for (_, name, raw) in params.iter() {
                object.set(name, raw);
            }
            self.additions.apply_native(&mut object);
            let reply = self.send(call, "/responses", object.to_json()).await?.ok()?;
            Response::parse(&reply.body).map_err(|error| validation_error(&error))?;
            return Ok(with_timings(reply.body.clone(), &reply));
        }
        let chat = to_chat(&params).map_err(|error| value_error(&error))?;
        let answer = self.chat(call, chat).await?;
        let body = from_chat::responses(
            &answer.body,
            &params,
            &self.config.model,
            self.config.uses_reasoning_parser,
        )
        .map_err(|error| validation_error(&error))?;
        Ok(answer.reply(body))
    }

    async fn chat_completions(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let text = std::str::from_utf8(&body).map_err(|error| value_error(&error))?;
        let answer = self.chat(call, Object::parse(text)).await?;
        let body = from_chat::chat(answer.body.clone(), self.config.uses_reasoning_parser)
            .map_err(|error| validation_error(&error))?;
        Ok(answer.reply(body))
    }
}

/// A chat completion, whoever made it.
struct Answer {
    body: Bytes,
    timings: Option<HeaderValue>,
}

impl Answer {
    fn reply(&self, body: Bytes) -> Reply {
        let reply = Reply::json_bytes(body);
        match &self.timings {
            Some(timings) => reply.header(SERVER_TIMING, timings.clone()),
            None => reply,
        }
    }
}

impl VllmModel {
    /// Completes a chat body, with the changes that the configuration asks for.
    async fn chat<'a>(&'a self, call: &Call, mut body: Object<'a>) -> Result<Answer, HttpError> {
        upstream::apply(&mut body, &self.config, &self.additions)
            .map_err(|error| value_error(&error))?;
        if !self.config.sequential_reasoning_allowed
            && upstream::ends_with_nothing_said(body.get("messages").unwrap_or("[]"))
        {
            return Ok(self.made_up("content_filter"));
        }
        let plain = self.config.use_completions_api;
        let (path, body) = if plain {
            ("/completions", completions::request(body).map_err(|error| value_error(&error))?)
        } else {
            ("/chat/completions", body.to_json())
        };
        let reply = self.send(call, path, body).await?;
        if from_chat::is_context_overflow(reply.status.as_u16(), &reply.body) {
            return Ok(self.made_up("length"));
        }
        let timings = reply.headers.get(SERVER_TIMING).cloned();
        let body = reply.ok()?.body;
        let body = if plain {
            completions::reply(&body).map_err(|error| validation_error(&error))?
        } else {
            body
        };
        Ok(Answer { body, timings })
    }

    fn made_up(&self, finish_reason: &str) -> Answer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Answer {
            body: from_chat::made_up("chtcmpl-123", &self.config.model, finish_reason, now),
            timings: None,
        }
    }

    async fn send(&self, call: &Call, path: &str, body: Vec<u8>) -> Result<ClientReply, HttpError> {
        let mut outgoing =
            call.post(self.replica(call.session_id()), path).body(body).policy(Policy::Model);
        for (name, value) in &self.headers {
            outgoing = outgoing.header(name.clone(), value.clone());
        }
        Ok(outgoing.send().await?)
    }

    fn replica(&self, session_id: &str) -> &Endpoint {
        &self.replicas[replica_of(session_id, self.replicas.len())]
    }
}

/// Which of `count` replicas serves a session; always the same one.
pub fn replica_of(session_id: &str, count: usize) -> usize {
    if count < 2 {
        return 0;
    }
    let digest = Sha256::digest(session_id.as_bytes());
    let first = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    (first % count as u64) as usize
}

pub(crate) fn with_timings(body: Bytes, reply: &ClientReply) -> Reply {
    Answer { body: Bytes::new(), timings: reply.headers.get(SERVER_TIMING).cloned() }.reply(body)
}

fn value_error(error: &dyn std::error::Error) -> HttpError {
    HttpError::failed("ValueError", &chain(error))
}

pub(crate) fn validation_error(error: &dyn std::error::Error) -> HttpError {
    HttpError::failed("ValidationError", &chain(error))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests;
