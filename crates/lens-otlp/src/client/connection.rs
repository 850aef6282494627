//! One HTTP connection, of either version.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Prepared, Protocol};

pub(super) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Http1(_) => "Http1",
            Self::Http2(_) => "Http2",
        })
    }
}

/// Why a request got no response.
#[derive(Debug)]
pub(super) struct Broken;

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl From<hyper::Error> for Broken {
    fn from(_: hyper::Error) -> Self {
        Self
    }
}

impl Connection {
    pub(super) async fn open(target: &Prepared) -> Result<Self, Broken> {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        match &target.tls {
            Some(tls) => Self::handshake(target, tls.connect(stream).await?).await,
            None => Self::handshake(target, stream).await,
        }
    }

    async fn handshake(
        target: &Prepared,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, Broken> {
        let stream = TokioIo::new(stream);
        if target.protocol == Protocol::Grpc {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(1 << 20)
                .handshake(stream)
                .await?;
            tokio::spawn(connection);
            Ok(Self::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(connection);
            Ok(Self::Http1(sender))
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Broken> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
        }
    }
}
