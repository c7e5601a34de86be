//! Accepts notifications: wide rows, queue rows and idempotency keys.

use std::borrow::Cow;
use std::collections::BTreeSet;

use posthaste_core::lease::NodeId;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Acceptance, Accepted, Arrival, Request};
use uuid::Uuid;

use super::counters::{Sums, add_sums};
use super::fault::Result;
use super::flows::Flows;
use super::idempotency::{self, Days};
use super::planted::{Planted, spoiled};
use super::rows::{Columns, maybe_without_nul, uuid, without_nul};
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use crate::kept::counters::Deltas;
use crate::kept::values::{content_text, maybe_micros};

/// Stores each request whose idempotency key is new.
pub(super) async fn accept(
    tx: &Tx,
    flows: &Flows,
    days: &Days,
    requests: &[Request],
    now: Timestamp,
) -> Result<Acceptance> {
    let keyed = requests.iter().any(|request| request.idempotency.is_some());
    let answers = if keyed {
        idempotency::answers(tx, Some(Mode::Write), days, requests, now).await?
    } else {
        vec![Accepted::New; requests.len()]
    };
    let new = requests.iter().zip(&answers).filter(|(_, answer)| **answer == Accepted::New);
    let arrivals: Vec<&Arrival> = new.flat_map(|(request, _)| &request.arrivals).collect();
    // If there are keys, the transaction has already begun.
    if arrivals.is_empty() {
        if keyed {
            tx.send(None, &[], Then::Commit).await?;
        }
        return Ok(Acceptance { answers, granted: vec![] });
    }
    let how = if keyed { How::Within(Then::Commit) } else { How::Alone };
    let granted = insert(tx, flows, &arrivals, how).await?;
    Ok(Acceptance { answers, granted })
}

/// How rows are inserted.
pub(super) enum How {
    /// In a transaction of their own.
    Alone,
    /// In one that has begun, and goes on or ends with them.
    Within(Then),
}

/// Inserts arrivals, and returns the nodes that were granted leases.
pub(super) async fn insert(tx: &Tx, flows: &Flows, arrivals: &[&Arrival], how: How) -> Result<Vec<NodeId>> {
    let mut deltas = Deltas::default();
    for arrival in arrivals {
        deltas.live(arrival.flow, Lane::Main, 1);
    }
    let sums = Sums::of(deltas, tx, flows).await?;
    let new = New::of(arrivals)?;
    let bound = bind![
        new.ids => UUID_ARRAY,
        new.flows => INT8_ARRAY,
        new.priorities => INT2_ARRAY,
        new.not_before => INT8_ARRAY,
        new.expires => INT8_ARRAY,
        new.recipients => TEXT_ARRAY,
        new.templates => TEXT_ARRAY,
        new.subjects => TEXT_ARRAY,
        new.event_keys => TEXT_ARRAY,
        new.correlation_ids => TEXT_ARRAY,
        new.contents => TEXT_ARRAY,
        new.due => INT8_ARRAY,
        new.nodes => INT8_ARRAY,
        new.fences => INT8_ARRAY,
        new.holders => INT8_ARRAY,
        sums.tenants => TEXT_ARRAY,
        sums.hours => INT8_ARRAY,
        sums.kinds => INT2_ARRAY,
        sums.channels => INT2_ARRAY,
        sums.by => INT8_ARRAY,
        sums.writer => INT2,
        new.own_policies => BOOL_ARRAY,
        new.own_ages => BOOL_ARRAY,
    ];
    let told = match how {
        How::Within(then) => {
            tx.send(None, &[statement!(sql(tx), bound)], then).await?.pop().unwrap_or_default()
        }
        How::Alone => tx.alone(Mode::Write, &sql(tx), bound).await?,
    };
    let granted: Vec<i64> = Columns::of(&single_row(told)?).take()?;
    Ok(granted.into_iter().map(NodeId).collect())
}

/// Wide rows, queue rows and counters in one statement: each statement costs a round trip, which matters with
/// small batches.
///
/// Leases are granted only to a node that is not dead. Its row is locked until the commit, so that a
/// transaction that declares the node dead waits and then sees the leases. A heartbeat does not wait. The one
/// row that is returned names the nodes that were granted leases.
const ACCEPT: &str = concat!(
    "with holder as materialized (
        select id
        from node
        where id = any($15::bigint[])
        and not dead
        order by id
        for key share),
    wide as (
        insert into notification (id, flow, priority, not_before, expires, recipient, template, subject, event_key,
            correlation_id, content)
        select *
        from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[])),
    narrow as (
        insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt, base,
            generation, interruptions, cancel, own_policy, own_age)
        select u.id, u.flow, 0, u.priority, u.due, u.expires, u.due, 0, holder.id,
            case when holder.id is null then null else u.fence end, 1, 0, 1, 0, false, u.own_policy, u.own_age
        from unnest($1::uuid[], $2::bigint[], $3::smallint[], $12::bigint[], $5::bigint[], $13::bigint[],
            $14::bigint[], $22::boolean[], $23::boolean[])
            as u (id, flow, priority, due, expires, node, fence, own_policy, own_age)
        left join holder on holder.id = u.node),
    counted as (",
    add_sums!("$16", "$17", "$18", "$19", "$20", "$21"),
    ")
    select array(select id from holder order by id)"
);

fn sql(tx: &Tx) -> Cow<'static, str> {
    if tx.bug(Planted::GrantsToTheDead) {
        let dead = spoiled(&spoiled(ACCEPT, "and not dead", ""), "for key share", "");
        return spoiled(&dead, "from node", "from (select unnest($15) as id) as node").into();
    }
    ACCEPT.into()
}

#[derive(Default)]
struct New<'a> {
    ids: Vec<Uuid>,
    flows: Vec<i64>,
    priorities: Vec<i16>,
    due: Vec<i64>,
    not_before: Vec<Option<i64>>,
    expires: Vec<Option<i64>>,
    nodes: Vec<Option<i64>>,
    fences: Vec<Option<i64>>,
    holders: Vec<i64>,
    recipients: Vec<Cow<'a, str>>,
    templates: Vec<Option<Cow<'a, str>>>,
    subjects: Vec<Option<Cow<'a, str>>>,
    event_keys: Vec<Option<Cow<'a, str>>>,
    correlation_ids: Vec<Option<Cow<'a, str>>>,
    contents: Vec<String>,
    own_policies: Vec<bool>,
    own_ages: Vec<bool>,
}

impl<'a> New<'a> {
    fn of(arrivals: &[&'a Arrival]) -> Result<Self> {
        let mut new = Self::default();
        let mut holders = BTreeSet::new();
        for arrival in arrivals {
            let notification = &*arrival.notification;
            new.ids.push(uuid(notification.id));
            new.flows.push(arrival.flow.0);
            new.priorities.push(i16::from(notification.priority.code()));
            new.due.push(arrival.due.as_micros());
            new.not_before.push(maybe_micros(notification.not_before));
            new.expires.push(maybe_micros(notification.expires_at));
            new.nodes.push(arrival.lease.map(|lease| lease.node.0));
            new.fences.push(arrival.lease.map(|lease| lease.fence.0));
            holders.extend(arrival.lease.map(|lease| lease.node.0));
            new.recipients.push(without_nul(&notification.to));
            new.templates.push(maybe_without_nul(notification.template.as_ref()));
            new.subjects.push(maybe_without_nul(notification.subject.as_ref()));
            new.event_keys.push(maybe_without_nul(notification.event_key.as_ref()));
            new.correlation_ids.push(maybe_without_nul(notification.correlation_id.as_ref()));
            new.contents.push(content_text(&notification.content)?);
            new.own_policies.push(notification.has_own_policy());
            new.own_ages.push(notification.has_own_age());
        }
        new.holders = holders.into_iter().collect();
        Ok(new)
    }
}
