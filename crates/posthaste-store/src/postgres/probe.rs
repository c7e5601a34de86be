//! Plain queries on a database, for the bench, which measures what the store has written.

use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::SimpleQueryMessage;

use super::connect::{self, PostgresOptions};
use super::refusal::ConnectError;

/// Timeout of a query; some create or vacuum a database.
const LONGEST: Duration = Duration::from_secs(3_600);

pub struct Probe(Box<Object>);

impl Probe {
    /// Connects to the database. Its schema is not changed.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let options = PostgresOptions {
            connections: 1,
            statement_timeout: LONGEST,
            application_name: "posthaste probe".to_owned(),
            unsafe_durability: true,
            ..PostgresOptions::default()
        };
        let (_, client) = connect::connect(url, &options).await?;
        Ok(Self(Box::new(client)))
    }

    /// Runs statements outside of a transaction and returns their rows as text; null is an empty text.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Vec<String>>, ConnectError> {
        let mut rows = vec![];
        for message in self.0.simple_query(sql).await? {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect());
            }
        }
        Ok(rows)
    }
}
