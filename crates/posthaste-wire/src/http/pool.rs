//! The pool of idle connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::HttpConnection;

/// Interval at which expired connections are closed, while there are any.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Older connections are not reused, so that a change of DNS addresses takes effect under steady load too.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Limits of the pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    pub idle: Duration,
    /// Idle connections to one destination.
    pub per_destination: usize,
    /// Idle connections to all destinations.
    pub total: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(20), per_destination: 256, total: 1_024 }
    }
}

pub(super) struct Pool {
    limits: PoolLimits,
    idle: Mutex<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections {
    by_destination: HashMap<String, Vec<IdleConnection>>,
    total: usize,
    /// The task that closes expired connections.
    sweeper: JoinSet<()>,
    /// Whether it runs. It ends when the pool is empty.
    sweeping: bool,
}

struct IdleConnection {
    connection: HttpConnection,
    until: Instant,
}

impl Pool {
    pub(super) fn new(limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self { limits, idle: Mutex::default() })
    }

    /// Takes an open connection to the destination, the most recently used first.
    pub(super) async fn take(&self, destination: &str) -> Option<HttpConnection> {
        loop {
            let mut connection = self.pop(destination)?;
            if connection.is_ready().await {
                return Some(connection);
            }
        }
    }

    /// Whether an idle connection to the destination exists. It may turn out closed.
    pub(super) fn has(&self, destination: &str) -> bool {
        let now = Instant::now();
        let idle = self.lock();
        let connections = idle.by_destination.get(destination);
        connections.is_some_and(|connections| connections.last().is_some_and(|one| one.until > now))
    }

    /// Keeps a connection for the next exchange, if there is room. `keep_alive` is the server's limit.
    pub(super) fn put(
        self: &Arc<Self>,
        destination: &str,
        connection: HttpConnection,
        keep_alive: Option<Duration>,
    ) {
        let now = Instant::now();
        // One second is left for the next request to arrive before the server closes.
        let theirs = keep_alive.map_or(Duration::MAX, |theirs| theirs.saturating_sub(Duration::from_secs(1)));
        let idle_for = self.limits.idle.min(theirs);
        if idle_for.is_zero() || now.duration_since(connection.opened_at()) >= MAX_AGE {
            return;
        }
        let mut idle = self.lock();
        if idle.total >= self.limits.total {
            return;
        }
        let one = IdleConnection { connection, until: now + idle_for };
        match idle.by_destination.get_mut(destination) {
            Some(connections) if connections.len() >= self.limits.per_destination => return,
            Some(connections) => connections.push(one),
            None => drop(idle.by_destination.insert(destination.to_owned(), vec![one])),
        }
        idle.total += 1;
        if !idle.sweeping {
            while idle.sweeper.try_join_next().is_some() {}
            idle.sweeper.spawn(sweep(Arc::downgrade(self)));
            idle.sweeping = true;
        }
    }

    fn pop(&self, destination: &str) -> Option<HttpConnection> {
        let mut idle = self.lock();
        let one = idle.by_destination.get_mut(destination)?.pop()?;
        idle.total -= 1;
        (one.until > Instant::now()).then_some(one.connection)
    }

    /// Removes expired connections. Returns `None` when the pool is empty, which ends the sweeper.
    fn expire(&self, now: Instant) -> Option<Vec<IdleConnection>> {
        let mut expired = Vec::new();
        let mut idle = self.lock();
        idle.by_destination.retain(|_, connections| {
            expired.extend(connections.extract_if(.., |one| one.until <= now));
            !connections.is_empty()
        });
        idle.total -= expired.len();
        idle.sweeping = idle.total > 0;
        idle.sweeping.then_some(expired)
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().expect("no code panics while it holds the pool")
    }
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else { return };
        let Some(expired) = pool.expire(Instant::now()) else { return };
        drop(expired);
    }
}
