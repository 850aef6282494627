//! Certificates made for one test, and a listener that ends TLS in front of a sink.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

/// An authority with the files of a server named `localhost` and of a client.
///
/// # Panics
///
/// Its functions do when a file cannot be written or read: a test cannot go on then.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes keys and certificates, in a folder that goes with the value.
    #[allow(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lens-otlp-tls-{}-{unique}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let write = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).expect("a file");
        };
        let mut params = CertificateParams::new(Vec::new()).expect("valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        write("authority.pem", params.self_signed(&key).expect("signed").pem());
        let issuer = Issuer::new(params, key);
        for (name, host) in [("server", "localhost"), ("client", "client.invalid")] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec![host.to_owned()]).expect("valid");
            let certificate = params.signed_by(&key, &issuer).expect("signed");
            write(&format!("{name}.pem"), certificate.pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { folder }
    }

    /// The file of the authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// The files of the client's certificate and key.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.folder.join("client.pem"), self.folder.join("client.key"))
    }

    fn server_config(&self, wants_client: bool) -> ServerConfig {
        let read = |path: &Path| CertificateDer::from_pem_file(path).expect("readable");
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if wants_client {
            let mut roots = RootCertStore::empty();
            roots.add(read(&self.certificate())).expect("valid");
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_file(self.folder.join("server.key")).expect("readable");
        let chain = vec![read(&self.folder.join("server.pem"))];
        let mut config = builder.with_single_cert(chain, key).expect("valid");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Listens on `localhost` and passes on what TLS protected; stops when dropped.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    _stop: oneshot::Sender<()>,
}

impl TlsFront {
    /// A front of the receiver at `behind`; with `wants_client` only for clients of the authority.
    ///
    /// # Panics
    ///
    /// When no port or runtime can be had.
    pub fn start(authority: &Authority, behind: SocketAddr, wants_client: bool) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(wants_client)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        let acceptor = acceptor.clone();
                        tokio::spawn(async move {
                            let mut stream = acceptor.accept(stream).await?;
                            let mut onwards = TcpStream::connect(behind).await?;
                            tokio::io::copy_bidirectional(&mut stream, &mut onwards).await
                        });
                    }
                });
                // Dropped: it is over.
                let _ = stopped.await;
            });
        });
        Self { port, _stop: stop }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}
