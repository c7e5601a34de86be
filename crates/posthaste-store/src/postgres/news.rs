//! What nodes tell each other, by NOTIFY and LISTEN.
//!
//! Whoever listens has a connection of its own, for news come to the session that asked for them. A notice is a transaction
//! of its own and never part of one that stores notifications: the commits of those that notify wait for each other.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Priority;
use posthaste_core::state::Lane;
use posthaste_engine::store::{self, Listener, News};
use tokio_postgres::{AsyncMessage, Client};

use super::fault::{Fault, Result};
use super::servers::Servers;
use super::tx::{Mode, Tx, bind};

/// The most buckets that are named in one notice, which may have 8,000 bytes. Beyond it whoever hears looks everywhere.
const MOST: usize = 200;

/// What is said when a setting was put: with its commit, for there are few of them.
pub(super) const SETTING: &str = "setting";

/// Says something on a channel.
pub(super) const NOTIFY: &str = "select pg_notify($1, $2)";

/// Where one listens.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) servers: Servers,
    pub(super) channel: Arc<str>,
    /// How long to wait for a connection.
    pub(super) patience: Duration,
}

/// Tells the other nodes where rows are due.
pub(super) async fn tell(tx: &Tx, channel: &str, from: NodeId, due: &[Bucket]) -> Result<()> {
    tx.alone(Mode::Write, NOTIFY, bind![channel => TEXT, text(from, due) => TEXT]).await?;
    Ok(())
}

fn text(from: NodeId, due: &[Bucket]) -> String {
    let named = if due.len() > MOST { &[] } else { due };
    let mut text = format!("due {}", from.0);
    for Bucket { flow, lane, priority } in named {
        text.push_str(&format!(" {}.{}.{}", flow.0, lane.code(), priority.code()));
    }
    text
}

/// What was said; a word that a newer node says and that is not known here may mean anything.
fn read(text: &str) -> News {
    let mut words = text.split(' ');
    match words.next() {
        Some(SETTING) => News::Setting,
        Some("due") => {
            let from = words.next().and_then(|from| from.parse().ok()).map(NodeId);
            let buckets: Option<Vec<Bucket>> = words.map(bucket).collect();
            match (from, buckets) {
                (Some(from), Some(buckets)) => News::Due { from, buckets },
                _ => News::Missed,
            }
        }
        _ => News::Missed,
    }
}

fn bucket(word: &str) -> Option<Bucket> {
    let mut parts = word.split('.');
    let flow = FlowId(parts.next()?.parse().ok()?);
    let lane = Lane::from_code(parts.next()?.parse().ok()?)?;
    let priority = Priority::from_code(parts.next()?.parse().ok()?)?;
    if parts.next().is_some() {
        return None;
    }
    Some(Bucket { flow, lane, priority })
}

/// An ear, which connects when it is first used and again when its connection is lost.
pub(super) struct Ear {
    way: Way,
    open: Option<Open>,
}

struct Open {
    /// The connection lasts as long as this does.
    _client: Client,
    messages: Messages,
}

type Messages = BoxStream<'static, std::result::Result<AsyncMessage, tokio_postgres::Error>>;

impl Ear {
    pub(super) const fn new(way: Way) -> Self {
        Self { way, open: None }
    }

    async fn hear(&mut self) -> Result<News> {
        loop {
            let Some(open) = &mut self.open else {
                let open = tokio::time::timeout(self.way.patience, self.way.open()).await;
                self.open = Some(open.unwrap_or(Err(Fault::Silent))?);
                return Ok(News::Missed);
            };
            match open.messages.next().await {
                Some(Ok(AsyncMessage::Notification(notice))) => return Ok(read(notice.payload())),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.open = None;
                    return Err(error.into());
                }
                None => {
                    self.open = None;
                    return Err(Fault::Silent);
                }
            }
        }
    }
}

impl Way {
    async fn open(&self) -> Result<Open> {
        let (client, mut connection) = self.servers.open().await?;
        let mut messages: Messages = stream::poll_fn(move |context| connection.poll_message(context)).boxed();
        let listen = format!("listen {}", self.channel);
        {
            let mut listening = std::pin::pin!(client.batch_execute(&listen));
            loop {
                tokio::select! {
                    biased;
                    done = &mut listening => break done?,
                    message = messages.next() => match message {
                        Some(message) => drop(message?),
                        None => return Err(Fault::Silent),
                    },
                }
            }
        }
        Ok(Open { _client: client, messages })
    }
}

#[async_trait]
impl Listener for Ear {
    async fn next(&mut self) -> store::Result<News> {
        Ok(self.hear().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_is_heard() {
        let bucket = |flow| Bucket { flow: FlowId(flow), lane: Lane::Retry, priority: Priority::High };
        for count in [0, 1, 3, MOST] {
            let buckets: Vec<Bucket> = (0..count).map(|flow| bucket(i64::MAX - flow as i64)).collect();
            let said = text(NodeId(7), &buckets);
            assert!(said.len() < 8_000, "{}", said.len());
            assert_eq!(read(&said), News::Due { from: NodeId(7), buckets });
        }
        let many: Vec<Bucket> = (0..=MOST).map(|flow| bucket(flow as i64)).collect();
        assert_eq!(read(&text(NodeId(7), &many)), News::Due { from: NodeId(7), buckets: vec![] });
        assert_eq!(read(SETTING), News::Setting);
    }

    #[test]
    fn what_cannot_be_understood_means_anything() {
        for odd in ["", "due", "due x", "due 1 2", "due 1 2.3.4.5", "due 1 2.9.9", "moved 1"] {
            assert_eq!(read(odd), News::Missed, "{odd}");
        }
    }
}
