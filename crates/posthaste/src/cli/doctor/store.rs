//! The checks of `posthaste doctor` on the store.

use std::path::Path;
use std::time::Duration;

use posthaste_core::duration;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;
use posthaste_store::postgres::ConnectError;
use posthaste_store::postgres::inspect::{Inspection, Room};
use posthaste_store::sqlite::OpenError;

use super::Finding;
use crate::clock::SystemClock;
use crate::config::{Secret, StoreSettings, StoreUrl};
use crate::wiring::{StartError, store};

/// Allowed difference of the clocks.
const CLOCKS_APART: Duration = Duration::from_secs(1);
/// How long to wait for a notification of PostgreSQL.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn check(config: &StoreSettings) -> Vec<Finding> {
    match &config.url {
        // The command often runs on another machine, which has no such file.
        StoreUrl::Sqlite(file) if !file.exists() => vec![],
        StoreUrl::Sqlite(file) => sqlite(config, file).await,
        StoreUrl::Postgres(url) => postgres(config, url).await,
    }
}

async fn sqlite(config: &StoreSettings, file: &Path) -> Vec<Finding> {
    match store::schema(config).await {
        Ok(schema) => {
            let found = Finding::ok("store", format!("{} can be read", file.display()));
            vec![found, schema_finding(schema.refused, config)]
        }
        Err(error) => vec![Finding::fail("store", error_text(error))],
    }
}

async fn postgres(config: &StoreSettings, url: &Secret) -> Vec<Finding> {
    let inspection = match store::inspect(config, url).await {
        Ok(inspection) => inspection,
        Err(error) => return vec![Finding::fail("store", error.to_string())],
    };
    let mut found = vec![];
    match inspection.room().await {
        Ok(room) => {
            found
                .push(Finding::ok("store", format!("PostgreSQL {} at {}", room.version, inspection.tried())));
            found.push(connections(config, &room));
        }
        Err(error) => found.push(Finding::fail("store", error.to_string())),
    }
    found.extend(fit(config, &inspection).await);
    found.push(match inspection.schema().await {
        Ok(schema) => schema_finding(schema.refused.map(StartError::from), config),
        Err(error) => Finding::fail("schema", error.to_string()),
    });
    let asked = SystemClock.now();
    found.push(match inspection.time().await {
        Ok(theirs) => clock(asked, theirs, SystemClock.now()),
        Err(error) => Finding::fail("store clock", error.to_string()),
    });
    found.push(wake_ups(config, &inspection).await);
    found
}

/// An error with its sources.
fn error_text(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// Missing steps are only a warning if the server takes them when it starts.
fn schema_finding(refused: Option<StartError>, config: &StoreSettings) -> Finding {
    match refused {
        None => Finding::ok("schema", "in order: this program can run on it"),
        Some(
            behind @ (StartError::Open(OpenError::Behind { .. })
            | StartError::Connect(ConnectError::Behind { .. })),
        ) if config.migrate => {
            Finding::warn("schema", format!("{}, or start a server, which does it", error_text(behind)))
        }
        Some(refused) => Finding::fail("schema", error_text(refused)),
    }
}

/// Durability is checked first, so any other error means that it is fine.
async fn fit(config: &StoreSettings, inspection: &Inspection) -> Vec<Finding> {
    let durable = Finding::ok("store disk", "what the server acknowledges is on its disk");
    match inspection.fit().await {
        Ok(()) => vec![durable],
        Err(error @ ConnectError::NotDurable { .. }) if config.unsafe_durability => {
            vec![Finding::warn("store disk", error.to_string())]
        }
        Err(error @ ConnectError::NotDurable { .. }) => vec![Finding::fail("store disk", error.to_string())],
        Err(error @ ConnectError::TooOld { .. }) => {
            vec![durable, Finding::fail("store version", error.to_string())]
        }
        Err(error @ ConnectError::NotUtf8 { .. }) => {
            vec![durable, Finding::fail("store encoding", error.to_string())]
        }
        Err(error) => vec![Finding::fail("store", error.to_string())],
    }
}

fn connections(config: &StoreSettings, room: &Room) -> Finding {
    // One more is for heartbeats, and one listens if connections are sessions.
    let (mine, most) = (config.connections + 1 + u32::from(config.prepared), room.connections);
    if mine > most {
        let text = format!(
            "a node may open {mine}, and the server takes {most} in all: raise its max_connections, or lower \
             store.connections"
        );
        return Finding::warn("connections", text);
    }
    let text = format!(
        "a node opens at most {mine}; the server takes {most}, {} are open: room for {} nodes",
        room.open,
        most / mine
    );
    Finding::ok("connections", text)
}

/// Nodes use the clock of the server, so this is only a warning.
fn clock(asked: Timestamp, theirs: Timestamp, answered: Timestamp) -> Finding {
    let (behind, ahead) = (asked.since(theirs), theirs.since(answered));
    let apart = behind.max(ahead);
    if apart <= CLOCKS_APART {
        return Finding::ok("store clock", "this machine and the server show the same time");
    }
    let way = if ahead > behind { "ahead of" } else { "behind" };
    let text = format!(
        "the server's clock is {} {way} this machine's: nodes use the server's clock, so only logs differ; check NTP",
        duration::words(Duration::from_secs(apart.as_secs()))
    );
    Finding::warn("store clock", text)
}

async fn wake_ups(config: &StoreSettings, inspection: &Inspection) -> Finding {
    if !config.prepared {
        let text = "this node does not LISTEN, because store.prepared = false means that its connections are no sessions: it finds \
                    the work and settings of other nodes a little later (docs/scaling.md, Connections)";
        return Finding::warn("wake-ups", text);
    }
    match inspection.hears(NOTIFY_TIMEOUT).await {
        Ok(true) => {
            Finding::ok("wake-ups", "what one connection announces (NOTIFY) reaches another (LISTEN)")
        }
        Ok(false) => {
            let text = "what one connection announces (NOTIFY) does not reach another (LISTEN): is a pooler without sessions \
                        in between?\nNodes still find work, a little later; a direct connection is quicker";
            Finding::warn("wake-ups", text)
        }
        Err(error) => Finding::warn("wake-ups", format!("they could not be tested: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn a_clock_that_differs_is_a_remark_and_the_way_there_and_back_is_no_difference() {
        let at = |secs: i64| Timestamp::from_millis(1_790_000_000_000 + secs * 1_000);
        assert_eq!(clock(at(0), at(20), at(30)).mark, Mark::Ok);
        for (theirs, said) in [(at(60), "1m ahead of"), (at(-60), "1m behind")] {
            let found = clock(at(0), theirs, at(0));
            assert!(found.mark == Mark::Warn && found.text.contains(said), "{found:?}");
        }
    }
}
