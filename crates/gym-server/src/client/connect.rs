//! Opens connections: a Unix socket to Gym servers of this host, else TCP with keep-alive, TLS where
//! the URL says so.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::limits::KeepAlive;
use super::wire::Wire;
use crate::instance::{Endpoint, EndpointKind};
use crate::stream::{Stream, connect_beside};

/// TLS settings, made when the first `https` URL is called.
#[derive(Default)]
pub(super) struct Tls(OnceLock<Arc<ClientConfig>>);

impl Tls {
    fn connector(&self) -> TlsConnector {
        let config = self.0.get_or_init(|| {
            let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
        });
        TlsConnector::from(Arc::clone(config))
    }
}

/// Opens one connection.
pub(super) async fn open(
    endpoint: &Endpoint,
    tls: &Tls,
    same_host_sockets: bool,
    probes: KeepAlive,
) -> Result<Wire, io::Error> {
    let may_be_beside =
        same_host_sockets && endpoint.kind() == EndpointKind::Gym && !endpoint.tls();
    if may_be_beside && let Some(unix) = connect_beside(endpoint.host(), endpoint.port()).await {
        return Ok(Wire::new(Stream::Unix(unix)));
    }
    // Looked up apart from connecting: the two fail for different reasons.
    let addresses = tokio::net::lookup_host((endpoint.host(), endpoint.port())).await;
    let unknown = |error| io::Error::new(io::ErrorKind::NotFound, error);
    let addresses: Vec<SocketAddr> = addresses.map_err(unknown)?.collect();
    let stream = TcpStream::connect(addresses.as_slice()).await?;
    stream.set_nodelay(true)?;
    keep_alive(&stream, probes);
    Ok(Wire::new(if endpoint.tls() {
        let name = ServerName::try_from(endpoint.host().to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Stream::Tls(Box::new(tls.connector().connect(name, stream).await?))
    } else {
        Stream::Tcp(stream)
    }))
}

/// Sets the keep-alive probes; a system that refuses them is served without.
fn keep_alive(stream: &TcpStream, probes: KeepAlive) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(stream, true);
    #[cfg(target_os = "linux")]
    {
        let _ = sockopt::set_tcp_keepidle(stream, probes.idle);
        let _ = sockopt::set_tcp_keepintvl(stream, probes.interval);
        let _ = sockopt::set_tcp_keepcnt(stream, probes.probes);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use rustix::net::sockopt;

    use super::super::PoolLimits;
    use super::*;

    /// The probes of a connection that a client of this config opens.
    async fn probes(global: serde_json::Value) -> (bool, Duration, Duration, u32) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let limits = PoolLimits::from_global(&global);
        let endpoint = Endpoint::gym("other", "127.0.0.1", port);
        let wire = open(&endpoint, &Tls::default(), false, limits.keep_alive).await.expect("opens");
        let Stream::Tcp(stream) = wire.stream() else { panic!("it is TCP") };
        (
            sockopt::socket_keepalive(stream).expect("told"),
            sockopt::tcp_keepidle(stream).expect("told"),
            sockopt::tcp_keepintvl(stream).expect("told"),
            sockopt::tcp_keepcnt(stream).expect("told"),
        )
    }

    #[tokio::test]
    async fn keep_alive_probes_are_those_of_the_config_and_else_of_the_reference() {
        let seconds = Duration::from_secs;
        let usual = (true, seconds(60), seconds(10), 3);
        assert_eq!(probes(serde_json::json!({})).await, usual);
        let set = probes(serde_json::json!({
            "global_aiohttp_tcp_keepalive_idle_seconds": 7,
            "global_aiohttp_tcp_keepalive_interval_seconds": 2,
            "global_aiohttp_tcp_keepalive_probes": 9,
        }));
        assert_eq!(set.await, (true, seconds(7), seconds(2), 9));
        let none = probes(serde_json::json!({"global_aiohttp_tcp_keepalive_idle_seconds": 0}));
        assert_eq!(none.await, usual);
    }

    #[tokio::test]
    async fn a_name_without_address_is_told_apart_from_a_server_that_is_not_there() {
        let endpoint = Endpoint::gym("other", "no-such-name.invalid", 80);
        let error = open(&endpoint, &Tls::default(), false, KeepAlive::default()).await;
        assert_eq!(error.expect_err("no address").kind(), io::ErrorKind::NotFound);
        let endpoint = Endpoint::gym("other", "127.0.0.1", lens_testing::free_port());
        let error = open(&endpoint, &Tls::default(), false, KeepAlive::default()).await;
        assert_eq!(error.expect_err("nobody").kind(), io::ErrorKind::ConnectionRefused);
    }
}
