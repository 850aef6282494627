//! Why something could not be delivered, in the words of whoever has to mend it.
//!
//! The first bytes that a receiver sends tell what it speaks; so the common mistakes (the port of the other
//! protocol, TLS against none) get names of their own instead of a codec's error.

use std::io;

use super::{Prepared, Protocol};

/// What went wrong last. Its text is a clause without the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// No such host.
    #[error("the host {0:?} cannot be found")]
    NoSuchHost(String),
    /// Nobody listens there.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// No connection, for another reason.
    #[error("no connection could be made ({0})")]
    Unreachable(String),
    /// `https`, and the receiver speaks in the clear.
    #[error("the receiver does not speak TLS, and the endpoint begins with https")]
    NotTls,
    /// `http`, and the receiver wants TLS.
    #[error("the receiver speaks TLS, and the endpoint begins with http")]
    WantsTls,
    /// TLS failed otherwise.
    #[error("TLS failed ({0})")]
    Tls(String),
    /// HTTP/1.1 against a port of gRPC.
    #[error("this is a port for grpc, and http was spoken to it")]
    GrpcPort,
    /// gRPC against a port of HTTP/1.1.
    #[error("this is a port for http, and grpc was spoken to it")]
    HttpPort,
    /// The connection ended before an answer.
    #[error("the connection was closed without an answer")]
    ClosedEarly,
    /// The answer cannot be understood.
    #[error("the exchange broke off ({0})")]
    Broken(String),
    /// No answer within the budget.
    #[error("there was no answer in time")]
    TimedOut,
    /// Credentials are missing or wrong.
    #[error("the receiver wants other credentials ({0})")]
    Credentials(String),
    /// There is no such path or service.
    #[error("the receiver has nothing at {path} ({status})")]
    NoSuchPath {
        /// What was asked for.
        path: String,
        /// HTTP status or gRPC code.
        status: String,
    },
    /// A single item is more than the receiver takes.
    #[error("the receiver takes no requests of this size ({0})")]
    TooLarge(String),
    /// Accepted, but for some of what is inside.
    #[error("the receiver refused {items} of the items of a request{}", because(.message))]
    Rejected {
        /// How many.
        items: u64,
        /// What it says about that, or empty.
        message: String,
    },
    /// Any other answer.
    #[error("the receiver answered {0}")]
    Status(String),
}

impl Trouble {
    /// Whether there was nobody to talk to at all.
    pub(super) fn is_nobody_there(&self) -> bool {
        matches!(self, Self::NoSuchHost(_) | Self::ConnectionRefused | Self::Unreachable(_))
    }
}

/// A message behind what it is about.
fn because(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

/// Receivers write what they like; a line is enough.
pub(super) fn one_line(message: &str) -> String {
    message.chars().filter(|character| !character.is_control()).take(200).collect()
}

/// What a receiver said first.
pub(super) type FirstBytes = [u8; 4];

/// What the first bytes say about a connection on which nothing else worked.
pub(super) fn by_first_bytes(first: FirstBytes, target: &Prepared) -> Option<Trouble> {
    let secure = target.tls.is_some();
    let is_tls = matches!(first, [0x15 | 0x16, 3, ..]);
    let is_http1 = &first == b"HTTP";
    // The length of a SETTINGS frame is below 64 KiB; its type is 4.
    let is_http2 = matches!(first, [0, _, _, 4]);
    match (secure, target.protocol == Protocol::Grpc) {
        (true, _) => (is_http1 || is_http2).then_some(Trouble::NotTls),
        (false, _) if is_tls => Some(Trouble::WantsTls),
        (false, false) => is_http2.then_some(Trouble::GrpcPort),
        (false, true) => is_http1.then_some(Trouble::HttpPort),
    }
}

/// An error with its sources as one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

/// No connection.
pub(super) fn of_connect(error: &io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Trouble::ConnectionRefused,
        io::ErrorKind::TimedOut => Trouble::TimedOut,
        _ => Trouble::Unreachable(error.to_string()),
    }
}

/// A final HTTP status.
pub(super) fn of_http(status: http::StatusCode, target: &Prepared) -> Trouble {
    let text = format!("HTTP {}", status.as_u16());
    match status.as_u16() {
        401 | 403 | 407 => Trouble::Credentials(text),
        404 | 405 => Trouble::NoSuchPath { path: target.path.clone(), status: text },
        413 => Trouble::TooLarge(text),
        _ => Trouble::Status(text),
    }
}

/// A gRPC code with its message.
pub(super) fn of_grpc(code: u32, message: &str, target: &Prepared) -> Trouble {
    let message = one_line(message);
    let text = if message.is_empty() {
        format!("gRPC status {code}")
    } else {
        format!("gRPC status {code}: {message}")
    };
    match code {
        7 | 16 => Trouble::Credentials(text),
        12 => Trouble::NoSuchPath { path: target.path.clone(), status: text },
        _ => Trouble::Status(text),
    }
}
