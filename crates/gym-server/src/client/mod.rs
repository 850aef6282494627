//! Outbound requests: one pooled client for each shard.
//!
//! One owner times waiting for a connection, connecting, the first byte and the body, decides
//! about retries and makes the CLIENT span; nothing else in the workspace opens connections to
//! servers. A request reads its reply to the end.

mod connect;
mod error;
mod framing;
mod limits;
mod meters;
mod outgoing;
mod patience;
mod pool;
mod retry;
mod span;
mod trace_headers;
mod wire;

use std::sync::{Arc, OnceLock, Weak};

pub use error::{ClientError, names_a_timeout};
pub use limits::{KeepAlive, PoolLimits};
pub(crate) use meters::Meters;
pub use outgoing::{ClientReply, Outgoing};
pub use patience::{InvalidPatience, Listener, Patience};
pub use retry::{Failure, Policy};
pub use wire::WireError;

use crate::http::{Call, Shard};
use crate::instance::Endpoint;
use pool::Pool;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Limits of its pool.
    pub limits: PoolLimits,
    /// How long requests go on.
    pub patience: Patience,
    /// Who hears of requests that are being repeated.
    pub listener: Option<Listener>,
    /// Whether model endpoints receive the trace context.
    pub propagate_to_models: bool,
    /// Hosts of third parties that receive the trace context.
    pub propagate_to: Vec<String>,
    /// Whether requests make a CLIENT span.
    pub client_spans: bool,
    /// Whether Gym servers of this host are reached through the Unix socket beside their port.
    pub same_host_sockets: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            limits: PoolLimits::default(),
            patience: Patience::default(),
            listener: None,
            propagate_to_models: true,
            propagate_to: Vec::new(),
            client_spans: true,
            same_host_sockets: true,
        }
    }
}

/// The client of one shard. Clones share its pool.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    config: ClientConfig,
    mentions: patience::Mentions,
    pool: Pool,
    tls: connect::Tls,
    local: OnceLock<Local>,
}

/// The server that this client belongs to: requests to it take no socket.
struct Local {
    key: (bool, String),
    shard: Weak<Shard>,
}

impl Client {
    /// A client with an empty pool. Must be called inside a tokio runtime, which its connections
    /// then live on.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        let pool = Pool::new(config.limits);
        let weak = pool.downgrade();
        let every = pool.idle_limit() / 3;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(pool) = weak.upgrade() else { return };
                pool.close_idle();
            }
        });
        Self(Arc::new(Inner {
            config,
            mentions: patience::Mentions::default(),
            pool,
            tls: connect::Tls::default(),
            local: OnceLock::new(),
        }))
    }

    /// A POST request to `path` of `endpoint`.
    pub fn post(&self, endpoint: &Endpoint, path: &str) -> Outgoing {
        Outgoing::new(self.clone(), http::Method::POST, endpoint.clone(), path)
    }

    /// A GET request to `path` of `endpoint`.
    pub fn get(&self, endpoint: &Endpoint, path: &str) -> Outgoing {
        Outgoing::new(self.clone(), http::Method::GET, endpoint.clone(), path)
    }

    /// Requests to `own` are answered by `shard` from now on, without a socket.
    pub(crate) fn serve_locally(&self, own: &Endpoint, shard: &Arc<Shard>) {
        let local = Local { key: own.pool_key().clone(), shard: Arc::downgrade(shard) };
        // Set once, when the shard starts.
        let _ = self.0.local.set(local);
    }

    fn local(&self, endpoint: &Endpoint) -> Option<Arc<Shard>> {
        let local = self.0.local.get().filter(|local| local.key == *endpoint.pool_key())?;
        local.shard.upgrade()
    }

    pub(crate) fn on_behalf_of(call: Call, outgoing: Outgoing) -> Outgoing {
        outgoing.on_behalf_of(call)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("config", &self.0.config).finish_non_exhaustive()
    }
}
