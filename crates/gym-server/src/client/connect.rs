//! Opens connections: a Unix socket to Gym servers of this host, else TCP with keep-alive, TLS where
//! the URL says so.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

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
) -> Result<Wire, io::Error> {
    let may_be_beside =
        same_host_sockets && endpoint.kind() == EndpointKind::Gym && !endpoint.tls();
    if may_be_beside && let Some(unix) = connect_beside(endpoint.host(), endpoint.port()).await {
        return Ok(Wire::new(Stream::Unix(unix)));
    }
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
    stream.set_nodelay(true)?;
    keep_alive(&stream);
    Ok(Wire::new(if endpoint.tls() {
        let name = ServerName::try_from(endpoint.host().to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Stream::Tls(Box::new(tls.connector().connect(name, stream).await?))
    } else {
        Stream::Tcp(stream)
    }))
}

/// Sets the keep-alive probes of the reference; a system that refuses them is served without.
fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(stream, true);
    #[cfg(target_os = "linux")]
    {
        use std::time::Duration;
        let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(60));
        let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10));
        let _ = sockopt::set_tcp_keepcnt(stream, 3);
    }
}
