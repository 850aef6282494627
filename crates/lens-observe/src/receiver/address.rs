//! Addresses to listen on, as people write them.
//!
//! `host:port`, `[::1]:port` and `http://host:port` mean the same; what cannot be meant (`https`, a path, no port) is
//! refused in words, because a listener that guesses listens somewhere else than it was told.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// Where to listen: a host and a port; port 0 lets the system choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    host: String,
    port: u16,
}

/// Why a text is no address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `https://…`
    #[error("the receiver does not speak TLS; write host:port, and put a proxy in front of it")]
    Https,
    /// Another scheme.
    #[error("only http:// may stand in front of host:port")]
    Scheme,
    /// Something behind the port.
    #[error("there is a path behind the port; write host:port alone")]
    Path,
    /// No port.
    #[error("there is no port; write host:port")]
    NoPort,
    /// A port that is no number up to 65535.
    #[error("the port is no number from 0 to 65535")]
    Port,
    /// No host.
    #[error("there is no host; write 127.0.0.1:port, or 0.0.0.0:port for every interface")]
    NoHost,
    /// IPv6 without brackets.
    #[error("an IPv6 address needs brackets: [::1]:port")]
    Brackets,
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let rest = match text.split_once("://") {
            None => text,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(AddressError::Https);
            }
            Some(_) => return Err(AddressError::Scheme),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(AddressError::Path);
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(AddressError::Brackets)?;
                (host, port.strip_prefix(':').ok_or(AddressError::NoPort)?)
            }
            None if rest.matches(':').count() > 1 => return Err(AddressError::Brackets),
            None => rest.rsplit_once(':').ok_or(AddressError::NoPort)?,
        };
        if host.is_empty() {
            return Err(AddressError::NoHost);
        }
        let port = port.parse().map_err(|_| AddressError::Port)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl ListenAddress {
    /// What it stands for. A name may stand for several.
    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let mut found: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

/// Whether only this host can reach it.
pub(super) fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(ip.is_loopback(), |ip| ip.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, AddressError> {
        text.parse::<ListenAddress>().map(|address| address.to_string())
    }

    #[test]
    fn hosts_with_ports_are_read_in_every_spelling() {
        for (text, meant) in [
            ("127.0.0.1:4317", "127.0.0.1:4317"),
            ("localhost:0", "localhost:0"),
            (" http://0.0.0.0:4318/ ", "0.0.0.0:4318"),
            ("HTTP://[::1]:4318", "[::1]:4318"),
            ("[::]:4317", "[::]:4317"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(meant), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_listened_on_is_refused_in_words() {
        for (text, error) in [
            ("https://localhost:4317", AddressError::Https),
            ("grpc://localhost:4317", AddressError::Scheme),
            ("http://localhost:4318/v1/traces", AddressError::Path),
            ("localhost", AddressError::NoPort),
            ("[::1]", AddressError::NoPort),
            ("::1:4317", AddressError::Brackets),
            ("[::1:4317", AddressError::Brackets),
            (":4317", AddressError::NoHost),
            ("localhost:otlp", AddressError::Port),
            ("localhost:65536", AddressError::Port),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn only_this_host_is_loopback() {
        for (address, loopback) in [
            ("127.0.0.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
        ] {
            assert_eq!(is_loopback(&address.parse().unwrap()), loopback, "{address}");
        }
    }
}
