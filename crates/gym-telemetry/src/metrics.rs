//! Gym's instruments.
//!
//! All of them are statics that do nothing while metrics are off.
//! Reward and accuracy are never among them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lens::metrics::{Counter, Gauge, Histogram, UpDownCounter};

use crate::semconv::{metric, sampled, unit};

/// Upper bounds in seconds that the HTTP conventions ask for.
pub const HTTP_DURATION_BOUNDS_SECONDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Upper bounds of what takes from milliseconds to an hour.
pub const WORK_BOUNDS_MILLIS: &[f64] = &[
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    120_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
    3_600_000.0,
];

/// Upper bounds of waits, from 10 µs to 30 s.
pub const WAIT_BOUNDS_MILLIS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0,
    1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0,
];

/// Upper bounds of body sizes.
pub const BODY_BOUNDS_BYTES: &[f64] = &[
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// A rollout in the agent's `/run`, also one that fails. No attributes.
pub static ROLLOUT_DURATION: Histogram = Histogram::with_bounds(
    metric::ROLLOUT_DURATION,
    unit::MILLIS,
    "Wall clock of a rollout in the agent server",
    WORK_BOUNDS_MILLIS,
);

/// Rollouts by [`crate::semconv::ROLLOUT_OUTCOME`].
pub static ROLLOUT_COMPLETED: Counter =
    Counter::new(metric::ROLLOUT_COMPLETED, unit::ROLLOUT, "Rollouts that ended, by outcome");

/// Rollouts that the driver has under way. No attributes.
pub static ROLLOUT_IN_FLIGHT: UpDownCounter = UpDownCounter::new(
    metric::ROLLOUT_IN_FLIGHT,
    unit::ROLLOUT,
    "Rollouts dispatched and not yet ended",
);

/// A verification. No attributes.
pub static VERIFY_DURATION: Histogram = Histogram::with_bounds(
    metric::VERIFY_DURATION,
    unit::MILLIS,
    "Wall clock of a verification",
    WORK_BOUNDS_MILLIS,
);

/// Share of verifications that completed; written by [`record_verification`].
pub static VERIFY_SUCCESS_RATE: Gauge = Gauge::new(
    metric::VERIFY_SUCCESS_RATE,
    unit::RATIO,
    "Share of verifications that returned a score, whatever it was",
);

/// Servers of the fleet: their count after start-up, 0 at shutdown. Supervisor only.
pub static SERVERS_ACTIVE: Gauge =
    Gauge::new(metric::SERVERS_ACTIVE, unit::SERVER, "Servers that the fleet runs");

/// A server's start, by server name and type.
pub static SERVER_STARTUP_DURATION: Histogram = Histogram::with_bounds(
    metric::SERVER_STARTUP_DURATION,
    unit::MILLIS,
    "From the spawn of a server to its readiness",
    WORK_BOUNDS_MILLIS,
);

/// One stage of a start, by stage.
pub static SERVER_STARTUP_STAGE_DURATION: Histogram = Histogram::with_bounds(
    metric::SERVER_STARTUP_STAGE_DURATION,
    unit::MILLIS,
    "One stage of a start",
    WORK_BOUNDS_MILLIS,
);

/// A model call, by dialect and server name.
pub static MODEL_CALL_DURATION: Histogram = Histogram::with_bounds(
    metric::MODEL_CALL_DURATION,
    unit::MILLIS,
    "Wall clock of a model call in the model server",
    WORK_BOUNDS_MILLIS,
);

/// The first byte of a model call's reply, by dialect and server name.
pub static MODEL_TIME_TO_FIRST_BYTE: Histogram = Histogram::with_bounds(
    metric::MODEL_TIME_TO_FIRST_BYTE,
    unit::MILLIS,
    "From the request to the first byte of the model's reply",
    WORK_BOUNDS_MILLIS,
);

/// The wait for a semaphore, by site. Only with group `concurrency`.
pub static CONCURRENCY_QUEUE_WAIT: Histogram = Histogram::with_bounds(
    metric::CONCURRENCY_QUEUE_WAIT,
    unit::MILLIS,
    "Wait for a limit on concurrency",
    WAIT_BOUNDS_MILLIS,
);

/// The wait for a pooled connection; one sample for each acquisition that queued.
pub static HTTP_POOL_QUEUE: Histogram = Histogram::with_bounds(
    metric::HTTP_POOL_QUEUE,
    unit::MILLIS,
    "Wait for a connection of the pool",
    WAIT_BOUNDS_MILLIS,
);

/// Attempts that were repeated, by reason.
pub static HTTP_RETRY_TOTAL: Counter =
    Counter::new(metric::HTTP_RETRY_TOTAL, unit::ATTEMPT, "Attempts repeated, by reason");

/// Requests that ran out of time.
pub static HTTP_TIMEOUT_TOTAL: Counter =
    Counter::new(metric::HTTP_TIMEOUT_TOTAL, unit::REQUEST, "Requests that ran out of time");

/// A request on the server, seconds, by method, route, status, …
pub static HTTP_SERVER_DURATION: Histogram = Histogram::with_bounds(
    metric::HTTP_SERVER_REQUEST_DURATION,
    unit::SECONDS,
    "Duration of HTTP server requests",
    HTTP_DURATION_BOUNDS_SECONDS,
);

/// Requests that a server has under way.
pub static HTTP_SERVER_ACTIVE_REQUESTS: UpDownCounter = UpDownCounter::new(
    metric::HTTP_SERVER_ACTIVE_REQUESTS,
    unit::REQUEST,
    "Number of active HTTP server requests",
);

/// Bodies of requests on the server.
pub static HTTP_SERVER_REQUEST_BODY_SIZE: Histogram = Histogram::with_bounds(
    metric::HTTP_SERVER_REQUEST_BODY_SIZE,
    unit::BYTES,
    "Size of HTTP server request bodies",
    BODY_BOUNDS_BYTES,
);

/// Bodies of responses of the server.
pub static HTTP_SERVER_RESPONSE_BODY_SIZE: Histogram = Histogram::with_bounds(
    metric::HTTP_SERVER_RESPONSE_BODY_SIZE,
    unit::BYTES,
    "Size of HTTP server response bodies",
    BODY_BOUNDS_BYTES,
);

/// A request on the client, seconds.
pub static HTTP_CLIENT_DURATION: Histogram = Histogram::with_bounds(
    metric::HTTP_CLIENT_REQUEST_DURATION,
    unit::SECONDS,
    "Duration of HTTP client requests",
    HTTP_DURATION_BOUNDS_SECONDS,
);

/// CPU of this process over the last interval, in percent of one core. Written at the end of a span.
pub static PROCESS_CPU_PERCENT: Gauge = Gauge::new(
    sampled::PROCESS_CPU_PERCENT,
    unit::PERCENT,
    "CPU of the process over the last interval; 100 is one core",
);

/// Memory of the host in use. Written at the end of a span.
pub static HOST_MEMORY_USED_MIB: Gauge =
    Gauge::new(sampled::HOST_MEMORY_USED_MIB, unit::MEBIBYTES, "Memory of the host in use");

/// Memory of the host. Written at the end of a span.
pub static HOST_MEMORY_TOTAL_MIB: Gauge =
    Gauge::new(sampled::HOST_MEMORY_TOTAL_MIB, unit::MEBIBYTES, "Memory of the host");

/// Upper bounds of a sandbox's start, from 250 ms to 30 min.
pub const SANDBOX_STARTUP_BOUNDS_MILLIS: &[f64] = &[
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    120_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
];

/// Sandboxes that run, by [`crate::semconv::SANDBOX_PROVIDER`] like all of these.
pub static SANDBOX_ACTIVE: UpDownCounter =
    UpDownCounter::new(metric::SANDBOX_ACTIVE, unit::SANDBOX, "Sandboxes that run");

/// The start of a sandbox with its retries, when it succeeded.
pub static SANDBOX_STARTUP_DURATION: Histogram = Histogram::with_bounds(
    metric::SANDBOX_STARTUP_DURATION,
    unit::MILLIS,
    "Duration of the start of a sandbox",
    SANDBOX_STARTUP_BOUNDS_MILLIS,
);

/// A command in a sandbox, however it ended.
pub static SANDBOX_EXEC_DURATION: Histogram = Histogram::with_bounds(
    metric::SANDBOX_EXEC_DURATION,
    unit::MILLIS,
    "Duration of a command in a sandbox",
    WORK_BOUNDS_MILLIS,
);

/// Tries after the first.
pub static SANDBOX_CREATE_RETRY: Counter = Counter::new(
    metric::SANDBOX_CREATE_RETRY,
    unit::ATTEMPT,
    "Starts of a sandbox that were tried again",
);

/// A duration as the millisecond histograms take it.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Records one verification: its duration, and the share that completed so far in this process.
///
/// A wrong answer that was scored completed; an error did not.
pub fn record_verification(duration: Duration, completed: bool) {
    static COMPLETED: AtomicU64 = AtomicU64::new(0);
    static ENDED: AtomicU64 = AtomicU64::new(0);
    let good = COMPLETED.fetch_add(u64::from(completed), Ordering::Relaxed) + u64::from(completed);
    let ended = ENDED.fetch_add(1, Ordering::Relaxed) + 1;
    VERIFY_DURATION.record(millis(duration), &[]);
    VERIFY_SUCCESS_RATE.set(success_rate(good, ended), &[]);
}

fn success_rate(completed: u64, ended: u64) -> f64 {
    // Two counters are read one after the other: a racing thread must not push the share past 1.
    (completed as f64 / ended as f64).min(1.0)
}
