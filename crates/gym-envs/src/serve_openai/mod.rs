//! The script engine as an OpenAI-compatible endpoint of its own: a real upstream for `vllm_model` and `openai_model`.
//!
//! `GET /v1/models`, `POST /v1/chat/completions`, `POST /v1/responses`; streams when asked, 401 when a key is required.
//! Unknown keys of a request are ignored, as such endpoints do. It knows nothing of rollouts and makes no spans.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use gym_server::api::{Field, Object, json};
use gym_server::http::{BindError, Call, HttpError, Reply, ServeOptions, Server, Service};
use gym_server::instance::ServerType;
use gym_server::model::{Dialect, EVENT_STREAM, PrepareError, finish, prepare};
use http::{Method, StatusCode, header};
use serde_json::{Value, json as object};
use tokio::sync::watch;

use crate::scripted_model::{ScriptedModel, ScriptedModelConfig, deliver};

/// What is served.
#[derive(Debug, Clone, Default)]
pub struct OpenAiOptions {
    /// Script, latency, faults, seed.
    pub config: ScriptedModelConfig,
    /// The key that clients must send, if any.
    pub api_key: Option<String>,
    /// Shards; at least 1.
    pub workers: usize,
}

/// An endpoint that listens.
#[derive(Debug)]
pub struct OpenAiServer {
    server: Server,
    options: OpenAiOptions,
}

/// Why the endpoint cannot be served.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ServeOpenAiError {
    #[error("the endpoint cannot be opened")]
    Bind(#[from] BindError),
    #[error("the endpoint stopped")]
    Serve(#[from] io::Error),
}

/// Serves until SIGINT or SIGTERM; `listening` is told the address once connections are taken. Blocks.
pub fn serve_openai(
    listen: SocketAddr,
    options: OpenAiOptions,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), ServeOpenAiError> {
    let server = OpenAiServer::bind(listen, options)?;
    let (stop, stopped) = watch::channel(false);
    std::thread::Builder::new()
        .name("end-of-life".to_owned())
        .spawn(move || await_signal(&stop))?;
    listening(server.address());
    Ok(server.serve(stopped)?)
}

/// Says so when a signal came. Without a way to wait for one, the process ends as signals end it.
fn await_signal(stop: &watch::Sender<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    runtime.block_on(async {
        let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    stop.send_replace(true);
}

impl OpenAiServer {
    /// Binds the address; port 0 lets the system choose.
    pub fn bind(listen: SocketAddr, options: OpenAiOptions) -> Result<Self, BindError> {
        Ok(Self { server: Server::bind(&listen.ip().to_string(), listen.port())?, options })
    }

    /// The address that it got.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves until `stop` becomes true or its sender is gone. Blocks.
    pub fn serve(self, stop: watch::Receiver<bool>) -> io::Result<()> {
        let serve =
            ServeOptions { workers: self.options.workers.max(1), ..ServeOptions::default() };
        self.server.serve(Arc::new(service(self.options)), &serve, stop)
    }
}

struct Endpoint {
    model: ScriptedModel,
    bearer: Option<String>,
}

fn service(options: OpenAiOptions) -> Service {
    let mut service = Service::new(ServerType::ResponsesApiModels, "serve_openai".to_owned());
    let endpoint = Arc::new(Endpoint {
        model: ScriptedModel::new(options.config),
        bearer: options.api_key.map(|key| format!("Bearer {key}")),
    });
    let shared = Arc::clone(&endpoint);
    service.route(Method::GET, "/v1/models", move |call, _| {
        let endpoint = Arc::clone(&shared);
        async move { Ok(endpoint.models(&call)) }
    });
    for (path, dialect) in
        [("/v1/chat/completions", Dialect::Chat), ("/v1/responses", Dialect::Responses)]
    {
        let shared = Arc::clone(&endpoint);
        service.route(Method::POST, path, move |call, body| {
            let endpoint = Arc::clone(&shared);
            async move { endpoint.answer(&call, dialect, body).await }
        });
    }
    service
}

impl Endpoint {
    fn refuses(&self, call: &Call) -> Option<Reply> {
        let bearer = self.bearer.as_deref()?;
        (call.header(&header::AUTHORIZATION) != Some(bearer)).then(|| {
            let message = "Incorrect API key provided";
            Reply::json_bytes(
                error(message, "invalid_request_error", "invalid_api_key".into()).to_string(),
            )
            .status(StatusCode::UNAUTHORIZED)
        })
    }

    fn models(&self, call: &Call) -> Reply {
        if let Some(refusal) = self.refuses(call) {
            return refusal;
        }
        let id = self.model.config().model.as_deref().unwrap_or("scripted-model");
        let model =
            object!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "gym"});
        Reply::json_bytes(object!({"object": "list", "data": [model]}).to_string())
    }

    async fn answer(&self, call: &Call, dialect: Dialect, body: Bytes) -> Result<Reply, HttpError> {
        if let Some(refusal) = self.refuses(call) {
            return Ok(refusal);
        }
        let body = if dialect == Dialect::Responses { known_keys(body) } else { body };
        let prepared = match prepare(dialect, &body) {
            Ok(prepared) => prepared,
            Err(error) => return Ok(bad_request(&error)),
        };
        let mut outcome = match dialect {
            Dialect::Chat => self.model.answer_chat(call, &prepared.body),
            Dialect::Responses | Dialect::Messages => {
                self.model.answer_responses(call, &prepared.body)
            }
        };
        let finished = finish(&prepared, Bytes::from(std::mem::take(&mut outcome.body)))
            .map_err(|error| HttpError::failed("FinishError", &error.to_string()))?;
        let is_stream = finished.content_type == EVENT_STREAM;
        outcome.body = finished.body.into();
        let reply = deliver(outcome, |status| {
            error(&format!("injected failure with status {status}"), "server_error", Value::Null)
        })
        .await;
        Ok(if is_stream && reply.status_code() == StatusCode::OK {
            reply.event_stream()
        } else {
            reply
        })
    }
}

fn error(message: &str, error_type: &str, code: Value) -> Value {
    object!({"error": {"message": message, "type": error_type, "param": null, "code": code}})
}

fn bad_request(refusal: &PrepareError) -> Reply {
    let message = match refusal {
        PrepareError::Rejected(rejection) => rejection.detail().to_string(),
        PrepareError::Unsupported(what) => what.clone(),
    };
    Reply::json_bytes(error(&message, "invalid_request_error", Value::Null).to_string())
        .status(StatusCode::BAD_REQUEST)
}

/// The body without keys that the Responses schema does not know.
fn known_keys(body: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let Some(members) = json::members(text) else { return body };
    let mut unknown = Vec::new();
    for member in members {
        match member {
            Ok((key, _)) if Field::is_known(&key) => {}
            Ok((key, _)) => unknown.push(key.into_owned()),
            Err(_) => return body,
        }
    }
    if unknown.is_empty() {
        return body;
    }
    let mut object = Object::parse(text);
    for key in &unknown {
        object.remove(key);
    }
    object.to_json().into()
}

#[cfg(test)]
mod tests;
