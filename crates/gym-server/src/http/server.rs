//! Listens, spreads connections over shards, serves them, and ends in time.
//!
//! A shard is a thread with a runtime of its own: on few cores that costs a third of what a
//! runtime with several workers does, because no task is ever woken on another thread. The
//! first shard accepts and hands connections out in turn, those of the TCP port and those of the
//! Unix socket beside it alike.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};

use super::connection::{self, Signal};
use super::router::SharedService;
use crate::client::{Client, ClientConfig};
use crate::instance::Endpoint;
use crate::stream::{Stream, listen_beside};

/// Connections that may wait to be accepted: a rollout storm opens thousands at once.
const BACKLOG: i32 = 4096;

/// How a server is run.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Shards, at least 1.
    pub workers: usize,
    /// Behaviour of the client that handlers use.
    pub client: ClientConfig,
    /// Largest request body that is read.
    pub max_body_bytes: usize,
    /// Longest silence of a connection between requests.
    pub keep_alive: Duration,
    /// Time that requests in flight get when the server is stopped.
    pub grace: Duration,
    /// Where this server listens; requests of its handlers to this place take no socket.
    pub own: Option<Endpoint>,
    /// Whether clients of this host may come through a Unix socket beside the port.
    pub same_host_sockets: bool,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            client: ClientConfig::default(),
            max_body_bytes: 512 << 20,
            keep_alive: Duration::from_secs(30),
            grace: Duration::from_millis(500),
            own: None,
            same_host_sockets: true,
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {host}:{port}")]
pub struct BindError {
    /// Host that was to be bound.
    pub host: String,
    /// Port that was to be bound.
    pub port: u16,
    /// What the system said.
    pub source: io::Error,
}

impl BindError {
    /// Whether somebody else holds the port.
    #[must_use]
    pub fn port_is_taken(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// What one shard needs to answer requests.
pub(crate) struct Shard {
    pub(crate) service: SharedService,
    pub(crate) client: Client,
    pub(crate) max_body_bytes: usize,
    /// Who sends the requests that come from this host without TCP.
    pub(crate) own_peer: Arc<Peer>,
}

/// Who sent a request.
pub(crate) struct Peer {
    pub(crate) address: Arc<str>,
    /// The host that it asked for first, and what the spans of its requests to that say.
    pub(crate) ends: OnceLock<(Option<HeaderValue>, lens::AttributeSet)>,
}

impl Peer {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.into(), ends: OnceLock::new() }
    }
}

/// A bound listener.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Binds `host:port`; port 0 lets the system choose.
    ///
    /// # Errors
    ///
    /// [`BindError`] when the host does not resolve or the port cannot be bound.
    pub fn bind(host: &str, port: u16) -> Result<Self, BindError> {
        let fail = |source| BindError { host: host.to_owned(), port, source };
        let address = (host, port)
            .to_socket_addrs()
            .map_err(fail)?
            .next()
            .ok_or_else(|| fail(io::Error::from(io::ErrorKind::AddrNotAvailable)))?;
        let listener = listen(address).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address })
    }

    /// Address that the listener got.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true or its sender is gone, then gives requests in flight the
    /// grace time. Blocks.
    ///
    /// # Errors
    ///
    /// When a thread or a runtime cannot be made.
    pub fn serve(
        self,
        service: SharedService,
        options: &ServeOptions,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let workers = options.workers.max(1);
        let mut threads = Vec::new();
        let mut hand_over = Vec::new();
        for index in 1..workers {
            let (sender, receiver) = mpsc::channel(1024);
            hand_over.push(sender);
            let (service, options, stop) = (Arc::clone(&service), options.clone(), stop.clone());
            let thread = std::thread::Builder::new()
                .name(format!("shard-{index}"))
                .spawn(move || run_shard(service, &options, stop, Source::Handed(receiver)))?;
            threads.push(thread);
        }
        let beside =
            options.same_host_sockets.then(|| listen_beside(self.address, BACKLOG)).flatten();
        let source = Source::Listener { tcp: self.listener, beside, shards: hand_over };
        let result = run_shard(service, options, stop, source);
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => return Err(io::Error::other("a shard panicked")),
            }
        }
        result
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

enum Source {
    Listener { tcp: TcpListener, beside: Option<UnixListener>, shards: Vec<mpsc::Sender<Accepted>> },
    Handed(mpsc::Receiver<Accepted>),
}

/// A connection on its way to its shard.
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    /// Gives the stream up by the runtime that accepted it.
    fn detach(stream: Stream) -> Option<Self> {
        match stream {
            Stream::Tcp(stream) => stream.into_std().ok().map(Self::Tcp),
            Stream::Unix(stream) => stream.into_std().ok().map(Self::Unix),
            Stream::Tls(_) => None,
        }
    }

    /// Takes the stream over to the current runtime.
    fn attach(self) -> Option<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).ok().map(Stream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).ok().map(Stream::Unix),
        }
    }
}

fn run_shard(
    service: SharedService,
    options: &ServeOptions,
    stop: watch::Receiver<bool>,
    source: Source,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let client = Client::new(options.client.clone());
        let shard = Arc::new(Shard {
            service,
            client: client.clone(),
            max_body_bytes: options.max_body_bytes,
            own_peer: Arc::new(Peer::new("127.0.0.1")),
        });
        if let Some(own) = &options.own {
            client.serve_locally(own, &shard);
        }
        let connections = Connections { shard, stop, signals: watch::Sender::default() };
        connections.tick(options.keep_alive / connection::TICKS_OF_SILENCE);
        match source {
            Source::Listener { tcp, beside, shards } => {
                connections.accept(tcp, beside, &shards).await?;
            }
            Source::Handed(receiver) => connections.take(receiver).await,
        }
        connections.signals.send_replace(Signal::Stop);
        // Every connection holds a receiver; when the last is gone, `closed` resolves.
        if tokio::time::timeout(options.grace, connections.signals.closed()).await.is_err() {
            // What is dropped below was not done.
            lens::begin_truncation();
        }
        Ok(())
    });
    // Cancels what is still in flight, which ends its spans.
    drop(runtime);
    result
}

struct Connections {
    shard: Arc<Shard>,
    stop: watch::Receiver<bool>,
    signals: watch::Sender<Signal>,
}

impl Connections {
    async fn accept(
        &self,
        tcp: TcpListener,
        beside: Option<UnixListener>,
        shards: &[mpsc::Sender<Accepted>],
    ) -> io::Result<()> {
        let tcp = tokio::net::TcpListener::from_std(tcp)?;
        let beside = beside.map(tokio::net::UnixListener::from_std).transpose()?;
        let mut stop = self.stop.clone();
        let mut turn = 0;
        loop {
            let unix = async {
                match &beside {
                    Some(beside) => beside.accept().await,
                    None => std::future::pending().await,
                }
            };
            let accepted = tokio::select! {
                () = stopped(&mut stop) => return Ok(()),
                accepted = tcp.accept() => accepted.map(|(stream, _)| Stream::Tcp(stream)),
                accepted = unix => accepted.map(|(stream, _)| Stream::Unix(stream)),
            };
            let Ok(stream) = accepted else {
                // Out of descriptors: wait for some to be closed instead of spinning.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let shard = turn % (shards.len() + 1);
            turn = turn.wrapping_add(1);
            match shard.checked_sub(1).and_then(|index| shards.get(index)) {
                None => self.spawn(stream),
                Some(other) => {
                    if let Some(stream) = Accepted::detach(stream) {
                        let _ = other.send(stream).await;
                    }
                }
            }
        }
    }

    async fn take(&self, mut receiver: mpsc::Receiver<Accepted>) {
        let mut stop = self.stop.clone();
        loop {
            let stream = tokio::select! {
                () = stopped(&mut stop) => return,
                stream = receiver.recv() => stream,
            };
            let Some(stream) = stream else { return };
            if let Some(stream) = stream.attach() {
                self.spawn(stream);
            }
        }
    }

    fn spawn(&self, stream: Stream) {
        let signals = self.signals.subscribe();
        tokio::spawn(connection::drive(Arc::clone(&self.shard), stream, signals));
    }

    /// Marks the passing of time for connections that fall silent. Ends with the runtime.
    fn tick(&self, every: Duration) {
        let signals = self.signals.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                signals.send_modify(|signal| {
                    if let Signal::Tick(count) = signal {
                        *count += 1;
                    }
                });
            }
        });
    }
}

/// Waits for the end of the server.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could stop us is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}
