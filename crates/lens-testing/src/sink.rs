//! An OTLP receiver in the test's process.
//!
//! It listens on two ports of 127.0.0.1, one for gRPC and one for HTTP, on a thread and runtime of its own, and can
//! be told how to answer.

mod grpc;
mod http_server;
mod receive;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lens_otlp::client::OBSERVE_HEADER;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::collected::{CollectedLog, CollectedSpan, decode, decode_logs};
use crate::numbers::{CollectedNumber, decode_numbers};

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

/// How the sink answers one request; without orders it accepts. Only what it accepts counts as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Accepts everything.
    Accept,
    /// Accepts all but so many items.
    Partial(u64),
    /// Accepts all but so many items, and says this about it.
    PartialSaying(u64, &'static str),
    /// HTTP: this status. gRPC: the code that maps to it is up to [`Reply::Grpc`], so the call gets this HTTP status.
    Http(u16),
    /// HTTP: this status with this `Retry-After`.
    HttpAfter(u16, &'static str),
    /// gRPC: this status code.
    Grpc(u32),
    /// gRPC: this status code with this message.
    GrpcSaying(u32, &'static str),
    /// gRPC: this status code with `RetryInfo` in its details: so long.
    GrpcRetryInfo(u32, Duration),
    /// gRPC: this status code with `grpc-retry-pushback-ms`: so long.
    GrpcPushback(u32, Duration),
    /// Accepts after so long, unless the sender went away meanwhile.
    Slow(Duration),
    /// Accepts requests up to so many bytes; HTTP 413 or gRPC's answer to a message that is too large beyond.
    UpTo(usize),
    /// Begins an answer and closes in the middle of it.
    CutOff,
    /// Success by its status, with a body that means nothing. HTTP: accepted.
    Garbage,
    /// Never answers.
    Hang,
}

/// One request as received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// What it carries.
    pub signal: Signal,
    /// Path of the request.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The export request as protobuf, decompressed.
    pub body: Vec<u8>,
}

/// What arrived and was accepted, by count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Spans.
    pub spans: u64,
    /// Metrics (by name, not by point).
    pub metrics: u64,
    /// Log records.
    pub logs: u64,
    /// Bytes of export requests.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Received {
    counts: Counts,
    requests: Vec<ReceivedRequest>,
    orders: VecDeque<Reply>,
    standing: Option<Reply>,
    tries: u64,
}

#[derive(Debug)]
struct Shared {
    received: Mutex<Received>,
    arrived: Condvar,
    keep: bool,
    /// Whether answers say that what is open is shown.
    observes: AtomicBool,
}

impl Shared {
    /// Puts into an answer what every answer has.
    fn sign<B>(&self, response: &mut http::Response<B>) {
        if self.observes.load(Ordering::Relaxed) {
            response.headers_mut().insert(OBSERVE_HEADER, http::HeaderValue::from_static("1"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Any port of this host.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running OTLP receiver; stops when dropped.
#[derive(Debug)]
pub struct OtlpSink {
    shared: Arc<Shared>,
    grpc: SocketAddr,
    http: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OtlpSink {
    /// A sink that keeps what it receives.
    ///
    /// # Errors
    ///
    /// When a port or thread cannot be had.
    pub fn start() -> io::Result<Self> {
        Self::start_with(true, [LOOPBACK; 2])
    }

    /// As [`OtlpSink::start`] at given addresses for gRPC and HTTP, e.g. those of a sink that went away.
    ///
    /// # Errors
    ///
    /// When a port or thread cannot be had.
    pub fn start_at(grpc: SocketAddr, http: SocketAddr) -> io::Result<Self> {
        Self::start_with(true, [grpc, http])
    }

    /// A sink that counts and forgets, for load.
    ///
    /// # Errors
    ///
    /// When a port or thread cannot be had.
    pub fn ack_only() -> io::Result<Self> {
        Self::start_with(false, [LOOPBACK; 2])
    }

    fn start_with(keep: bool, [grpc, http]: [SocketAddr; 2]) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            arrived: Condvar::new(),
            keep,
            observes: AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (grpc_listener, http_listener) = runtime.block_on(async {
            let grpc = TcpListener::bind(grpc).await?;
            let http = TcpListener::bind(http).await?;
            io::Result::Ok((grpc, http))
        })?;
        let (grpc, http) = (grpc_listener.local_addr()?, http_listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("otlp-sink".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::spawn(grpc::serve(grpc_listener, Arc::clone(&serving)));
                tokio::spawn(http_server::serve(http_listener, serving));
                // Dropped or told: either way it is over.
                let _ = stopped.await;
            });
        })?;
        Ok(Self { shared, grpc, http, stop: Some(stop), thread: Some(thread) })
    }

    /// `http://127.0.0.1:<port>` for OTLP/gRPC.
    pub fn grpc_endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// `http://127.0.0.1:<port>` for OTLP/HTTP, without a path.
    pub fn http_endpoint(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Where it listens for gRPC and HTTP.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.grpc, self.http)
    }

    /// Whether answers say, from now on, that this receiver shows what is open.
    pub fn observe(&self, observes: bool) {
        self.shared.observes.store(observes, Ordering::Relaxed);
    }

    /// How to answer every request for which there is no other order; `None` accepts again.
    pub fn answer_all_with(&self, reply: Option<Reply>) {
        self.shared.lock().standing = reply;
    }

    /// How to answer the next requests, in order.
    pub fn answer_with(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.lock().orders.extend(replies);
    }

    /// Requests that arrived, accepted or not.
    pub fn tries(&self) -> u64 {
        self.shared.lock().tries
    }

    /// What was accepted.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts
    }

    /// Accepted requests.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Accepted spans, in the order of arrival.
    ///
    /// # Panics
    ///
    /// When a request is malformed.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let received = self.shared.lock();
        let traces = received.requests.iter().filter(|request| request.signal == Signal::Traces);
        traces
            .flat_map(|request| match decode(&request.body) {
                Ok(spans) => spans,
                Err(error) => panic!("the sink received a malformed request: {error}"),
            })
            .collect()
    }

    /// Accepted log records, in the order of arrival.
    ///
    /// # Panics
    ///
    /// When a request is malformed.
    pub fn logs(&self) -> Vec<CollectedLog> {
        let received = self.shared.lock();
        let logs = received.requests.iter().filter(|request| request.signal == Signal::Logs);
        logs.flat_map(|request| match decode_logs(&request.body) {
            Ok(logs) => logs,
            Err(error) => panic!("the sink received a malformed request: {error}"),
        })
        .collect()
    }

    /// Points of accepted sums and gauges, in the order of arrival.
    ///
    /// # Panics
    ///
    /// When a request is malformed.
    pub fn numbers(&self) -> Vec<CollectedNumber> {
        let received = self.shared.lock();
        let metrics = received.requests.iter().filter(|request| request.signal == Signal::Metrics);
        metrics
            .flat_map(|request| match decode_numbers(&request.body) {
                Ok(numbers) => numbers,
                Err(error) => panic!("the sink received a malformed request: {error}"),
            })
            .collect()
    }

    /// Names of accepted metrics, sorted, each once.
    pub fn metric_names(&self) -> Vec<String> {
        let received = self.shared.lock();
        let metrics = received.requests.iter().filter(|request| request.signal == Signal::Metrics);
        let mut names: Vec<String> =
            metrics.flat_map(|request| receive::metric_names(&request.body)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Waits until so many spans were accepted; false when that takes longer.
    pub fn wait_for_spans(&self, spans: u64, timeout: Duration) -> bool {
        self.wait(timeout, |received| received.counts.spans >= spans)
    }

    /// Waits until so many requests arrived; false when that takes longer.
    pub fn wait_for_tries(&self, tries: u64, timeout: Duration) -> bool {
        self.wait(timeout, |received| received.tries >= tries)
    }

    fn wait(&self, timeout: Duration, done: impl Fn(&Received) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut received = self.shared.lock();
        while !done(&received) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.arrived.wait_timeout(received, left);
            received = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for OtlpSink {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
