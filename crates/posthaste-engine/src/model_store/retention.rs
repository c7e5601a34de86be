//! Removal of what has outlived its period.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::retention::{Kind, LOOKED_AT, is_deletable, is_over, is_removable};
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::counters::Way;
use super::planted::Planted;
use super::series;
use super::tables::{Ended, Tables};
use crate::store::{Audit, DeadLetterView, Prune, Pruned, Result, Retention};

/// How far the passes came.
pub(super) type Passes = BTreeMap<Kind, Pass>;

/// A pass that is under way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pass {
    /// The last id that it looked at; none at its start.
    after: Option<[u8; 16]>,
    removed: u64,
}

/// What a chunk does.
struct Chunk {
    /// What it removes, oldest first.
    ids: Vec<[u8; 16]>,
    /// Where the next chunk goes on; none if the pass is over.
    next: Option<[u8; 16]>,
}

impl Chunk {
    /// Looks at rows until enough can be removed, the bound is reached or none are left.
    fn choose(rows: impl Iterator<Item = [u8; 16]>, limit: usize, fits: impl Fn([u8; 16]) -> bool) -> Self {
        let mut ids = vec![];
        for (index, id) in rows.enumerate() {
            if fits(id) {
                ids.push(id);
            }
            if ids.len() == limit || index + 1 == limit * LOOKED_AT {
                return Self { ids, next: Some(id) };
            }
        }
        Self { ids, next: None }
    }
}

#[async_trait]
impl Retention for ModelStore {
    async fn prune(&self, prune: Prune, audit: Audit) -> Result<Pruned> {
        Ok(self.lock().prune(prune, audit))
    }

    async fn show_deleted(&self, dead_letter: DeadLetterId, audit: Audit) -> Result<bool> {
        let mut tables = self.lock();
        let shown = tables.show_deleted(dead_letter, audit.at);
        if shown {
            tables.write_audit(audit, 1, 1);
        }
        Ok(shown)
    }
}

impl Tables {
    /// Shows a dead letter again that is soft-deleted and resolved. False if there is no such one.
    pub(super) fn show_deleted(&mut self, dead_letter: DeadLetterId, now: Timestamp) -> bool {
        let hidden = |letter: &&DeadLetterView| {
            letter.deleted_at.is_some() && letter.status != DeadLetterStatus::Pending
        };
        let Some(letter) = self.dead_letters.get(&dead_letter).filter(hidden) else { return false };
        let shown = DeadLetterView { deleted_at: None, restored_at: Some(now), ..letter.clone() };
        self.put_letter(shown);
        true
    }

    fn prune(&mut self, prune: Prune, audit: Audit) -> Pruned {
        let mut pass = self.passes.get(&prune.kind).copied().unwrap_or_default();
        let (removed, done) = match prune.kind {
            Kind::Attempts => self.prune_attempts(prune, &mut pass),
            Kind::Delivered | Kind::Failed | Kind::Cancelled | Kind::Expired => {
                self.prune_notifications(prune, &mut pass)
            }
            Kind::RequeuedLetters | Kind::DiscardedLetters => self.delete_letters(prune, &mut pass),
            Kind::DeletedLetters => self.purge_letters(prune),
            Kind::Audit => self.prune_audit(prune),
            Kind::JobRuns => self.jobs.prune(prune),
            Kind::Counters => self.prune_counters(prune),
            Kind::Series => series::prune(&mut self.series, prune),
            Kind::OperationItems => self.prune_operation_items(prune, &mut pass),
            Kind::Operations => self.prune_operations(prune, &mut pass),
            Kind::DestinationHours => series::prune_destinations(&mut self.destination_hours, prune),
        };
        pass.removed += removed;
        if done {
            if pass.removed > 0 {
                let all = usize::try_from(pass.removed).unwrap_or(usize::MAX);
                self.write_audit(audit, all, all);
            }
            pass.removed = 0;
            let seen = NotificationId::least_at(prune.cut_off).to_bytes();
            pass.after = self.has(Planted::PrunePassesOnce).then_some(seen);
        }
        self.passes.insert(prune.kind, pass);
        Pruned { removed, done }
    }

    fn prune_attempts(&mut self, prune: Prune, pass: &mut Pass) -> (u64, bool) {
        let over =
            |id| self.ended.get(&NotificationId::from_bytes(id)).is_some_and(|end| end.at < prune.cut_off);
        let rows =
            self.attempts.keys().map(|id| id.to_bytes()).filter(in_pass::<NotificationId>(prune, *pass));
        let chunk = Chunk::choose(rows, prune.limit, over);
        let gone = chunk.ids.iter().filter_map(|id| self.attempts.remove(&NotificationId::from_bytes(*id)));
        let removed = gone.map(|made| made.len() as u64).sum();
        (removed, pass.go_on(chunk.next))
    }

    fn prune_notifications(&mut self, prune: Prune, pass: &mut Pass) -> (u64, bool) {
        let Prune { kind, cut_off, .. } = prune;
        let named = |id: NotificationId| {
            let by_letter = self.dead_letters.values().any(|letter| letter.notification.id == id);
            (by_letter && !self.has(Planted::PruneForgetsDeadLetter)) || self.is_in_operation(id)
        };
        let fits = |bytes| {
            let id = NotificationId::from_bytes(bytes);
            self.ended.get(&id).is_some_and(|end| is_removable(kind, end.state, end.at, named(id), cut_off))
        };
        // Deliveries have no index of their own: everything that ended is looked at.
        let walked = |end: &Ended| kind == Kind::Delivered || kind.state() == Some(end.state);
        let rows = self.ended.iter().filter(|(_, end)| walked(end)).map(|(id, _)| id.to_bytes());
        let chunk = Chunk::choose(rows.filter(in_pass::<NotificationId>(prune, *pass)), prune.limit, fits);
        for id in &chunk.ids {
            self.remove(NotificationId::from_bytes(*id));
        }
        (chunk.ids.len() as u64, pass.go_on(chunk.next))
    }

    fn is_in_operation(&self, id: NotificationId) -> bool {
        self.operations.names(id) && !self.has(Planted::PruneForgetsOperation)
    }

    /// Removes a notification that ended, with everything that belongs to it.
    fn remove(&mut self, id: NotificationId) {
        let gone = (self.notifications.remove(&id), self.ended.remove(&id));
        if let (Some(kept), Some(ended)) = gone
            && !self.has(Planted::PruneKeepsCounting)
        {
            self.counters.ended(&kept.notification, &ended, Way::Out);
        }
        self.attempts.remove(&id);
        self.events.remove(&id);
    }

    fn delete_letters(&mut self, prune: Prune, pass: &mut Pass) -> (u64, bool) {
        let Prune { kind, cut_off, now, .. } = prune;
        let status = |letter: &DeadLetterView| match letter.status {
            DeadLetterStatus::Pending if self.has(Planted::PruneTakesPending) => DeadLetterStatus::Cancelled,
            status => status,
        };
        let fits = |id| {
            let letter = &self.dead_letters[&DeadLetterId::from_bytes(id)];
            is_deletable(kind, status(letter), letter.created_at, letter.restored_at, cut_off)
        };
        let shown = self.dead_letters.values().filter(|letter| letter.deleted_at.is_none());
        let walked =
            shown.filter(|letter| kind.letters() == Some(status(letter))).map(|letter| letter.id.to_bytes());
        let chunk = Chunk::choose(walked.filter(in_pass::<DeadLetterId>(prune, *pass)), prune.limit, fits);
        for id in &chunk.ids {
            if let Some(letter) = self.dead_letters.get(&DeadLetterId::from_bytes(*id)).cloned() {
                self.put_letter(DeadLetterView { deleted_at: Some(now), ..letter });
            }
        }
        (chunk.ids.len() as u64, pass.go_on(chunk.next))
    }

    fn purge_letters(&mut self, prune: Prune) -> (u64, bool) {
        let old = self.dead_letters.values().filter_map(|letter| Some((letter.deleted_at?, letter.id)));
        let mut old: Vec<(Timestamp, DeadLetterId)> = old.filter(|(at, _)| *at < prune.cut_off).collect();
        old.sort();
        old.truncate(prune.limit * LOOKED_AT);
        old.retain(|(_, id)| !self.is_in_operation(self.dead_letters[id].notification.id));
        old.truncate(prune.limit);
        for (_, id) in &old {
            let Some(letter) = self.dead_letters.remove(id) else { continue };
            let end = self.ended.get_mut(&letter.notification.id);
            if let Some(end) = end.filter(|end| end.dead_letter == Some(*id)) {
                end.dead_letter = None;
            }
        }
        (old.len() as u64, old.len() < prune.limit)
    }

    fn prune_audit(&mut self, prune: Prune) -> (u64, bool) {
        let mut seen = 0;
        let before = self.audit.len();
        self.audit.retain(|row| {
            seen += 1;
            seen > prune.limit || row.audit.at >= prune.cut_off
        });
        let removed = before - self.audit.len();
        (removed as u64, removed < prune.limit)
    }

    /// Walks the operations; one whose items are not all gone yet is looked at again by the next chunk.
    fn prune_operation_items(&mut self, prune: Prune, pass: &mut Pass) -> (u64, bool) {
        let table = &self.operations;
        let first = pass.after.map_or(OperationId::FIRST, OperationId::from_bytes);
        let until = OperationId::least_at(prune.cut_off);
        let in_pass = table.operations.values().filter(|one| first <= one.id && one.id < until);
        let rows = in_pass.flat_map(|one| {
            let old = is_over(one.standing.finished_at, prune.cut_off);
            let items = if old { table.items_of(one.id) } else { vec![] };
            let none = items.is_empty().then_some((one.id, None));
            items.into_iter().map(move |item| (one.id, Some(item))).chain(none)
        });
        let (mut gone, mut next, mut looked_at) = (vec![], None, 0);
        for (id, item) in rows {
            looked_at += 1;
            gone.extend(item.map(|item| (id, item)));
            if gone.len() == prune.limit || looked_at == prune.limit * LOOKED_AT {
                next = Some(id.to_bytes());
                break;
            }
        }
        for key in &gone {
            self.operations.items.remove(key);
        }
        (gone.len() as u64, pass.go_on(next))
    }

    fn prune_operations(&mut self, prune: Prune, pass: &mut Pass) -> (u64, bool) {
        let table = &self.operations;
        let fits = |id| {
            let id = OperationId::from_bytes(id);
            is_over(table.operations[&id].standing.finished_at, prune.cut_off)
                && table.items_of(id).is_empty()
        };
        let rows =
            table.operations.keys().map(|id| id.to_bytes()).filter(in_pass::<OperationId>(prune, *pass));
        let chunk = Chunk::choose(rows, prune.limit, fits);
        for id in &chunk.ids {
            self.operations.remove(OperationId::from_bytes(*id));
        }
        (chunk.ids.len() as u64, pass.go_on(chunk.next))
    }

    fn prune_counters(&mut self, prune: Prune) -> (u64, bool) {
        let from = prune.cut_off.as_hours();
        let before = self.counters.ends.len();
        self.counters.ends.retain(|(hour, ..), _| *hour >= from);
        self.counters_from = self.counters_from.max(from);
        ((before - self.counters.ends.len()) as u64, true)
    }
}

impl Pass {
    /// Notes where the next chunk goes on. Returns whether the pass is over.
    fn go_on(&mut self, next: Option<[u8; 16]>) -> bool {
        if next.is_some() {
            self.after = next;
        }
        next.is_none()
    }
}

/// An id that carries the time of its making.
trait TimedId {
    fn least(time: Timestamp) -> [u8; 16];
}

impl TimedId for NotificationId {
    fn least(time: Timestamp) -> [u8; 16] {
        Self::least_at(time).to_bytes()
    }
}

impl TimedId for DeadLetterId {
    fn least(time: Timestamp) -> [u8; 16] {
        Self::least_at(time).to_bytes()
    }
}

impl TimedId for OperationId {
    fn least(time: Timestamp) -> [u8; 16] {
        Self::least_at(time).to_bytes()
    }
}

/// Whether an id is behind what the pass has seen, and old enough: nothing ends before it was made.
fn in_pass<I: TimedId>(prune: Prune, pass: Pass) -> impl Fn(&[u8; 16]) -> bool {
    let until = I::least(prune.cut_off);
    move |id| pass.after.is_none_or(|after| *id > after) && *id < until
}

/// Counters as they are, without the hours whose counters were removed.
pub(super) fn since(hour: i64, mut counters: super::Counters) -> super::Counters {
    counters.ends.retain(|(of, ..), _| *of >= hour);
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_ends_with_what_it_may_remove_with_what_it_may_look_at_or_with_the_rows() {
        let rows = |n: u8| (1..=n).map(|n| [n; 16]);
        let even = |id: [u8; 16]| id[0].is_multiple_of(2);
        let two = Chunk::choose(rows(9), 2, even);
        assert_eq!((two.ids, two.next), (vec![[2; 16], [4; 16]], Some([4; 16])));
        let all = Chunk::choose(rows(5), 9, even);
        assert_eq!((all.ids, all.next), (vec![[2; 16], [4; 16]], None));
        let none = Chunk::choose(rows(99), 1, |_| false);
        assert_eq!((none.ids, none.next), (vec![], Some([20; 16])));
    }
}
