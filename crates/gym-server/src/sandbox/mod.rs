//! Sandboxes: where a tool runs commands that a model wrote.
//!
//! A [`Provider`] makes them; [`start`] and [`Sandbox`] are how they are used, and make the spans and metrics, so that
//! a provider contains none of that. It is a module of this crate because tools of resources servers are its users, and
//! [`local`] needs nothing that the crate does not have already.
//!
//! # Guarantees
//!
//! * A command, its arguments and its output are in no span, metric, log record or error.
//! * What is dropped, also in the middle of a command, is stopped.

pub mod local;

use std::ffi::OsString;
use std::future::Future;
use std::time::{Duration, Instant};

use gym_telemetry::groups::SANDBOX;
use gym_telemetry::{metrics, semconv};
use lens::{Context, InSpan as _, Span, Value};

pub use local::LocalProcesses;

/// Makes sandboxes.
pub trait Provider: Send + Sync {
    /// What it makes.
    type Running: Running;

    /// What the provider is called in telemetry: one of a few fixed words.
    fn name(&self) -> &'static str;

    /// Makes one.
    fn create(&self) -> impl Future<Output = Result<Self::Running, SandboxError>> + Send;
}

/// One sandbox as its provider sees it. When it is dropped, it and all that runs in it must go, without waiting.
pub trait Running: Send {
    /// Runs a command to its end, within the limits. When the future is dropped, the command must end.
    fn run(
        &mut self,
        command: &Command,
        limits: &Limits,
    ) -> impl Future<Output = Result<Output, SandboxError>> + Send;

    /// Ends it and removes what it left.
    fn stop(self) -> impl Future<Output = ()> + Send;
}

/// A program with its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Command {
    /// A program, searched for in the sandbox's `PATH`.
    pub fn new(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments }
    }

    /// Text for `sh`.
    pub fn shell(text: &str) -> Self {
        Self::new("sh", ["-c", text])
    }
}

impl std::fmt::Debug for Command {
    /// Says nothing: what a model wrote is content.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Command(…)")
    }
}

/// What a command may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall clock until everything that it started is killed.
    pub wall: Duration,
    /// CPU time of one process, in whole seconds.
    pub cpu: Duration,
    /// Address space of one process.
    pub memory_bytes: u64,
    /// Bytes of a file that one process writes.
    pub file_bytes: u64,
    /// Bytes kept of each of its two streams; the rest is read and thrown away.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(30),
            cpu: Duration::from_secs(20),
            memory_bytes: 1 << 30,
            file_bytes: 64 << 20,
            output_bytes: 64 << 10,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited,
    /// By a signal.
    Signalled,
    /// Killed: its wall clock was up.
    TimedOut,
    /// Killed: its CPU time was up.
    OutOfCpu,
}

impl Ended {
    /// The class of failure; none when it ended by itself, whatever it returned.
    #[must_use]
    pub fn error_type(self) -> Option<&'static str> {
        match self {
            Self::Exited => None,
            Self::Signalled => Some(semconv::value::sandbox_error::SIGNAL),
            Self::TimedOut => Some(semconv::value::sandbox_error::TIMEOUT),
            Self::OutOfCpu => Some(semconv::value::sandbox_error::CPU_LIMIT),
        }
    }
}

/// One stream of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Whether there was more.
    pub is_truncated: bool,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What it returned; 128 and the signal when one ended it, as shells have it.
    pub return_code: i32,
    /// How it ended.
    pub ended: Ended,
    /// What it wrote.
    pub stdout: Stream,
    /// What it complained about.
    pub stderr: Stream,
}

/// A sandbox that cannot be had or used. Says nothing of commands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// It could not be made; another try may do.
    #[error("the sandbox cannot be created")]
    Create(#[source] std::io::Error),
    /// The command could not be started.
    #[error("the command cannot be started")]
    Spawn(#[source] std::io::Error),
    /// The command could not be followed to its end.
    #[error("the command cannot be waited for")]
    Wait(#[source] std::io::Error),
}

impl SandboxError {
    /// The class of failure.
    #[must_use]
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Create(_) => semconv::value::sandbox_error::CREATE,
            Self::Spawn(_) => semconv::value::sandbox_error::SPAWN,
            Self::Wait(_) => semconv::value::sandbox_error::WAIT,
        }
    }
}

/// How often a sandbox that cannot be made is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Tries in all.
    pub tries: u32,
    /// Pause after the first; it doubles.
    pub pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { tries: 3, pause: Duration::from_millis(100) }
    }
}

/// One more or one less sandbox, for whoever counts.
#[derive(Debug)]
struct Active(&'static str);

impl Active {
    fn new(provider: &'static str) -> Self {
        metrics::SANDBOX_ACTIVE.add(1, &labels(provider));
        Self(provider)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        metrics::SANDBOX_ACTIVE.add(-1, &labels(self.0));
    }
}

fn labels(provider: &'static str) -> [(&'static str, Value); 1] {
    [(semconv::SANDBOX_PROVIDER, Value::from_static(provider))]
}

/// A span that says so when what it covers was dropped before its end.
struct Watched {
    span: Span,
    is_done: bool,
}

impl Watched {
    fn start(name: &'static str, provider: &'static str) -> Self {
        let mut span = Span::start(&SANDBOX, name);
        span.set(semconv::SANDBOX_PROVIDER, provider);
        Self { span, is_done: false }
    }

    /// The context of what the provider itself does.
    fn context(&self) -> Context {
        Context::current().with_span(&self.span)
    }

    fn fail(&mut self, error_type: &'static str) {
        self.span.set(semconv::SANDBOX_ERROR_TYPE, error_type);
        self.span.set(semconv::ERROR_TYPE, error_type);
        self.span.set_error(error_type);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.is_done && self.span.is_recording() {
            self.span.set(semconv::CANCELLED, true);
        }
    }
}

/// A sandbox that runs, with spans and metrics.
#[derive(Debug)]
pub struct Sandbox<R> {
    running: R,
    provider: &'static str,
    _active: Active,
}

/// Starts a sandbox, trying again what is worth it.
///
/// # Errors
///
/// That of the last try.
pub async fn start<P: Provider>(
    provider: &P,
    retries: Retries,
) -> Result<Sandbox<P::Running>, SandboxError> {
    let name = provider.name();
    let mut watched = Watched::start(semconv::span::SANDBOX_START, name);
    let since = Instant::now();
    let mut pause = retries.pause;
    let mut tries = 1;
    let result = loop {
        match provider.create().in_context(watched.context()).await {
            Err(SandboxError::Create(_)) if tries < retries.tries => {
                tries += 1;
                metrics::SANDBOX_CREATE_RETRY.add(1, &labels(name));
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            result => break result,
        }
    };
    watched.is_done = true;
    match result {
        Ok(running) => {
            metrics::SANDBOX_STARTUP_DURATION
                .record(metrics::millis(since.elapsed()), &labels(name));
            Ok(Sandbox { running, provider: name, _active: Active::new(name) })
        }
        Err(error) => {
            watched.fail(error.error_type());
            Err(error)
        }
    }
}

impl<R: Running> Sandbox<R> {
    /// Runs a command to its end, within the limits. Dropping the future ends the command.
    ///
    /// # Errors
    ///
    /// When it could not be started or followed. A command that fails or runs into a limit is no error.
    pub async fn exec(
        &mut self,
        command: &Command,
        limits: &Limits,
    ) -> Result<Output, SandboxError> {
        let mut watched = Watched::start(semconv::span::SANDBOX_EXEC, self.provider);
        let since = Instant::now();
        let result = self.running.run(command, limits).in_context(watched.context()).await;
        watched.is_done = true;
        metrics::SANDBOX_EXEC_DURATION
            .record(metrics::millis(since.elapsed()), &labels(self.provider));
        match &result {
            Ok(output) => {
                watched.span.set(semconv::SANDBOX_RETURN_CODE, i64::from(output.return_code));
                if let Some(error_type) = output.ended.error_type() {
                    watched.fail(error_type);
                }
            }
            Err(error) => watched.fail(error.error_type()),
        }
        result
    }

    /// Ends it and removes what it left.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}
