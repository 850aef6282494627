//! One connection: which protocol it speaks, how long it may be silent, and how it ends.
//!
//! Both protocols are answered on either port. Sending to the port of the other is the most common mistake with OTLP,
//! and the first bytes of a connection tell which it is.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::serve::Shared;

/// Ticks without a request after which a connection is closed.
pub(super) const TICKS_OF_SILENCE: u32 = 4;
/// How a connection of HTTP/2 begins.
const HTTP2_PREFACE: &[u8; 4] = b"PRI ";
/// A connection that has sent nothing is not closed to make room before this: it may just not have been looked at.
const SHED_AFTER: Duration = Duration::from_secs(1);
/// Between two looks at a connection that has sent a part of that.
const PEEK_PAUSE: Duration = Duration::from_millis(5);
/// Bytes that may come in a request on a connection of HTTP/2 before they are asked for, and in all its requests: what
/// one may hold besides the budget. Where the second is near its end a sender cuts a body into frames, so it has room
/// for those that usual senders have on their way together.
const WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// A body that comes in one frame is kept where it was read to; one that comes in several is put together. A usual
/// request of 512 spans fits.
const FRAME_BYTES: u32 = 512 << 10;
const CONCURRENT_STREAMS: u32 = 128;
const HEADER_BYTES: u32 = 16 << 10;
/// HTTP/1.1 reads at most this much at once, and holds as much.
const READ_BUFFER_BYTES: usize = 128 << 10;
/// A connection that was asked to end is dropped after this: its peer may be gone, or never read.
const LINGER: Duration = Duration::from_secs(10);

/// What all connections are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Time passes; others are waiting for a connection when `sheds` grows.
    Run { ticks: u64, sheds: u64 },
    /// Finish what is in flight.
    Stop,
}

impl Default for Signal {
    fn default() -> Self {
        Self::Run { ticks: 0, sheds: 0 }
    }
}

/// Requests that a connection began and finished.
#[derive(Default)]
struct Activity {
    begun: AtomicU64,
    finished: AtomicU64,
}

impl Activity {
    /// What was begun so far; `None` while something is in flight.
    fn at_rest(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Relaxed);
        (self.finished.load(Ordering::Relaxed) == begun).then_some(begun)
    }
}

/// Counts a request as finished, however it ends.
struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    mut signals: watch::Receiver<Signal>,
) {
    let _ = stream.set_nodelay(true);
    let Some(is_http2) = speaks_http2(&stream, &mut signals).await else { return };
    let activity = Arc::new(Activity::default());
    let counted = Arc::clone(&activity);
    let serving = Arc::clone(&shared);
    let service = service_fn(move |request| {
        counted.begun.fetch_add(1, Ordering::Relaxed);
        let in_flight = InFlight(Arc::clone(&counted));
        let shared = Arc::clone(&serving);
        async move {
            let _in_flight = in_flight;
            Ok::<_, Infallible>(shared.answer(request).await)
        }
    });
    let io = TokioIo::new(stream);
    let mut silence = Silence {
        activity,
        shared,
        ticks: Watched::default(),
        sheds: Watched::default(),
        begun: Instant::now(),
    };
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_concurrent_streams(CONCURRENT_STREAMS)
            .max_header_list_size(HEADER_BYTES)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        if until_end(connection.as_mut(), &mut signals, &mut silence).await {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LINGER, connection).await;
        }
    } else {
        let connection =
            http1::Builder::new().max_buf_size(READ_BUFFER_BYTES).serve_connection(io, service);
        let mut connection = pin!(connection);
        if until_end(connection.as_mut(), &mut signals, &mut silence).await {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LINGER, connection).await;
        }
    }
}

/// By the first bytes; `None` when nothing comes.
async fn speaks_http2(stream: &TcpStream, signals: &mut watch::Receiver<Signal>) -> Option<bool> {
    let begun = (Instant::now(), *signals.borrow_and_update());
    let mut first = [0; HTTP2_PREFACE.len()];
    loop {
        let peeked = tokio::select! {
            biased;
            peeked = stream.peek(&mut first) => peeked,
            signal = silent_for_long(signals, begun) => return signal,
        };
        match peeked {
            Ok(0) | Err(_) => return None,
            Ok(count) if count == first.len() => return Some(&first == HTTP2_PREFACE),
            Ok(count) if !HTTP2_PREFACE.starts_with(&first[..count]) => return Some(false),
            // Peeking again would return at once.
            Ok(_) => tokio::select! {
                () = tokio::time::sleep(PEEK_PAUSE) => {}
                signal = silent_for_long(signals, begun) => return signal,
            },
        }
    }
}

/// Ends when a connection that has sent nothing should be closed.
async fn silent_for_long(
    signals: &mut watch::Receiver<Signal>,
    (since, begun): (Instant, Signal),
) -> Option<bool> {
    let is_over = |signal: &Signal| match (begun, signal) {
        (Signal::Run { ticks: from, sheds: shed }, Signal::Run { ticks, sheds }) => {
            let is_shed = *sheds > shed && since.elapsed() >= SHED_AFTER;
            is_shed || ticks - from >= u64::from(TICKS_OF_SILENCE)
        }
        _ => true,
    };
    let _ = signals.wait_for(is_over).await;
    None
}

/// How often a count was seen to change while nothing was requested.
#[derive(Default)]
struct Watched {
    count: u64,
    at_rest_since: Option<u64>,
    changes: u32,
}

impl Watched {
    /// Notes the count; how many changes the connection has been silent for.
    fn see(&mut self, count: u64, at_rest: Option<u64>) -> u32 {
        if count == self.count {
            return self.changes;
        }
        self.count = count;
        let still = at_rest.is_some() && at_rest == self.at_rest_since;
        self.changes = if still { self.changes + 1 } else { 0 };
        self.at_rest_since = at_rest;
        self.changes
    }
}

struct Silence {
    activity: Arc<Activity>,
    shared: Arc<Shared>,
    ticks: Watched,
    sheds: Watched,
    begun: Instant,
}

impl Silence {
    fn is_over(&mut self, signal: Signal) -> bool {
        let Signal::Run { ticks, sheds } = signal else { return true };
        let at_rest = self.activity.at_rest();
        let tick = self.ticks.see(ticks, at_rest);
        let was_used = at_rest != Some(0) || self.begun.elapsed() >= SHED_AFTER;
        let is_shed = self.sheds.see(sheds, at_rest) > 0 && was_used;
        if is_shed {
            self.shared.counters.connections_shed.fetch_add(1, Ordering::Relaxed);
        }
        tick >= TICKS_OF_SILENCE || is_shed
    }
}

/// Drives a connection; true when it should be asked to end, false when it has.
async fn until_end<C>(
    mut connection: Pin<&mut C>,
    signals: &mut watch::Receiver<Signal>,
    silence: &mut Silence,
) -> bool
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    loop {
        let signalled = {
            let mut changed = pin!(signals.changed());
            poll_fn(|cx: &mut Context<'_>| {
                // What goes wrong with a connection is the peer's to see.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                changed.as_mut().poll(cx).map(|_| true)
            })
            .await
        };
        if !signalled {
            return false;
        }
        let signal = *signals.borrow_and_update();
        if silence.is_over(signal) {
            return true;
        }
    }
}

/// Whether the system has no room for another connection, as opposed to a connection that went wrong.
pub(super) fn is_out_of_room(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
