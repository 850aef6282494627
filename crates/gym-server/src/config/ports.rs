//! Hosts and ports of the instances that name none.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener, ToSocketAddrs};

use super::error::ConfigError;

pub(super) const DEFAULT_LOW: u16 = 10001;
pub(super) const DEFAULT_HIGH: u16 = 20000;
pub(super) const DEFAULT_HOST: &str = "127.0.0.1";
pub(super) const HEAD_SERVER_PORT: u16 = 11000;
const TRIES: usize = 50;

/// Proposes ports and says which are free.
pub trait PortSource {
    /// A port between `low` and `high`, both included.
    fn propose(&mut self, low: u16, high: u16) -> u16;
    /// Whether a server could listen on `port` now.
    fn is_free(&mut self, port: u16) -> bool;
}

/// Random ports, tested by binding all interfaces once.
#[derive(Debug, Default)]
pub struct SystemPorts {
    seed: RandomState,
    proposed: u64,
}

impl PortSource for SystemPorts {
    fn propose(&mut self, low: u16, high: u16) -> u16 {
        self.proposed += 1;
        let width = u64::from(high.saturating_sub(low)) + 1;
        let offset = self.seed.hash_one(self.proposed) % width;
        low.saturating_add(u16::try_from(offset).unwrap_or(0))
    }

    fn is_free(&mut self, port: u16) -> bool {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
    }
}

/// Hands out ports that nothing else of the config uses.
pub(super) struct Ports<'a> {
    pub(super) source: &'a mut dyn PortSource,
    pub(super) low: u16,
    pub(super) high: u16,
    pub(super) disallowed: BTreeSet<u16>,
}

impl Ports<'_> {
    /// A free port, which is disallowed from then on.
    pub(super) fn assign(&mut self, instance: &str) -> Result<u16, ConfigError> {
        for _ in 0..TRIES {
            let port = self.source.propose(self.low, self.high);
            if !self.disallowed.contains(&port) && self.source.is_free(port) {
                self.disallowed.insert(port);
                return Ok(port);
            }
        }
        Err(ConfigError::NoFreePort {
            instance: instance.to_owned(),
            low: self.low,
            high: self.high,
            tries: TRIES,
        })
    }
}

/// The address of this machine's own name, for `use_absolute_ip`.
pub(super) fn own_address() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let addresses = (name.trim(), 0).to_socket_addrs().ok()?;
    addresses.map(|address| address.ip()).find(std::net::IpAddr::is_ipv4).map(|ip| ip.to_string())
}
