//! Failure groups: deltas are gathered in memory and written once per transaction.

use std::collections::HashMap;

use async_trait::async_trait;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::Filter;
use posthaste_core::flow::FlowId;
use posthaste_core::group::{GroupBy, GroupId, HOURS, MAX_GROUPS};
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, FailureGroup, GroupCursor, Groups, Page};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::fault::{Fault, Result};
use super::flows::Flows;
use super::planted::Planted;
use super::rows::{
    dead_letter_id, maybe_dead_letter_id, maybe_failure, maybe_reason, maybe_text, maybe_time,
};
use super::writer::Tx;
use crate::kept::counters::ALL;
use crate::kept::groups::{self, ChangedGroup, Counted, GroupDeltas, GroupPlace, GroupRow};

#[async_trait]
impl Groups for SqliteStore {
    async fn failure_groups(
        &self,
        by: GroupBy,
        tenant: Option<Tenant>,
        after: Option<GroupCursor>,
        limit: usize,
        now: Timestamp,
    ) -> store::Result<Page<FailureGroup, GroupCursor>> {
        self.list(move |reader| page(&reader.conn, by, tenant.as_ref(), after, limit, now)).await
    }

    async fn failure_group(
        &self,
        id: GroupId,
        tenant: Option<Tenant>,
        now: Timestamp,
    ) -> store::Result<Option<FailureGroup>> {
        self.find(move |reader| {
            let Some(row) = find(&reader.conn, id, tenant.as_ref())? else { return Ok(None) };
            shown(&reader.conn, row, tenant.as_ref(), now).map(Some)
        })
        .await
    }

    async fn group_numbers(&self) -> store::Result<Vec<(GroupBy, u64)>> {
        self.list(|reader| {
            let sql = "select count(*) from failure_group where kind = ?1 and tenant = '' and n > 0";
            let mut select = reader.conn.prepare_cached(sql)?;
            let mut number = |by: GroupBy| {
                let number: i64 = select.query_row([by.code()], |row| row.get(0))?;
                Ok((by, number.unsigned_abs()))
            };
            GroupBy::ALL.into_iter().map(&mut number).collect()
        })
        .await
    }

    async fn fill_groups(&self, limit: usize) -> store::Result<usize> {
        self.write(limit, move |tx| fill(tx, limit)).await
    }

    async fn prune_groups(&self, before: Timestamp, limit: usize) -> store::Result<usize> {
        self.write(limit, move |tx| prune(tx.conn, before, limit)).await
    }

    async fn prune_group_hours(&self, before: Timestamp, limit: usize) -> store::Result<usize> {
        self.write(limit, move |tx| prune_hours(tx.conn, before, limit)).await
    }
}

/// Changes the row of a dead letter. Every change by which a dead letter begins or ceases to count passes here, so that its groups
/// follow when it is resolved, restored, deleted or filled. For a new one there is `made`. A removal has to pass here as well
/// unless the dead letter is deleted, and so does not count.
pub(super) fn changing<T>(
    tx: &mut Tx<'_>,
    id: DeadLetterId,
    change: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let before = counted(tx.conn, id)?;
    let changed = change(tx.conn)?;
    let after = counted(tx.conn, id)?;
    if !(after.is_none() && tx.bug(Planted::GroupKeepsResolved)) {
        tx.groups.note(before, after);
    }
    Ok(changed)
}

/// Notes a new dead letter.
pub(super) fn made(tx: &mut Tx<'_>, id: DeadLetterId) -> Result<()> {
    let after = counted(tx.conn, id)?;
    tx.groups.note(None, after);
    Ok(())
}

/// A dead letter, if it counts.
fn counted(conn: &Connection, id: DeadLetterId) -> Result<Option<Counted>> {
    let mut select = conn.prepare_cached(
        "select flow, template, fingerprint, created_at
         from dead_letter
         where id = ?1
         and status = 0
         and deleted_at is null
         and fingerprint is not null",
    )?;
    let read = |row: &Row<'_>| {
        Ok(Counted {
            id,
            flow: FlowId(row.get(0)?),
            template: row.get(1)?,
            fingerprint: row.get(2)?,
            died: Timestamp::from_micros(row.get(3)?),
        })
    };
    Ok(select.query_row([id.to_bytes()], read).optional()?)
}

/// Writes the gathered changes, in the order of the groups.
pub(super) fn write(deltas: &mut GroupDeltas, conn: &Connection, flows: &mut Flows) -> Result<()> {
    let changed = deltas.take(|flow| flows.need(conn, flow))?;
    if changed.is_empty() {
        return Ok(());
    }
    let mut writing = Writing { conn, samples: HashMap::new(), room: HashMap::new() };
    for (place, group) in changed {
        let id = writing.count(&place, &group)?;
        writing.hours(&place, id, &group)?;
    }
    Ok(())
}

struct Sample {
    reason: Option<String>,
    failure: Option<u8>,
    status_code: Option<u16>,
    text: String,
}

struct Writing<'c> {
    conn: &'c Connection,
    samples: HashMap<DeadLetterId, Sample>,
    /// How many more groups each kind and tenant may have.
    room: HashMap<(GroupBy, String), usize>,
}

impl Writing<'_> {
    /// Adds to a group, or to `other` if the group is not known and there is no room for it. Returns which.
    fn count(&mut self, place: &GroupPlace, group: &ChangedGroup) -> Result<GroupId> {
        let (by, tenant, id) = place;
        if self.update(place, *id, group)? {
            return Ok(*id);
        }
        let began = group.delta.sample.is_some();
        if began && self.take_room(*by, tenant)? {
            self.insert(place, *id, group)?;
            return Ok(*id);
        }
        let other = GroupId::other(*by);
        if !self.update(place, other, group)? {
            self.insert(place, other, group)?;
        }
        Ok(other)
    }

    /// Returns whether the group is known.
    fn update(&mut self, (by, tenant, _): &GroupPlace, id: GroupId, group: &ChangedGroup) -> Result<bool> {
        let mut update = self.conn.prepare_cached(
            "update failure_group
             set n = n + ?4, first_seen = coalesce(min(first_seen, ?5), first_seen, ?5)
             where kind = ?1
             and tenant = ?2
             and id = ?3",
        )?;
        let first_seen = group.delta.first_seen.map(Timestamp::as_micros);
        let known =
            update.execute(params![by.code(), tenant, id.to_bytes(), group.delta.by, first_seen])? > 0;
        let Some(newest) = group.delta.sample.filter(|_| known) else { return Ok(known) };
        let mut renew = self.conn.prepare_cached(
            "update failure_group
             set sample = ?4, reason = ?5, failure = ?6, status_code = ?7, label = coalesce(?8, label)
             where kind = ?1
             and tenant = ?2
             and id = ?3
             and (sample is null or sample < ?4)",
        )?;
        let is_text = *by == GroupBy::Fingerprint && !id.is_other();
        let sample = self.sample(newest)?;
        renew.execute(params![
            by.code(),
            tenant,
            id.to_bytes(),
            newest.to_bytes(),
            sample.reason,
            sample.failure,
            sample.status_code,
            is_text.then_some(&sample.text),
        ])?;
        Ok(true)
    }

    fn insert(&mut self, (by, tenant, _): &GroupPlace, id: GroupId, group: &ChangedGroup) -> Result<()> {
        let mut insert = self.conn.prepare_cached(
            "insert into failure_group (kind, tenant, id, n, first_seen, sample, reason, failure, status_code, label,
                 fingerprint)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        let is_other = id.is_other();
        let sample = group.delta.sample.map(|sample| self.sample(sample)).transpose()?;
        let text = sample.map(|sample| &sample.text);
        let label = if *by == GroupBy::Fingerprint { text } else { group.name.as_ref() };
        insert.execute(params![
            by.code(),
            tenant,
            id.to_bytes(),
            group.delta.by,
            group.delta.first_seen.map(Timestamp::as_micros),
            group.delta.sample.map(DeadLetterId::to_bytes),
            sample.map(|sample| &sample.reason),
            sample.and_then(|sample| sample.failure),
            sample.and_then(|sample| sample.status_code),
            label.filter(|_| !is_other),
            group.fingerprint.filter(|_| !is_other),
        ])?;
        Ok(())
    }

    fn hours(&mut self, (by, tenant, _): &GroupPlace, id: GroupId, group: &ChangedGroup) -> Result<()> {
        let mut upsert = self.conn.prepare_cached(
            "insert into failure_group_hour (hour, kind, tenant, id, n)
             values (?1, ?2, ?3, ?4, ?5)
             on conflict (hour, kind, tenant, id) do update
             set n = n + excluded.n",
        )?;
        for (hour, n) in group.hours.iter().filter(|(_, n)| **n != 0) {
            upsert.execute(params![hour, by.code(), tenant, id.to_bytes(), n])?;
        }
        Ok(())
    }

    /// Takes room for one more group. While `other` counts anything there is none, so that a dead letter is counted in `other`
    /// exactly while its group is not known.
    fn take_room(&mut self, by: GroupBy, tenant: &str) -> Result<bool> {
        let room = match self.room.entry((by, tenant.to_owned())) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(unknown) => {
                unknown.insert(room(self.conn, by, tenant)?)
            }
        };
        let had_room = *room > 0;
        *room = room.saturating_sub(1);
        Ok(had_room)
    }

    fn sample(&mut self, id: DeadLetterId) -> Result<&Sample> {
        if !self.samples.contains_key(&id) {
            let mut select = self
                .conn
                .prepare_cached("select reason, failure, status_code, text from dead_letter where id = ?1")?;
            let read = |row: &Row<'_>| {
                let (reason, failure, status_code) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Sample { reason, failure, status_code, text: row.get(3)? })
            };
            // One that was removed in the same transaction says nothing.
            let empty = || Sample { reason: None, failure: None, status_code: None, text: String::new() };
            let sample = select.query_row([id.to_bytes()], read).optional()?.unwrap_or_else(empty);
            self.samples.insert(id, sample);
        }
        self.samples.get(&id).ok_or_else(|| Fault::damaged("a sample was lost"))
    }
}

fn room(conn: &Connection, by: GroupBy, tenant: &str) -> Result<usize> {
    let other = GroupId::other(by).to_bytes();
    let mut others = conn.prepare_cached(
        "select n > 0
         from failure_group
         where kind = ?1
         and tenant = ?2
         and id = ?3",
    )?;
    let counts: Option<bool> =
        others.query_row(params![by.code(), tenant, other], |row| row.get(0)).optional()?;
    if counts == Some(true) {
        return Ok(0);
    }
    let mut count = conn.prepare_cached(
        "select count(*)
         from failure_group
         where kind = ?1
         and tenant = ?2
         and id <> ?3",
    )?;
    let known: i64 = count.query_row(params![by.code(), tenant, other], |row| row.get(0))?;
    Ok(MAX_GROUPS.saturating_sub(usize::try_from(known).unwrap_or(usize::MAX)))
}

/// The columns that `group_row` reads.
macro_rules! group_columns {
    () => {
        "kind, id, n, first_seen, sample, reason, failure, status_code, label, fingerprint"
    };
}

fn group_row(row: &Row<'_>) -> Result<GroupRow> {
    Ok(GroupRow {
        by: groups::kind(row.get(0)?)?,
        id: GroupId::from_bytes(row.get(1)?),
        count: row.get(2)?,
        first_seen: maybe_time(row, 3)?,
        sample: maybe_dead_letter_id(row, 4)?,
        reason: maybe_reason(row, 5)?,
        failure: maybe_failure(row, 6)?,
        status_code: row.get(7)?,
        label: row.get(8)?,
        fingerprint: row.get(9)?,
    })
}

fn page(
    conn: &Connection,
    by: GroupBy,
    tenant: Option<&Tenant>,
    after: Option<GroupCursor>,
    limit: usize,
    now: Timestamp,
) -> Result<Page<FailureGroup, GroupCursor>> {
    let mut select = conn.prepare_cached(concat!(
        "select ",
        group_columns!(),
        " from failure_group indexed by failure_group_count
         where kind = ?1
         and tenant = ?2
         and n > 0
         and (n, id) < (?3, ?4)
         order by n desc, id desc
         limit ?5"
    ))?;
    let whose = tenant.map_or(ALL, Tenant::as_str);
    let (count, id) = after.map_or((i64::MAX, [0xff; 16]), |after| {
        (i64::try_from(after.count).unwrap_or(i64::MAX), after.id.to_bytes())
    });
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = select.query(params![by.code(), whose, count, id, one_more])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(shown(conn, group_row(row)?, tenant, now)?);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(FailureGroup::cursor);
    Ok(Page { rows: found, next })
}

/// The group with that id, of a tenant or of all.
pub(super) fn find(conn: &Connection, id: GroupId, tenant: Option<&Tenant>) -> Result<Option<GroupRow>> {
    let mut select = conn.prepare_cached(concat!(
        "select ",
        group_columns!(),
        " from failure_group
         where kind in (0, 1, 2, 3, 4)
         and tenant = ?1
         and id = ?2"
    ))?;
    let mut rows = select.query(params![tenant.map_or(ALL, Tenant::as_str), id.to_bytes()])?;
    rows.next()?.map(group_row).transpose()
}

fn shown(conn: &Connection, row: GroupRow, tenant: Option<&Tenant>, now: Timestamp) -> Result<FailureGroup> {
    let mut select = conn.prepare_cached(
        "select n
         from failure_group_hour
         where hour = ?1
         and kind = ?2
         and tenant = ?3
         and id = ?4",
    )?;
    let whose = tenant.map_or(ALL, Tenant::as_str);
    let mut hours = Vec::with_capacity(HOURS);
    for hour in (0..HOURS as i64).map(|ago| now.as_hours() - ago) {
        let place = params![hour, row.by.code(), whose, row.id.to_bytes()];
        let n: Option<i64> = select.query_row(place, |row| row.get(0)).optional()?;
        hours.extend(n.map(|n| (hour, n)));
    }
    Ok(row.shown(&hours, now)?)
}

/// The filter with the fields that its group stands for, and the fingerprint if the group is by it. None if nothing can
/// match.
pub(super) fn narrowed(conn: &Connection, filter: &Filter) -> Result<Option<(Filter, Option<[u8; 16]>)>> {
    let Some(id) = filter.group else { return Ok(Some((filter.clone(), None))) };
    let Some(group) = find(conn, id, filter.tenant.as_ref())? else { return Ok(None) };
    Ok(group.narrow(filter)?.map(|filter| (filter, group.fingerprint)))
}

fn fill(tx: &mut Tx<'_>, limit: usize) -> Result<usize> {
    let mut select = tx.conn.prepare_cached(
        "select id, reason, failure, status_code, text
         from dead_letter indexed by dead_letter_unfilled
         where fingerprint is null
         limit ?1",
    )?;
    let mut rows = select.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let reason = maybe_reason(row, 1).ok().flatten().unwrap_or(Reason::MaxAttemptsExceeded);
        let failure: Option<FailureType> = maybe_failure(row, 2).ok().flatten();
        let text = maybe_text(row, 4)?.unwrap_or_default();
        found.push((dead_letter_id(row, 0)?, groups::print(reason, failure, row.get(3)?, text)));
    }
    drop(rows);
    for (id, print) in &found {
        changing(tx, *id, |conn| {
            let mut update = conn.prepare_cached("update dead_letter set fingerprint = ?2 where id = ?1")?;
            update.execute(params![id.to_bytes(), print])?;
            Ok(())
        })?;
    }
    Ok(found.len())
}

fn prune_hours(conn: &Connection, before: Timestamp, limit: usize) -> Result<usize> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut hours = conn.prepare_cached(
        "delete from failure_group_hour
         where (hour, kind, tenant, id) in (
             select hour, kind, tenant, id
             from failure_group_hour
             where hour < ?1
             limit ?2)",
    )?;
    Ok(hours.execute(params![before.as_hours(), most])?)
}

fn prune(conn: &Connection, before: Timestamp, limit: usize) -> Result<usize> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut groups = conn.prepare_cached(
        "delete from failure_group
         where (kind, tenant, id) in (
             select kind, tenant, id
             from failure_group g indexed by failure_group_empty
             where n = 0
             and (sample is null or sample < ?1)
             and not exists (
                 select 1
                 from failure_group o
                 where o.kind = g.kind
                 and o.tenant = g.tenant
                 and o.id = case g.kind when 0 then ?3 when 1 then ?4 when 2 then ?5 when 3 then ?6 else ?7 end
                 and o.n <> 0)
             order by sample, kind, tenant, id
             limit ?2)",
    )?;
    let [a, b, c, d, e] = GroupBy::ALL.map(|by| GroupId::other(by).to_bytes());
    Ok(groups.execute(params![DeadLetterId::least_at(before).to_bytes(), most, a, b, c, d, e])?)
}

/// The groups that differ from a recount of the dead letters.
#[cfg(feature = "planted")]
pub(super) fn recount(conn: &Connection) -> Result<Option<String>> {
    use posthaste_core::group::Grouped;

    let mut select = conn.prepare("select kind, tenant, id, n from failure_group")?;
    let mut rows = select.query([])?;
    let mut kept = groups::Counts::new();
    while let Some(row) = rows.next()? {
        kept.insert((groups::kind(row.get(0)?)?, row.get(1)?, GroupId::from_bytes(row.get(2)?)), row.get(3)?);
    }
    let sql = "
        select d.fingerprint, f.tenant, f.channel, f.destination, d.template
        from dead_letter d
        join flow f on f.id = d.flow
        where d.status = 0
        and d.deleted_at is null
        and d.fingerprint is not null";
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query([])?;
    type Facts = ([u8; 16], String, u8, String, Option<String>);
    let mut counting: Vec<Facts> = vec![];
    while let Some(row) = rows.next()? {
        counting.push((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    }
    let grouped = counting.iter().map(|(fingerprint, tenant, channel, destination, template)| Grouped {
        fingerprint: *fingerprint,
        tenant,
        channel: crate::kept::values::channel(*channel).unwrap_or(posthaste_core::channel::Channel::Webhook),
        destination,
        template: template.as_deref(),
    });
    Ok(groups::compare(&kept, grouped))
}
