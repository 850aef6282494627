//! What a resources server implements: tools, and verification.
//!
//! The adapter makes the routes, the spans and the metrics; an implementation contains none of
//! that. `async fn` works in implementations.

use std::borrow::Cow;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gym_telemetry::groups::VERIFY;
use gym_telemetry::{metrics, semconv};
use http::Method;
use lens::Span;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::aggregate::aggregate;
use crate::api::{self, Item, ItemKind, Rejection, Response, RunRequest, json};
use crate::http::{Call, HttpError, Reply, Service};
use crate::instance::{InstanceConfig, InstanceError, ServerType};
use crate::telemetry::traced;
use crate::typed;

/// Makes a server from its configuration.
pub trait FromInstance: Sized {
    /// Reads the instance's block.
    ///
    /// # Errors
    ///
    /// [`InstanceError`] names the field that does not fit.
    fn from_instance(instance: &InstanceConfig) -> Result<Self, InstanceError>;
}

/// Whether stored rollouts may be verified again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReverifyMode {
    /// Verification depends on the request alone.
    Stateless,
    /// Verification needs the session of the rollout.
    Unsupported,
    /// Not stated.
    #[default]
    Unknown,
}

/// A verification request.
#[derive(Debug)]
pub struct VerifyRequest<T> {
    body: Bytes,
    /// Where its parts lie in the body.
    create_params: Range<usize>,
    response: Range<usize>,
    output: Range<usize>,
    /// The row's fields that the verifier reads.
    pub task: T,
}

impl<T> VerifyRequest<T> {
    /// Parameters of the rollout's first model request, as JSON text.
    #[must_use]
    pub fn create_params(&self) -> &str {
        self.part(&self.create_params)
    }

    /// What the agent answered, as JSON text.
    #[must_use]
    pub fn response(&self) -> &str {
        self.part(&self.response)
    }

    /// Items of the response's output, in order.
    #[must_use]
    pub fn output_items(&self) -> Vec<Item<'_>> {
        api::items(self.output()).collect()
    }

    /// Calls of functions among the output items.
    #[must_use]
    pub fn function_calls(&self) -> Vec<Item<'_>> {
        api::items(self.output()).filter(|item| item.kind == ItemKind::FunctionCall).collect()
    }

    /// Text of every message among the output items, joined.
    #[must_use]
    pub fn output_text(&self) -> String {
        api::output_text(self.output())
    }

    fn output(&self) -> &str {
        self.part(&self.output)
    }

    fn part(&self, range: &Range<usize>) -> &str {
        let part = self.body.get(range.clone()).unwrap_or_default();
        std::str::from_utf8(part).unwrap_or_default()
    }
}

/// Where `part` lies in `whole`, which it was parsed from.
fn range_in(whole: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// A task without fields of its own.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
pub struct NoTask {}

/// A server of tools that also verifies.
pub trait ResourcesServer: Sized + Send + Sync + 'static {
    /// The row's fields that the verifier needs.
    type Task: DeserializeOwned + Send;
    /// What verification adds to the reply; an object with the number `reward`.
    type Score: Serialize + Send;

    /// Whether stored rollouts may be verified again.
    const REVERIFY_MODE: ReverifyMode = ReverifyMode::Unknown;

    /// Registers the tools.
    fn tools(tools: &mut Tools<Self>);

    /// Prepares a session. `body` is the run request, a JSON object.
    fn seed_session(
        &self,
        call: &Call,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, HttpError>> + Send {
        let _ = (call, body);
        async { Ok(Reply::json_bytes(&b"{}"[..])) }
    }

    /// Scores a finished rollout.
    fn verify(
        &self,
        call: &Call,
        request: VerifyRequest<Self::Task>,
    ) -> impl Future<Output = Result<Self::Score, HttpError>> + Send;
}

/// Shape of an `/aggregate_metrics` request.
#[derive(serde::Deserialize)]
struct VerifyResponses {
    #[serde(rename = "verify_responses")]
    _rows: Vec<NoTask>,
}

/// The tools of a server under construction.
#[derive(Debug)]
pub struct Tools<S> {
    service: Service,
    server: Arc<S>,
}

impl<S: Send + Sync + 'static> Tools<S> {
    /// Adds the tool `POST /<name>`: a method that takes the server, the request and the typed
    /// arguments.
    pub fn tool<A, O, F, Fut>(&mut self, name: &str, tool: F) -> &mut Self
    where
        A: DeserializeOwned + Send,
        O: Serialize,
        F: Fn(Arc<S>, Call, A) -> Fut + Send + Sync + Copy + 'static,
        Fut: Future<Output = Result<O, HttpError>> + Send + 'static,
    {
        let server = Arc::clone(&self.server);
        self.service.route(Method::POST, &format!("/{name}"), move |call, body| {
            let server = Arc::clone(&server);
            async move {
                let arguments = typed::body::<A>(&body)?;
                Reply::json(&tool(server, call, arguments).await?)
            }
        });
        self
    }

    /// Handles every path that no tool takes; [`Call::path`] says which.
    pub fn catch_all<F, Fut>(&mut self, tool: F) -> &mut Self
    where
        F: Fn(Arc<S>, Call, Bytes) -> Fut + Send + Sync + Copy + 'static,
        Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
    {
        let server = Arc::clone(&self.server);
        self.service.catch_all(move |call, body| tool(Arc::clone(&server), call, body));
        self
    }
}

/// The routes of a resources server.
#[must_use]
pub fn service<S: ResourcesServer>(server: S, instance: &InstanceConfig) -> Service {
    let cookie_name = format!("{}___{}", instance.implementation, instance.name);
    let service = Service::new(ServerType::ResourcesServers, cookie_name);
    let mut tools = Tools { service, server: Arc::new(server) };
    S::tools(&mut tools);
    let Tools { mut service, server } = tools;
    let name: Arc<str> = instance.name.as_str().into();

    let seed = Arc::clone(&server);
    service.route(Method::POST, "/seed_session", move |call, body| {
        let server = Arc::clone(&seed);
        async move {
            check_object(&body)?;
            server.seed_session(&call, body).await
        }
    });
    service.route(Method::POST, "/verify", move |call, body| {
        let (server, name) = (Arc::clone(&server), Arc::clone(&name));
        async move { verify(&*server, &name, &call, body).await }
    });
    service.route(Method::POST, "/aggregate_metrics", |_, body| async move {
        // A body of another shape is refused with its entries.
        typed::body::<VerifyResponses>(&body)?;
        let metrics = aggregate(&body)
            .map_err(|error| HttpError::failed("ValueError", &error.to_string()))?;
        Reply::json(&metrics)
    });
    service.route(Method::GET, "/reverify_mode", |_, _| async { Reply::json(&S::REVERIFY_MODE) });
    service
}

async fn verify<S: ResourcesServer>(
    server: &S,
    name: &Arc<str>,
    call: &Call,
    body: Bytes,
) -> Result<Reply, HttpError> {
    let parsed = RunRequest::parse(&body)?;
    let (response_text, response) = response_of(&parsed)?;
    let request = VerifyRequest {
        create_params: range_in(&body, parsed.create_params_text),
        response: range_in(&body, response_text),
        output: range_in(&body, response.output()),
        task: task(&parsed)?,
        body: body.clone(),
    };
    let mut span = Span::start(&VERIFY, semconv::span::VERIFY);
    if span.is_recording() {
        span.set(semconv::SERVER_NAME, Arc::clone(name));
        if let Some(rollout) = call.rollout() {
            span.set(semconv::ROLLOUT_ID, rollout.as_str());
        }
    }
    let started = Instant::now();
    let result = traced(span, server.verify(call, request), |_, _| ()).await;
    if gym_telemetry::is_active() {
        metrics::record_verification(started.elapsed(), result.is_ok());
    }
    let score = result?;
    let mut out = Vec::with_capacity(body.len() + 2048);
    out.extend_from_slice(b"{\"responses_create_params\":");
    parsed.create_params.write_full(&mut out);
    out.extend_from_slice(b",\"response\":");
    response.write_full(&mut out);
    append_members(&mut out, &score)?;
    Ok(Reply::json_bytes(out))
}

/// The response to verify and its text.
fn response_of<'r, 'a>(
    request: &'r RunRequest<'a>,
) -> Result<(&'a str, Cow<'r, Response<'a>>), HttpError> {
    let loc = || vec!["body".into(), "response".into()];
    let Some(text) = request.extra("response") else {
        return Err(Rejection::one("missing", loc(), "Field required", "{}").into());
    };
    if let Some(response) = request.response() {
        return Ok((text, Cow::Borrowed(response)));
    }
    let response = Response::from_object(text).map_err(|error| {
        Rejection::one("value_error", loc(), format!("Value error, {error}"), text)
    })?;
    Ok((text, Cow::Owned(response)))
}

/// Refuses a body that is no object, with its entries.
fn check_object(body: &[u8]) -> Result<(), HttpError> {
    let value = std::str::from_utf8(body).ok().and_then(|text| json::document(text).ok());
    match value.map(json::kind) {
        Some(json::Kind::Object) => Ok(()),
        _ => typed::body::<NoTask>(body).map(drop),
    }
}

/// Reads the row's fields; the response, the largest of them, is not among those.
fn task<T: DeserializeOwned>(request: &RunRequest<'_>) -> Result<T, HttpError> {
    let mut fields = Vec::with_capacity(256);
    fields.push(b'{');
    for (key, raw) in &request.extras {
        if key != "response" {
            if fields.len() > 1 {
                fields.push(b',');
            }
            json::write_string(&mut fields, key);
            fields.push(b':');
            fields.extend_from_slice(raw.as_bytes());
        }
    }
    fields.push(b'}');
    typed::body(&fields)
}

/// Writes the members of `score` after those that `out` holds, and closes the object.
fn append_members(out: &mut Vec<u8>, score: &impl Serialize) -> Result<(), HttpError> {
    let start = out.len();
    serde_json::to_writer(&mut *out, score)
        .map_err(|error| HttpError::failed("TypeError", &error.to_string()))?;
    match (out.get(start), out.len() - start) {
        (Some(b'{'), 2) => {
            out.truncate(start);
            out.push(b'}');
        }
        (Some(b'{'), _) => out[start] = b',',
        _ => return Err(HttpError::failed("TypeError", "a score must serialise to an object")),
    }
    Ok(())
}
