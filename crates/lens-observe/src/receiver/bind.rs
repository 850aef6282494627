//! From addresses as they were given to sockets that listen.

use std::io;
use std::net::SocketAddr;

use super::accept;
use super::address::{self, ListenAddress};
use super::counters::Transport;
use super::options::Options;

/// The option that an address came from, as commands call it.
const fn option(transport: Transport) -> &'static str {
    match transport {
        Transport::Grpc => "--listen-grpc",
        Transport::Http => "--listen-http",
    }
}

/// Why a receiver does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A name that stands for no address.
    #[error("{address} (from {}) cannot be resolved", option(*.transport))]
    Resolve {
        /// What was to be listened on.
        address: ListenAddress,
        /// For which transport.
        transport: Transport,
        /// Why.
        source: io::Error,
    },
    /// Other hosts could send without a token.
    #[error(
        "{address} (from {}) can be reached by other hosts and there is no token; set one, or allow it \
         with --allow-unauthenticated-remote",
        option(*.transport)
    )]
    Remote {
        /// What was to be listened on.
        address: SocketAddr,
        /// For which transport.
        transport: Transport,
    },
    /// Somebody else listens there.
    #[error("{address} is in use by another process; choose another port with {}", option(*.transport))]
    InUse {
        /// What was to be listened on.
        address: SocketAddr,
        /// For which transport.
        transport: Transport,
    },
    /// It cannot be listened on for another reason.
    #[error("cannot listen on {address} (from {})", option(*.transport))]
    Bind {
        /// What was to be listened on.
        address: SocketAddr,
        /// For which transport.
        transport: Transport,
        /// Why.
        source: io::Error,
    },
    /// No thread or runtime can be had.
    #[error("no thread can be started for the receiver")]
    Thread(#[source] io::Error),
}

pub(super) fn bind_all(
    options: &Options,
    transport: Transport,
    listeners: &mut Vec<std::net::TcpListener>,
) -> Result<Vec<SocketAddr>, StartError> {
    let wanted = match transport {
        Transport::Grpc => &options.grpc,
        Transport::Http => &options.http,
    };
    let everything = options.grpc.iter().chain(&options.http);
    let also_v4: Vec<SocketAddr> = everything
        .filter_map(|address| address.resolve().ok())
        .flatten()
        .filter(SocketAddr::is_ipv4)
        .collect();
    let mut bound = Vec::new();
    for address in wanted {
        let resolved = address.resolve().map_err(|source| StartError::Resolve {
            address: address.clone(),
            transport,
            source,
        })?;
        let (mut any, mut first_error) = (false, None);
        for address in resolved {
            let is_private = address::is_loopback(&address);
            if !is_private && options.token.is_none() && !options.allow_unauthenticated_remote {
                return Err(StartError::Remote { address, transport });
            }
            // `[::]` alone means IPv4 too; beside `0.0.0.0` it must not.
            let only_v6 =
                also_v4.iter().any(|v4| v4.port() == address.port() && address.port() != 0);
            let listener = accept::listen(address, only_v6)
                .and_then(|listener| Ok((listener.local_addr()?, listener)));
            match listener {
                Ok((local, listener)) => {
                    any = true;
                    bound.push(local);
                    listeners.push(listener);
                }
                Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                    return Err(StartError::InUse { address, transport });
                }
                Err(source) => {
                    first_error.get_or_insert((address, source));
                }
            }
        }
        // A name that stands for addresses of both families works where one family is missing.
        if let (false, Some((address, source))) = (any, first_error) {
            return Err(StartError::Bind { address, transport, source });
        }
    }
    Ok(bound)
}
