//! Limits of the connection pool, from the keys of the merged config.

use std::time::Duration;

use serde_json::Value;

/// How many connections a client may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Open connections to all destinations together; 0 is unlimited.
    pub total: usize,
    /// Open connections to one destination; 0 is unlimited.
    pub per_host: usize,
    /// Requests that may wait for a connection to one destination.
    pub waiting: usize,
    /// Longest time a connection stays unused.
    pub idle: Duration,
    /// Longest time for opening a connection, TLS included.
    pub connect: Duration,
    /// Probes of connections over TCP.
    pub keep_alive: KeepAlive,
}

/// When TCP asks whether the other end of an unused connection is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// From one probe to the next.
    pub interval: Duration,
    /// Unanswered probes that end the connection.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 }
    }
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            total: 102_400,
            per_host: 1024,
            waiting: 131_072,
            idle: Duration::from_secs(15),
            connect: Duration::from_secs(10),
            keep_alive: KeepAlive::default(),
        }
    }
}

impl PoolLimits {
    /// Reads `global_aiohttp_connector_limit`, `…_limit_per_host` and
    /// `global_aiohttp_tcp_keepalive_{idle_seconds,interval_seconds,probes}` from a merged config.
    #[must_use]
    pub fn from_global(global: &Value) -> Self {
        let limit = |key: &str, default| {
            global.get(key).and_then(Value::as_u64).map_or(default, |n| n as usize)
        };
        let default = Self::default();
        Self {
            total: limit("global_aiohttp_connector_limit", default.total),
            per_host: limit("global_aiohttp_connector_limit_per_host", default.per_host),
            keep_alive: KeepAlive::from_global(global),
            ..default
        }
    }

    /// The share of one of `workers` shards. A limit never becomes 0, which is unlimited.
    #[must_use]
    pub fn divided_by(self, workers: usize) -> Self {
        let share = |limit: usize| if limit == 0 { 0 } else { (limit / workers.max(1)).max(1) };
        Self { total: share(self.total), per_host: share(self.per_host), ..self }
    }

    pub(super) fn allows_total(&self, open: usize) -> bool {
        self.total == 0 || open < self.total
    }

    pub(super) fn allows_host(&self, open: usize) -> bool {
        self.per_host == 0 || open < self.per_host
    }
}

impl KeepAlive {
    /// The system takes whole seconds from 1 on; what it would refuse is left as it is by default.
    fn from_global(global: &Value) -> Self {
        let positive = |key: &str| global.get(key).and_then(Value::as_u64).filter(|n| *n > 0);
        let seconds = |key: &str, default| positive(key).map_or(default, Duration::from_secs);
        let default = Self::default();
        let probes = positive("global_aiohttp_tcp_keepalive_probes");
        Self {
            idle: seconds("global_aiohttp_tcp_keepalive_idle_seconds", default.idle),
            interval: seconds("global_aiohttp_tcp_keepalive_interval_seconds", default.interval),
            probes: probes.and_then(|n| u32::try_from(n).ok()).unwrap_or(default.probes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_divided_by_workers_and_zero_stays_unlimited() {
        let global = serde_json::json!({
            "global_aiohttp_connector_limit": 0, "global_aiohttp_connector_limit_per_host": 3
        });
        let limits = PoolLimits::from_global(&global).divided_by(2);
        assert_eq!((limits.total, limits.per_host), (0, 1));
        assert_eq!(limits.divided_by(8).per_host, 1);
    }
}
