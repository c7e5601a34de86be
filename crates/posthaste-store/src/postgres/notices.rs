//! Notices between nodes, by NOTIFY and LISTEN.
//!
//! A listener has its own connection, because notices come to the session that asked for them. A notice is a
//! transaction of its own and never part of one that stores notifications: transactions with a NOTIFY wait
//! for each other's commit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Priority;
use posthaste_core::state::Lane;
use posthaste_engine::store::{self, Listener, Notice};
use tokio_postgres::{AsyncMessage, Client};

use super::fault::{Fault, Result};
use super::servers::Servers;
use super::tx::{Mode, Tx, bind};

/// Maximum number of buckets in one notice, which may have 8,000 bytes. If there are more, the notice names
/// none and listeners look at all.
const MAX_BUCKETS: usize = 200;

/// The notice of a changed setting. It is sent in the same transaction, because such changes are rare.
pub(super) const SETTING: &str = "setting";

/// The notice of a changed destination. It is sent in the same transaction too, and over a channel of its own: a node of a version
/// before, to which an unknown notice means anything, does not listen there.
pub(super) const DESTINATION: &str = "destination";

pub(super) const NOTIFY: &str = "select pg_notify($1, $2)";

#[derive(Clone)]
pub(super) struct NotifyChannel {
    pub(super) servers: Servers,
    pub(super) channel: Arc<str>,
    pub(super) connect_timeout: Duration,
}

/// Sends a hint about due rows to the other nodes.
pub(super) async fn tell(tx: &Tx, channel: &str, from: NodeId, due: &[Bucket]) -> Result<()> {
    tx.alone(Mode::Write, NOTIFY, bind![channel => TEXT, text(from, due) => TEXT]).await?;
    Ok(())
}

fn text(from: NodeId, due: &[Bucket]) -> String {
    let named = if due.len() > MAX_BUCKETS { &[] } else { due };
    let mut text = format!("due {}", from.0);
    for Bucket { flow, lane, priority } in named {
        text.push_str(&format!(" {}.{}.{}", flow.0, lane.code(), priority.code()));
    }
    text
}

/// Parses a notice. An unknown word of a newer version may mean anything.
fn parse(text: &str) -> Notice {
    let mut words = text.split(' ');
    match words.next() {
        Some(SETTING) => Notice::Setting,
        Some(DESTINATION) => Notice::Destination,
        Some("due") => {
            let from = words.next().and_then(|from| from.parse().ok()).map(NodeId);
            let buckets: Option<Vec<Bucket>> = words.map(bucket).collect();
            match (from, buckets) {
                (Some(from), Some(buckets)) => Notice::Due { from, buckets },
                _ => Notice::Missed,
            }
        }
        _ => Notice::Missed,
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

/// Connects on first use, and again after the connection is lost.
pub(super) struct NoticeListener {
    notify: NotifyChannel,
    open: Option<Open>,
}

struct Open {
    /// Keeps the connection open.
    _client: Client,
    messages: Messages,
}

type Messages = BoxStream<'static, std::result::Result<AsyncMessage, tokio_postgres::Error>>;

impl NoticeListener {
    pub(super) const fn new(notify: NotifyChannel) -> Self {
        Self { notify, open: None }
    }

    async fn receive(&mut self) -> Result<Notice> {
        loop {
            let Some(open) = &mut self.open else {
                let open = tokio::time::timeout(self.notify.connect_timeout, self.notify.open()).await;
                self.open = Some(open.unwrap_or(Err(Fault::Unresponsive))?);
                return Ok(Notice::Missed);
            };
            match open.messages.next().await {
                Some(Ok(AsyncMessage::Notification(notice))) => return Ok(parse(notice.payload())),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.open = None;
                    return Err(error.into());
                }
                None => {
                    self.open = None;
                    return Err(Fault::Unresponsive);
                }
            }
        }
    }
}

impl NotifyChannel {
    /// The channel for notices about destinations.
    pub(super) fn destinations(&self) -> String {
        format!("{}_destinations", self.channel)
    }

    async fn open(&self) -> Result<Open> {
        let (client, mut connection) = self.servers.open().await?;
        let mut messages: Messages = stream::poll_fn(move |context| connection.poll_message(context)).boxed();
        let listen = format!("listen {}; listen {}", self.channel, self.destinations());
        {
            let mut listening = std::pin::pin!(client.batch_execute(&listen));
            loop {
                tokio::select! {
                    biased;
                    done = &mut listening => break done?,
                    message = messages.next() => match message {
                        Some(message) => drop(message?),
                        None => return Err(Fault::Unresponsive),
                    },
                }
            }
        }
        Ok(Open { _client: client, messages })
    }
}

#[async_trait]
impl Listener for NoticeListener {
    async fn next(&mut self) -> store::Result<Notice> {
        Ok(self.receive().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_is_heard() {
        let bucket = |flow| Bucket { flow: FlowId(flow), lane: Lane::Retry, priority: Priority::High };
        for count in [0, 1, 3, MAX_BUCKETS] {
            let buckets: Vec<Bucket> = (0..count).map(|flow| bucket(i64::MAX - flow as i64)).collect();
            let said = text(NodeId(7), &buckets);
            assert!(said.len() < 8_000, "{}", said.len());
            assert_eq!(parse(&said), Notice::Due { from: NodeId(7), buckets });
        }
        let many: Vec<Bucket> = (0..=MAX_BUCKETS).map(|flow| bucket(flow as i64)).collect();
        assert_eq!(parse(&text(NodeId(7), &many)), Notice::Due { from: NodeId(7), buckets: vec![] });
        assert_eq!(parse(SETTING), Notice::Setting);
        assert_eq!(parse(DESTINATION), Notice::Destination);
    }

    #[test]
    fn what_cannot_be_understood_means_anything() {
        for odd in ["", "due", "due x", "due 1 2", "due 1 2.3.4.5", "due 1 2.9.9", "moved 1"] {
            assert_eq!(parse(odd), Notice::Missed, "{odd}");
        }
    }
}
