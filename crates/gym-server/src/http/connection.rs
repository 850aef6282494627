//! One connection of a server: driven until it ends, falls silent, or the server stops.
//!
//! Silence is measured by ticks of the shard instead of a timer for each request, and signals
//! are looked at only when there is one: between them a poll costs nothing but the connection.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use super::respond::respond;
use super::server::{Peer, Shard};
use crate::stream::Stream;

/// Ticks without a request after which a connection is closed.
pub(crate) const TICKS_OF_SILENCE: u32 = 3;

/// What a shard tells its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Time passes.
    Tick(u64),
    /// Finish what is in flight.
    Stop,
}

impl Default for Signal {
    fn default() -> Self {
        Self::Tick(0)
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
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves one connection to its end.
pub(crate) async fn drive(shard: Arc<Shard>, stream: Stream, mut signals: watch::Receiver<Signal>) {
    let peer = match &stream {
        Stream::Tcp(tcp) => {
            let _ = tcp.set_nodelay(true);
            let address = tcp.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default();
            Arc::new(Peer::new(&address))
        }
        // Whoever comes by a Unix socket is on this host.
        Stream::Unix(_) | Stream::Tls(_) => Arc::clone(&shard.own_peer),
    };
    let activity = Arc::new(Activity::default());
    let counted = Arc::clone(&activity);
    let service = service_fn(move |request| {
        counted.begun.fetch_add(1, Ordering::Relaxed);
        respond(Arc::clone(&shard), &peer, request, InFlight(Arc::clone(&counted)))
    });
    let connection =
        http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut seen = signals.clone();
    let (mut last, mut silent_ticks) = (None, 0);
    loop {
        let signalled = {
            let mut changed = pin!(signals.changed());
            let mut registered = false;
            std::future::poll_fn(|cx| {
                // What goes wrong with a connection is the peer's to see.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                // The first poll leaves the task's waker; after that only a signal needs a look.
                if !registered || seen.has_changed().unwrap_or(true) {
                    registered = true;
                    return changed.as_mut().poll(cx).map(|_| true);
                }
                Poll::Pending
            })
            .await
        };
        if !signalled {
            return;
        }
        let signal = *seen.borrow_and_update();
        if signal == Signal::Stop {
            break;
        }
        let rest = activity.at_rest();
        silent_ticks = if rest.is_some() && rest == last { silent_ticks + 1 } else { 0 };
        last = rest;
        if silent_ticks >= TICKS_OF_SILENCE {
            break;
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
