//! A look at a server for whoever wants to know whether it is fit to hold a store. Nothing is changed.

use std::future::poll_fn;
use std::time::Duration;

use deadpool_postgres::Object;
use posthaste_core::time::Timestamp;
use tokio_postgres::AsyncMessage;

use super::connect::{self, PostgresOptions, Reached};
use super::durability;
use super::migrate;
use super::refusal::ConnectError;
use crate::schema::Schema;

/// The channel on which it is tried whether announcements arrive.
const CHANNEL: &str = "posthaste_inspection";

/// A server that answers.
pub struct Inspection {
    reached: Reached,
    options: PostgresOptions,
    client: Object,
}

/// How much room a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// The version of the server, as it says it.
    pub version: String,
    /// The most connections that it takes from those who are not its superuser.
    pub connections: u32,
    /// How many are open, this one among them.
    pub open: u32,
}

impl Inspection {
    /// Reaches the server.
    pub async fn start(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        // Nothing is written, so any server will do.
        let any = PostgresOptions { unsafe_durability: true, ..options.clone() };
        let (reached, client) = connect::reach(url, &any).await?;
        Ok(Self { reached, options, client })
    }

    /// Where it is, for people; without the password.
    pub fn tried(&self) -> &str {
        &self.reached.tried
    }

    /// Refuses a server that would lose what it acknowledged, whatever the options allow, is too old, or cannot hold every
    /// text.
    pub async fn fit(&self) -> Result<(), ConnectError> {
        let settings = durability::settings(&self.client).await?;
        // The last of them is set by whoever writes, unless the options allow anything.
        let asked = if self.options.unsafe_durability { 3 } else { 2 };
        for (setting, value) in durability::SETTINGS.into_iter().zip(settings).take(asked) {
            if value == "off" {
                return Err(ConnectError::NotDurable { setting, value });
            }
        }
        connect::check(&self.client, &self.reached.tried).await
    }

    /// The schema of the database.
    pub async fn schema(&self) -> Result<Schema<ConnectError>, ConnectError> {
        migrate::read(&self.client).await
    }

    /// How much room it has.
    pub async fn room(&self) -> Result<Room, ConnectError> {
        let sql = "
            select current_setting('server_version'),
                current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
                (select sum(numbackends)::bigint from pg_stat_database)";
        let rows = self.client.query_typed(sql, &[]).await?;
        let Some(row) = rows.first() else {
            return Ok(Room { version: String::new(), connections: 0, open: 0 });
        };
        let (version, most, open): (String, i64, Option<i64>) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let number = |number: i64| u32::try_from(number).unwrap_or(0);
        Ok(Room { version, connections: number(most), open: number(open.unwrap_or(0)) })
    }

    /// What time it is there.
    pub async fn time(&self) -> Result<Timestamp, ConnectError> {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let rows = self.client.query_typed(sql, &[]).await?;
        let micros = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(Timestamp::from_micros(micros))
    }

    /// Whether what one connection announces reaches another one that listens. It does not where a pooler gives each
    /// transaction another connection.
    pub async fn hears(&self, patience: Duration) -> Result<bool, ConnectError> {
        let connected = tokio::time::timeout(self.options.connect_timeout, self.reached.servers.open()).await;
        let silent = |_| ConnectError::Unreachable {
            tried: self.reached.tried.clone(),
            what: "no answer in time".to_owned(),
        };
        let (listener, mut connection) = connected.map_err(silent)??;
        let heard = async {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(told))) if told.channel() == CHANNEL => return true,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return false,
                }
            }
        };
        let announced = async {
            listener.batch_execute(&format!("listen {CHANNEL}")).await?;
            self.client.batch_execute(&format!("notify {CHANNEL}")).await?;
            tokio::time::sleep(patience).await;
            Ok(false)
        };
        tokio::select! {
            heard = heard => Ok(heard),
            silence = announced => silence,
        }
    }
}
