//! Plain questions to a database, beside the store: for the bench, which weighs what the store has written.

use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::SimpleQueryMessage;

use super::connect::{self, PostgresOptions};
use super::refusal::ConnectError;

/// How long a question may take; some make a database or vacuum one.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A connection of its own.
pub struct Probe(Box<Object>);

impl Probe {
    /// Connects to the database that the URL names. Its schema is left as it is.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let options = PostgresOptions {
            connections: 1,
            statement_timeout: LONGEST,
            application_name: "posthaste probe".to_owned(),
            unsafe_durability: true,
            ..PostgresOptions::default()
        };
        let (_, client) = connect::reach(url, &options).await?;
        Ok(Self(Box::new(client)))
    }

    /// Runs statements outside of any transaction and answers with their rows, as text; null is an empty one.
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
