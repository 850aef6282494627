//! Open connections, bounded in total and per destination.
//!
//! Ready-made pools bound idle connections only; here the open ones are bounded, waiters are
//! served first come first served, and the wait is measured. One pool belongs to one shard; its
//! mutex is never contended and never held across an await.
//!
//! Invariant: `total_open` is the number of [`Permit`]s alive, and `open` of a host that of its
//! permits. A permit lives as long as its connection or the attempt to open it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::limits::PoolLimits;
use super::meters::Constraint;
use super::wire::Wire;

/// A destination as the pool knows it: scheme and authority.
pub(super) type HostKey = (bool, String);

/// The pool of one shard.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: PoolLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total_open: usize,
    next_ticket: u64,
    hosts: HashMap<HostKey, Host>,
}

#[derive(Debug, Default)]
struct Host {
    open: usize,
    idle: Vec<Idle>,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    grant: oneshot::Sender<Lease>,
}

/// A kept connection, with its permit.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    permit: Permit,
}

/// The right to hold one open connection to a host. Dropping it serves the next waiter.
#[derive(Debug)]
pub(super) struct Permit {
    pool: Weak<Shared>,
    key: HostKey,
}

/// What an acquisition brings.
#[derive(Debug)]
pub(super) enum Lease {
    /// A connection that was kept open, and for how long it was unused.
    Kept(Connection, Duration),
    /// Leave to open one.
    Open(Permit),
}

impl Pool {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self(Arc::new(Shared { limits, state: Mutex::default() }))
    }

    /// A kept connection or leave to open one, if the limits allow it now.
    pub(super) fn try_acquire(&self, key: &HostKey) -> Option<Lease> {
        self.0.try_lease(&mut self.0.lock(), key)
    }

    /// A kept connection or leave to open one; waits while the limits are reached.
    pub(super) async fn acquire(&self, key: &HostKey) -> Result<Lease, NoLease> {
        let receiver = {
            let mut state = self.0.lock();
            if let Some(lease) = self.0.try_lease(&mut state, key) {
                return Ok(lease);
            }
            state.wait(key, self.0.limits.waiting)?
        };
        receiver.await.map_err(|_| NoLease::Closed)
    }

    /// The limit that keeps a request to this host waiting now.
    pub(super) fn constraint(&self, key: &HostKey) -> Constraint {
        let state = self.0.lock();
        let open = state.hosts.get(key).map_or(0, |host| host.open);
        if !self.0.limits.allows_host(open) {
            Constraint::PerHost
        } else if !self.0.limits.allows_total(state.total_open) {
            Constraint::Total
        } else {
            Constraint::Unknown
        }
    }

    /// Gives a connection back for the next request to its host.
    pub(super) fn release(&self, connection: Connection) {
        if !connection.wire.may_be_kept() {
            return;
        }
        let mut connection = Some(connection);
        let mut state = self.0.lock();
        let Some(key) = connection.as_ref().map(|c| c.permit.key.clone()) else { return };
        // Under the total limit whoever came first is served, whichever host it waits for; the
        // connection then gives way to one of that host.
        let others_first = !self.0.limits.allows_total(state.total_open)
            && self.0.first_waiter(&state).is_some_and(|first| first != key);
        if let Some(host) = state.hosts.get_mut(&key).filter(|_| !others_first) {
            while let Some(waiter) = host.waiters.pop_front() {
                let Some(kept) = connection.take() else { return };
                match waiter.grant.send(Lease::Kept(kept, Duration::ZERO)) {
                    Ok(()) => return,
                    // The waiter is gone: take the connection back.
                    Err(Lease::Kept(kept, _)) => connection = Some(kept),
                    Err(Lease::Open(_)) => return,
                }
            }
        }
        if let Some(connection) = connection {
            if others_first {
                drop(state);
                drop(connection);
            } else if let Some(host) = state.hosts.get_mut(&key) {
                host.idle.push(Idle { connection, since: Instant::now() });
            }
        }
    }

    /// Closes connections that were not used for longer than the limit.
    pub(super) fn close_idle(&self) {
        let limit = self.0.limits.idle;
        let mut stale = Vec::new();
        {
            let mut state = self.0.lock();
            for host in state.hosts.values_mut() {
                let is_stale = |idle: &mut Idle| {
                    idle.since.elapsed() > limit || !idle.connection.wire.is_open()
                };
                stale.extend(host.idle.extract_if(.., is_stale));
            }
        }
        // Permits take the lock when they are dropped.
        drop(stale);
    }

    /// Open connections, in total and to one host.
    #[cfg(test)]
    pub(super) fn open(&self, key: &HostKey) -> (usize, usize) {
        let state = self.0.lock();
        (state.total_open, state.hosts.get(key).map_or(0, |host| host.open))
    }

    pub(super) fn idle_limit(&self) -> Duration {
        self.0.limits.idle
    }

    pub(super) fn limits(&self) -> &PoolLimits {
        &self.0.limits
    }

    pub(super) fn downgrade(&self) -> WeakPool {
        WeakPool(Arc::downgrade(&self.0))
    }
}

/// A pool that may be gone.
pub(super) struct WeakPool(Weak<Shared>);

impl WeakPool {
    pub(super) fn upgrade(&self) -> Option<Pool> {
        self.0.upgrade().map(Pool)
    }
}

/// Why a request got no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoLease {
    /// The pool was dropped while it waited.
    Closed,
    /// So many wait already.
    QueueFull(usize),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lease(self: &Arc<Self>, state: &mut State, key: &HostKey) -> Option<Lease> {
        if !state.hosts.contains_key(key) {
            state.hosts.insert(key.clone(), Host::default());
        }
        let total_allows = self.limits.allows_total(state.total_open);
        let mut stale = Vec::new();
        let host = state.hosts.get_mut(key)?;
        let mut kept = None;
        // The youngest first: the oldest then reach the idle limit and are closed.
        while let Some(idle) = host.idle.pop() {
            let unused = idle.since.elapsed();
            if unused > self.limits.idle {
                stale.push(idle);
            } else {
                kept = Some((idle.connection, unused));
                break;
            }
        }
        let host_open = host.open;
        let result = if let Some((connection, unused)) = kept {
            Some(Lease::Kept(connection, unused))
        } else if !stale.is_empty() {
            // Its permit serves again: no connection is counted twice.
            stale.pop().map(|idle| Lease::Open(idle.connection.permit))
        } else if !self.limits.allows_host(host_open) {
            None
        } else if total_allows {
            state.total_open += 1;
            if let Some(host) = state.hosts.get_mut(key) {
                host.open += 1;
            }
            Some(Lease::Open(Permit { pool: Arc::downgrade(self), key: key.clone() }))
        } else if let Some(idle) = oldest_idle(state) {
            // An idle connection elsewhere gives way.
            let mut permit = idle.connection.permit;
            state.move_permit(&mut permit, key);
            Some(Lease::Open(permit))
        } else {
            None
        };
        for idle in stale {
            state.forget(idle.connection.permit);
        }
        result
    }

    /// The host of the waiter that came first among those whose host has room.
    fn first_waiter(&self, state: &State) -> Option<HostKey> {
        state
            .hosts
            .iter()
            .filter(|(_, host)| self.limits.allows_host(host.open))
            .filter_map(|(key, host)| {
                let waiter = host.waiters.iter().find(|waiter| !waiter.grant.is_closed())?;
                Some((waiter.ticket, key))
            })
            .min_by_key(|(ticket, _)| *ticket)
            .map(|(_, key)| key.clone())
    }

    /// Hands freed room to the waiter that came first among those it fits.
    fn serve_waiters(self: &Arc<Self>, state: &mut State) {
        while self.limits.allows_total(state.total_open) {
            let Some(key) = self.first_waiter(state) else { return };
            let Some(host) = state.hosts.get_mut(&key) else { return };
            let Some(waiter) = host.waiters.pop_front() else { return };
            if waiter.grant.is_closed() {
                continue;
            }
            host.open += 1;
            state.total_open += 1;
            let permit = Permit { pool: Arc::downgrade(self), key };
            if let Err(Lease::Open(permit)) = waiter.grant.send(Lease::Open(permit)) {
                state.forget(permit);
            }
        }
    }
}

fn oldest_idle(state: &mut State) -> Option<Idle> {
    let host = state
        .hosts
        .values_mut()
        .filter(|host| !host.idle.is_empty())
        .min_by_key(|host| host.idle[0].since)?;
    Some(host.idle.remove(0))
}

impl State {
    /// Queues a request for a host.
    fn wait(&mut self, key: &HostKey, limit: usize) -> Result<oneshot::Receiver<Lease>, NoLease> {
        let ticket = self.next_ticket;
        let host = self.hosts.entry(key.clone()).or_default();
        if host.waiters.len() >= limit {
            // Those that gave up hold no place.
            host.waiters.retain(|waiter| !waiter.grant.is_closed());
            if host.waiters.len() >= limit {
                return Err(NoLease::QueueFull(limit));
            }
        }
        let (grant, receiver) = oneshot::channel();
        host.waiters.push_back(Waiter { ticket, grant });
        self.next_ticket += 1;
        Ok(receiver)
    }

    /// Ends a permit while the lock is held.
    fn forget(&mut self, mut permit: Permit) {
        permit.pool = Weak::new();
        self.total_open = self.total_open.saturating_sub(1);
        if let Some(host) = self.hosts.get_mut(&permit.key) {
            host.open = host.open.saturating_sub(1);
        }
    }

    fn move_permit(&mut self, permit: &mut Permit, key: &HostKey) {
        if let Some(host) = self.hosts.get_mut(&permit.key) {
            host.open = host.open.saturating_sub(1);
        }
        permit.key.clone_from(key);
        self.hosts.entry(key.clone()).or_default().open += 1;
    }
}

impl Permit {
    pub(super) fn connected(self, wire: Wire) -> Connection {
        Connection { wire, permit: self }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut state = pool.lock();
        state.total_open = state.total_open.saturating_sub(1);
        if let Some(host) = state.hosts.get_mut(&self.key) {
            host.open = host.open.saturating_sub(1);
        }
        pool.serve_waiters(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> HostKey {
        (false, name.to_owned())
    }

    fn pool(total: usize, per_host: usize) -> Pool {
        Pool::new(PoolLimits { total, per_host, ..PoolLimits::default() })
    }

    async fn permit(pool: &Pool, key: &HostKey) -> Permit {
        match pool.acquire(key).await.expect("open") {
            Lease::Open(permit) => permit,
            Lease::Kept(..) => panic!("nothing was kept"),
        }
    }

    #[tokio::test]
    async fn open_connections_never_exceed_the_host_limit() {
        let pool = pool(0, 2);
        let a = key("a");
        let first = permit(&pool, &a).await;
        let _second = permit(&pool, &a).await;
        let waiting = tokio::spawn({
            let (pool, a) = (pool.clone(), a.clone());
            async move { pool.acquire(&a).await.expect("open") }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(pool.open(&a), (2, 2));
        drop(first);
        let served = waiting.await.expect("served");
        assert_eq!(pool.open(&a), (2, 2));
        drop(served);
        assert_eq!(pool.open(&a), (1, 1));
    }

    #[tokio::test]
    async fn waiters_for_the_total_are_served_in_the_order_they_came() {
        let pool = pool(1, 0);
        let held = permit(&pool, &key("a")).await;
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for name in ["b", "c", "a"] {
            let (pool, sender) = (pool.clone(), sender.clone());
            tokio::spawn(async move {
                let acquired = pool.acquire(&key(name)).await.expect("open");
                sender.send(name).expect("open");
                drop(acquired);
            });
            tokio::task::yield_now().await;
        }
        drop(held);
        let served = [order.recv().await, order.recv().await, order.recv().await];
        assert_eq!(served, [Some("b"), Some("c"), Some("a")]);
    }

    #[tokio::test]
    async fn a_waiter_that_gave_up_does_not_keep_the_place() {
        let pool = pool(1, 0);
        let a = key("a");
        let held = permit(&pool, &a).await;
        let gone = tokio::spawn({
            let (pool, a) = (pool.clone(), a.clone());
            async move { pool.acquire(&a).await }
        });
        tokio::task::yield_now().await;
        gone.abort();
        let _ = gone.await;
        drop(held);
        assert_eq!(pool.open(&a), (0, 0));
        let _again = permit(&pool, &a).await;
    }

    #[tokio::test]
    async fn a_queue_that_is_full_refuses_until_somebody_gives_up() {
        let limits = PoolLimits { total: 1, waiting: 1, ..PoolLimits::default() };
        let (pool, a) = (Pool::new(limits), key("a"));
        let _held = permit(&pool, &a).await;
        let waiting = tokio::spawn({
            let (pool, a) = (pool.clone(), a.clone());
            async move { pool.acquire(&a).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(pool.acquire(&a).await.err(), Some(NoLease::QueueFull(1)));
        waiting.abort();
        let _ = waiting.await;
        let second = tokio::time::timeout(Duration::from_millis(1), pool.acquire(&a)).await;
        assert!(second.is_err(), "it waits for a place instead of being refused");
    }
}
