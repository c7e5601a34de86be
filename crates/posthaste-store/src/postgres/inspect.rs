//! Checks whether a server is fit to hold a store. Nothing is changed.

use std::future::poll_fn;
use std::time::Duration;

use deadpool_postgres::Object;
use posthaste_core::time::Timestamp;
use tokio_postgres::AsyncMessage;

use super::connect::{self, Connected, PostgresOptions};
use super::durability;
use super::migrate;
use super::refusal::ConnectError;
use crate::schema::Schema;

/// The channel on which notices are tested.
const CHANNEL: &str = "posthaste_inspection";

pub struct Inspection {
    connected: Connected,
    options: PostgresOptions,
    client: Object,
}

/// The connections of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub version: String,
    /// Maximum number of connections of users other than superusers.
    pub connections: u32,
    /// Number of open connections, including this one.
    pub open: u32,
}

impl Inspection {
    pub async fn start(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        // Nothing is written, so the durability does not matter.
        let any = PostgresOptions { unsafe_durability: true, ..options.clone() };
        let (connected, client) = connect::connect(url, &any).await?;
        Ok(Self { connected, options, client })
    }

    /// The address for messages, without the password.
    pub fn tried(&self) -> &str {
        &self.connected.tried
    }

    /// Refuses a server that could lose acknowledged writes (even if the options allow it), is too old, or
    /// has an encoding other than UTF-8.
    pub async fn fit(&self) -> Result<(), ConnectError> {
        let settings = durability::settings(&self.client).await?;
        // The store itself sets the last one, unless the options allow any durability.
        let asked = if self.options.unsafe_durability { 3 } else { 2 };
        for (setting, value) in durability::SETTINGS.into_iter().zip(settings).take(asked) {
            if value == "off" {
                return Err(ConnectError::NotDurable { setting, value });
            }
        }
        connect::check(&self.client, &self.connected.tried).await
    }

    pub async fn schema(&self) -> Result<Schema<ConnectError>, ConnectError> {
        migrate::read(&self.client).await
    }

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

    pub async fn time(&self) -> Result<Timestamp, ConnectError> {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let rows = self.client.query_typed(sql, &[]).await?;
        let micros = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(Timestamp::from_micros(micros))
    }

    /// Whether a NOTIFY of one connection reaches another one that listens. It does not with a pooler that
    /// gives each transaction another connection.
    pub async fn hears(&self, patience: Duration) -> Result<bool, ConnectError> {
        let connected =
            tokio::time::timeout(self.options.connect_timeout, self.connected.servers.open()).await;
        let silent = |_| ConnectError::Unreachable {
            tried: self.connected.tried.clone(),
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
