//! What an agent implements: a rollout, and the loop between a model and its resources.
//!
//! The adapter makes the routes, the spans and the metrics, and gives the rollout its identity;
//! an implementation contains none of that.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use gym_telemetry::groups::{AGENT, ROLLOUT};
use gym_telemetry::semconv::value::outcome;
use gym_telemetry::{metrics, semconv};
use http::Method;
use lens::metrics::BoundCounter;
use lens::{Context, Span};

use crate::client::names_a_timeout;
use crate::http::{Call, HttpError, Reply, Service};
use crate::instance::{InstanceConfig, ServerType};
use crate::rollout::Indices;
use crate::telemetry::{traced, traced_in};

/// A server that runs rollouts.
pub trait AgentServer: Sized + Send + Sync + 'static {
    /// Runs one rollout: seed, answer, verify.
    fn run(
        &self,
        call: &Call,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, HttpError>> + Send;

    /// Answers one request of the Responses API, calling tools as the model asks for them.
    fn responses(
        &self,
        call: &Call,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, HttpError>> + Send;

    /// Aggregates the replies of verified rollouts.
    fn aggregate_metrics(
        &self,
        call: &Call,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, HttpError>> + Send;
}

/// The routes of an agent.
#[must_use]
pub fn service<S: AgentServer>(server: S, instance: &InstanceConfig) -> Service {
    let cookie_name = format!("{}___{}", instance.implementation, instance.name);
    let mut service = Service::new(ServerType::ResponsesApiAgents, cookie_name);
    let server = Arc::new(server);
    let name: Arc<str> = instance.name.as_str().into();

    let (agent, label) = (Arc::clone(&server), Arc::clone(&name));
    service.route(Method::POST, "/run", move |call, body| {
        let (agent, label) = (Arc::clone(&agent), Arc::clone(&label));
        async move { run(&*agent, &label, call, body).await }
    });
    let (agent, label) = (Arc::clone(&server), Arc::clone(&name));
    service.route(Method::POST, "/v1/responses", move |call, body| {
        let (agent, label) = (Arc::clone(&agent), Arc::clone(&label));
        async move {
            let mut span = Span::start(&AGENT, semconv::span::AGENT_RESPONSES);
            if span.is_recording() {
                span.set(semconv::SERVER_NAME, label);
            }
            traced(span, agent.responses(&call, body), |_, _| ()).await
        }
    });
    service.route(Method::POST, "/aggregate_metrics", move |call, body| {
        let agent = Arc::clone(&server);
        async move { agent.aggregate_metrics(&call, body).await }
    });
    service
}

async fn run<S: AgentServer>(
    agent: &S,
    name: &Arc<str>,
    call: Call,
    body: Bytes,
) -> Result<Reply, HttpError> {
    // A body that is no object is refused by the agent itself, with the right entries.
    let indices: Indices<'_> = serde_json::from_slice(&body).unwrap_or_default();
    let rollout = indices
        .rollout_id()
        .map_err(|error| HttpError::failed("ValueError", &error.to_string()))?;
    if let Some(rollout) = rollout {
        call.set_rollout(rollout);
    }
    let context = identified(&call, &indices).unwrap_or_else(Context::current);
    let mut outcome = Outcome { started: Instant::now(), known: None };
    let mut span = Span::build(&ROLLOUT, semconv::span::ROLLOUT).parent(&context).start();
    if span.is_recording() {
        span.set(semconv::SERVER_NAME, Arc::clone(name));
    }
    let running = agent.run(&call, body.clone());
    let result = traced_in(&context, span, running, |span, result| {
        span.set(semconv::ROLLOUT_OUTCOME, outcome_of(result));
        if let Ok(reply) = result
            && is_failure(reply)
        {
            span.set(semconv::ERROR_TYPE, reply.status.as_u16().to_string());
            span.set_error("");
        }
    })
    .says_when_dropped(semconv::ROLLOUT_OUTCOME, outcome::CANCELLED)
    .await;
    outcome.known = Some(outcome_of(&result));
    if gym_telemetry::is_active() {
        call.set_server_attribute(semconv::ROLLOUT_OUTCOME, outcome_of(&result));
    }
    result
}

/// The current context with the identity that the body gives, when a caller that sends no
/// baggage started the rollout.
fn identified(call: &Call, indices: &Indices<'_>) -> Option<Context> {
    let rollout = call.rollout()?;
    let current = Context::current();
    if !gym_telemetry::is_active() || current.baggage(semconv::ROLLOUT_ID).is_some() {
        return None;
    }
    let mut entries = vec![(semconv::ROLLOUT_ID, rollout.as_str().to_owned())];
    call.set_server_attribute(semconv::ROLLOUT_ID, rollout.as_str());
    let numbers = [
        (semconv::TASK_INDEX, indices.task),
        (semconv::ROLLOUT_INDEX, indices.rollout),
        (semconv::ATTEMPT_INDEX, indices.attempt.or(Some(0))),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            entries.push((key, number.to_string()));
            call.set_server_attribute(key, i64::try_from(number).unwrap_or(i64::MAX));
        }
    }
    Some(current.with_baggage(&entries))
}

/// Counts a rollout, also one that was dropped.
struct Outcome {
    started: Instant,
    known: Option<&'static str>,
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if gym_telemetry::is_active() {
            let outcome = self.known.unwrap_or(outcome::CANCELLED);
            metrics::ROLLOUT_DURATION.record(self.started.elapsed().as_secs_f64() * 1e3, &[]);
            completed(outcome);
        }
    }
}

/// Counts a rollout; the usual outcome without a look-up.
fn completed(how: &'static str) {
    static SUCCESSES: OnceLock<BoundCounter> = OnceLock::new();
    let attributes = [(semconv::ROLLOUT_OUTCOME, how.into())];
    if how == outcome::SUCCESS {
        SUCCESSES.get_or_init(|| metrics::ROLLOUT_COMPLETED.bind(&attributes)).add(1);
    } else {
        metrics::ROLLOUT_COMPLETED.add(1, &attributes);
    }
}

fn is_failure(reply: &Reply) -> bool {
    reply.status.as_u16() >= 400
}

fn outcome_of(result: &Result<Reply, HttpError>) -> &'static str {
    match result {
        Ok(reply) if is_failure(reply) => outcome::FAILURE,
        Ok(_) => outcome::SUCCESS,
        Err(error) if names_a_timeout(&error.error_type()) => outcome::TIMEOUT,
        Err(_) => outcome::FAILURE,
    }
}
