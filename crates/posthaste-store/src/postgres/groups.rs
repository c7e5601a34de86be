//! Failure groups. Triggers of the table of dead letters keep their counts, so every statement that makes, changes or removes a
//! dead letter changes its groups in the same transaction, and no code has to.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::filter::Filter;
use posthaste_core::group::{GroupBy, GroupId, HOURS};
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, FailureGroup, GroupCursor, Groups, Page};
use tokio_postgres::Row;
use uuid::Uuid;

use super::fault::Result;
use super::rows::{Columns, bigint, letter_uuid};
use super::tx::{Mode, Then, Tx, bind, statement};
use super::{PostgresStore, list, look, transact};
use crate::kept::counters::ALL;
use crate::kept::groups::{self, GroupRow};

#[async_trait]
impl Groups for PostgresStore {
    async fn failure_groups(
        &self,
        by: GroupBy,
        tenant: Option<Tenant>,
        after: Option<GroupCursor>,
        limit: usize,
        now: Timestamp,
    ) -> store::Result<Page<FailureGroup, GroupCursor>> {
        Ok(list!(self, tx => page(&tx, by, tenant.as_ref(), after, limit, now))?)
    }

    async fn failure_group(
        &self,
        id: GroupId,
        tenant: Option<Tenant>,
        now: Timestamp,
    ) -> store::Result<Option<FailureGroup>> {
        Ok(look!(self, tx => get(&tx, id, tenant.as_ref(), now))?)
    }

    async fn group_numbers(&self) -> store::Result<Vec<(GroupBy, u64)>> {
        Ok(list!(self, tx => numbers(&tx))?)
    }

    async fn fill_groups(&self, limit: usize) -> store::Result<usize> {
        Ok(transact!(self, tx => fill(&tx, limit))?)
    }

    async fn prune_groups(&self, before: Timestamp, limit: usize) -> store::Result<usize> {
        if list!(self, tx => any_has_many_writers(&tx))? {
            transact!(self, tx => fold(&tx, limit))?;
        }
        let places = list!(self, tx => empty(&tx, before, limit))?;
        if places.is_empty() {
            return Ok(0);
        }
        Ok(transact!(self, tx => remove(&tx, &places))?)
    }

    async fn prune_group_hours(&self, before: Timestamp, limit: usize) -> store::Result<usize> {
        Ok(transact!(self, tx => prune_hours(&tx, before, limit))?)
    }
}

/// The groups of `s` (kind, tenant, id, n) with what the writer of the newest sample kept, and their numbers of the hours up to
/// `$1`. `group_row` reads them.
macro_rules! described {
    ($from:expr, $order:literal) => {
        concat!(
            "select s.kind, s.id, s.n, (
                 select min(o.first_seen)
                 from failure_group o
                 where o.kind = s.kind
                 and o.tenant = s.tenant
                 and o.id = s.id),
                 g.sample, g.reason, g.failure, g.status_code, g.label, g.fingerprint, h.hours, h.numbers
             from (",
            $from,
            ") as s
             cross join lateral (
                 select *
                 from failure_group o
                 where o.kind = s.kind
                 and o.tenant = s.tenant
                 and o.id = s.id
                 order by o.sample desc nulls last
                 limit 1) as g
             cross join lateral (
                 select array_agg(u.hour) as hours, array_agg(u.n) as numbers
                 from (
                     select a.hour, (
                         select sum(o.n)::bigint
                         from failure_group_hour o
                         where o.hour = a.hour
                         and o.kind = s.kind
                         and o.tenant = s.tenant
                         and o.id = s.id) as n
                     from generate_series($1::bigint - 23, $1) as a (hour)) as u
                 where u.n is not null) as h
             ",
            $order
        )
    };
}

fn group_row(row: &Row) -> Result<(GroupRow, Vec<(i64, i64)>)> {
    let mut columns = Columns::of(row);
    let by = groups::kind(columns.code()?)?;
    let group = GroupRow {
        by,
        id: GroupId::from_bytes(columns.take::<Uuid>()?.into_bytes()),
        count: columns.take()?,
        first_seen: columns.maybe_time()?,
        sample: columns.take::<Option<Uuid>>()?.map(|id| DeadLetterId::from_bytes(id.into_bytes())),
        reason: columns.maybe_reason()?,
        failure: columns.maybe_failure()?,
        status_code: columns.maybe_status_code()?,
        label: columns.take()?,
        fingerprint: columns.take::<Option<Uuid>>()?.map(Uuid::into_bytes),
    };
    let (hours, numbers): (Option<Vec<i64>>, Option<Vec<i64>>) = (columns.take()?, columns.take()?);
    let hours = hours.unwrap_or_default().into_iter().zip(numbers.unwrap_or_default()).collect();
    Ok((group, hours))
}

async fn page(
    tx: &Tx,
    by: GroupBy,
    tenant: Option<&Tenant>,
    after: Option<GroupCursor>,
    limit: usize,
    now: Timestamp,
) -> Result<Page<FailureGroup, GroupCursor>> {
    const _: () = assert!(HOURS == 24, "the statement reads 24 hours");
    let sql = described!(
        "select $2::smallint as kind, $3::text as tenant, t.id, t.n
         from (
             select id, sum(n)::bigint as n
             from failure_group
             where kind = $2
             and tenant = $3
             group by id
             having sum(n) > 0) as t
         where (t.n, t.id) < ($4, $5)
         order by t.n desc, t.id desc
         limit $6",
        "order by s.n desc, s.id desc"
    );
    let whose = tenant.map_or(ALL, Tenant::as_str);
    let (count, id) = after.map_or((i64::MAX, Uuid::max()), |after| {
        (i64::try_from(after.count).unwrap_or(i64::MAX), uuid(after.id))
    });
    let bound = bind![
        now.as_hours() => INT8,
        i16::from(by.code()) => INT2,
        whose => TEXT,
        count => INT8,
        id => UUID,
        bigint(limit.saturating_add(1)) => INT8,
    ];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let shown = |row: &Row| {
        let (group, hours) = group_row(row)?;
        Ok(group.shown(&hours, now)?)
    };
    let mut found = rows.iter().map(shown).collect::<Result<Vec<_>>>()?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(FailureGroup::cursor);
    Ok(Page { rows: found, next })
}

/// The group with that id, of a tenant or of all, with its numbers by hour.
async fn find(
    tx: &Tx,
    id: GroupId,
    tenant: Option<&Tenant>,
    now: Timestamp,
) -> Result<Option<(GroupRow, Vec<(i64, i64)>)>> {
    let sql = described!(
        "select kind, tenant, id, sum(n)::bigint as n
         from failure_group
         where kind in (0, 1, 2, 3, 4)
         and tenant = $2
         and id = $3
         group by kind, tenant, id",
        ""
    );
    let whose = tenant.map_or(ALL, Tenant::as_str);
    let bound = bind![now.as_hours() => INT8, whose => TEXT, uuid(id) => UUID];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    rows.first().map(group_row).transpose()
}

async fn get(tx: &Tx, id: GroupId, tenant: Option<&Tenant>, now: Timestamp) -> Result<Option<FailureGroup>> {
    let Some((group, hours)) = find(tx, id, tenant, now).await? else { return Ok(None) };
    Ok(Some(group.shown(&hours, now)?))
}

/// The filter with the fields that its group stands for, and the fingerprint if the group is by it. None if nothing can
/// match.
pub(super) async fn narrowed(tx: &Tx, filter: &Filter) -> Result<Option<(Filter, Option<Uuid>)>> {
    let Some(id) = filter.group else { return Ok(Some((filter.clone(), None))) };
    let found = find(tx, id, filter.tenant.as_ref(), Timestamp::EPOCH).await?;
    let Some((group, _)) = found else { return Ok(None) };
    Ok(group.narrow(filter)?.map(|filter| (filter, group.fingerprint.map(Uuid::from_bytes))))
}

async fn numbers(tx: &Tx) -> Result<Vec<(GroupBy, u64)>> {
    let sql = "
        select u.kind, (
            select count(*)
            from (
                select
                from failure_group g
                where g.kind = u.kind
                and g.tenant = ''
                group by g.id
                having sum(g.n) > 0) as s)
        from unnest(array[0, 1, 2, 3, 4]::smallint[]) as u (kind)
        order by u.kind";
    let rows = tx.alone(Mode::Read, sql, &[]).await?;
    let read = |row| {
        let mut columns = Columns::of(row);
        Ok((groups::kind(columns.code()?)?, columns.take::<i64>()?.unsigned_abs()))
    };
    rows.iter().map(read).collect()
}

/// The trigger counts what gets a fingerprint.
async fn fill(tx: &Tx, limit: usize) -> Result<usize> {
    let select = "
        select id, reason, failure, status_code, text
        from dead_letter
        where fingerprint is null
        order by id
        limit $1
        for update skip locked";
    let bound = bind![bigint(limit) => INT8];
    let steps = [statement!(select, bound)];
    let mut answers = tx.send(Some(Mode::Write), &steps, Then::Continue).await?;
    let (mut ids, mut prints) = (vec![], vec![]);
    for row in answers.pop().unwrap_or_default() {
        let mut columns = Columns::of(&row);
        ids.push(columns.take::<Uuid>()?);
        // What a newer version wrote is not known here, and stops no other row.
        let reason = columns.maybe_reason().ok().flatten().unwrap_or(Reason::MaxAttemptsExceeded);
        let (failure, status_code) = (columns.maybe_failure()?, columns.maybe_status_code()?);
        let text: Option<&str> = columns.take()?;
        prints.push(Uuid::from_bytes(groups::print(reason, failure, status_code, text.unwrap_or_default())));
    }
    let update = "
        update dead_letter d
        set fingerprint = u.fingerprint
        from unnest($1::uuid[], $2::uuid[]) as u (id, fingerprint)
        where d.id = u.id";
    let bound = bind![ids => UUID_ARRAY, prints => UUID_ARRAY];
    tx.send(None, &[statement!(update, bound)], Then::Commit).await?;
    Ok(ids.len())
}

/// A group of a tenant, or of all of them.
type Place = (i16, String, Uuid);

/// Adds up the rows of groups that have many writers. These are the groups that just grow, so whoever waits for their rows waits
/// for nothing else of this job.
async fn fold(tx: &Tx, limit: usize) -> Result<()> {
    let steps = [statement!("select failure_group_fold($1)", bind![bigint(limit) => INT8])];
    tx.send(Some(Mode::Write), &steps, Then::Commit).await?;
    Ok(())
}

async fn any_has_many_writers(tx: &Tx) -> Result<bool> {
    let sql = "
        select
        from failure_group
        group by kind, tenant, id
        having count(*) > 4
        limit 1";
    Ok(!tx.alone(Mode::Read, sql, bind![]).await?.is_empty())
}

/// The groups of a tenant or of all, `o`, in which dead letters count that have no group of their own: while there are any, the
/// groups of their kind stay. `$1` has the kinds and `$2` the ids of those groups.
macro_rules! others {
    () => {
        "select o.kind, o.tenant
         from unnest($1::smallint[], $2::uuid[]) as other (kind, id)
         join failure_group o on o.kind = other.kind and o.id = other.id
         group by o.kind, o.tenant
         having sum(o.n) <> 0"
    };
}

fn other_groups() -> (Vec<i16>, Vec<Uuid>) {
    GroupBy::ALL
        .map(|by| (i16::from(by.code()), Uuid::from_bytes(GroupId::other(by).to_bytes())))
        .into_iter()
        .unzip()
}

/// Groups that add up to nothing. It reads the whole table and locks nothing.
async fn empty(tx: &Tx, before: Timestamp, limit: usize) -> Result<Vec<Place>> {
    let sql = concat!(
        "with others as materialized (",
        others!(),
        ")
         select e.kind, e.tenant, e.id
         from failure_group e
         where not exists (
             select
             from others o
             where o.kind = e.kind
             and o.tenant = e.tenant)
         group by e.kind, e.tenant, e.id
         having sum(e.n) = 0
         and coalesce((array_agg(e.sample order by e.sample desc nulls last))[1] < $3, true)
         order by (array_agg(e.sample order by e.sample desc nulls last))[1] nulls first, e.kind, e.tenant, e.id
         limit $4"
    );
    let (kinds, others) = other_groups();
    let oldest = letter_uuid(DeadLetterId::least_at(before));
    let bound = bind![kinds => INT2_ARRAY, others => UUID_ARRAY, oldest => UUID, bigint(limit) => INT8];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let place = |row: &Row| {
        let mut columns = Columns::of(row);
        Ok((columns.take()?, columns.take()?, columns.take()?))
    };
    rows.iter().map(place).collect()
}

/// Removes those of these groups that add up to nothing still, while nobody changes them: then the sum of what is left stays what
/// it was.
async fn remove(tx: &Tx, places: &[Place]) -> Result<usize> {
    let sql = concat!(
        "with others as materialized (",
        others!(),
        ")
         select g.kind, g.tenant, g.id, g.writer, g.n
         from unnest($3::smallint[], $4::text[], $5::uuid[]) as u (kind, tenant, id)
         join failure_group g on g.kind = u.kind and g.tenant = u.tenant and g.id = u.id
         where not exists (
             select
             from others o
             where o.kind = g.kind
             and o.tenant = g.tenant)
         order by g.kind, g.tenant, g.id, g.writer
         for update of g"
    );
    let (kinds, others) = other_groups();
    let (of_kinds, tenants, ids): (Vec<i16>, Vec<&str>, Vec<Uuid>) =
        places.iter().map(|(kind, tenant, id)| (*kind, tenant.as_str(), *id)).collect();
    let bound = bind![
        kinds => INT2_ARRAY,
        others => UUID_ARRAY,
        of_kinds => INT2_ARRAY,
        tenants => TEXT_ARRAY,
        ids => UUID_ARRAY,
    ];
    let mut answers = tx.send(Some(Mode::Write), &[statement!(sql, bound)], Then::Continue).await?;
    let mut found: BTreeMap<Place, (i64, Vec<i16>)> = BTreeMap::new();
    for row in answers.pop().unwrap_or_default() {
        let mut columns = Columns::of(&row);
        let place = (columns.take()?, columns.take()?, columns.take()?);
        let (sum, writers) = found.entry(place).or_default();
        writers.push(columns.take()?);
        *sum += columns.take::<i64>()?;
    }
    found.retain(|_, (sum, _)| *sum == 0);
    delete(tx, &found).await?;
    Ok(found.len())
}

/// Deletes the rows of these writers, and commits.
async fn delete(tx: &Tx, found: &BTreeMap<Place, (i64, Vec<i16>)>) -> Result<()> {
    let (mut kinds, mut tenants, mut ids, mut writers) = (vec![], vec![], vec![], vec![]);
    for ((kind, tenant, id), (_, own)) in found {
        for writer in own {
            kinds.push(*kind);
            tenants.push(tenant.clone());
            ids.push(*id);
            writers.push(*writer);
        }
    }
    let delete = "
        delete from failure_group g
        using unnest($1::smallint[], $2::text[], $3::uuid[], $4::smallint[]) as u (kind, tenant, id, writer)
        where g.kind = u.kind
        and g.tenant = u.tenant
        and g.id = u.id
        and g.writer = u.writer";
    let bound = bind![kinds => INT2_ARRAY, tenants => TEXT_ARRAY, ids => UUID_ARRAY, writers => INT2_ARRAY];
    tx.send(None, &[statement!(delete, bound)], Then::Commit).await?;
    Ok(())
}

async fn prune_hours(tx: &Tx, before: Timestamp, limit: usize) -> Result<usize> {
    let sql = "
        delete from failure_group_hour
        where (hour, kind, tenant, id, writer) in (
            select hour, kind, tenant, id, writer
            from failure_group_hour
            where hour < $1
            order by hour, kind, tenant, id, writer
            limit $2
            for update skip locked)
        returning 1";
    let bound = bind![before.as_hours() => INT8, bigint(limit) => INT8];
    Ok(tx.alone(Mode::Write, sql, bound).await?.len())
}

const fn uuid(id: GroupId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

/// The groups that differ from a recount of the dead letters.
#[cfg(feature = "planted")]
pub(super) async fn recount(tx: &Tx) -> Result<Option<String>> {
    use posthaste_core::channel::Channel;
    use posthaste_core::group::Grouped;

    use super::fault::Fault;

    let kept = "select kind, tenant, id, sum(n)::bigint from failure_group group by kind, tenant, id";
    let counting = "
        select d.fingerprint, f.tenant, f.channel, f.destination, d.template
        from dead_letter d
        join flow f on f.id = d.flow
        where d.status = 0
        and d.deleted_at is null
        and d.fingerprint is not null";
    let steps = [statement!(kept, &[]), statement!(counting, &[])];
    let answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?;
    let [kept, counting] = &answers[..] else { return Err(Fault::damaged("two answers")) };
    let mut counts = groups::Counts::new();
    for row in kept {
        let mut columns = Columns::of(row);
        let place = (groups::kind(columns.code()?)?, columns.take()?);
        let id = GroupId::from_bytes(columns.take::<Uuid>()?.into_bytes());
        counts.insert((place.0, place.1, id), columns.take()?);
    }
    type Facts = (Uuid, String, Channel, String, Option<String>);
    let mut found: Vec<Facts> = vec![];
    for row in counting {
        let mut columns = Columns::of(row);
        let (print, tenant, channel) = (columns.take()?, columns.take()?, columns.channel()?);
        found.push((print, tenant, channel, columns.take()?, columns.take()?));
    }
    let grouped = found.iter().map(|(print, tenant, channel, destination, template)| Grouped {
        fingerprint: print.into_bytes(),
        tenant,
        channel: *channel,
        destination,
        template: template.as_deref(),
    });
    Ok(groups::compare(&counts, grouped))
}
