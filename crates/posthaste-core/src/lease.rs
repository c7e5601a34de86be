//! Leases: a node's exclusive right to send a notification.

use std::fmt;

/// One run of one process. A process that restarts, or was declared dead, gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i64);

/// A node's counter of leased batches. No pair of node and fence is used twice, so a settlement with an old
/// fence changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub i64);

/// A lease is valid as long as its node's heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    pub node: NodeId,
    pub fence: Fence,
}

impl fmt::Debug for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "node {}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "fence {}", self.0)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {:?}", self.node, self.fence)
    }
}
