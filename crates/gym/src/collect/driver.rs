//! Keeps a bounded number of rollouts in flight and gives every one of them a line.
//!
//! As many tasks as may be in flight, plus a few that already wait for a slot, take one row after another from the
//! materialised inputs. A finished task leaves its line in a buffer; one writer task writes what has gathered since it
//! last ran, so that under load many lines share a write and at rest every line is written at once. A rollout counts
//! as done when its line is in the file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gym_telemetry::concurrency::Site;
use gym_telemetry::semconv::value::concurrency_site;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::cancel::{Cancel, Stop};
use super::dispatch::{AgentReply, Dispatch, DispatchError, class};
use super::error::CollectError;
use super::members::json_string;
use super::metrics::MetricsBodies;
use super::output::LineFile;
use super::plan::{Plan, PlannedRollout, Stamp, keys};
use super::refusal;
use super::reply::{Reply, Route, Stamped, failure_line_into};
use super::stats::Stats;
use super::telemetry::{Attempt, Outcome, RunTelemetry};

/// Rows that wait for a slot at most.
const MAX_LOOK_AHEAD: usize = 64;
/// Bytes of lines that wait for the writer at most; whoever brings more writes himself.
const MAX_PENDING_BYTES: usize = 8 * 1024 * 1024;

static ADMISSION: Site = Site::new(concurrency_site::DRIVER_ADMISSION);

/// How the driver drives.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Rollouts in flight at most.
    pub concurrency: usize,
    /// How long a rollout may take once it is admitted.
    pub rollout_timeout: Option<Duration>,
    /// How long rollouts in flight may go on after a gentle stop.
    pub stop_grace: Duration,
}

/// What a run writes and counts.
#[derive(Debug)]
pub struct Sink {
    pub output: LineFile,
    pub failures: LineFile,
    pub stats: Stats,
    pub metrics: Option<MetricsBodies>,
}

impl Sink {
    fn flush(&mut self) -> Result<(), CollectError> {
        // A full output must not keep the failures from being written.
        let output = self.output.flush();
        let failures = self.failures.flush();
        output.and(failures)
    }
}

/// What the run looks like from outside while it is going on.
#[derive(Debug, Default)]
pub struct Counters {
    /// Results and failures whose lines are in their files.
    pub done: AtomicU64,
    pub failed: AtomicU64,
    /// Rollouts that hold a slot.
    pub in_flight: AtomicU64,
}

/// A run that is about to go on.
pub struct Driver<D> {
    shared: Arc<Shared<D>>,
    limits: Limits,
    planned: u64,
}

struct Shared<D> {
    dispatch: D,
    telemetry: RunTelemetry,
    stamps: Vec<Stamp>,
    earlier: HashMap<(u64, u64), String>,
    source: Mutex<RowSource>,
    slots: Semaphore,
    sink: Mutex<Sink>,
    counters: Arc<Counters>,
    line_waits: Notify,
    broken: Notify,
    failure: Mutex<Option<CollectError>>,
    stopping: AtomicBool,
    rollout_timeout: Option<Duration>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Driven<D> {
    pub sink: Sink,
    pub dispatch: D,
    pub telemetry: RunTelemetry,
    /// Rollouts that were planned and not made.
    pub unmade: u64,
    /// What broke it.
    pub failure: Option<CollectError>,
}

impl<D: Dispatch> Driver<D> {
    /// Prepares to make the rollouts of `plan`, whose rows lie in the file at `rows`.
    pub fn new(
        dispatch: D,
        plan: Plan,
        rows: PathBuf,
        sink: Sink,
        telemetry: RunTelemetry,
        limits: Limits,
    ) -> Result<Driver<D>, CollectError> {
        let Plan { rollouts, stamps, earlier, .. } = plan;
        let planned = rollouts.len() as u64;
        let shared = Shared {
            dispatch,
            telemetry,
            stamps,
            earlier,
            source: Mutex::new(RowSource::open(rows, rollouts)?),
            slots: Semaphore::new(limits.concurrency.min(Semaphore::MAX_PERMITS)),
            sink: Mutex::new(sink),
            counters: Arc::default(),
            line_waits: Notify::new(),
            broken: Notify::new(),
            failure: Mutex::new(None),
            stopping: AtomicBool::new(false),
            rollout_timeout: limits.rollout_timeout,
        };
        Ok(Driver { shared: Arc::new(shared), limits, planned })
    }

    /// What can be seen of the run from outside.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Makes the rollouts. Whatever happens, the files hold whole lines at the end; a panic goes on then.
    pub async fn run(self, cancel: Cancel) -> Driven<D> {
        let Driver { shared, limits, planned } = self;
        let look_ahead = (limits.concurrency / 4).clamp(1, MAX_LOOK_AHEAD);
        let workers = planned.min(limits.concurrency.saturating_add(look_ahead) as u64);
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(worker(Arc::clone(&shared)));
        }
        let writer = tokio::spawn(write_lines(Arc::clone(&shared)));

        let gently = async |mut cancel: Cancel| cancel.reached(Stop::Gently).await;
        let stop_is_asked = gently(cancel.clone());
        let grace_is_over = async {
            gently(cancel.clone()).await;
            tokio::time::sleep(limits.stop_grace).await;
        };
        let abort_is_asked = async { cancel.clone().reached(Stop::Now).await };
        tokio::pin!(stop_is_asked, grace_is_over, abort_is_asked);
        let mut stopping = false;
        let mut panic = None;
        loop {
            tokio::select! {
                biased;
                () = shared.broken.notified() => break,
                () = &mut abort_is_asked => break,
                () = &mut stop_is_asked, if !stopping => {
                    stopping = true;
                    shared.stop_admitting();
                }
                () = &mut grace_is_over => break,
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(Err(error)) if error.is_panic() => {
                        panic = Some(error.into_panic());
                        break;
                    }
                    Some(_) => {}
                }
            }
        }
        shared.stop_admitting();
        tasks.shutdown().await;
        writer.abort();
        let _ = writer.await;
        shared.flush();
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }

        let shared = Arc::into_inner(shared).expect("every task that shared it has ended");
        let sink = shared.sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        let made = sink.output.lines() + sink.failures.lines() + sink.stats.not_kept;
        Driven {
            unmade: planned.saturating_sub(made),
            sink,
            dispatch: shared.dispatch,
            telemetry: shared.telemetry,
            failure: shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl<D> Shared<D> {
    fn stop_admitting(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.slots.close();
    }

    fn fail(&self, error: CollectError) {
        lock(&self.failure).get_or_insert(error);
        self.stop_admitting();
        self.broken.notify_one();
    }

    fn next_row(&self) -> Option<(PlannedRollout, Bytes)> {
        if self.stopping.load(Ordering::Relaxed) {
            return None;
        }
        match lock(&self.source).next() {
            None => None,
            Some(Ok(row)) => Some(row),
            Some(Err(error)) => {
                self.fail(error);
                None
            }
        }
    }

    /// Writes what waits and shows it to observers.
    fn flush(&self) {
        let mut sink = lock(&self.sink);
        let flushed = sink.flush();
        self.counters.done.store(sink.output.lines(), Ordering::Relaxed);
        self.counters.failed.store(sink.failures.lines(), Ordering::Relaxed);
        drop(sink);
        if let Err(error) = flushed {
            self.fail(error);
        }
    }

    /// Gives a rollout its line; says how it ended.
    fn take_in(
        &self,
        rollout: &PlannedRollout,
        row: &[u8],
        answer: Result<AgentReply, DispatchError>,
        took: Duration,
        attempt: &Attempt,
    ) -> RolloutEnd {
        let stamp = &self.stamps[rollout.stamp as usize];
        let mut sink = lock(&self.sink);
        let end = match answer {
            Ok(reply) if (200..300).contains(&reply.status) => match Reply::parse(&reply.body) {
                Ok(result) => sink.result(rollout, stamp, &result, took, attempt),
                Err(reason) => sink.failure(
                    rollout,
                    stamp,
                    row,
                    (class::INVALID_REPLY, class::INVALID_REPLY),
                    &reason,
                    attempt,
                ),
            },
            Ok(AgentReply { status, body, error_type }) => {
                let message = format!("the agent answered {status}: {}", refusal::told(&body));
                let error_type = error_type.unwrap_or_else(|| status.to_string());
                let kind = (class::HTTP_ERROR, error_type.as_str());
                sink.failure(rollout, stamp, row, kind, &message, attempt)
            }
            Err(error) => {
                let kind = (error.class, error.error_type.as_str());
                sink.failure(rollout, stamp, row, kind, &error.message, attempt)
            }
        };
        let waiting = sink.output.pending_bytes() + sink.failures.pending_bytes();
        drop(sink);
        if waiting > MAX_PENDING_BYTES {
            self.flush();
        } else if waiting > 0 {
            self.line_waits.notify_one();
        }
        end
    }
}

enum RolloutEnd {
    Success,
    Failure(String),
    Timeout(String),
}

impl Sink {
    fn result(
        &mut self,
        rollout: &PlannedRollout,
        stamp: &Stamp,
        result: &Reply,
        took: Duration,
        attempt: &Attempt,
    ) -> RolloutEnd {
        let stamped = Stamped::new(rollout, stamp);
        let mut changes = stamped.changes();
        match result.route {
            Route::Output => {
                result.line_into(&changes, self.output.line());
                self.output.line_ended();
                self.stats.duration(took);
                for (name, number) in result.numbers() {
                    self.stats.number(name, number);
                }
                if let Some(metrics) = &mut self.metrics {
                    metrics.add(
                        &stamp.agent,
                        (rollout.task, u64::from(rollout.rollout)),
                        result.members(),
                        &changes,
                    );
                }
                RolloutEnd::Success
            }
            Route::Failures => {
                let parent = self.traced_failure(rollout, stamp, attempt);
                let parent = parent.as_deref().map(json_string);
                changes.extend(parent.as_deref().map(|parent| (keys::TRACEPARENT, parent)));
                result.line_into(&changes, self.failures.line());
                self.failures.line_ended();
                let class = result.failure_class();
                let message = result.failure_message();
                self.stats.failure(&class, || rollout.wire_id(stamp), &message);
                RolloutEnd::Failure(class)
            }
            Route::Nowhere => {
                self.stats.not_kept += 1;
                RolloutEnd::Failure(keys::NO_PERSIST.to_owned())
            }
        }
    }

    fn failure(
        &mut self,
        rollout: &PlannedRollout,
        stamp: &Stamp,
        row: &[u8],
        (class, error_type): (&str, &str),
        message: &str,
        attempt: &Attempt,
    ) -> RolloutEnd {
        let parent = self.traced_failure(rollout, stamp, attempt);
        failure_line_into(row, class, message, parent.as_deref(), self.failures.line());
        self.failures.line_ended();
        self.stats.failure(class, || rollout.wire_id(stamp), message);
        if class == class::TIMEOUT || gym_server::client::names_a_timeout(error_type) {
            RolloutEnd::Timeout(error_type.to_owned())
        } else {
            RolloutEnd::Failure(error_type.to_owned())
        }
    }

    /// Notes the trace of a rollout that failed, and says what its line remembers of it.
    fn traced_failure(
        &mut self,
        rollout: &PlannedRollout,
        stamp: &Stamp,
        attempt: &Attempt,
    ) -> Option<String> {
        let parent = attempt.traceparent()?;
        let trace_id = parent.split('-').nth(1).unwrap_or_default().to_owned();
        self.stats.failed_trace(|| rollout.wire_id(stamp), trace_id);
        Some(parent)
    }
}

/// Makes one rollout after the other until there are no more.
async fn worker<D: Dispatch>(shared: Arc<Shared<D>>) {
    while let Some((rollout, row)) = shared.next_row() {
        let stamp = &shared.stamps[rollout.stamp as usize];
        let earlier = shared.earlier.get(&(rollout.task, u64::from(rollout.rollout)));
        let mut attempt: Attempt =
            shared.telemetry.attempt(&rollout, stamp, earlier.map(String::as_str));
        let asked = Instant::now();
        let Ok(slot) = ADMISSION.wait(shared.slots.acquire()).await else { return };
        let admitted = Instant::now();
        attempt.admitted(admitted - asked);
        let in_flight = InFlight::enter(&shared.counters);
        let sent = shared.dispatch.run(&stamp.agent, row.clone(), attempt.context());
        let answer = match shared.rollout_timeout {
            None => sent.await,
            Some(limit) => {
                tokio::time::timeout(limit, sent).await.unwrap_or_else(|_| Err(timed_out(limit)))
            }
        };
        drop(slot);
        match shared.take_in(&rollout, &row, answer, admitted.elapsed(), &attempt) {
            RolloutEnd::Success => attempt.ended(Outcome::Success),
            RolloutEnd::Failure(error_type) => attempt.ended(Outcome::Failure(&error_type)),
            RolloutEnd::Timeout(error_type) => attempt.ended(Outcome::Timeout(&error_type)),
        }
        drop(in_flight);
    }
}

fn timed_out(limit: Duration) -> DispatchError {
    DispatchError {
        class: class::TIMEOUT,
        error_type: class::TIMEOUT.to_owned(),
        message: format!("the rollout took longer than {limit:?}"),
    }
}

async fn write_lines<D>(shared: Arc<Shared<D>>) {
    loop {
        shared.line_waits.notified().await;
        shared.flush();
    }
}

struct InFlight<'a>(&'a Counters);

impl<'a> InFlight<'a> {
    fn enter(counters: &'a Counters) -> Self {
        counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(counters)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads the planned rows one after another.
struct RowSource {
    path: PathBuf,
    reader: BufReader<File>,
    at: u64,
    rollouts: std::vec::IntoIter<PlannedRollout>,
}

impl RowSource {
    fn open(path: PathBuf, rollouts: Vec<PlannedRollout>) -> Result<RowSource, CollectError> {
        let file = File::open(&path).map_err(CollectError::read(&path))?;
        let reader = BufReader::with_capacity(256 * 1024, file);
        Ok(RowSource { path, reader, at: 0, rollouts: rollouts.into_iter() })
    }

    fn next(&mut self) -> Option<Result<(PlannedRollout, Bytes), CollectError>> {
        let rollout = self.rollouts.next()?;
        let row = self.read(&rollout).map_err(CollectError::read(&self.path));
        Some(row.map(|row| (rollout, row)))
    }

    fn read(&mut self, rollout: &PlannedRollout) -> std::io::Result<Bytes> {
        let distance = rollout.offset as i64 - self.at as i64;
        if distance != 0 {
            self.reader.seek_relative(distance)?;
        }
        let attempt = match rollout.attempt {
            0 => String::new(),
            attempt => format!(",\"{}\":{attempt}}}", keys::ATTEMPT_INDEX),
        };
        let len = rollout.len as usize;
        let mut row = Vec::with_capacity(len + attempt.len());
        row.resize(len, 0);
        self.reader.read_exact(&mut row)?;
        self.at = rollout.offset + u64::from(rollout.len);
        if !attempt.is_empty() {
            // Rows of a plan are compact objects with members: the brace is the last byte.
            row.pop();
            row.extend_from_slice(attempt.as_bytes());
        }
        Ok(row.into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
