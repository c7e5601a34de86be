//! Connections that wait for their next exchange.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::link::Link;

/// How often connections that waited too long are looked for, while there are any.
const SWEEP: Duration = Duration::from_secs(1);
/// A connection is not kept beyond this age, so that a change of addresses is followed under steady load too.
const OLDEST: Duration = Duration::from_secs(300);

/// How many connections wait, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// How long a connection may wait.
    pub idle: Duration,
    /// The most that wait for one destination.
    pub per_destination: usize,
    /// The most that wait for all destinations together.
    pub total: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(20), per_destination: 256, total: 1_024 }
    }
}

/// The waiting connections.
pub(super) struct Pool {
    limits: PoolLimits,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    by_destination: HashMap<String, Vec<Parked>>,
    total: usize,
    /// The task that closes what waited too long.
    sweeper: JoinSet<()>,
    /// Whether it runs; it ends by itself when nothing waits.
    sweeping: bool,
}

struct Parked {
    link: Link,
    until: Instant,
}

impl Pool {
    pub(super) fn new(limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self { limits, waiting: Mutex::default() })
    }

    /// A connection to the destination that is still good, the one used last first.
    pub(super) async fn take(&self, destination: &str) -> Option<Link> {
        loop {
            let mut link = self.pop(destination)?;
            if link.is_ready().await {
                return Some(link);
            }
        }
    }

    /// Whether a connection to the destination waits. It may turn out closed.
    pub(super) fn has(&self, destination: &str) -> bool {
        let now = Instant::now();
        let waiting = self.lock();
        let links = waiting.by_destination.get(destination);
        links.is_some_and(|links| links.last().is_some_and(|parked| parked.until > now))
    }

    /// Keeps a connection for the next exchange, if there is room; `keeps_for` is what the other side said.
    pub(super) fn put(self: &Arc<Self>, destination: &str, link: Link, keeps_for: Option<Duration>) {
        let now = Instant::now();
        // A second is left for our request to arrive before the other side closes.
        let theirs = keeps_for.map_or(Duration::MAX, |theirs| theirs.saturating_sub(Duration::from_secs(1)));
        let idle = self.limits.idle.min(theirs);
        if idle.is_zero() || now.duration_since(link.born()) >= OLDEST {
            return;
        }
        let mut waiting = self.lock();
        if waiting.total >= self.limits.total {
            return;
        }
        let parked = Parked { link, until: now + idle };
        match waiting.by_destination.get_mut(destination) {
            Some(links) if links.len() >= self.limits.per_destination => return,
            Some(links) => links.push(parked),
            None => drop(waiting.by_destination.insert(destination.to_owned(), vec![parked])),
        }
        waiting.total += 1;
        if !waiting.sweeping {
            while waiting.sweeper.try_join_next().is_some() {}
            waiting.sweeper.spawn(sweep(Arc::downgrade(self)));
            waiting.sweeping = true;
        }
    }

    fn pop(&self, destination: &str) -> Option<Link> {
        let mut waiting = self.lock();
        let parked = waiting.by_destination.get_mut(destination)?.pop()?;
        waiting.total -= 1;
        (parked.until > Instant::now()).then_some(parked.link)
    }

    /// Takes out what waited too long; `None` when the sweeper has nothing left to wait for.
    fn expire(&self, now: Instant) -> Option<Vec<Parked>> {
        let mut expired = Vec::new();
        let mut waiting = self.lock();
        waiting.by_destination.retain(|_, links| {
            expired.extend(links.extract_if(.., |parked| parked.until <= now));
            !links.is_empty()
        });
        waiting.total -= expired.len();
        waiting.sweeping = waiting.total > 0;
        waiting.sweeping.then_some(expired)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no code panics while it holds the pool")
    }
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        let Some(expired) = pool.expire(Instant::now()) else { return };
        drop(expired);
    }
}
