//! The `gym.startup` trace and the supervisor's metrics.

use std::time::{Duration, Instant};

use gym_telemetry::{groups, metrics, semconv};
use lens::{Context, Span};

use super::FleetError;

/// The trace of one start.
#[derive(Debug)]
pub struct StartupTrace {
    root: Span,
    context: Context,
}

impl StartupTrace {
    /// Opens the root span, below the `TRACEPARENT` of the environment if there is one.
    pub fn open(start_nanos: u64) -> Self {
        let parent = Context::from_env(|name| std::env::var(name).ok());
        let root = Span::build(&groups::STARTUP, semconv::span::STARTUP)
            .parent(&parent)
            .start_nanos(start_nanos)
            .start();
        let context = parent.with_span(&root);
        Self { root, context }
    }

    /// A stage that is over already; times in nanoseconds since the epoch.
    pub fn past_stage(&self, name: &'static str, (from, to): (u64, u64)) {
        let span = Span::build(&groups::STARTUP, name).parent(&self.context);
        span.start_nanos(from).start().end_at(to);
        record_stage(name, Duration::from_nanos(to.saturating_sub(from)));
    }

    /// A stage that begins now.
    pub fn stage(&self, name: &'static str) -> Stage {
        let span = Span::build(&groups::STARTUP, name).parent(&self.context).start();
        Stage { name, span, began: Instant::now() }
    }

    /// The start of one server, from now until it answers, and what its environment
    /// gets so that its own span joins.
    pub fn server(
        &self,
        instance: &str,
        server_type: &'static str,
    ) -> (Span, Vec<(String, String)>) {
        let mut span = Span::build(&groups::STARTUP, semconv::span::STARTUP_SERVER)
            .parent(&self.context)
            .start();
        span.set(semconv::SERVER_NAME, instance);
        span.set(semconv::SERVER_TYPE, server_type);
        let mut variables = Vec::new();
        self.context
            .with_span(&span)
            .inject_env(|name, value| variables.push((name.to_owned(), value.to_owned())));
        (span, variables)
    }

    /// Ends the trace.
    pub fn close(mut self, failure: Option<&FleetError>) {
        if let Some(failure) = failure {
            self.root.set_error(failure.to_string());
        }
        self.root.end();
    }
}

/// A stage of the start; ends when dropped, and counts only when it was ended.
#[derive(Debug)]
pub struct Stage {
    name: &'static str,
    span: Span,
    began: Instant,
}

impl Stage {
    /// The stage was completed.
    pub fn end(self) {
        record_stage(self.name, self.began.elapsed());
        self.span.end();
    }
}

fn record_stage(name: &'static str, took: Duration) {
    metrics::SERVER_STARTUP_STAGE_DURATION
        .record(metrics::millis(took), &[(semconv::STARTUP_STAGE, name.into())]);
}

/// Sets the number of servers that run.
pub fn active_servers(count: usize) {
    metrics::SERVERS_ACTIVE.set(count as f64, &[]);
}
