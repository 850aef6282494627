//! Byte streams between client and server: TCP, TLS, and a Unix socket between servers of one host.
//!
//! A server that listens on a loopback or wildcard address listens on a Unix socket too, whose
//! abstract name holds that address. A client that is to connect to such an address tries the
//! socket first: a request over it costs half the system time of one over loopback TCP. Abstract
//! names live in the network namespace, as loopback ports do, and vanish with their socket, so
//! the name always leads to who holds the port. Whoever knows nothing of it uses TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connection of either side.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! each {
    ($stream:expr, $io:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($io) => $call,
            Stream::Unix($io) => $call,
            Stream::Tls($io) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(io) => io.is_write_vectored(),
            Self::Unix(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }
}

/// The abstract name beside a TCP address; `None` where there is no socket beside it.
///
/// A wildcard listener is the only one of its port, so it answers for loopback.
#[cfg(target_os = "linux")]
fn name_beside(address: SocketAddr) -> Option<String> {
    let ip = match address.ip() {
        ip if ip.is_loopback() => ip,
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        _ => return None,
    };
    Some(format!("nemo-gym/{}", SocketAddr::new(ip, address.port())))
}

/// Listens beside a TCP listener. Without a socket there TCP serves alone.
#[cfg(target_os = "linux")]
pub(crate) fn listen_beside(
    address: SocketAddr,
    backlog: i32,
) -> Option<std::os::unix::net::UnixListener> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
    };
    let name = name_beside(address)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
    listen(&socket, backlog).ok()?;
    Some(socket.into())
}

/// Connects to the socket beside `host:port`, if the same user listens there.
#[cfg(target_os = "linux")]
pub(crate) async fn connect_beside(host: &str, port: u16) -> Option<UnixStream> {
    let name = name_beside(SocketAddr::new(host.parse().ok()?, port))?;
    let stream = UnixStream::connect(format!("\0{name}")).await.ok()?;
    // Whoever is first may take a name; what a server is sent is nobody else's business.
    let is_same_user = stream.peer_cred().ok()?.uid() == rustix::process::geteuid().as_raw();
    is_same_user.then_some(stream)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn listen_beside(_: SocketAddr, _: i32) -> Option<std::os::unix::net::UnixListener> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) async fn connect_beside(_: &str, _: u16) -> Option<UnixStream> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_to_this_host_has_a_socket_beside_it() {
        let name = |text: &str| name_beside(text.parse().expect("an address"));
        assert_eq!(name("127.0.0.1:80").as_deref(), Some("nemo-gym/127.0.0.1:80"));
        assert_eq!(name("0.0.0.0:80"), name("127.0.0.1:80"));
        assert_ne!(name("127.0.0.2:80"), name("127.0.0.1:80"));
        assert_eq!(name("[::]:80"), name("[::1]:80"));
        assert_eq!(name("10.0.0.1:80"), None);
    }
}
