//! Nodes: joining, living, leaving, and what happens to the leases of a dead one.

use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::state::Event;
use posthaste_core::time::Timestamp;

use super::planted::Planted;
use super::tables::{Node, Tables};
use crate::store::{HistoryEvent, LEVEL, NodeView, Pulse, Result};

impl Tables {
    pub(super) fn join(&mut self, name: &str, hold: Duration, now: Timestamp) -> NodeId {
        self.last_node += 1;
        let node = NodeId(self.last_node);
        let name = name.to_owned();
        let expires = now.later(hold);
        self.nodes.insert(node, Node { name, joined: now, beat: now, expires, dead: false, level: LEVEL });
        node
    }

    pub(super) fn nodes(&self, now: Timestamp) -> Vec<NodeView> {
        let view = |(id, node): (&NodeId, &Node)| NodeView {
            id: *id,
            name: node.name.clone(),
            joined_at: node.joined,
            beat_at: node.beat,
            expires_at: node.expires,
            alive: !node.dead && node.expires > now,
            held: self.held_by(*id).len() as u64,
            level: node.level,
        };
        self.nodes.iter().map(view).collect()
    }

    pub(super) fn heartbeat(&mut self, id: NodeId, hold: Duration, now: Timestamp) -> Pulse {
        let revives = self.has(Planted::HeartbeatRevivesDead);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.dead || revives) else {
            return Pulse::Lost;
        };
        node.expires = node.expires.max(now.later(hold));
        node.beat = now;
        let is_dead = |node: &Node| node.dead || node.expires <= now;
        let others = self.nodes.iter().filter(|(other, node)| **other != id && is_dead(node));
        let dead: Vec<NodeId> = others.map(|(other, _)| *other).collect();
        let living = self.nodes.iter().filter(|(other, _)| !dead.contains(other));
        let level = living.map(|(_, node)| node.level).min().unwrap_or(0);
        Pulse::Alive { now, dead, level }
    }

    pub(super) fn leave(&mut self, node: NodeId) -> Result<()> {
        for (_, id) in self.held_by(node) {
            self.give_back(id)?;
        }
        self.nodes.remove(&node);
        Ok(())
    }

    pub(super) fn reclaim(&mut self, id: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
        let takes_all = self.has(Planted::ReclaimAlive);
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(0) };
        if !node.dead && node.expires > now && !takes_all {
            return Ok(0);
        }
        node.dead = true;
        let mut ids: Vec<NotificationId> = self.held_by(id).into_iter().map(|(_, held)| held).collect();
        ids.sort();
        ids.truncate(limit);
        for held in &ids {
            self.interrupt(*held, now)?;
        }
        if ids.len() < limit {
            self.nodes.remove(&id);
        }
        Ok(ids.len())
    }

    pub(super) fn release(&mut self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        let is_named = |id: &NotificationId| only.as_ref().is_none_or(|only| only.contains(id));
        let grant = self
            .held
            .range((lease, NotificationId::FIRST)..=(lease, NotificationId::LAST))
            .map(|(_, id)| *id);
        let ids: Vec<NotificationId> = grant.filter(is_named).collect();
        for id in &ids {
            self.give_back(*id)?;
        }
        Ok(ids.len())
    }

    /// The lease ends and the row waits again, with a request to cancel where there was one.
    fn give_back(&mut self, id: NotificationId) -> Result<()> {
        let mut row = self.queue[&id].clone();
        row.lease = None;
        self.change(Event::Release, row)
    }

    fn interrupt(&mut self, id: NotificationId, now: Timestamp) -> Result<()> {
        let mut row = self.queue[&id].clone();
        row.lease = None;
        row.interruptions += 1;
        if !self.has(Planted::ReclaimWithoutEvent) {
            self.events.entry(id).or_default().push(HistoryEvent {
                at: now,
                word: "interrupted".to_owned(),
                actor: None,
                generation: row.progress.generation,
                attempt: row.progress.attempt,
            });
        }
        self.change(Event::Release, row)
    }

    /// What a node holds, in the order of ids.
    pub(super) fn held(
        &self,
        node: NodeId,
        after: Option<NotificationId>,
        limit: usize,
    ) -> Vec<(NotificationId, Fence)> {
        let mut held: Vec<(NotificationId, Fence)> =
            self.held_by(node).into_iter().map(|(lease, id)| (id, lease.fence)).collect();
        held.retain(|(id, _)| after.is_none_or(|after| *id > after));
        held.sort_unstable();
        held.truncate(limit);
        held
    }

    fn held_by(&self, node: NodeId) -> Vec<(Lease, NotificationId)> {
        let first = Lease { node, fence: Fence(i64::MIN) };
        let last = Lease { node, fence: Fence(i64::MAX) };
        self.held.range((first, NotificationId::FIRST)..=(last, NotificationId::LAST)).copied().collect()
    }
}
