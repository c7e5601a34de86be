//! What the store tells nodes of themselves and of each other.

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use posthaste_core::lease::NodeId;
use posthaste_core::time::Timestamp;

use super::Result;

/// What this program understands of what other nodes and the store may ask of it: raised by one where a node of the version before
/// would do something wrong. What needs a level starts once no live node is below it. Nodes from before have level 0.
pub const LEVEL: u32 = 1;

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

/// What one node tells the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Rows are due that nobody holds.
    Due {
        /// Who tells it.
        from: NodeId,
        /// Where; anywhere, if none is named.
        buckets: Vec<Bucket>,
    },
    /// A setting was changed.
    Setting,
    /// Some news may not have been heard.
    Missed,
}

/// One node's ear.
#[async_trait]
pub trait Listener: Send {
    /// Waits for the next news. It may be given up while it waits: nothing is lost by that.
    async fn next(&mut self) -> Result<News>;
}

/// The ear of a node that is alone on its store: it never hears anything.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

#[async_trait]
impl Listener for Alone {
    async fn next(&mut self) -> Result<News> {
        std::future::pending().await
    }
}
