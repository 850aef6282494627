//! One HTTP connection, of either version.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use bytes::buf::Chain;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

use super::trouble::{self, FirstBytes, Trouble};
use super::{Prepared, Protocol};

/// gRPC's prefix (or nothing) and the message, which is never copied.
pub(super) type Body = Full<Chain<Bytes, Bytes>>;

/// Bytes on their way to a receiver that takes them slowly.
const SEND_BUFFER_BYTES: usize = 4 << 20;

enum Exchange {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

pub(super) struct Connection {
    exchange: Exchange,
    first: Arc<OnceLock<FirstBytes>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self.exchange {
            Exchange::Http1(_) => "Http1",
            Exchange::Http2(_) => "Http2",
        })
    }
}

/// Why a request got no response.
#[derive(Debug)]
pub(super) struct Broken(pub(super) Trouble);

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        let early = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
        Self(if early { Trouble::ClosedEarly } else { Trouble::Broken(trouble::chain(&error)) })
    }
}

async fn connect(target: &Prepared) -> Result<TcpStream, Broken> {
    let addresses = lookup_host((target.host.as_str(), target.port)).await;
    let no_host = || Broken(Trouble::NoSuchHost(target.host.clone()));
    let mut last = no_host();
    for address in addresses.map_err(|_| no_host())? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = Broken(trouble::of_connect(&error)),
        }
    }
    Err(last)
}

impl Connection {
    pub(super) async fn open(target: &Prepared) -> Result<Self, Broken> {
        let first = Arc::new(OnceLock::new());
        let stream = Noting { stream: connect(target).await?, first: Arc::clone(&first) };
        let exchange = match &target.tls {
            Some(tls) => match tls.connect(stream).await {
                Ok(stream) => handshake(target, stream).await,
                Err(error) => Err(Broken(Trouble::Tls(trouble::chain(&error)))),
            },
            None => handshake(target, stream).await,
        };
        match exchange {
            Ok(exchange) => Ok(Self { exchange, first }),
            Err(broken) => Err(explain(&first, target, broken)),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.exchange {
            Exchange::Http1(sender) => sender.is_closed(),
            Exchange::Http2(sender) => sender.is_closed(),
        }
    }

    pub(super) async fn send(
        &mut self,
        target: &Prepared,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Broken> {
        let response = match &mut self.exchange {
            Exchange::Http1(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
            Exchange::Http2(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
        };
        response.map_err(|error| explain(&self.first, target, error.into()))
    }
}

fn explain(first: &OnceLock<FirstBytes>, target: &Prepared, broken: Broken) -> Broken {
    let first = first.get().and_then(|first| trouble::by_first_bytes(*first, target));
    first.map_or(broken, Broken)
}

async fn handshake(
    target: &Prepared,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Exchange, Broken> {
    let stream = TokioIo::new(stream);
    if target.protocol == Protocol::Grpc {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .handshake(stream)
            .await?;
        tokio::spawn(connection);
        Ok(Exchange::Http2(sender))
    } else {
        let (sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        Ok(Exchange::Http1(sender))
    }
}

/// A connection that remembers what it heard first.
#[derive(Debug)]
pub(super) struct Noting {
    stream: TcpStream,
    first: Arc<OnceLock<FirstBytes>>,
}

impl Noting {
    fn note(&self, heard: &[u8]) {
        if let Some(first) = heard.first_chunk() {
            let _ = self.first.set(*first);
        }
    }

    /// Passes the result of a write on. A receiver that says why it hangs up is heard even when it has hung up.
    fn written<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(written, Poll::Ready(Err(_))) && self.first.get().is_none() {
            let mut heard = [0; size_of::<FirstBytes>()];
            // Past the runtime, which need not know yet that there is something; the socket does not block.
            let stream = self.stream.as_fd().try_clone_to_owned();
            let read = stream.map(std::net::TcpStream::from).and_then(|mut s| s.read(&mut heard));
            if let Ok(bytes) = read {
                self.note(&heard[..bytes]);
            }
        }
        written
    }
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.first.get().is_none() {
            self.note(&buffer.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
