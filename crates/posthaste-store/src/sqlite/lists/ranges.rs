//! The ranges of indexes that the lists walk, and how keys are fetched from them.
//!
//! `:before` and `:from` bound the ids, `:after` and `:due` are where the retry queue goes on. An index is named where
//! the planner could take another one, which would walk the rows of others.

use std::cmp::Reverse;

use posthaste_core::channel::Channel;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::notification::Tenant;
use posthaste_core::state::State;
use posthaste_engine::store::DueCursor;
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql};

use super::super::fault::Result;
use super::super::rows::{notification_id, time};
use crate::walk::{MAX_FLOWS, distinct};

/// A range of an index: a statement, and the values that lead to the range.
pub(super) struct Range {
    sql: &'static str,
    leads: Vec<(&'static str, Value)>,
}

/// The newest ids of a range.
macro_rules! newest {
    ($index:literal $(where $condition:literal)?) => {
        concat!(
            "select id
             from ",
            $index,
            "
             where id < :before
             and id >= :from",
            $("
             and ", $condition,)?
            "
             order by id desc
             limit :limit"
        )
    };
}

/// A place in the retry queue, soonest first.
pub(super) type Soonest = Reverse<DueCursor>;

/// Every notification.
pub(super) fn all() -> Vec<Range> {
    let sql = newest!("notification");
    vec![Range { sql, leads: vec![] }]
}

/// What ended in these states, of one tenant or of all.
pub(super) fn ends(states: &[State], tenant: Option<&Tenant>) -> Vec<Range> {
    let of_all = newest!("ended indexed by ended_state" where "state = :state and state <> 2");
    let of_tenant = newest!(
        "ended indexed by ended_tenant"
        where "tenant = :tenant and state = :state and state <> 2"
    );
    let codes = states.iter().map(|state| Value::Integer(state.code().into()));
    with_tenant(codes.map(|code| (":state", code)), tenant, of_all, of_tenant)
}

pub(super) fn queue() -> Vec<Range> {
    let sql = newest!("queue");
    vec![Range { sql, leads: vec![] }]
}

pub(super) fn retries() -> Vec<Range> {
    let sql = newest!("queue indexed by queue_retry_id" where "lane = 1");
    vec![Range { sql, leads: vec![] }]
}

/// What each node holds.
pub(super) fn held(conn: &Connection) -> Result<Vec<Range>> {
    let sql = newest!("queue indexed by queue_held" where "node = :node");
    let mut select = conn.prepare_cached("select id from node")?;
    let nodes = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    Ok(nodes.into_iter().map(|node| Range { sql, leads: vec![(":node", Value::Integer(node))] }).collect())
}

/// Dead letters by how they stand, of one tenant or of all.
pub(super) fn letters(statuses: &[LetterStatus], tenant: Option<&Tenant>) -> Vec<Range> {
    let of_all = newest!(
        "dead_letter indexed by dead_letter_status"
        where "status = :status and deleted_at is null"
    );
    let of_tenant = newest!(
        "dead_letter indexed by dead_letter_tenant"
        where "tenant = :tenant and status = :status and deleted_at is null"
    );
    let mut ranges = with_tenant(kept(statuses), tenant, of_all, of_tenant);
    ranges.extend(deleted(statuses));
    ranges
}

/// Dead letters of one cause by how they stand, of one tenant or of all.
pub(super) fn letters_of_cause(
    statuses: &[LetterStatus],
    tenant: Option<&Tenant>,
    fingerprint: [u8; 16],
) -> Vec<Range> {
    let of_all = newest!(
        "dead_letter indexed by dead_letter_fingerprint"
        where "fingerprint = :print and status = :status and deleted_at is null and fingerprint is not null"
    );
    let of_tenant = newest!(
        "dead_letter indexed by dead_letter_tenant_fingerprint"
        where "tenant = :tenant and fingerprint = :print and status = :status and deleted_at is null
               and fingerprint is not null"
    );
    let mut ranges = with_tenant(kept(statuses), tenant, of_all, of_tenant);
    for range in &mut ranges {
        range.leads.push((":print", Value::Blob(fingerprint.to_vec())));
    }
    ranges.extend(deleted(statuses));
    ranges
}

/// Dead letters of these flows by how they stand.
pub(super) fn letters_of_flows(statuses: &[LetterStatus], flows: &[i64]) -> Vec<Range> {
    let sql = newest!(
        "dead_letter indexed by dead_letter_flow"
        where "flow = :flow and status = :status and deleted_at is null"
    );
    let range = |flow: i64, status| Range { sql, leads: vec![(":flow", Value::Integer(flow)), status] };
    let of_flow = |flow: &i64| kept(statuses).map(|status| range(*flow, status)).collect::<Vec<_>>();
    let mut ranges: Vec<Range> = flows.iter().flat_map(of_flow).collect();
    ranges.extend(deleted(statuses));
    ranges
}

fn kept(statuses: &[LetterStatus]) -> impl Iterator<Item = (&'static str, Value)> {
    let codes = distinct(statuses.iter().filter_map(|status| status.kept()));
    codes.into_iter().map(|status| (":status", Value::Integer(status.code().into())))
}

fn deleted(statuses: &[LetterStatus]) -> Option<Range> {
    let sql = newest!("dead_letter indexed by dead_letter_deleted" where "deleted_at is not null");
    statuses.contains(&LetterStatus::Deleted).then(|| Range { sql, leads: vec![] })
}

/// A range for each value.
fn with_tenant(
    leads: impl Iterator<Item = (&'static str, Value)>,
    tenant: Option<&Tenant>,
    of_all: &'static str,
    of_tenant: &'static str,
) -> Vec<Range> {
    let range = |lead: (&'static str, Value)| match tenant {
        None => Range { sql: of_all, leads: vec![lead] },
        Some(tenant) => {
            let whose = (":tenant", Value::Text(tenant.as_str().to_owned()));
            Range { sql: of_tenant, leads: vec![whose, lead] }
        }
    };
    leads.map(range).collect()
}

/// Every retry, soonest first.
pub(super) fn retry_queue() -> Vec<Range> {
    let sql = "
        select due, id
        from queue indexed by queue_retry
        where lane = 1
        and (due, id) > (:due, :after)
        order by due, id
        limit :limit";
    vec![Range { sql, leads: vec![] }]
}

/// The retries of these flows, soonest first.
pub(super) fn retry_queue_of(flows: &[i64]) -> Vec<Range> {
    let sql = "
        select due, id
        from queue indexed by queue_retry_flow
        where flow = :flow
        and lane = 1
        and (due, id) > (:due, :after)
        order by due, id
        limit :limit";
    flows.iter().map(|flow| Range { sql, leads: vec![(":flow", Value::Integer(*flow))] }).collect()
}

/// The flows that the filter names by tenant, destination and channel, up to one more than can be merged.
pub(super) fn flows(conn: &Connection, filter: &Filter) -> Result<Vec<i64>> {
    let of_tenant = "
        select id
        from flow
        where tenant = ?1
        and channel = ?2
        order by destination
        limit ?3";
    let of_tenant_to = "
        select id
        from flow
        where tenant = ?1
        and channel = ?2
        and destination = ?3";
    let of_destination = "
        select id
        from flow indexed by flow_destination
        where destination = ?1
        and channel = ?2
        limit ?3";
    let most = whole(MAX_FLOWS + 1);
    let mut found: Vec<i64> = vec![];
    let tenant = filter.tenant.as_ref().map(Tenant::as_str);
    for channel in filter.channels().map(Channel::code) {
        if filter.destinations.is_empty() {
            found.extend(numbers(conn, of_tenant, (tenant, channel, most))?);
        }
        for destination in &filter.destinations {
            found.extend(match tenant {
                Some(tenant) => numbers(conn, of_tenant_to, (tenant, channel, destination))?,
                None => numbers(conn, of_destination, (destination, channel, most))?,
            });
        }
    }
    Ok(distinct(found.into_iter()))
}

fn numbers(conn: &Connection, sql: &str, values: impl rusqlite::Params) -> Result<Vec<i64>> {
    let mut select = conn.prepare_cached(sql)?;
    let found = select.query_map(values, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(found)
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Range {
    /// So many ids of the range, newest first.
    pub(super) fn newest<K>(
        &self,
        conn: &Connection,
        (from, before): ([u8; 16], [u8; 16]),
        limit: usize,
        id: impl Fn(&rusqlite::Row<'_>, usize) -> Result<K>,
    ) -> Result<Vec<K>> {
        let bound: [(&str, &dyn ToSql); 3] =
            [(":from", &from), (":before", &before), (":limit", &whole(limit))];
        self.fetch(conn, &bound, |row| id(row, 0))
    }

    /// So many retries of the range, soonest first.
    pub(super) fn retries(
        &self,
        conn: &Connection,
        after: Option<Soonest>,
        limit: usize,
    ) -> Result<Vec<Soonest>> {
        let (due, id) =
            after.map_or((i64::MIN, [0; 16]), |Reverse(at)| (at.due.as_micros(), at.id.to_bytes()));
        let bound: [(&str, &dyn ToSql); 3] = [(":due", &due), (":after", &id), (":limit", &whole(limit))];
        self.fetch(conn, &bound, |row| {
            Ok(Reverse(DueCursor { due: time(row, 0)?, id: notification_id(row, 1)? }))
        })
    }

    fn fetch<K>(
        &self,
        conn: &Connection,
        bound: &[(&str, &dyn ToSql)],
        key: impl Fn(&rusqlite::Row<'_>) -> Result<K>,
    ) -> Result<Vec<K>> {
        let mut select = conn.prepare_cached(self.sql)?;
        let leads = self.leads.iter().map(|(name, value)| (*name, value as &dyn ToSql));
        let bound: Vec<(&str, &dyn ToSql)> = leads.chain(bound.iter().copied()).collect();
        let mut rows = select.query(bound.as_slice())?;
        let mut keys = vec![];
        while let Some(row) = rows.next()? {
            keys.push(key(row)?);
        }
        Ok(keys)
    }
}
