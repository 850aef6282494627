//! Sending one rollout to its agent.

use std::future::Future;

use bytes::Bytes;

/// The classes of failures that the driver itself finds.
pub mod class {
    /// The agent answered with a status outside 2xx.
    pub const HTTP_ERROR: &str = "http_error";
    /// The agent could not be reached, or its connection broke.
    pub const TRANSPORT_ERROR: &str = "transport_error";
    /// The agent's reply is no result.
    pub const INVALID_REPLY: &str = "invalid_reply";
    /// The agent took too long.
    pub const TIMEOUT: &str = "timeout";
}

/// What an agent answered.
#[derive(Debug)]
pub struct AgentReply {
    pub status: u16,
    pub body: Bytes,
    /// What a server further on says that it failed of.
    pub error_type: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub struct DispatchError {
    /// One of [`class`].
    pub class: &'static str,
    /// Low-cardinality kind, for telemetry.
    pub error_type: String,
    pub message: String,
}

/// The way to the agents.
pub trait Dispatch: Send + Sync + 'static {
    /// Posts a row to `/run` of an agent.
    fn run(
        &self,
        agent: &str,
        row: Bytes,
        context: &lens::Context,
    ) -> impl Future<Output = Result<AgentReply, DispatchError>> + Send;

    /// Posts results to `/aggregate_metrics` of an agent.
    fn aggregate(
        &self,
        agent: &str,
        body: Bytes,
        context: Option<&lens::Context>,
    ) -> impl Future<Output = Result<AgentReply, DispatchError>> + Send;
}
