//! The driver's spans: one `gym.job` for the run, one `gym.rollout.attempt` for each dispatch of a rollout.
//!
//! Every attempt is the root of its own trace and links to the job, so that a run is never one giant trace.

use std::time::Duration;

use gym_server::http::TRACEPARENT;
use gym_telemetry::metrics::ROLLOUT_IN_FLIGHT;
use gym_telemetry::{groups, semconv};
use lens::{Context, Span, SpanContext, SpanKind};

use super::plan::{Plan, PlannedRollout, Stamp};

/// What the spans of a run have in common.
#[derive(Debug)]
pub struct RunTelemetry {
    /// Without telemetry no context is built.
    on: bool,
    job: Span,
    job_context: SpanContext,
    collection_id: String,
}

impl RunTelemetry {
    /// Starts the job's span; `parent` is the context that the environment gives.
    pub fn start(on: bool, collection_id: &str, parent: &Context) -> RunTelemetry {
        let mut job = if on {
            Span::build(&groups::JOB, semconv::span::JOB)
                .kind(SpanKind::Internal)
                .parent(parent)
                .start()
        } else {
            Span::disabled()
        };
        job.set(semconv::COLLECTION_ID, collection_id.to_owned());
        let job_context = job.context();
        RunTelemetry { on, job, job_context, collection_id: collection_id.to_owned() }
    }

    /// The context of the run's own calls; `None` when the job has no span, and they have none either.
    pub fn job_context(&self) -> Option<Context> {
        self.job.is_recording().then(|| Context::empty().with_span(&self.job))
    }

    /// Sets what the run is going to do.
    pub fn planned(&mut self, plan: &Plan, skipped: usize, concurrency: usize) {
        if !self.job.is_recording() {
            return;
        }
        self.job.set(semconv::JOB_TASKS, plan.tasks() as u64);
        self.job.set(semconv::JOB_ROLLOUTS, plan.rollouts.len() as u64);
        self.job.set(semconv::JOB_ROLLOUTS_SKIPPED, skipped as u64);
        self.job.set(semconv::JOB_CONCURRENCY, concurrency as u64);
    }

    /// Ends the job's span.
    pub fn finished(&mut self, done: u64, failed: u64, cancelled: bool) {
        let mut job = std::mem::replace(&mut self.job, Span::disabled());
        job.set(semconv::JOB_ROLLOUTS_DONE, done);
        job.set(semconv::JOB_ROLLOUTS_FAILED, failed);
        if cancelled {
            job.set(semconv::CANCELLED, true);
        }
        job.end();
    }

    /// Starts the span of one dispatch; its row is about to ask for a slot. It links to the job,
    /// and to the dispatch before it, whose `traceparent` is `earlier`.
    pub fn attempt(
        &self,
        rollout: &PlannedRollout,
        stamp: &Stamp,
        earlier: Option<&str>,
    ) -> Attempt {
        if !self.on {
            return Attempt {
                span: Span::disabled(),
                context: Context::empty(),
                over: false,
                counted: false,
            };
        }
        let ids = [
            (semconv::ROLLOUT_ID, rollout.wire_id(stamp)),
            (semconv::TASK_INDEX, rollout.task.to_string()),
            (semconv::ROLLOUT_INDEX, rollout.rollout.to_string()),
            (semconv::ATTEMPT_INDEX, rollout.attempt.to_string()),
            (semconv::COLLECTION_ID, self.collection_id.clone()),
        ];
        let context = Context::empty().with_baggage(&ids);
        let mut builder = Span::build(&groups::ROLLOUT, semconv::span::ROLLOUT_ATTEMPT)
            .kind(SpanKind::Internal)
            .parent(&context);
        if self.job_context.is_valid() {
            builder = builder.link(self.job_context);
        }
        if let Some(earlier) = earlier {
            let parent =
                |name: &str| (name == lens::env_vars::TRACEPARENT).then(|| earlier.to_owned());
            let earlier = Context::from_env(parent).span_context();
            if earlier.is_valid() {
                builder = builder.link(earlier);
            }
        }
        let span = builder.start();
        let context = context.with_span(&span);
        Attempt { span, context, over: false, counted: false }
    }
}

/// The span of one dispatch. Dropped before [`Attempt::ended`] it counts as cancelled.
#[derive(Debug)]
pub struct Attempt {
    span: Span,
    context: Context,
    over: bool,
    counted: bool,
}

/// How a dispatch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    Success,
    /// With the `error.type`.
    Failure(&'a str),
    /// With the `error.type`.
    Timeout(&'a str),
}

impl Attempt {
    /// The context in which the dispatch is made.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The `traceparent` of what the dispatch sends; `None` when nobody records it.
    pub fn traceparent(&self) -> Option<String> {
        let mut text = None;
        if self.span.is_recording() {
            self.context.inject(|name, value| {
                if name == TRACEPARENT.as_str() {
                    text = Some(value.to_owned());
                }
            });
        }
        text
    }

    /// The row has its slot.
    pub fn admitted(&mut self, waited: Duration) {
        self.span.set(
            semconv::ADMISSION_WAIT_NANOS,
            u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
        );
        ROLLOUT_IN_FLIGHT.add(1, &[]);
        self.counted = true;
    }

    /// Ends the span.
    pub fn ended(mut self, outcome: Outcome) {
        let (value, error_type) = match outcome {
            Outcome::Success => (semconv::value::outcome::SUCCESS, None),
            Outcome::Failure(error_type) => (semconv::value::outcome::FAILURE, Some(error_type)),
            Outcome::Timeout(error_type) => (semconv::value::outcome::TIMEOUT, Some(error_type)),
        };
        self.span.set(semconv::ROLLOUT_OUTCOME, value);
        if let Some(error_type) = error_type
            && self.span.is_recording()
        {
            self.span.set(semconv::ERROR_TYPE, error_type.to_owned());
            self.span.set_error(error_type.to_owned());
        }
        if let Some(error_type) = error_type
            && lens::logs::is_enabled()
        {
            let _current = self.context.clone().attach();
            let attributes = [
                (semconv::ROLLOUT_OUTCOME, value.into()),
                (semconv::ERROR_TYPE, error_type.to_owned().into()),
            ];
            let event = semconv::event::ROLLOUT_FAILED;
            gym_telemetry::record_warning(event, "a rollout has no result", &attributes);
        }
        self.over = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.counted {
            ROLLOUT_IN_FLIGHT.add(-1, &[]);
        }
        if !self.over {
            self.span.set(semconv::ROLLOUT_OUTCOME, semconv::value::outcome::CANCELLED);
            self.span.set(semconv::CANCELLED, true);
        }
    }
}
