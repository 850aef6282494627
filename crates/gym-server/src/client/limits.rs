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
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            total: 102_400,
            per_host: 1024,
            waiting: 131_072,
            idle: Duration::from_secs(15),
            connect: Duration::from_secs(10),
        }
    }
}

impl PoolLimits {
    /// Reads `global_aiohttp_connector_limit` and `…_limit_per_host` from a merged config.
    #[must_use]
    pub fn from_global(global: &Value) -> Self {
        let limit = |key: &str, default| {
            global.get(key).and_then(Value::as_u64).map_or(default, |n| n as usize)
        };
        let default = Self::default();
        Self {
            total: limit("global_aiohttp_connector_limit", default.total),
            per_host: limit("global_aiohttp_connector_limit_per_host", default.per_host),
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
