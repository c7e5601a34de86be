//! Failure groups as people see them: with their notes, and kept in order by a job.

use std::collections::HashMap;
use std::time::Duration;

use posthaste_core::group::{GroupBy, GroupId, HOURS, Note};
use posthaste_core::notification::Tenant;
use posthaste_core::record::{Expected, RecordChange};
use posthaste_core::time::Timestamp;

use crate::acts::{ActError, Actor};
use crate::engine::{Engine, Shared};
use crate::reads::{ReadError, Reads};
use crate::store::{Audit, FailureGroup, GroupCursor, Page, Result};

/// How many dead letters get a fingerprint in one transaction: so few that others hardly wait.
const CHUNK: usize = 50;

/// How many empty groups are removed at once. Nobody waits for them, and to find them a store may have to read all groups.
const EMPTY_CHUNK: usize = 500;

/// How many rows of hours are removed in one transaction. They are narrow.
const HOUR_CHUNK: usize = 500;

/// Of so many parts of the time, filling takes one.
const SHARE: u32 = 5;

/// A note with the time at which it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenNote {
    /// The note.
    pub note: Note,
    /// When it was written.
    pub at: Timestamp,
}

/// A failure group with its note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedGroup {
    /// The group.
    pub group: FailureGroup,
    /// What somebody wrote at it.
    pub note: Option<WrittenNote>,
}

impl Reads {
    /// Failure groups that have pending dead letters, the largest first: the part of the caller's or the named tenant, or the
    /// sum over all.
    pub async fn failure_groups(
        &self,
        by: GroupBy,
        tenant: Option<Tenant>,
        after: Option<GroupCursor>,
        limit: usize,
    ) -> std::result::Result<Page<NotedGroup, GroupCursor>, ReadError> {
        let (shared, tenant) = (self.shared(), self.tenant(tenant)?);
        let now = shared.node.now();
        let Page { rows, next } = shared.store.failure_groups(by, tenant.clone(), after, limit, now).await?;
        let mut notes = shared.notes(rows.iter().map(|group| group.id), tenant.as_ref()).await?;
        let noted = |group: FailureGroup| NotedGroup { note: notes.remove(&group.id), group };
        Ok(Page { rows: rows.into_iter().map(noted).collect(), next })
    }

    /// A failure group. One without pending dead letters is known for a while.
    pub async fn failure_group(
        &self,
        id: GroupId,
        tenant: Option<Tenant>,
    ) -> std::result::Result<Option<NotedGroup>, ReadError> {
        let (shared, tenant) = (self.shared(), self.tenant(tenant)?);
        let found = shared.store.failure_group(id, tenant.clone(), shared.node.now()).await?;
        let Some(group) = found else { return Ok(None) };
        let note = shared.notes([id].into_iter(), tenant.as_ref()).await?.remove(&id);
        Ok(Some(NotedGroup { group, note }))
    }
}

impl Engine {
    /// Puts the note of a failure group, or removes it. It belongs to the tenant of the actor, or to those who see all tenants,
    /// and stays when the group empties.
    pub async fn put_group_note(
        &self,
        id: GroupId,
        note: Option<Note>,
        actor: &Actor,
    ) -> std::result::Result<NotedGroup, ActError> {
        let (shared, tenant) = (self.shared.clone(), actor.tenant.clone());
        let group = shared.store.failure_group(id, tenant.clone(), self.now()).await?;
        let missing = || ActError::NotFound { what: "failure group", id: id.to_string() };
        let group = group.ok_or_else(missing)?;
        let (key, now) = (Note::key(id, tenant.clone()), self.now());
        let value = note.as_ref().map(Note::to_json);
        let change = RecordChange { key, number: 0, value, expected: Expected::Anything };
        let audit = Audit {
            tenant,
            actor: actor.name.clone(),
            action: "note".to_owned(),
            target: id.to_string(),
            at: now,
            key_id: actor.key_id.clone(),
            address: actor.address.clone(),
        };
        self.to_its_end(async move { shared.store.put_records(vec![change], Some(audit), now).await })
            .await?;
        Ok(NotedGroup { group, note: note.map(|note| WrittenNote { note, at: now }) })
    }

    /// How many failure groups of each kind have pending dead letters, over all tenants.
    pub async fn group_numbers(&self) -> Result<Vec<(GroupBy, u64)>> {
        self.shared.store.group_numbers().await
    }
}

impl Shared {
    async fn notes(
        &self,
        groups: impl Iterator<Item = GroupId>,
        tenant: Option<&Tenant>,
    ) -> Result<HashMap<GroupId, WrittenNote>> {
        let keys: Vec<_> = groups.map(|id| Note::key(id, tenant.cloned())).collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let records = self.store.records(keys).await?;
        let read = |record: posthaste_core::record::Record| {
            let note = Note::from_json(record.value.as_deref()?)?;
            Some((record.key.name().parse().ok()?, WrittenNote { note, at: record.changed }))
        };
        Ok(records.into_iter().filter_map(read).collect())
    }
}

/// Gives a fingerprint to dead letters of nodes from before, then removes groups that are empty for as long as their hours are
/// shown, and older hours. `count` grows by the dead letters and the groups.
pub(crate) async fn tidy(shared: &Shared, count: &mut u64) -> Result<()> {
    *count += in_chunks(CHUNK, || shared.store.fill_groups(CHUNK)).await?;
    let before = shared.node.now().earlier(Duration::from_secs(3_600 * HOURS as u64));
    *count += in_chunks(EMPTY_CHUNK, || shared.store.prune_groups(before, EMPTY_CHUNK)).await?;
    in_chunks(HOUR_CHUNK, || shared.store.prune_group_hours(before, HOUR_CHUNK)).await?;
    Ok(())
}

/// Repeats a transaction that does up to `chunk` things until it does fewer, for a share of the time. Returns how many it did.
async fn in_chunks<F: Future<Output = Result<usize>>>(
    chunk: usize,
    mut run: impl FnMut() -> F,
) -> Result<u64> {
    let mut all = 0;
    loop {
        let begun = tokio::time::Instant::now();
        let done = run().await?;
        all += done as u64;
        if done < chunk {
            return Ok(all);
        }
        tokio::time::sleep(begun.elapsed() * (SHARE - 1)).await;
    }
}
