//! Nodes: joining, living, leaving, and what happens to the leases of a dead one.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::rate::Share;
use posthaste_core::state::Event;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::{Node, Tables};
use crate::store::{HistoryEvent, Joined, LEVEL, NodeView, Nodes, Notice, Pulse, Result};

#[async_trait]
impl Nodes for ModelStore {
    async fn join(&self, name: String, hold: Duration, now: Timestamp) -> Result<Joined> {
        let now = self.store_time(now);
        Ok(Joined { node: self.lock().join(name, hold, now), now })
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> Result<Pulse> {
        let now = self.store_time(now);
        Ok(self.lock().heartbeat(node, hold, now))
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        self.lock().leave(node)
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
        self.lock().reclaim(node, limit, now)
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<NodeView>> {
        let now = self.store_time(now);
        Ok(self.lock().nodes(now))
    }

    async fn tell(&self, from: NodeId, due: Vec<Bucket>) -> Result<()> {
        // Nobody listens, perhaps.
        let _ = self.notices.send(Notice::Due { from, buckets: due });
        Ok(())
    }
}

impl Tables {
    fn join(&mut self, name: String, hold: Duration, now: Timestamp) -> NodeId {
        self.last_node += 1;
        let node = NodeId(self.last_node);
        let expires = now.later(hold);
        self.nodes.insert(node, Node { name, joined: now, beat: now, expires, dead: false, level: LEVEL });
        node
    }

    /// Whether the node lives.
    pub(super) fn lives(&self, id: NodeId, now: Timestamp) -> bool {
        self.nodes.get(&id).is_some_and(|node| !node.dead && node.expires > now)
    }

    fn nodes(&self, now: Timestamp) -> Vec<NodeView> {
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

    fn heartbeat(&mut self, id: NodeId, hold: Duration, now: Timestamp) -> Pulse {
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
        let level = living.clone().map(|(_, node)| node.level).min().unwrap_or(0);
        let before = living.clone().filter(|(other, _)| **other < id).count();
        let [before, living] = [before, living.count()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let share = Share::new(before, living);
        Pulse::Alive { now, dead, level, share, destinations: self.destinations.version }
    }

    fn leave(&mut self, node: NodeId) -> Result<()> {
        for (_, id) in self.held_by(node) {
            self.give_back(id)?;
        }
        self.nodes.remove(&node);
        Ok(())
    }

    fn reclaim(&mut self, id: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
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

    /// The lease ends and the row waits again, with a request to cancel where there was one.
    pub(super) fn give_back(&mut self, id: NotificationId) -> Result<()> {
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

    pub(super) fn held_by(&self, node: NodeId) -> Vec<(Lease, NotificationId)> {
        let first = Lease { node, fence: Fence(i64::MIN) };
        let last = Lease { node, fence: Fence(i64::MAX) };
        self.held.range((first, NotificationId::FIRST)..=(last, NotificationId::LAST)).copied().collect()
    }
}
