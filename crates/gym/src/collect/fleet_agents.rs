//! The agents of a fleet, over HTTP.

use std::collections::BTreeMap;

use bytes::Bytes;
use gym_server::client::{Client, ClientError, ClientReply, Policy};
use gym_server::http::TRACEPARENT;
use gym_server::instance::Endpoint;
use http::HeaderValue;

use super::dispatch::{AgentReply, Dispatch, DispatchError, class};

/// The agents of a fleet.
#[derive(Debug)]
pub struct FleetAgents {
    client: Client,
    endpoints: BTreeMap<String, Endpoint>,
}

impl FleetAgents {
    /// Agents by instance name.
    pub fn new(client: Client, endpoints: BTreeMap<String, Endpoint>) -> FleetAgents {
        FleetAgents { client, endpoints }
    }

    fn endpoint(&self, agent: &str) -> Result<&Endpoint, DispatchError> {
        self.endpoints.get(agent).ok_or_else(|| DispatchError {
            class: class::TRANSPORT_ERROR,
            error_type: class::TRANSPORT_ERROR.to_owned(),
            message: format!("no agent is called {agent:?}"),
        })
    }
}

impl Dispatch for FleetAgents {
    async fn run(
        &self,
        agent: &str,
        row: Bytes,
        context: &lens::Context,
    ) -> Result<AgentReply, DispatchError> {
        let endpoint = self.endpoint(agent)?;
        let request = self
            .client
            .post(endpoint, "/run")
            .body(row)
            .policy(Policy::Internal)
            .context(context.clone());
        let reply = request.send().await.map_err(dispatch_error)?;
        Ok(agent_reply(reply))
    }

    async fn aggregate(
        &self,
        agent: &str,
        body: Bytes,
        context: Option<&lens::Context>,
    ) -> Result<AgentReply, DispatchError> {
        let endpoint = self.endpoint(agent)?;
        let request = self
            .client
            .post(endpoint, "/aggregate_metrics")
            .body(body)
            .policy(Policy::InternalIdempotent);
        let request = match context {
            Some(context) => request.context(context.clone()),
            None => request.silent().header(TRACEPARENT, not_sampled()),
        };
        let reply = request.send().await.map_err(dispatch_error)?;
        Ok(agent_reply(reply))
    }
}

fn agent_reply(reply: ClientReply) -> AgentReply {
    let error_type = reply.error_type().map(str::to_owned);
    AgentReply { status: reply.status.as_u16(), body: reply.body, error_type }
}

/// A trace context that says that nobody records: without a job span, the agent's spans of this call would be a trace
/// that belongs to no rollout.
fn not_sampled() -> HeaderValue {
    use std::hash::{BuildHasher, RandomState};
    let random = || RandomState::new().hash_one(0_u8).max(1);
    let text = format!("00-{:016x}{:016x}-{:016x}-00", random(), random(), random());
    HeaderValue::from_str(&text).expect("hex digits and dashes are a header value")
}

fn dispatch_error(error: ClientError) -> DispatchError {
    let class = if error.is_timeout() { class::TIMEOUT } else { class::TRANSPORT_ERROR };
    DispatchError { class, error_type: error.error_type(), message: error.full_message() }
}
