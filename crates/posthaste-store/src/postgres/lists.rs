//! Lists. The plan of `walk` chooses the index ranges to merge; the server applies the filter.
//!
//! A statement reads a window of rows. The window grows until the page is full or the limit of the walk is
//! reached.

mod sql;
mod window;

use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{AuditFilter, Filter, LetterStatus};
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Audit, AuditRow, DeadLetterView, DueCursor, Page, View};
use tokio_postgres::Row;
use uuid::Uuid;

use self::window::{Filling, Went, Window};
use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::groups;
use super::rows::{Columns, Keys, bigint, letter_uuid, uuid, wide, without_nul};
use super::tx::{Bound, Mode, Tx, bind};
use crate::kept::attempts::attempts_from;
use crate::walk::{
    AuditStart, AuditWalk, ByFlows, MAX_FLOWS, Walk, by_flows, distinct, names_flows, of_notifications,
};

/// The greatest possible id: the start of a list from newest to oldest.
const LAST: Uuid = Uuid::max();
/// The least possible id: the end of such a list.
const FIRST: Uuid = Uuid::nil();

/// The result of a statement: the number of rows that it read, the last of them, and the rows that match.
struct Found<C> {
    looked_at: usize,
    last: Option<C>,
    rows: Vec<Row>,
}

/// The fields of a filter as parameters of the statements; `None` matches any value.
struct Wanted<'f> {
    tenant: Option<&'f str>,
    channels: Option<Vec<i16>>,
    destinations: Option<&'f Vec<String>>,
    templates: Option<&'f Vec<String>>,
    text: Option<String>,
    states: Option<Vec<i16>>,
    reasons: Option<Vec<&'static str>>,
    failures: Option<Vec<i16>>,
    status_codes: Option<Vec<i32>>,
}

impl<'f> Wanted<'f> {
    fn of(filter: &'f Filter) -> Self {
        fn some<T, V>(values: &[T], code: impl Fn(&T) -> V) -> Option<Vec<V>> {
            (!values.is_empty()).then(|| values.iter().map(code).collect())
        }
        Self {
            tenant: filter.tenant.as_ref().map(Tenant::as_str),
            channels: some(&filter.channels, |channel: &Channel| i16::from(channel.code())),
            destinations: (!filter.destinations.is_empty()).then_some(&filter.destinations),
            templates: (!filter.templates.is_empty()).then_some(&filter.templates),
            text: filter.text.as_ref().map(|text| without_nul(text).to_ascii_lowercase()),
            states: some(&filter.states, |state: &State| i16::from(state.code())),
            reasons: some(&filter.reasons, |reason: &Reason| reason.code()),
            failures: some(&filter.failure_types, |failure: &FailureType| i16::from(failure.code())),
            status_codes: some(&filter.status_codes, |code| i32::from(*code)),
        }
    }
}

/// A statement for the keys of a walk, with the flows or codes of its ranges.
struct Keyed {
    sql: &'static str,
    leads: Vec<i64>,
    ranges: usize,
}

impl Keyed {
    const fn one(sql: &'static str) -> Self {
        Self { sql, leads: vec![], ranges: 1 }
    }

    const fn each(sql: &'static str, leads: Vec<i64>) -> Self {
        let ranges = leads.len();
        Self { sql, leads, ranges }
    }
}

/// Newest first.
pub(super) async fn page(
    tx: &Tx,
    flows: &Flows,
    filter: &Filter,
    before: Option<NotificationId>,
    limit: usize,
) -> Result<Page<View, NotificationId>> {
    let wanted = Wanted::of(filter);
    let until = filter.until.map(NotificationId::least_at);
    let end = filter.since.map(NotificationId::least_at).map_or(FIRST, uuid);
    let mut start = [before, until].into_iter().flatten().min();
    let mut filling = Filling::new(limit);
    for walk in of_notifications(filter) {
        for Keyed { sql, leads, ranges } in keyed(tx, filter, walk).await? {
            let mut window = Window::new(start, limit, ranges);
            let went = loop {
                let bound = bind![
                    window.at.map_or(LAST, uuid) => UUID,
                    bigint(limit + 1) => INT8,
                    end => UUID,
                    bigint(window.size) => INT8,
                    leads => INT8_ARRAY,
                    wanted.tenant => TEXT,
                    wanted.channels => INT2_ARRAY,
                    wanted.destinations => TEXT_ARRAY,
                    wanted.templates => TEXT_ARRAY,
                    wanted.text => TEXT,
                    wanted.states => INT2_ARRAY,
                    wanted.reasons => TEXT_ARRAY,
                    wanted.failures => INT2_ARRAY,
                    wanted.status_codes => INT4_ARRAY,
                ];
                let found = found(tx, sql, bound, |columns| {
                    Ok(columns.take::<Option<Uuid>>()?.map(|id| NotificationId::from_bytes(id.into_bytes())))
                })
                .await?;
                let keys = keys(tx, flows, &found.rows, 3).await?;
                let shown = found.rows.iter().map(|row| view(row, 2, &keys)).collect::<Result<Vec<_>>>()?;
                if let Some(went) = filling.take(&mut window, (found.looked_at, found.last), shown)? {
                    break went;
                }
            };
            match went {
                Went::ToTheBound(cursor) => start = Some(cursor),
                went => return Ok(filling.page(went)),
            }
        }
    }
    Ok(filling.page(start.map_or(Went::ToTheEnd, Went::ToTheBound)))
}

/// The statements of a walk, or of the walks that it is composed of.
async fn keyed(tx: &Tx, filter: &Filter, walk: Walk) -> Result<Vec<Keyed>> {
    Ok(match walk {
        Walk::All => vec![Keyed::one(sql::ALL)],
        Walk::Flows => {
            let named = flows_of(tx, filter).await?;
            let walks = by_flows(named.len()).iter();
            walks
                .map(|walk| match walk {
                    ByFlows::Everything => Keyed::one(sql::ALL),
                    ByFlows::Merge => Keyed::each(sql::FLOWS, named.clone()),
                })
                .collect()
        }
        Walk::Ends(states) => {
            let codes = states.iter().map(|state| i64::from(state.code())).collect();
            let sql = if filter.tenant.is_some() { sql::ENDS_OF } else { sql::ENDS };
            vec![Keyed::each(sql, codes)]
        }
        Walk::Queue => vec![Keyed::one(sql::QUEUE)],
        Walk::Retries => vec![Keyed::one(sql::RETRIES)],
        Walk::Held => vec![Keyed::one(sql::HELD)],
    })
}

/// The flows of the filter's tenant, destinations and channels, up to one more than can be merged.
async fn flows_of(tx: &Tx, filter: &Filter) -> Result<Vec<i64>> {
    let most = bigint(MAX_FLOWS + 1);
    let channels: Vec<i16> = filter.channels().map(|channel| i16::from(channel.code())).collect();
    let rows = match (&filter.tenant, filter.destinations.is_empty()) {
        (Some(tenant), true) => {
            let bound = bind![tenant.as_str() => TEXT, most => INT8, channels => INT2_ARRAY];
            tx.alone(Mode::Read, sql::FLOWS_OF_TENANT, bound).await?
        }
        (Some(tenant), false) => {
            let bound = bind![
                tenant.as_str() => TEXT,
                most => INT8,
                channels => INT2_ARRAY,
                filter.destinations => TEXT_ARRAY,
            ];
            tx.alone(Mode::Read, sql::FLOWS_OF_TENANT_TO, bound).await?
        }
        (None, _) => {
            let bound = bind![most => INT8, channels => INT2_ARRAY, filter.destinations => TEXT_ARRAY];
            tx.alone(Mode::Read, sql::FLOWS_TO, bound).await?
        }
    };
    let found = rows.iter().map(|row| Columns::of(row).take()).collect::<Result<Vec<i64>>>()?;
    Ok(distinct(found.into_iter()))
}

/// Runs a statement of `sql`. `last` reads the columns of the last key.
async fn found<C>(
    tx: &Tx,
    sql: &str,
    bound: &[Bound<'_>],
    last: impl Fn(&mut Columns<'_>) -> Result<Option<C>>,
) -> Result<Found<C>> {
    let mut rows = tx.alone(Mode::Read, sql, bound).await?;
    let first = rows.first().ok_or_else(|| Fault::damaged("a statement that always answers gave no row"))?;
    let mut columns = Columns::of(first);
    let looked_at = usize::try_from(columns.take::<i64>()?).unwrap_or(0);
    let last = last(&mut columns)?;
    // If no row matches, the result is one empty row.
    if columns.take::<Option<Uuid>>().is_ok_and(|id| id.is_none()) {
        rows.clear();
    }
    Ok(Found { looked_at, last, rows })
}

async fn keys(tx: &Tx, flows: &Flows, rows: &[Row], column: usize) -> Result<Keys> {
    let named = rows.iter().map(|row| Ok(FlowId(row.try_get(column)?))).collect::<Result<Vec<_>>>()?;
    flows.keys(tx, named).await
}

/// Reads a notification, its current row and its last attempt, from column `start` on.
fn view(row: &Row, start: usize, keys: &Keys) -> Result<(NotificationId, Result<View>, usize)> {
    let mut columns = Columns::of(row);
    columns.skip(start);
    let id = columns.notification_id()?;
    Ok((id, columns.view(id, keys), row.raw_size_bytes()))
}

/// Rows that wait for a retry or are being retried, soonest first.
pub(super) async fn retry_queue(
    tx: &Tx,
    flows: &Flows,
    filter: &Filter,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Page<View, DueCursor>> {
    let wanted = Wanted::of(filter);
    let named = if names_flows(filter) { Some(flows_of(tx, filter).await?) } else { None };
    let walks = named.as_ref().map_or(&[ByFlows::Everything][..], |flows| by_flows(flows.len()));
    let since = filter.since.map(NotificationId::least_at).map_or(FIRST, uuid);
    let until = filter.until.map(NotificationId::least_at).map_or(LAST, uuid);
    let (mut filling, mut start, mut went) = (Filling::new(limit), after, Went::ToTheEnd);
    for walk in walks {
        let Keyed { sql, leads, ranges } = match walk {
            ByFlows::Everything => Keyed::one(sql::RETRY_QUEUE),
            ByFlows::Merge => Keyed::each(sql::RETRY_QUEUE_OF, named.clone().unwrap_or_default()),
        };
        let mut window = Window::new(start, limit, ranges);
        went = loop {
            let (due, id) =
                window.at.map_or((i64::MIN, FIRST), |at: DueCursor| (at.due.as_micros(), uuid(at.id)));
            let bound = bind![
                due => INT8,
                bigint(limit + 1) => INT8,
                since => UUID,
                bigint(window.size) => INT8,
                leads => INT8_ARRAY,
                wanted.tenant => TEXT,
                wanted.channels => INT2_ARRAY,
                wanted.destinations => TEXT_ARRAY,
                wanted.templates => TEXT_ARRAY,
                wanted.text => TEXT,
                wanted.states => INT2_ARRAY,
                wanted.reasons => TEXT_ARRAY,
                wanted.failures => INT2_ARRAY,
                wanted.status_codes => INT4_ARRAY,
                id => UUID,
                until => UUID,
            ];
            let found = found(tx, sql, bound, |columns| {
                let (due, id): (Option<i64>, Option<Uuid>) = (columns.take()?, columns.take()?);
                let place = due.map(Timestamp::from_micros).zip(id);
                columns.skip(1);
                Ok(place.map(|(due, id)| DueCursor { due, id: NotificationId::from_bytes(id.into_bytes()) }))
            })
            .await?;
            let keys = keys(tx, flows, &found.rows, 5).await?;
            let place = |row: &Row| {
                let due = Timestamp::from_micros(row.try_get(3)?);
                let (id, view, bytes) = view(row, 4, &keys)?;
                Ok((DueCursor { due, id }, view, bytes))
            };
            let shown = found.rows.iter().map(place).collect::<Result<Vec<_>>>()?;
            if let Some(went) = filling.take(&mut window, (found.looked_at, found.last), shown)? {
                break went;
            }
        };
        let Went::ToTheBound(cursor) = went else { break };
        start = Some(cursor);
    }
    Ok(filling.page(went))
}

pub(super) async fn dead_letter(tx: &Tx, flows: &Flows, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
    let rows = tx.alone(Mode::Read, sql::LETTER, bind![letter_uuid(id) => UUID]).await?;
    let keys = keys(tx, flows, &rows, 1).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    letter(row, 0, &keys).map(Some).map_err(|fault| fault.of(id))
}

/// Newest first.
pub(super) async fn dead_letters(
    tx: &Tx,
    flows: &Flows,
    filter: &Filter,
    before: Option<DeadLetterId>,
    limit: usize,
) -> Result<Page<DeadLetterView, DeadLetterId>> {
    let Some((filter, cause)) = groups::narrowed(tx, filter).await? else {
        return Ok(Page { rows: vec![], next: None });
    };
    let (filter, grouped) = (&filter, filter.group.is_some());
    let wanted = Wanted::of(filter);
    // The id of a dead letter contains the time of its creation.
    let until = filter.until.map(DeadLetterId::least_at);
    let end = filter.since.map(DeadLetterId::least_at).map_or(FIRST, letter_uuid);
    let statuses = filter.letter_statuses();
    let codes =
        distinct(statuses.iter().filter_map(|status| status.kept()).map(|status| i64::from(status.code())));
    let deleted = statuses.contains(&LetterStatus::Deleted);
    // A tenant's dead letters have their own index; only destinations need flows.
    let by_flow = !filter.destinations.is_empty() && cause.is_none();
    let named = if by_flow { flows_of(tx, filter).await? } else { vec![] };
    let walks = if by_flow { by_flows(named.len()) } else { &[ByFlows::Everything] };
    let mut start = [before, until].into_iter().flatten().min();
    let (mut filling, mut went) = (Filling::new(limit), Went::ToTheEnd);
    for walk in walks {
        let (sql, ranges) = match walk {
            ByFlows::Everything => (letters_sql(filter.tenant.is_some(), cause.is_some()), codes.len()),
            ByFlows::Merge => (sql::LETTERS_OF_FLOWS, codes.len() * named.len()),
        };
        let mut window = Window::new(start, limit, ranges);
        went = loop {
            let bound = bind![
                window.at.map_or(LAST, letter_uuid) => UUID,
                bigint(limit + 1) => INT8,
                end => UUID,
                bigint(window.size) => INT8,
                codes => INT8_ARRAY,
                wanted.tenant => TEXT,
                wanted.channels => INT2_ARRAY,
                wanted.destinations => TEXT_ARRAY,
                wanted.templates => TEXT_ARRAY,
                wanted.text => TEXT,
                wanted.reasons => TEXT_ARRAY,
                wanted.failures => INT2_ARRAY,
                wanted.status_codes => INT4_ARRAY,
                named => INT8_ARRAY,
                deleted => BOOL,
                cause => UUID,
                grouped => BOOL,
            ];
            let found = found(tx, sql, bound, |columns| {
                Ok(columns.take::<Option<Uuid>>()?.map(|id| DeadLetterId::from_bytes(id.into_bytes())))
            })
            .await?;
            let keys = keys(tx, flows, &found.rows, 3).await?;
            let shown = |row: &Row| {
                let mut columns = Columns::of(row);
                columns.skip(2);
                Ok((columns.dead_letter_id()?, letter(row, 2, &keys), row.raw_size_bytes()))
            };
            let shown = found.rows.iter().map(shown).collect::<Result<Vec<_>>>()?;
            if let Some(went) = filling.take(&mut window, (found.looked_at, found.last), shown)? {
                break went;
            }
        };
        let Went::ToTheBound(cursor) = went else { break };
        start = Some(cursor);
    }
    Ok(filling.page(went))
}

const fn letters_sql(of_tenant: bool, of_cause: bool) -> &'static str {
    match (of_tenant, of_cause) {
        (true, true) => sql::LETTERS_OF_CAUSE_OF,
        (true, false) => sql::LETTERS_OF,
        (false, true) => sql::LETTERS_OF_CAUSE,
        (false, false) => sql::LETTERS,
    }
}

/// Reads a dead letter from column `start` on.
fn letter(row: &Row, start: usize, keys: &Keys) -> Result<DeadLetterView> {
    let mut columns = Columns::of(row);
    columns.skip(start);
    let id = columns.dead_letter_id()?;
    let notification: Uuid = row.try_get("notification")?;
    let notification = wide(NotificationId::from_bytes(notification.into_bytes()), keys, &mut columns)?;
    columns.skip(1);
    let reason = columns.maybe_reason()?;
    Ok(DeadLetterView {
        id,
        notification,
        reason: reason.ok_or_else(|| Fault::damaged("a dead letter without a reason"))?,
        text: columns.take()?,
        attempts: attempts_from(columns.take()?, columns.take()?)?,
        status: columns.maybe_status()?.ok_or_else(|| Fault::damaged("a dead letter without a status"))?,
        created_at: columns.time()?,
        resolved_at: columns.maybe_time()?,
        resolved_by: columns.take()?,
        failure_type: columns.maybe_failure()?,
        status_code: columns.maybe_status_code()?,
        fingerprint: columns.take::<Option<Uuid>>()?.map(Uuid::into_bytes),
        deleted_at: columns.maybe_time()?,
        restored_at: columns.maybe_time()?,
    })
}

/// How many rows of the audit are read at once for a filter that passes over many.
const AUDIT_CHUNK: i64 = 1_000;

/// Newest first.
pub(super) async fn audit(
    tx: &Tx,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRow, i64>> {
    let mut search = AuditStart::new(filter, before);
    while let Some(number) = search.look_below() {
        let row = audit_below(tx, filter, number, 1).await?.pop();
        // A damaged row does not help the search; the walk reports it.
        let row = row.and_then(|row| audit_row(&row).ok());
        search.found(number, row.map(|row| (row.number, row.audit.at)));
    }
    let (mut start, mut count) = (search.below(), bigint(limit + 1));
    let mut walk = AuditWalk::new(filter, limit);
    loop {
        let rows = audit_below(tx, filter, start, count).await?;
        for row in &rows {
            start = Columns::of(row).take::<i64>()?;
            if walk.take(start, unless_damaged(&start, audit_row(row))?) {
                return Ok(walk.page);
            }
        }
        if bigint(rows.len()) < count {
            return Ok(walk.page);
        }
        // Without a filter the first rows are enough.
        count = AUDIT_CHUNK;
    }
}

/// The newest rows below a number.
async fn audit_below(tx: &Tx, filter: &AuditFilter, number: i64, count: i64) -> Result<Vec<Row>> {
    match filter.tenant.as_ref().map(Tenant::as_str) {
        None => tx.alone(Mode::Read, sql::AUDIT, bind![number => INT8, count => INT8]).await,
        Some(tenant) => {
            let bound = bind![number => INT8, count => INT8, tenant => TEXT];
            tx.alone(Mode::Read, sql::AUDIT_OF, bound).await
        }
    }
}

fn audit_row(row: &Row) -> Result<AuditRow> {
    let mut columns = Columns::of(row);
    let (number, tenant) = (columns.take()?, columns.maybe_tenant()?);
    let (actor, action, target) = (columns.take()?, columns.take()?, columns.take()?);
    let (at, key_id, address) = (columns.time()?, columns.take()?, columns.take()?);
    let audit = Audit { tenant, actor, action, target, at, key_id, address };
    let (asked, count) = (columns.take::<i64>()?.unsigned_abs(), columns.take::<i64>()?.unsigned_abs());
    Ok(AuditRow { number, audit, asked, count })
}
