//! Listens, accepts, and spreads connections over threads.
//!
//! A thread has a runtime of its own; the first one accepts and gives each connection to the thread with the fewest.
//! When no more connections can be had (no descriptors, or as many as are allowed), accepting pauses with growing
//! back-off, connections that idle are closed to make room, and one line in five seconds says so.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::connection::{self, Signal, TICKS_OF_SILENCE};
use super::serve::Shared;
use super::{Notice, Notify};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Connections on their way to their thread.
const HAND_OVER: usize = 256;
const FIRST_BACK_OFF: Duration = Duration::from_millis(20);
const MAX_BACK_OFF: Duration = Duration::from_secs(1);
const NOTICE_EVERY: Duration = Duration::from_secs(5);

pub(super) fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, only_v6)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// What one thread serves with.
pub(super) struct Thread {
    pub shared: Arc<Shared>,
    /// Tells all connections of all threads; when it says stop, this thread ends.
    pub signals: Arc<watch::Sender<Signal>>,
    pub grace: Duration,
    /// Connections that it has.
    pub load: Arc<AtomicUsize>,
}

/// A connection on its way to its thread.
pub(super) struct Handed {
    stream: std::net::TcpStream,
    counted: Counted,
}

/// Another thread, seen from the one that accepts.
pub(super) struct Other {
    hand_over: mpsc::Sender<Handed>,
    load: Arc<AtomicUsize>,
}

impl Other {
    pub(super) fn new(load: Arc<AtomicUsize>) -> (Self, mpsc::Receiver<Handed>) {
        let (hand_over, handed) = mpsc::channel(HAND_OVER);
        (Self { hand_over, load }, handed)
    }
}

/// The accepting side of the first thread.
pub(super) struct Acceptor {
    pub listeners: Vec<TcpListener>,
    pub others: Vec<Other>,
    pub max_connections: usize,
    pub idle_timeout: Duration,
    pub notify: Notify,
}

/// Where a thread's connections come from.
pub(super) enum Source {
    Acceptor(Acceptor),
    Handed(mpsc::Receiver<Handed>),
}

/// Counts a connection for as long as it is there.
struct Counted {
    shared: Arc<Shared>,
    load: Arc<AtomicUsize>,
}

impl Counted {
    fn new(shared: &Arc<Shared>, load: &Arc<AtomicUsize>) -> Self {
        shared.counters.connections_total.fetch_add(1, Ordering::Relaxed);
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        load.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(shared), load: Arc::clone(load) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Thread {
    /// Serves until told to stop, then gives requests in flight the grace time.
    pub(super) fn run(self, runtime: tokio::runtime::Runtime, source: Source) {
        runtime.block_on(async {
            match source {
                Source::Acceptor(acceptor) => acceptor.run(&self).await,
                Source::Handed(handed) => self.take(handed).await,
            }
            // Every connection listens to the signals; when the last is gone, this resolves.
            let _ = tokio::time::timeout(self.grace, self.signals.closed()).await;
        });
        // What is still in flight is dropped with the runtime.
        runtime.shutdown_background();
    }

    async fn take(&self, mut handed: mpsc::Receiver<Handed>) {
        let mut signals = self.signals.subscribe();
        loop {
            let handed = tokio::select! {
                () = stopped(&mut signals) => return,
                handed = handed.recv() => handed,
            };
            let Some(Handed { stream, counted }) = handed else { return };
            if let Ok(stream) = TcpStream::from_std(stream) {
                self.spawn(stream, counted);
            }
        }
    }

    fn spawn(&self, stream: TcpStream, counted: Counted) {
        let serving = connection::serve(Arc::clone(&self.shared), stream, self.signals.subscribe());
        tokio::spawn(async move {
            let _counted = counted;
            serving.await;
        });
    }
}

/// Waits until told to stop, or until whoever could tell is gone.
async fn stopped(signals: &mut watch::Receiver<Signal>) {
    let _ = signals.wait_for(|signal| *signal == Signal::Stop).await;
}

impl Acceptor {
    async fn run(self, thread: &Thread) {
        let Self { listeners, others, max_connections, idle_timeout, notify } = self;
        let listeners: Result<Vec<_>, _> =
            listeners.into_iter().map(tokio::net::TcpListener::from_std).collect();
        // Registering fails only where the runtime has ended.
        let Ok(listeners) = listeners else { return };
        tick(Arc::clone(&thread.signals), idle_timeout / TICKS_OF_SILENCE);
        let mut shortage = Shortage { notify, noticed: None, last: None, back_off: FIRST_BACK_OFF };
        let counters = &thread.shared.counters;
        let mut signals = thread.signals.subscribe();
        let mut turn = 0_usize;
        loop {
            turn = turn.wrapping_add(1);
            let open = counters.connections.load(Ordering::Relaxed) as usize;
            let accepted = if open < max_connections {
                tokio::select! {
                    () = stopped(&mut signals) => return,
                    accepted = accept_any(&listeners, turn) => accepted.map_err(Some),
                }
            } else {
                Err(None)
            };
            match accepted {
                Ok(stream) => {
                    shortage.may_be_over(open);
                    hand_out(thread, &others, stream);
                }
                // This one went wrong; the next may not.
                Err(Some(error)) if !connection::is_out_of_room(&error) => {}
                Err(error) => {
                    counters.accept_failures.fetch_add(1, Ordering::Relaxed);
                    let back_off = shortage.goes_on(error, open);
                    thread.signals.send_modify(|signal| {
                        if let Signal::Run { sheds, .. } = signal {
                            *sheds += 1;
                        }
                    });
                    tokio::select! {
                        () = stopped(&mut signals) => return,
                        () = tokio::time::sleep(back_off) => {}
                    }
                }
            }
        }
    }
}

/// Marks the passing of time for connections that fall silent. Ends with the runtime.
fn tick(signals: Arc<watch::Sender<Signal>>, every: Duration) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            signals.send_modify(|signal| {
                if let Signal::Run { ticks, .. } = signal {
                    *ticks += 1;
                }
            });
        }
    });
}

/// The next connection of any listener, none of them always first.
async fn accept_any(listeners: &[tokio::net::TcpListener], turn: usize) -> io::Result<TcpStream> {
    std::future::poll_fn(|cx| {
        let (after, before) = listeners.split_at(turn % listeners.len().max(1));
        for listener in before.iter().chain(after) {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, _)| stream));
            }
        }
        Poll::Pending
    })
    .await
}

fn hand_out(thread: &Thread, others: &[Other], stream: TcpStream) {
    let load = |load: &AtomicUsize| load.load(Ordering::Relaxed);
    let least = others.iter().min_by_key(|other| load(&other.load));
    let Some(other) = least.filter(|other| load(&other.load) < load(&thread.load)) else {
        let counted = Counted::new(&thread.shared, &thread.load);
        return thread.spawn(stream, counted);
    };
    let counted = Counted::new(&thread.shared, &other.load);
    if let Ok(stream) = stream.into_std() {
        // A thread that is so far behind that its queue is full loses the connection; the sender makes another.
        let _ = other.hand_over.try_send(Handed { stream, counted });
    }
}

/// A time during which connections cannot always be accepted.
struct Shortage {
    notify: Notify,
    noticed: Option<Instant>,
    /// When accepting failed last.
    last: Option<Instant>,
    back_off: Duration,
}

impl Shortage {
    /// Accepting failed: how long to wait.
    fn goes_on(&mut self, error: Option<io::Error>, connections: usize) -> Duration {
        let now = Instant::now();
        if self.noticed.is_none_or(|noticed| now - noticed >= NOTICE_EVERY) {
            self.noticed = Some(now);
            (self.notify)(&Notice::NoRoom { error, connections });
        }
        self.last = Some(now);
        let back_off = self.back_off;
        self.back_off = (back_off * 2).min(MAX_BACK_OFF);
        back_off
    }

    /// A connection was accepted. While others still fail now and then it is not over.
    fn may_be_over(&mut self, connections: usize) {
        self.back_off = FIRST_BACK_OFF;
        if self.last.is_some_and(|last| last.elapsed() >= 2 * MAX_BACK_OFF) {
            self.last = None;
            (self.notify)(&Notice::RoomAgain { connections });
        }
    }
}
