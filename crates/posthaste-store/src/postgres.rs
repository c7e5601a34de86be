//! The store in a PostgreSQL database, shared by any number of nodes.
//!
//! Invariant: every method is one transaction and returns after the commit. If the connection is lost during
//! a commit, the result is `Unavailable`, because the commit may have happened. No method depends on session
//! state of an earlier transaction, so a transaction pooler may be used.

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

use self::counters::CounterWriters;
use self::flows::Flows;
use self::idempotency::Days;
use self::notices::{NoticeListener, NotifyChannel};
use self::tx::{Tx, TxOptions};
use crate::kept::operations::Definitions;

mod accept;
mod acts;
mod changes;
mod claim;
mod connect;
mod counters;
mod destinations;
mod durability;
mod ends;
mod fault;
mod flows;
mod groups;
mod idempotency;
mod inbound;
pub mod inspect;
mod jobs;
mod key_uses;
mod lists;
pub mod migrate;
mod nodes;
mod notices;
mod operations;
#[cfg(unix)]
pub mod own;
mod planted;
mod probe;
mod queue;
mod reads;
mod records;
mod refusal;
mod retention;
mod rows;
mod series;
mod servers;
mod settings;
mod settle;
mod stats;
mod tls;
mod tx;
mod waking;

/// Maximum number of tries of a transaction that the server aborts in favour of another one.
const MAX_TRIES: usize = 5;

/// Connections that reads leave free, so that lists do not delay settlements.
const CONNECTIONS_KEPT_FOR_WRITES: usize = 3;

/// Connections for reads that lists leave to reads by key: a send waits for some of those.
const CONNECTIONS_KEPT_FOR_KEYS: usize = 2;

/// Timeout of a heartbeat. It leaves enough time to connect to another server before the next one.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

pub struct PostgresStore {
    pool: Pool,
    /// The one connection for heartbeats, so that they do not wait for other work.
    heartbeat_pool: Pool,
    /// A permit for each connection that reads may use.
    reads: Arc<Semaphore>,
    /// A permit for each of those connections that lists and stats may use.
    lists: Arc<Semaphore>,
    /// Timeout for a permit or a connection.
    connect_timeout: Duration,
    /// Timeout for all statements of one transaction.
    transaction_timeout: Duration,
    tx_options: Arc<TxOptions>,
    writers: Arc<CounterWriters>,
    flows: Flows,
    days: Days,
    definitions: Definitions,
    time: Time,
    durability: Durability,
    notify: NotifyChannel,
    /// Whether each connection keeps its session, as LISTEN needs.
    sessions: bool,
}

/// Runs a transaction, and repeats it if the server aborts it in favour of another one.
macro_rules! transact {
    ($store:expr, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, tx, $store.transaction_timeout, $tx => $run)
    };
    ($store:expr, $open:ident, $limit:expr, $tx:ident => $run:expr) => {{
        let mut tries = 1;
        loop {
            let $tx = $store.$open().await?;
            // Slow statements are ended by the server. This timeout is for a server that does not respond at
            // all.
            let answer = tokio::time::timeout($limit, $run).await;
            let answer = answer.unwrap_or_else(|_| Err($store.unresponsive()));
            match $tx.end(answer).await {
                Err(fault) if fault.can_be_repeated() && tries < $crate::postgres::MAX_TRIES => tries += 1,
                done => break done,
            }
        }
    }};
}

/// Runs a transaction that a heartbeat waits for, with a timeout shorter than the life of a lease.
macro_rules! transact_quickly {
    ($store:expr, $open:ident, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, $open, $store.transaction_timeout.min($crate::postgres::HEARTBEAT_TIMEOUT), $tx => $run)
    };
}

/// Runs a read by key, on the connections for reads.
macro_rules! look {
    ($store:expr, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, read_tx, $store.transaction_timeout, $tx => $run)
    };
}

/// Runs a read for lists or stats.
macro_rules! list {
    ($store:expr, $tx:ident => $run:expr) => {
        $crate::postgres::transact!($store, list_tx, $store.transaction_timeout, $tx => $run)
    };
}

use {list, look, transact, transact_quickly};

impl PostgresStore {
    /// Connects to the database, and applies missing migrations if the options allow it.
    pub async fn connect(url: &str, options: PostgresOptions) -> std::result::Result<Self, ConnectError> {
        let (connected, client) = connect::connect(url, &options).await?;
        connect::check(&client, &connected.tried).await?;
        if options.migrate {
            migrate::apply_missing(&client).await?;
        }
        migrate::complete(&client).await?;
        let rows = client.query_typed("select nextval('counter_writer')", &[]).await?;
        let process: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        let reads = options.connections.saturating_sub(CONNECTIONS_KEPT_FOR_WRITES).max(1);
        Ok(Self {
            durability: connected.servers.durability().clone(),
            notify: connected.notify(&client, options.connect_timeout).await?,
            sessions: options.prepared,
            pool: connected.pool,
            heartbeat_pool: connected.heartbeat_pool,
            reads: Arc::new(Semaphore::new(reads)),
            lists: Arc::new(Semaphore::new(reads.saturating_sub(CONNECTIONS_KEPT_FOR_KEYS).max(1))),
            connect_timeout: options.connect_timeout,
            transaction_timeout: options.statement_timeout + options.connect_timeout,
            tx_options: options.tx_options(),
            writers: CounterWriters::of(process),
            flows: Flows::default(),
            days: Days::default(),
            definitions: Definitions::default(),
            time: options.time,
        })
    }

    /// The durability of acknowledged writes, as reported by the server at the last connect.
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    async fn tx(&self) -> fault::Result<Tx> {
        let client = self.pool.get().await?;
        Ok(Tx::on(client, self.tx_options.clone(), Some(self.writers.take()), vec![]))
    }

    async fn heartbeat_tx(&self) -> fault::Result<Tx> {
        Ok(Tx::on(self.heartbeat_pool.get().await?, self.tx_options.clone(), None, vec![]))
    }

    /// Discards all connections: the server does not respond, and another one may have taken over.
    fn unresponsive(&self) -> fault::Fault {
        for pool in [&self.pool, &self.heartbeat_pool] {
            pool.retain(|_, _| false);
        }
        fault::Fault::Unresponsive
    }

    async fn read_tx(&self) -> fault::Result<Tx> {
        let permits = vec![self.permit(&self.reads).await?];
        Ok(Tx::on(self.pool.get().await?, self.tx_options.clone(), None, permits))
    }

    async fn list_tx(&self) -> fault::Result<Tx> {
        let permits = vec![self.permit(&self.lists).await?, self.permit(&self.reads).await?];
        Ok(Tx::on(self.pool.get().await?, self.tx_options.clone(), None, permits))
    }

    async fn permit(&self, among: &Arc<Semaphore>) -> fault::Result<OwnedSemaphorePermit> {
        let permit = tokio::time::timeout(self.connect_timeout, among.clone().acquire_owned()).await;
        permit.ok().and_then(std::result::Result::ok).ok_or(fault::Fault::TooManyReads)
    }

    /// The caller's time if the options say so, otherwise `None` for the time of the database.
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

    /// Occupies all permits of lists until the result is dropped.
    #[cfg(feature = "planted")]
    pub async fn occupy_lists(&self) -> Option<OwnedSemaphorePermit> {
        let all = u32::try_from(self.lists.available_permits()).ok()?;
        self.lists.clone().acquire_many_owned(all).await.ok()
    }

    /// Compares the counters with the rows. Describes the first difference; `None` if there is none.
    #[cfg(feature = "planted")]
    pub async fn recount(&self) -> posthaste_engine::store::Result<Option<String>> {
        match look!(self, tx => counters::recount(&tx))? {
            None => self.recount_groups().await,
            difference => Ok(difference),
        }
    }

    /// Compares the failure groups with the dead letters, as `recount` does after the counters.
    #[cfg(feature = "planted")]
    pub async fn recount_groups(&self) -> posthaste_engine::store::Result<Option<String>> {
        Ok(look!(self, tx => groups::recount(&tx))?)
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn listen(&self) -> Box<dyn Listener> {
        if self.sessions { Box::new(NoticeListener::new(self.notify.clone())) } else { Box::new(Alone) }
    }
}
