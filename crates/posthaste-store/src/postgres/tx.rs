//! A transaction on a connection, and how its statements are sent.
//!
//! Statements that do not depend on each other are pipelined. A transaction that is not committed is rolled
//! back or, if its future was dropped, its connection is closed.

use std::borrow::Cow;
use std::sync::Arc;

use deadpool_postgres::Object;
use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::counters::CounterWriter;
use super::fault::{Fault, Result};
use super::planted::Planted;

/// A parameter with its type.
pub(super) type Bound<'v> = (&'v (dyn ToSql + Sync), Type);

/// The parameters of a statement, with their types.
macro_rules! bind {
    ($($value:expr => $type:ident),* $(,)?) => {
        &[$((&$value as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::$type)),*]
    };
}
pub(super) use bind;

#[derive(Debug, Clone)]
pub(super) struct TxOptions {
    /// Whether statements are prepared and cached per connection.
    pub(super) prepared: bool,
    /// Settings at the start of each transaction behind a transaction pooler, otherwise empty.
    pub(super) set: String,
    /// The durability check at the start of each writing transaction behind a transaction pooler, otherwise
    /// empty; see `durability`.
    pub(super) demand: String,
    pub(super) bug: Option<Planted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Read committed: each statement sees what was committed before it.
    Write,
    /// Repeatable read: all statements see the same snapshot.
    Read,
}

/// What follows the pipelined statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Continue,
    /// Sent without waiting for the results: after a failed statement a commit is a rollback.
    Commit,
}

pub(super) struct Statement<'s> {
    pub(super) sql: Cow<'s, str>,
    pub(super) bound: &'s [Bound<'s>],
}

/// A macro, so that temporary parameters live as long as the `let` that holds them.
macro_rules! statement {
    ($sql:expr, $bound:expr $(,)?) => {
        $crate::postgres::tx::Statement { sql: std::borrow::Cow::from($sql), bound: $bound }
    };
}
pub(super) use statement;

pub(super) struct Tx {
    /// `None` after the connection went back to the pool.
    client: Option<Object>,
    tx_options: Arc<TxOptions>,
    /// The counter rows of this transaction; `None` if it only reads.
    writer: Option<CounterWriter>,
    /// The permits of a transaction that only reads.
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Tx {
    /// `client` must not be in a transaction.
    pub(super) const fn on(
        client: Object,
        tx_options: Arc<TxOptions>,
        writer: Option<CounterWriter>,
        permits: Vec<OwnedSemaphorePermit>,
    ) -> Self {
        Self { client: Some(client), tx_options, writer, _permits: permits }
    }

    pub(super) fn bug(&self, bug: Planted) -> bool {
        self.tx_options.bug == Some(bug)
    }

    /// The value of the column `writer` for counters of this transaction.
    pub(super) fn writer(&self) -> i16 {
        self.writer.as_ref().map_or(0, CounterWriter::number)
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("a transaction has its connection until it ends")
    }

    /// Runs one statement as its own transaction.
    pub(super) async fn alone(&self, mode: Mode, sql: &str, bound: &[Bound<'_>]) -> Result<Vec<Row>> {
        if self.tx_options.set.is_empty() {
            return self.rows(sql, bound).await;
        }
        let mut answers = self.send(Some(mode), &[statement!(sql, bound)], Then::Commit).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Pipelines statements that do not depend on each other, and returns the rows of each. If `begin` is
    /// set, the transaction begins before them.
    pub(super) async fn send(
        &self,
        begin: Option<Mode>,
        statements: &[Statement<'_>],
        then: Then,
    ) -> Result<Vec<Vec<Row>>> {
        // Preparing a statement takes a round trip, during which a later one would overtake it. So all are
        // prepared first.
        if self.tx_options.prepared {
            for statement in statements {
                self.prepare(&statement.sql, statement.bound).await?;
            }
        }
        let begun = async {
            match begin {
                Some(mode) => self.begin(mode).await,
                None => Ok(()),
            }
        };
        let run = join_all(statements.iter().map(|statement| self.rows(&statement.sql, statement.bound)));
        let ended = async {
            match then {
                Then::Commit => self.batch("commit").await,
                Then::Continue => Ok(()),
            }
        };
        // In this order: the server runs what was sent first.
        let (begun, answers, ended) = tokio::join!(biased; begun, run, ended);
        begun?;
        // After the first error, the others only report that the transaction has failed.
        let answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
        ended?;
        Ok(answers)
    }

    async fn begin(&self, mode: Mode) -> Result<()> {
        let (begin, demand) = match mode {
            Mode::Write => ("begin isolation level read committed read write;", &*self.tx_options.demand),
            Mode::Read => ("begin isolation level repeatable read read only;", ""),
        };
        self.batch(&format!("{begin}{}{demand}", self.tx_options.set)).await
    }

    async fn prepare(&self, sql: &str, bound: &[Bound<'_>]) -> Result<tokio_postgres::Statement> {
        let types: Vec<Type> = bound.iter().map(|(_, kind)| kind.clone()).collect();
        Ok(self.client().prepare_typed_cached(sql, &types).await?)
    }

    /// Runs a statement inside a transaction.
    pub(super) async fn rows(&self, sql: &str, bound: &[Bound<'_>]) -> Result<Vec<Row>> {
        if !self.tx_options.prepared {
            return Ok(self.client().query_typed(sql, bound).await?);
        }
        let statement = self.prepare(sql, bound).await?;
        let values: Vec<&(dyn ToSql + Sync)> = bound.iter().map(|(value, _)| *value).collect();
        Ok(self.client().query(&statement, &values).await?)
    }

    /// Runs plain SQL, which may be several statements.
    pub(super) async fn batch(&self, sql: &str) -> Result<()> {
        Ok(self.client().batch_execute(sql).await?)
    }

    /// Ends the transaction. A connection that is still good returns to the pool.
    pub(super) async fn end<T>(mut self, answer: Result<T>) -> Result<T> {
        let spared = match &answer {
            Ok(_) => true,
            // After a commit that was already sent this only causes a notice.
            Err(fault) => fault.leaves_connection_usable() && self.batch("rollback").await.is_ok(),
        };
        if spared {
            // Returns it to the pool.
            self.client = None;
        }
        answer
    }
}

impl Drop for Tx {
    /// The future was dropped, or the connection is broken. Closing the connection makes the server roll
    /// back.
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

pub(super) fn single_row(rows: Vec<Row>) -> Result<Row> {
    rows.into_iter().next().ok_or_else(|| Fault::damaged("a statement that always answers gave no row"))
}
