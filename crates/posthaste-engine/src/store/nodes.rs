//! Nodes: who is alive, and what they tell each other.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use posthaste_core::lease::NodeId;
use posthaste_core::rate::Share;
use posthaste_core::time::Timestamp;

use super::Result;
use super::slice::slice;

slice! {
    /// Joining, living and leaving.
    pub trait Nodes {
        /// A new node, alive for `hold`. `now` is the caller's time, for stores that have no clock of their own.
        write Join: fn join(name: String, hold: Duration, now: Timestamp) -> Joined;

        /// Keeps the node alive for `hold` from the store's time on, and tells that time and who is dead. Never shortens a
        /// hold that was granted before.
        write Heartbeat: fn heartbeat(node: NodeId, hold: Duration, now: Timestamp) -> Pulse;

        /// The node stops: everything it still holds waits again, unsent, and nothing is counted as interrupted.
        write Leave: fn leave(node: NodeId) -> ();

        /// Takes back up to `limit` leases of a dead node. Each leaves an `interrupted` event and one more interruption on
        /// its row. A node that is alive at `now` loses nothing. Once this was called on a dead node, it cannot come back
        /// to life. Returns how many were taken; fewer than `limit` means that none are left, and the node is forgotten.
        write Reclaim: fn reclaim(node: NodeId, limit: usize, now: Timestamp) -> usize;

        /// Every node that is not forgotten, in the order of their numbers.
        read List: fn nodes(now: Timestamp) -> Vec<NodeView>;

        /// Tells the other nodes that rows are due in these buckets, or, if none is named, that they may be anywhere. Only
        /// a hint: it may get lost, and whoever looks now and then finds them all the same. Nothing is kept of it.
        read Tell: fn tell(from: NodeId, due: Vec<Bucket>) -> ();
    }
}

/// A node that has joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Its number.
    pub node: NodeId,
    /// The store's time.
    pub now: Timestamp,
}

/// What this program understands of what other nodes and the store may ask of it: raised by one where a node of the version before
/// would do something wrong. What needs a level starts once no live node is below it. Nodes from before have level 0.
///
/// - 1: a node says its level.
/// - 2: API keys with a role, an expiry or several secrets.
/// - 3: channels with providers.
/// - 4: breakers, blocks and limits of destinations.
/// - 5: answers of status 429 under an idempotency key.
/// - 6: headers that are sealed.
pub const LEVEL: u32 = 6;

/// The level from which on nodes send over channels that have providers. An older one would bury their notifications.
pub const PROVIDERS_LEVEL: u32 = 3;

/// The level from which on nodes obey breakers, blocks and limits of destinations. An older one would send all the same.
pub const DESTINATIONS_LEVEL: u32 = 4;

/// The level from which on nodes know that the answer under an idempotency key may be a 429. An older one would repeat it as a 202.
pub const LIMITED_ANSWERS_LEVEL: u32 = 5;

/// The level from which on nodes open what is sealed. An older one would send a notification without its sealed headers.
pub const SEALED_LEVEL: u32 = 6;

/// What a heartbeat says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulse {
    /// The node lives until `hold` after the store's own time.
    Alive {
        /// The one clock of the cluster.
        now: Timestamp,
        /// Nodes whose time is up and whose leases can be taken back.
        dead: Vec<NodeId>,
        /// The lowest level among the nodes that live, this one included.
        level: u32,
        /// The place of this node among those that live.
        share: Share,
        /// The version of the last change of a destination: what changed since an older one has to be read.
        destinations: i64,
    },
    /// The node was declared dead; its leases are gone and it has to join again.
    Lost,
}

/// A node as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its number.
    pub id: NodeId,
    /// What it calls itself.
    pub name: String,
    /// When it joined.
    pub joined_at: Timestamp,
    /// When it last said that it lives.
    pub beat_at: Timestamp,
    /// Until when its leases stand without another heartbeat.
    pub expires_at: Timestamp,
    /// Whether it lives. What a dead one holds is taken back, and then it is forgotten.
    pub alive: bool,
    /// How many notifications are leased to it.
    pub held: u64,
    /// What it understands; see `LEVEL`.
    pub level: u32,
}

/// A message from one node to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Rows are due that are not leased.
    Due {
        /// The sender.
        from: NodeId,
        /// The buckets with due rows; any, if empty.
        buckets: Vec<Bucket>,
    },
    /// A setting was changed.
    Setting,
    /// A destination was changed.
    Destination,
    /// Some notices may have been lost.
    Missed,
}

/// Receives the notices of the other nodes.
#[async_trait]
pub trait Listener: Send {
    /// Waits for the next notice. Cancel safe: no notice is lost if the future is dropped.
    async fn next(&mut self) -> Result<Notice>;
}

/// The ear of a node that is alone on its store: it never hears anything.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

#[async_trait]
impl Listener for Alone {
    async fn next(&mut self) -> Result<Notice> {
        std::future::pending().await
    }
}
