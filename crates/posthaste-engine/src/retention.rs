//! Retention: the work of the jobs `retention` and `dead-letter-cleanup`.
//!
//! Each run makes one pass over each of its kinds, in chunks that keep the store's writer for a few milliseconds. How far a
//! pass came is kept in the store, so the run after an interrupted one goes on there.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::retention::Kind;
use posthaste_core::time::Timestamp;

use crate::acts::Actor;
use crate::engine::Shared;
use crate::jobs::itself;
use crate::journal;
use crate::store::{Act, Audit, Change, DeadLetterView, Facts, Prune, Result};

/// The most that a chunk removes: few, because the writer of a file does nothing else meanwhile.
const CHUNK: usize = 250;

/// A pause after each chunk, in times that the chunk took: at most a fifth of the time is spent while the node is busy.
const PAUSE: u32 = 4;

/// Removes rows that have outlived their period; `count` grows with each.
pub(crate) async fn remove_rows(shared: &Shared, count: &mut u64) -> Result<()> {
    passes(shared, &Kind::ROWS, count).await
}

/// Purges and soft-deletes dead letters that have outlived their period.
pub(crate) async fn clean_dead_letters(shared: &Shared, count: &mut u64) -> Result<()> {
    passes(shared, &Kind::LETTERS, count).await?;
    match shared.settings.retention.pending_cut_off(shared.node.now()) {
        Some(died_before) => {
            act_on_pending(shared, died_before, &Act::Delete, "purge_pending_after", count).await
        }
        None => Ok(()),
    }
}

async fn passes(shared: &Shared, kinds: &[Kind], count: &mut u64) -> Result<()> {
    let mut pace = Pace::new(shared);
    for kind in kinds {
        loop {
            let now = shared.node.now();
            let cut_off = shared.settings.retention.cut_off(*kind, now);
            let limit = CHUNK.min(shared.settings.batch);
            let prune = Prune { kind: *kind, cut_off, limit, now };
            let pruned = shared.store.prune(prune, itself(kind.action(), kind.name(), now)).await?;
            *count += pruned.removed;
            shared.counts.removed(*kind, pruned.removed);
            if pruned.done {
                break;
            }
            pace.rest(shared).await;
        }
    }
    Ok(())
}

/// Does this to pending dead letters that died before that time and were not restored since, newest first.
pub(crate) async fn act_on_pending(
    shared: &Shared,
    died_before: Timestamp,
    act: &Act,
    target: &str,
    count: &mut u64,
) -> Result<()> {
    let filter =
        Filter { statuses: vec![LetterStatus::Pending], until: Some(died_before), ..Filter::default() };
    let mut pace = Pace::new(shared);
    let mut before = None;
    loop {
        let now = shared.node.now();
        let page =
            shared.store.dead_letters(filter.clone(), before, CHUNK.min(shared.settings.batch)).await?;
        let is_old = |letter: &&DeadLetterView| letter.restored_at.is_none_or(|at| at < died_before);
        let old: BTreeMap<DeadLetterId, NotificationId> =
            page.rows.iter().filter(is_old).map(|letter| (letter.id, letter.notification.id)).collect();
        let facts = shared.store.facts(old.values().copied().collect()).await?;
        // Since the page was read, one may have been requeued and have died again: its new dead letter is young.
        let pending = |facts: &&Facts| {
            let letter = facts.standing.letter();
            letter.is_some_and(|(id, status)| status == DeadLetterStatus::Pending && old.contains_key(&id))
        };
        let pending: Vec<&Facts> = facts.iter().filter(pending).collect();
        let change = |facts: &&Facts| Change { id: facts.id, seen: facts.standing.seen(), act: act.clone() };
        let changes: Vec<Change> = pending.iter().map(change).collect();
        if !changes.is_empty() {
            let audit = itself(act.word().unwrap_or_default(), target, now);
            let actor = Some(Audit::ITSELF.to_owned());
            let made = shared.store.transition(changes, actor, Some(audit), now).await?;
            *count += made.iter().filter(|made| **made).count() as u64;
            let named = page.rows.iter().map(|row| (row.notification.id, row.notification.clone())).collect();
            let itself = Actor::local(Audit::ITSELF, None);
            for (facts, _) in pending.iter().zip(made).filter(|(_, made)| *made) {
                journal::acted(shared, &named, facts, act, &itself);
            }
        }
        before = page.next;
        if before.is_none() {
            return Ok(());
        }
        pace.rest(shared).await;
    }
}

/// How much of the time the chunks take.
struct Pace {
    started: tokio::time::Instant,
    /// What the node had done when the last chunk ended.
    work: u64,
}

impl Pace {
    fn new(shared: &Shared) -> Self {
        Self { started: tokio::time::Instant::now(), work: shared.counts.work() }
    }

    /// Rests after a chunk. The chunk took longer where the store was busy, and so does the rest. What other nodes do to a
    /// store that is shared is not known here, so that one is always taken for busy.
    async fn rest(&mut self, shared: &Shared) {
        let work = shared.counts.work();
        let busy = shared.store.is_shared() || work != self.work;
        let rest = if busy { self.started.elapsed() * PAUSE } else { Duration::ZERO };
        tokio::time::sleep(rest).await;
        *self = Self { started: tokio::time::Instant::now(), work };
    }
}
