//! One `GET` over plain HTTP, for readiness and the head server.
//!
//! Deliberately beside the instrumented client: probes make no spans.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const MAX_BODY_BYTES: usize = 64 << 20;

/// Why a probe got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The name does not resolve.
    #[error("cannot resolve {host:?}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Nobody listens, or the network refuses.
    #[error("cannot connect to {host}:{port}")]
    Connect {
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// What the network says.
        source: io::Error,
    },
    /// No answer within the time given.
    #[error("no answer from {host}:{port} within {seconds} s")]
    Timeout {
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// The limit.
        seconds: f64,
    },
    /// Something listens but does not speak HTTP.
    #[error("{host}:{port} does not answer in HTTP")]
    Http {
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// What was wrong with the answer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Fetches `path` and reads the body.
///
/// # Errors
///
/// [`ProbeError`]; an answer with any status is not an error.
pub async fn get(
    host: &str,
    port: u16,
    path: &str,
    limit: Duration,
) -> Result<(StatusCode, Bytes), ProbeError> {
    tokio::time::timeout(limit, exchange(host, port, path)).await.unwrap_or_else(|_| {
        Err(ProbeError::Timeout { host: host.to_owned(), port, seconds: limit.as_secs_f64() })
    })
}

/// Connects and hangs up.
///
/// # Errors
///
/// [`ProbeError`].
pub async fn connect(host: &str, port: u16, limit: Duration) -> Result<(), ProbeError> {
    tokio::time::timeout(limit, open(host, port)).await.map_or_else(
        |_| Err(ProbeError::Timeout { host: host.to_owned(), port, seconds: limit.as_secs_f64() }),
        |connected| connected.map(drop),
    )
}

async fn open(host: &str, port: u16) -> Result<TcpStream, ProbeError> {
    let resolve = |source| ProbeError::Resolve { host: host.to_owned(), source };
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(resolve)?.collect();
    TcpStream::connect(&*addresses).await.map_err(|source| ProbeError::Connect {
        host: host.to_owned(),
        port,
        source,
    })
}

async fn exchange(host: &str, port: u16, path: &str) -> Result<(StatusCode, Bytes), ProbeError> {
    let fail = |source: Box<dyn std::error::Error + Send + Sync>| ProbeError::Http {
        host: host.to_owned(),
        port,
        source,
    };
    let stream = open(host, port).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| fail(error.into()))?;
    let talk = async {
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let request = http::Request::get(path)
            .header(http::header::HOST, authority)
            .header(http::header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| fail(error.into()))?;
        let reply = sender.send_request(request).await.map_err(|error| fail(error.into()))?;
        let status = reply.status();
        let body = Limited::new(reply.into_body(), MAX_BODY_BYTES).collect().await.map_err(fail)?;
        Ok((status, body.to_bytes()))
    };
    // The connection runs beside the exchange and ends with it: nothing is left behind in the runtime.
    let mut connection = std::pin::pin!(connection);
    let mut talk = std::pin::pin!(talk);
    tokio::select! {
        done = &mut talk => done,
        ended = &mut connection => {
            // What was read before the end is still delivered to the exchange.
            match tokio::time::timeout(Duration::from_millis(100), talk).await {
                Ok(done) => done,
                Err(_) => Err(fail(ended.err().map_or_else(|| "connection closed".into(), Into::into))),
            }
        }
    }
}
