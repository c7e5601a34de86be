//! One transaction on one connection, and how statements are sent in it.
//!
//! Statements that do not wait for each other's answers are sent together. A transaction that is not ended by `commit` is
//! rolled back or, where whoever waited for it went away in the middle, its connection is closed.

use std::borrow::Cow;
use std::sync::Arc;

use deadpool_postgres::Object;
use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::counters::Writer;
use super::fault::{Fault, Result};
use super::planted::Planted;

/// A value with the type of its column.
pub(super) type Bound<'v> = (&'v (dyn ToSql + Sync), Type);

/// Values with their types, as the parameters of a statement.
macro_rules! bind {
    ($($value:expr => $type:ident),* $(,)?) => {
        &[$((&$value as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::$type)),*]
    };
}
pub(super) use bind;

/// How transactions are begun and statements sent.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    /// Whether statements are prepared and kept by the connection.
    pub(super) prepared: bool,
    /// What is set at the start of each transaction where no session can be relied on, else empty.
    pub(super) set: String,
    /// What is asked of the server at the start of each transaction that writes, likewise; see `durability`.
    pub(super) demand: String,
    /// A bug that is switched on.
    pub(super) bug: Option<Planted>,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It writes; each statement sees what was committed before it.
    Write,
    /// It reads; all statements see the same moment.
    Read,
}

/// What is done after the statements that are sent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The transaction goes on.
    GoOn,
    /// It is committed. Where one of the statements failed this is a rollback, so it need not wait for their answers.
    Commit,
}

/// A statement with its values.
pub(super) struct Step<'s> {
    pub(super) sql: Cow<'s, str>,
    pub(super) bound: &'s [Bound<'s>],
}

/// A statement with its values. A macro, so that a `let` keeps the values that are made in place.
macro_rules! step {
    ($sql:expr, $bound:expr $(,)?) => {
        $crate::postgres::tx::Step { sql: std::borrow::Cow::from($sql), bound: $bound }
    };
}
pub(super) use step;

/// A connection for one transaction.
pub(super) struct Tx {
    /// There until the transaction has ended.
    client: Option<Object>,
    manner: Arc<Manner>,
    /// Which rows of the counters are this transaction's while it runs; none if it only looks.
    writer: Option<Writer>,
    /// The places among those who look, if it only looks.
    _places: Vec<OwnedSemaphorePermit>,
}

impl Tx {
    /// On a connection that is in no transaction.
    pub(super) const fn on(
        client: Object,
        manner: Arc<Manner>,
        writer: Option<Writer>,
        places: Vec<OwnedSemaphorePermit>,
    ) -> Self {
        Self { client: Some(client), manner, writer, _places: places }
    }

    /// Whether that bug is switched on.
    pub(super) fn bug(&self, bug: Planted) -> bool {
        self.manner.bug == Some(bug)
    }

    /// The number under which this transaction keeps its counters.
    pub(super) fn writer(&self) -> i16 {
        self.writer.as_ref().map_or(0, Writer::number)
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("a transaction has its connection until it ends")
    }

    /// One statement that is a transaction by itself.
    pub(super) async fn alone(&self, mode: Mode, sql: &str, bound: &[Bound<'_>]) -> Result<Vec<Row>> {
        if self.manner.set.is_empty() {
            return self.rows(sql, bound).await;
        }
        let mut answers = self.send(Some(mode), &[step!(sql, bound)], Then::Commit).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Statements that do not need each other's answers: they go out together and each is answered by its rows. With a
    /// mode the transaction begins before them.
    pub(super) async fn send(
        &self,
        begin: Option<Mode>,
        steps: &[Step<'_>],
        then: Then,
    ) -> Result<Vec<Vec<Row>>> {
        // A statement that is not known yet takes a question and an answer, in which a later one would overtake it.
        if self.manner.prepared {
            for step in steps {
                self.statement(&step.sql, step.bound).await?;
            }
        }
        let begun = async {
            match begin {
                Some(mode) => self.begin(mode).await,
                None => Ok(()),
            }
        };
        let run = join_all(steps.iter().map(|step| self.rows(&step.sql, step.bound)));
        let ended = async {
            match then {
                Then::Commit => self.batch("commit").await,
                Then::GoOn => Ok(()),
            }
        };
        // In their order: what goes out first is done first.
        let (begun, answers, ended) = tokio::join!(biased; begun, run, ended);
        begun?;
        // After the first that failed the others only say that something had failed.
        let answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
        ended?;
        Ok(answers)
    }

    async fn begin(&self, mode: Mode) -> Result<()> {
        let (begin, demand) = match mode {
            Mode::Write => ("begin isolation level read committed read write;", &*self.manner.demand),
            Mode::Read => ("begin isolation level repeatable read read only;", ""),
        };
        self.batch(&format!("{begin}{}{demand}", self.manner.set)).await
    }

    async fn statement(&self, sql: &str, bound: &[Bound<'_>]) -> Result<tokio_postgres::Statement> {
        let types: Vec<Type> = bound.iter().map(|(_, kind)| kind.clone()).collect();
        Ok(self.client().prepare_typed_cached(sql, &types).await?)
    }

    /// The rows that a statement answers inside of a transaction that has begun.
    pub(super) async fn rows(&self, sql: &str, bound: &[Bound<'_>]) -> Result<Vec<Row>> {
        if !self.manner.prepared {
            return Ok(self.client().query_typed(sql, bound).await?);
        }
        let statement = self.statement(sql, bound).await?;
        let values: Vec<&(dyn ToSql + Sync)> = bound.iter().map(|(value, _)| *value).collect();
        Ok(self.client().query(&statement, &values).await?)
    }

    /// Runs plain text, which may be several statements.
    pub(super) async fn batch(&self, sql: &str) -> Result<()> {
        Ok(self.client().batch_execute(sql).await?)
    }

    /// The transaction has ended, well or not: a good connection goes back to the others.
    pub(super) async fn end<T>(mut self, answer: Result<T>) -> Result<T> {
        let spared = match &answer {
            Ok(_) => true,
            // After a commit that was sent already this only leaves a notice.
            Err(fault) => fault.spares_connection() && self.batch("rollback").await.is_ok(),
        };
        if spared {
            // Back to the pool.
            self.client = None;
        }
        answer
    }
}

impl Drop for Tx {
    /// Whoever waited went away in the middle, or the connection is no good: the server rolls back what was not committed.
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

/// The only row of an answer.
pub(super) fn only(rows: Vec<Row>) -> Result<Row> {
    rows.into_iter().next().ok_or_else(|| Fault::nonsense("a statement that always answers gave no row"))
}
