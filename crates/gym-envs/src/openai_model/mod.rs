//! A model behind an endpoint that answers both dialects itself: requests pass through.
//!
//! The configured `extra_body` lies under the request, the configured model wins over it.

use std::collections::BTreeMap;

use bytes::Bytes;
use gym_server::api::chat::{ChatReply, ChatRequest};
use gym_server::api::{CreateParams, Object, Response, Urls, json};
use gym_server::client::{ClientReply, Policy};
use gym_server::http::{Call, HttpError, Reply};
use gym_server::instance::{Endpoint, InstanceConfig, InstanceError};
use gym_server::model::server::ModelServer;
use gym_server::resources::FromInstance;
use gym_telemetry::concurrency::Site;
use gym_telemetry::semconv::value::concurrency_site;
use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::vllm_model::{Secret, or_empty, text, validation_error, with_timings};

static REQUESTS: Site = Site::new(concurrency_site::MODEL_REQUESTS);

/// The block of an `openai_model` instance; fields of every instance are ignored.
#[derive(Debug, Clone, Deserialize)]
pub struct OpenAiModelConfig {
    /// Base URL, mostly ending in `/v1`.
    #[serde(deserialize_with = "text")]
    pub openai_base_url: String,
    /// Sent as bearer token.
    pub openai_api_key: Secret,
    /// Name of the model upstream.
    #[serde(deserialize_with = "text")]
    pub openai_model: String,
    /// Members of the body that the request may override.
    #[serde(default, deserialize_with = "or_empty")]
    pub extra_body: Map<String, Value>,
    /// Headers of every request.
    #[serde(default, deserialize_with = "or_empty")]
    pub openai_default_headers: BTreeMap<String, String>,
    /// Requests that may be upstream at a time, in this process; unlimited unless set.
    #[serde(default)]
    pub max_concurrent_requests: Option<usize>,
    /// Whether reasoning items are taken out of the input.
    #[serde(default)]
    pub drop_input_reasoning_items: bool,
}

/// The server.
#[derive(Debug)]
pub struct OpenAiModel {
    endpoint: Endpoint,
    extra_body: Vec<(String, String)>,
    /// JSON text of the model's name
    model: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    slots: Option<Semaphore>,
    drop_reasoning: bool,
}

impl FromInstance for OpenAiModel {
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError> {
        let config: OpenAiModelConfig = instance.parse()?;
        if config.max_concurrent_requests == Some(0) {
            return Err(field_error(
                instance,
                "max_concurrent_requests",
                "expected at least 1, or null for no limit",
            ));
        }
        Ok(Self {
            endpoint: Endpoint::model(&config.openai_base_url)
                .map_err(|error| field_error(instance, "openai_base_url", &error.to_string()))?,
            extra_body: config
                .extra_body
                .iter()
                .map(|(key, value)| (key.clone(), value.to_string()))
                .collect(),
            model: Value::from(config.openai_model.as_str()).to_string(),
            headers: headers(&config.openai_default_headers, config.openai_api_key.reveal())
                .map_err(|name| {
                    field_error(
                        instance,
                        &format!("openai_default_headers.{name}"),
                        "is not a valid HTTP header",
                    )
                })?,
            slots: config.max_concurrent_requests.map(Semaphore::new),
            drop_reasoning: config.drop_input_reasoning_items,
        })
    }
}

impl ModelServer for OpenAiModel {
    async fn responses(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let reply = self.send(call, "/responses", self.responses_body(&body)?).await?;
        Response::parse(&reply.body).map_err(|error| validation_error(&error))?;
        Ok(with_timings(reply.body.clone(), &reply))
    }

    async fn chat_completions(&self, call: &Call, body: Bytes) -> Result<Reply, HttpError> {
        let reply = self.send(call, "/chat/completions", self.chat_body(&body)?).await?;
        ChatReply::parse(&reply.body).map_err(|error| validation_error(&error))?;
        Ok(with_timings(reply.body.clone(), &reply))
    }
}

impl OpenAiModel {
    fn under(&self) -> Object<'_> {
        let mut object = Object::default();
        for (key, raw) in &self.extra_body {
            object.set(key.as_str(), raw.as_str());
        }
        object
    }

    fn responses_body(&self, body: &[u8]) -> Result<Vec<u8>, HttpError> {
        let params = CreateParams::parse(body, Urls::With)?;
        let mut object = self.under();
        for (_, name, raw) in params.iter() {
            if name == "input" && self.drop_reasoning {
                object.set(name, without_reasoning(raw));
            } else {
                object.set(name, raw);
            }
        }
        object.set("model", self.model.as_str());
        Ok(object.to_json())
    }

    fn chat_body(&self, body: &[u8]) -> Result<Vec<u8>, HttpError> {
        let request = ChatRequest::parse(body)?;
        let mut object = self.under();
        for (_, name, raw) in request.iter() {
            object.set(name, raw);
        }
        object.set("model", self.model.as_str());
        Ok(object.to_json())
    }

    async fn send(&self, call: &Call, path: &str, body: Vec<u8>) -> Result<ClientReply, HttpError> {
        let _slot = match &self.slots {
            Some(slots) => REQUESTS.wait(slots.acquire()).await.ok(),
            None => None,
        };
        let mut outgoing = call.post(&self.endpoint, path).body(body).policy(Policy::Model);
        for (name, value) in &self.headers {
            outgoing = outgoing.header(name.clone(), value.clone());
        }
        Ok(outgoing.send().await?.ok()?)
    }
}

/// The list of items without those of type `reasoning`.
fn without_reasoning(input: &str) -> String {
    let Some(elements) = json::elements(input) else { return input.to_owned() };
    let kept: Vec<&str> = elements
        .flatten()
        .filter(|item| json::member(item, "type") != Some("\"reasoning\""))
        .collect();
    format!("[{}]", kept.join(","))
}

/// Configured headers and the bearer token; the name of a header that is not valid.
pub(crate) fn headers(
    configured: &BTreeMap<String, String>,
    api_key: &str,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut all = Vec::with_capacity(configured.len() + 1);
    for (name, value) in configured {
        let header = HeaderName::try_from(name.as_str())
            .ok()
            .zip(HeaderValue::try_from(value.as_str()).ok());
        all.push(header.ok_or_else(|| name.clone())?);
    }
    let mut token = HeaderValue::try_from(format!("Bearer {api_key}"))
        .map_err(|_| "authorization".to_owned())?;
    token.set_sensitive(true);
    all.push((header::AUTHORIZATION, token));
    Ok(all)
}

pub(crate) fn field_error(instance: &InstanceConfig, path: &str, reason: &str) -> InstanceError {
    InstanceError::Field {
        instance: instance.name.clone(),
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gym_server::instance::ServerType;
    use serde_json::json;

    use super::*;

    fn model(mut block: Value) -> Result<OpenAiModel, InstanceError> {
        let block = block.as_object_mut().map(std::mem::take).expect("object");
        OpenAiModel::from_instance(&InstanceConfig {
            name: "policy_model".into(),
            server_type: ServerType::ResponsesApiModels,
            implementation: "openai_model".into(),
            host: "127.0.0.1".into(),
            port: 0,
            workers: 1,
            block,
            global: Arc::new(Value::Null),
        })
    }

    fn block() -> Value {
        json!({"openai_base_url": "http://h/v1", "openai_api_key": "k", "openai_model": "m", "entrypoint": "app.py",
               "extra_body": {"top_k": 3, "temperature": 1}, "openai_default_headers": {"x-team": "a"}})
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("utf-8")
    }

    #[test]
    fn the_request_lies_over_extra_body_and_the_configured_model_over_both() {
        let model = model(block()).expect("model");
        assert_eq!(
            text(
                model
                    .responses_body(br#"{"input":"x","model":"theirs","temperature":0}"#)
                    .expect("body")
            ),
            r#"{"top_k":3,"temperature":0,"input":"x","model":"m"}"#
        );
        assert_eq!(
            text(model.chat_body(br#"{"messages":[],"user":null}"#).expect("body")),
            r#"{"top_k":3,"temperature":1,"messages":[],"user":null,"model":"m"}"#
        );
    }

    #[test]
    fn reasoning_items_go_up_as_they_are_unless_dropped() {
        let input = r#"[{"type":"reasoning","id":"r","summary":[],"encrypted_content":null,"content":null},{"role":"user","content":"x"}]"#;
        let body = format!(r#"{{"input":{input}}}"#);
        let sent = |block| {
            text(model(block).expect("model").responses_body(body.as_bytes()).expect("body"))
        };
        assert!(sent(block()).contains(input));
        let mut dropping = block();
        dropping["drop_input_reasoning_items"] = json!(true);
        assert!(sent(dropping).contains(r#""input":[{"role":"user","content":"x"}]"#));
    }

    #[test]
    fn default_headers_come_before_the_token() {
        let model = model(block()).expect("model");
        let names: Vec<&str> = model.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-team", "authorization"]);
        assert_eq!(model.headers[1].1, "Bearer k");
        assert!(!format!("{model:?}").contains("Bearer"), "the key is never printed");
    }

    #[test]
    fn a_setting_that_cannot_be_used_is_named() {
        let refused = |key: &str, value: Value| {
            let mut block = block();
            block[key] = value;
            model(block).expect_err(key).to_string()
        };
        assert!(
            refused("openai_base_url", json!("h/v1"))
                .starts_with("policy_model.openai_base_url is not valid")
        );
        assert!(
            refused("max_concurrent_requests", json!(0))
                .contains("policy_model.max_concurrent_requests")
        );
        assert!(
            refused("openai_default_headers", json!({"a b": "c"}))
                .contains("openai_default_headers.a b")
        );
        assert!(
            refused("openai_model", json!(null))
                .contains("policy_model.openai_model is not valid: expected a string")
        );
    }
}
