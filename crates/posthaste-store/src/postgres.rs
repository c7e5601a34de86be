//! The store in a PostgreSQL database, which any number of nodes share.
//!
//! Invariant: every method is one transaction, and its answer is sent after the commit. What was lost while a commit was
//! under way is told as `Unavailable`, for it may have happened. A session keeps nothing that matters between two
//! transactions, so a pooler may stand in between.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Alone, Durability, Listener, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::connect::{PostgresOptions, Time, without_password};
pub use self::planted::Planted;
pub use self::probe::Probe;
pub use self::refusal::ConnectError;

use self::counters::Writers;
use self::flows::Flows;
use self::idempotency::Days;
use self::news::{Ear, Way};
use self::tx::{Manner, Tx};

mod accept;
mod acts;
mod changes;
mod claim;
mod connect;
mod counters;
mod durability;
mod ends;
mod fault;
mod flows;
mod idempotency;
pub mod inspect;
mod lists;
pub mod migrate;
mod news;
mod nodes;
#[cfg(unix)]
pub mod own;
mod planted;
mod probe;
mod queue;
mod reads;
mod records;
mod refusal;
mod rows;
mod servers;
mod settings;
mod settle;
mod stats;
mod tls;
mod tx;
mod waking;

/// How often a transaction that had to give way to another one is tried.
const TRIES: usize = 5;

/// The connections that whoever only looks leaves to the others: no list that people read may keep an outcome waiting.
const KEPT_FREE: usize = 3;

/// Of those who look, the places that lists leave to what is asked for by its key: some of that is on the way of a send.
const KEPT_FOR_KEYS: usize = 2;

/// How long a server may say nothing to a heartbeat: with a connection to another one there is still time for the next.
const PROMPT: Duration = Duration::from_secs(5);

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    pool: Pool,
    /// The one connection that is for heartbeats alone, so that they wait for nothing else.
    pulse: Pool,
    /// A place for each connection that may be used to look.
    looks: Arc<Semaphore>,
    /// A place for each of them that may be used for a list or for figures.
    lists: Arc<Semaphore>,
    /// How long to wait for a place or a connection.
    patience: Duration,
    /// How long to wait for everything that one transaction asks.
    longest: Duration,
    manner: Arc<Manner>,
    writers: Arc<Writers>,
    flows: Flows,
    days: Days,
    time: Time,
    durability: Durability,
    /// Where to listen, and where news are told.
    way: Way,
    /// Whether a connection of ours is always the same session, so that one can listen on it.
    sessions: bool,
}

/// Runs something in a transaction of its own, again where the server chose it to give way.
macro_rules! transact {
    ($store:expr, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, tx, $store.longest, $tx => $run)
    };
    ($store:expr, $open:ident, $limit:expr, $tx:ident => $run:expr) => {{
        let mut tries = 1;
        loop {
            let $tx = $store.$open().await?;
            // The server ends what takes too long; a server that says nothing at all is left alone.
            let answer = tokio::time::timeout($limit, $run).await;
            let answer = answer.unwrap_or_else(|_| Err($store.silent()));
            match $tx.end(answer).await {
                Err(fault) if fault.gave_way() && tries < $crate::postgres::TRIES => tries += 1,
                done => break done,
            }
        }
    }};
}

/// Runs something that a heartbeat waits for: it is not given the time in which the node's leases would end.
macro_rules! prompt {
    ($store:expr, $open:ident, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, $open, $store.longest.min($crate::postgres::PROMPT), $tx => $run)
    };
}

/// Looks at something by its key, in a transaction of its own, beside those that work.
macro_rules! look {
    ($store:expr, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, look_tx, $store.longest, $tx => $run)
    };
}

/// The same for lists and figures.
macro_rules! list {
    ($store:expr, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, list_tx, $store.longest, $tx => $run)
    };
}

use {list, look, prompt, transact};

impl PostgresStore {
    /// Connects to the database that the URL names, and brings its schema up to date if that is allowed.
    pub async fn connect(url: &str, options: PostgresOptions) -> std::result::Result<Self, ConnectError> {
        let (reached, client) = connect::reach(url, &options).await?;
        connect::check(&client, &reached.tried).await?;
        if options.migrate {
            migrate::take_all(&client).await?;
        }
        migrate::complete(&client).await?;
        let rows = client.query_typed("select nextval('counter_writer')", &[]).await?;
        let process: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        let looks = options.connections.saturating_sub(KEPT_FREE).max(1);
        Ok(Self {
            durability: reached.servers.durability().clone(),
            way: reached.way(&client, options.connect_timeout).await?,
            sessions: options.prepared,
            pool: reached.pool,
            pulse: reached.pulse,
            looks: Arc::new(Semaphore::new(looks)),
            lists: Arc::new(Semaphore::new(looks.saturating_sub(KEPT_FOR_KEYS).max(1))),
            patience: options.connect_timeout,
            longest: options.statement_timeout + options.connect_timeout,
            manner: options.manner(),
            writers: Writers::of(process),
            flows: Flows::default(),
            days: Days::default(),
            time: options.time,
        })
    }

    /// Whether what the server acknowledges survives a crash of it, by what it said when it was last connected to.
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// A connection for one transaction.
    async fn tx(&self) -> fault::Result<Tx> {
        let client = self.pool.get().await?;
        Ok(Tx::on(client, self.manner.clone(), Some(self.writers.take()), vec![]))
    }

    /// The connection for one heartbeat.
    async fn pulse_tx(&self) -> fault::Result<Tx> {
        Ok(Tx::on(self.pulse.get().await?, self.manner.clone(), None, vec![]))
    }

    /// The server does not answer: the other connections to it are of no use either, and perhaps another server is there.
    fn silent(&self) -> fault::Fault {
        for pool in [&self.pool, &self.pulse] {
            pool.retain(|_, _| false);
        }
        fault::Fault::Silent
    }

    /// A connection for one transaction that only looks.
    async fn look_tx(&self) -> fault::Result<Tx> {
        let places = vec![self.place(&self.looks).await?];
        Ok(Tx::on(self.pool.get().await?, self.manner.clone(), None, places))
    }

    /// The same for a list or figures.
    async fn list_tx(&self) -> fault::Result<Tx> {
        let places = vec![self.place(&self.lists).await?, self.place(&self.looks).await?];
        Ok(Tx::on(self.pool.get().await?, self.manner.clone(), None, places))
    }

    async fn place(&self, among: &Arc<Semaphore>) -> fault::Result<OwnedSemaphorePermit> {
        let place = tokio::time::timeout(self.patience, among.clone().acquire_owned()).await;
        place.ok().and_then(std::result::Result::ok).ok_or(fault::Fault::Crowded)
    }

    /// The caller's time, if nodes live by it.
    fn time(&self, callers: Timestamp) -> Option<Timestamp> {
        match self.time {
            Time::Database => {
                let _ = callers;
                None
            }
            #[cfg(feature = "planted")]
            Time::Caller => Some(callers),
        }
    }

    /// Occupies every place of lists until the answer is dropped.
    #[cfg(feature = "planted")]
    pub async fn occupy_lists(&self) -> Option<OwnedSemaphorePermit> {
        let all = u32::try_from(self.lists.available_permits()).ok()?;
        self.lists.clone().acquire_many_owned(all).await.ok()
    }

    /// The first counter that differs from a recount of the rows, in words; none if all are right.
    #[cfg(feature = "planted")]
    pub async fn recount(&self) -> posthaste_engine::store::Result<Option<String>> {
        Ok(look!(self, tx => counters::recount(&tx))?)
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn listen(&self) -> Box<dyn Listener> {
        if self.sessions { Box::new(Ear::new(self.way.clone())) } else { Box::new(Alone) }
    }
}
