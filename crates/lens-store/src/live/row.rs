//! What is told of a rollout that is under way.

use std::fmt;

use gym_telemetry::semconv;
use serde::{Deserialize, Serialize};

/// How a rollout is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Its spans begin and end.
    Running,
    /// A request of it failed and is going to be sent again.
    Retrying,
    /// Its processes say that it is under way, and nothing begins or ends.
    Stalled,
    /// The process that it is in ended, or is silent while others are heard.
    Dead,
    /// Nothing was heard of it for three heartbeats: it may have ended, and nobody could say so.
    Unknown,
}

impl Mark {
    /// As tables and JSON call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Stalled => "stalled",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

/// What became known of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// It began.
    Began,
    /// It ended.
    Ended,
    /// It ended, and failed.
    Failed,
    /// Its process ended inside it.
    CutOff,
    /// A warning was written; the name is its text.
    Warned,
    /// A request failed and is not given up; the name says which and why.
    Retried,
}

impl Happened {
    const fn verb(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::CutOff => "was cut off",
            Self::Warned => "warned",
            Self::Retried => "is retried",
        }
    }
}

/// What happened last in a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastEvent {
    /// What.
    pub what: Happened,
    /// Name of the span, text of the warning, or which request is retried.
    pub name: String,
    /// The server that it happened in.
    pub server: String,
    /// How long ago.
    pub ago_nanos: u64,
}

impl fmt::Display for LastEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = Seconds(self.ago_nanos);
        write!(f, "{} {} in {}, {ago} ago", self.name, self.what.verb(), self.server)
    }
}

/// Where a rollout is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// What is being done: a band of time, or `dispatch` while only the driver knows of the rollout.
    pub doing: String,
    /// The innermost open span.
    pub span: String,
    /// The server that it is in.
    pub server: String,
    /// How long it has been open.
    pub open_nanos: u64,
}

/// The other rollouts of the same task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// Under way, this one included.
    pub running: u32,
    /// Ended while this was watched.
    pub ended: u32,
}

/// One rollout that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The run: id of the collection, else of the fleet, else empty.
    pub run: String,
    /// Index of the input row.
    pub task_index: Option<i64>,
    /// Index of the repeat.
    pub rollout_index: Option<i64>,
    /// Index of the dispatch.
    pub attempt_index: i64,
    /// Wire form of its id, or empty.
    pub rollout_id: String,
    /// Instance that runs it, once known; else empty.
    pub agent: String,
    /// Its trace.
    pub trace_id: String,
    /// Where it is; nothing when none of its spans is known to be open.
    pub stage: Option<Stage>,
    /// How long it has been under way.
    pub age_nanos: u64,
    /// How long ago it was last said to be under way.
    pub heartbeat_ago_nanos: u64,
    /// How long ago a span of it last began or ended.
    pub moved_ago_nanos: u64,
    /// What that was.
    pub last_event: LastEvent,
    /// How often requests were sent again, or are about to be.
    pub retries: u32,
    /// How it is doing.
    pub mark: Mark,
    /// The same in words, with the server.
    pub explanation: String,
    /// The other rollouts of its task.
    pub group: GroupState,
}

/// What a span does, by its name and the type of the server that it is in.
pub(super) fn doing(name: &str, server_type: &str) -> &'static str {
    let path = name.split_once(' ').map_or("", |(_, path)| path);
    match (name, path) {
        (semconv::span::ROLLOUT_ATTEMPT, _) => "dispatch",
        (semconv::span::VERIFY, _) | (_, "/verify") => "verify",
        (_, "/seed_session") => "setup",
        _ if name.starts_with(semconv::span::SANDBOX_PREFIX) => "sandbox",
        _ if name.starts_with(semconv::span::MODEL_PREFIX) => "model",
        (semconv::span::ROLLOUT | semconv::span::AGENT_RESPONSES | super::RUN_REQUEST, _) => {
            "agent"
        }
        _ => match server_type {
            "responses_api_models" => "model",
            "responses_api_agents" => "agent",
            "resources_servers" => "tool",
            _ => "other",
        },
    }
}

/// A span of time in words that are short.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / 1_000_000_000 {
            seconds @ 0..600 => write!(f, "{seconds} s"),
            seconds @ 600..7200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3600),
        }
    }
}
