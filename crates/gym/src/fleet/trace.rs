//! The `gym.startup` trace and the supervisor's metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gym_telemetry::semconv::value;
use gym_telemetry::{groups, metrics, semconv};
use lens::{Context, Span};

use super::FleetError;

/// The trace of one start.
#[derive(Debug)]
pub struct StartupTrace {
    root: Span,
    context: Context,
    /// Where the last stage ended, since the epoch: the next one begins there, so that stages
    /// add up to the whole.
    reached_nanos: AtomicU64,
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
        Self { root, context, reached_nanos: AtomicU64::new(start_nanos) }
    }

    /// A stage that was over at `to_nanos` since the epoch.
    pub fn past_stage(&self, name: &'static str, to_nanos: u64) {
        self.stage(name).end_at(to_nanos);
    }

    /// A stage that began when the one before it ended.
    pub fn stage(&self, name: &'static str) -> Stage<'_> {
        let from_nanos = self.reached_nanos.load(Ordering::Relaxed);
        let span = Span::build(&groups::STARTUP, name).parent(&self.context);
        Stage { trace: self, name, span: span.start_nanos(from_nanos).start(), from_nanos }
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
            return self.root.end();
        }
        self.root.end_at(self.reached_nanos.load(Ordering::Relaxed));
    }
}

/// A stage of the start; ends when dropped, and counts only when it was ended.
#[derive(Debug)]
pub struct Stage<'a> {
    trace: &'a StartupTrace,
    name: &'static str,
    span: Span,
    from_nanos: u64,
}

impl Stage<'_> {
    /// The stage was completed.
    pub fn end(self) {
        self.end_at(lens::now_unix_nanos());
    }

    fn end_at(self, to_nanos: u64) {
        let to_nanos = to_nanos.max(self.from_nanos);
        self.trace.reached_nanos.store(to_nanos, Ordering::Relaxed);
        let took = Duration::from_nanos(to_nanos - self.from_nanos);
        metrics::SERVER_STARTUP_STAGE_DURATION.record(
            metrics::millis(took),
            &[
                (semconv::SERVER_NAME, value::ORCHESTRATOR.into()),
                (semconv::SERVER_TYPE, value::ORCHESTRATOR.into()),
                (semconv::STARTUP_STAGE, self.name.into()),
            ],
        );
        self.span.end_at(to_nanos);
    }
}

/// Sets the number of servers that run.
pub fn active_servers(count: usize) {
    metrics::SERVERS_ACTIVE.set(count as f64, &[]);
}
