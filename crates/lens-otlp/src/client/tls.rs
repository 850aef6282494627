//! TLS for `https` endpoints.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::connection::Noting;
use super::{Protocol, Target, TargetError, roots};

pub(super) struct Connector {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connector").field("name", &self.name).finish_non_exhaustive()
    }
}

fn certificate_error(
    path: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> TargetError {
    TargetError::Certificate { path: path.to_owned(), source: source.into() }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TargetError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| certificate_error(path, error))?;
    if certificates.is_empty() {
        return Err(certificate_error(path, "the file holds no certificate"));
    }
    Ok(certificates)
}

impl Connector {
    pub(super) fn new(target: &Target, host: &str) -> Result<Self, TargetError> {
        let mut roots = RootCertStore::empty();
        match &target.certificate {
            Some(path) => {
                for certificate in read_certificates(path)? {
                    roots.add(certificate).map_err(|error| certificate_error(path, error))?;
                }
            }
            None => roots = roots::trusted(|name| std::env::var_os(name)),
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TargetError::Tls(error.into()))?
            .with_root_certificates(roots);
        let mut config = match &target.client_identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = read_certificates(chain)?;
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| certificate_error(key, error))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| certificate_error(key, error))?
            }
        };
        config.alpn_protocols = match target.protocol {
            Protocol::Grpc => vec![b"h2".to_vec()],
            _ => vec![b"http/1.1".to_vec()],
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TargetError::Endpoint(target.endpoint.clone()))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(super) async fn connect(&self, stream: Noting) -> io::Result<TlsStream<Noting>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}
