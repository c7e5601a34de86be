//! Lists: a bounded number of rows is looked at for a page, and the last of them is where the next page begins.
//!
//! Filters are weighed by the server, over the rows that a page may look at and no others. A page is two statements at one
//! moment: the rows that it shows, and where the next one begins.

use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_engine::store::{
    Audit, AuditRow, DeadLetterFilter, DeadLetterView, DueCursor, Filter, Page, View,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::reads::{Standing, standing_columns};
use super::rows::{Columns, Keys, attempts_from, clean, letter_uuid, uuid, whole, wide, wide_columns};
use super::tx::{Bound, Mode, Then, Tx, bind, step};

/// The most rows that are looked at for one page.
const MOST_LOOKED_AT: i64 = 5_000;

/// The most bytes of rows that one page shows; the row that goes beyond is its last.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// What was found for a page: rows that are shown, and the row at which the next page begins.
struct Found {
    rows: Vec<Row>,
    next: Option<Row>,
}

/// Asks for a page: the rows that it shows, and the two rows around the bound of what it may look at.
async fn look(
    tx: &Tx,
    rows: (&str, &[Bound<'_>]),
    limit: usize,
    bound_at: (&str, &[Bound<'_>]),
) -> Result<Found> {
    if limit == 0 {
        return Ok(Found { rows: vec![], next: None });
    }
    let steps = [step!(rows.0, rows.1), step!(bound_at.0, bound_at.1)];
    let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?.into_iter();
    let mut answer = || answers.next().unwrap_or_default();
    let (rows, mut bounds) = (answer(), answer());
    // Two rows around the bound: the last to be looked at, and proof that there is one more.
    let next = (bounds.len() == 2).then(|| bounds.swap_remove(0));
    Ok(Found { rows, next })
}

/// The rows of a page and the place of the next, which is behind the last row that was looked at: the last one shown where
/// the page is full, else the one at the bound.
fn paged<T, C: std::fmt::Debug>(
    found: Found,
    limit: usize,
    cursor: impl Fn(&Row) -> Result<C>,
    show: impl Fn(&Row) -> Result<T>,
) -> Result<Page<T, C>> {
    let Found { rows, next } = found;
    let mut page = Page { rows: vec![], next: next.as_ref().map(&cursor).transpose()? };
    if rows.len() >= limit
        && let Some(last) = rows.last()
    {
        // Whether anything at all follows the last row is a column of it.
        let follows: bool = last.try_get(last.len() - 1)?;
        page.next = if follows { Some(cursor(last)?) } else { None };
    }
    let mut bytes = 0;
    for (index, row) in rows.iter().enumerate() {
        page.rows.extend(unless_damaged(&cursor(row)?, show(row))?);
        bytes += row.raw_size_bytes();
        if bytes >= MOST_BYTES && index + 1 < rows.len() {
            page.next = Some(cursor(row)?);
            break;
        }
    }
    Ok(page)
}

async fn keys(tx: &Tx, flows: &Flows, rows: &[Row], column: usize) -> Result<Keys> {
    let named = rows.iter().map(|row| Ok(FlowId(row.try_get(column)?))).collect::<Result<Vec<_>>>()?;
    flows.keys(tx, named).await
}

/// What filters ask of a wide row `n` and its flow `f`.
macro_rules! wanted {
    () => {
        "($3::text is null or f.tenant = $3)
         and ($4::smallint is null or f.channel = $4)
         and ($5::text is null or f.destination = $5)
         and ($6::text is null or n.template = $6)
         and ($7::text is null
             or strpos(lower(n.recipient collate \"C\"), $7) > 0
             or strpos(lower(n.subject collate \"C\"), $7) > 0
             or strpos(lower(n.event_key collate \"C\"), $7) > 0
             or strpos(lower(n.correlation_id collate \"C\"), $7) > 0)"
    };
}

/// The state of a notification by its queue row `q` and its ended row `e`.
macro_rules! state {
    () => {
        "case
             when q.id is null then e.state
             when q.lane = 0 then case when q.node is null then 0 else 1 end
             else case when q.node is null then 3 else 4 end
         end"
    };
}

const PAGE: &str = concat!(
    "select n.id, ",
    wide_columns!(),
    ", ",
    standing_columns!(),
    ", exists (select from notification o where o.id < n.id and o.id >= $10)
     from (
         select *
         from notification
         where id < $1
         and id >= $10
         order by id desc
         limit 5000) as n
     join flow f on f.id = any(array[n.flow])
     left join queue q on q.id = any(array[n.id])
     left join ended e on e.id = any(array[n.id])
     where ",
    wanted!(),
    "
     and ($8::smallint[] is null or ",
    state!(),
    " = any($8))
     and ($9::smallint is null or $9 = (
         select a.failure
         from attempt a
         where a.notification = n.id
         order by a.generation desc, a.number desc
         limit 1))
     order by n.id desc
     limit $2"
);

/// The greatest id there can be: the start of a list that goes from the newest to the oldest.
const LAST: Uuid = Uuid::max();

/// The least id there can be: its end.
const FIRST: Uuid = Uuid::nil();

/// The text as the filters compare it.
fn folded(text: Option<&String>) -> Option<String> {
    text.map(|text| clean(text).to_ascii_lowercase())
}

/// Notifications, newest first.
pub(super) async fn page(
    tx: &Tx,
    flows: &Flows,
    filter: &Filter,
    before: Option<NotificationId>,
    limit: usize,
) -> Result<Page<View, NotificationId>> {
    let states: Vec<i16> = filter.states.iter().map(|state| i16::from(state.code())).collect();
    let until = filter.until.map(NotificationId::least_at);
    let start = [before, until].into_iter().flatten().min().map_or(LAST, uuid);
    let end = filter.since.map(NotificationId::least_at).map_or(FIRST, uuid);
    let bound = bind![
        start => UUID,
        whole(limit) => INT8,
        filter.tenant.as_ref().map(Tenant::as_str) => TEXT,
        filter.channel.map(|channel| i16::from(channel.code())) => INT2,
        filter.destination => TEXT,
        filter.template => TEXT,
        folded(filter.text.as_ref()) => TEXT,
        (!states.is_empty()).then_some(&states) => INT2_ARRAY,
        filter.failure_type.map(|failure| i16::from(failure.code())) => INT2,
        end => UUID,
    ];
    let bounds = "
        select id
        from notification
        where id < $1
        and id >= $3
        order by id desc
        offset $2
        limit 2";
    let around = bind![start => UUID, MOST_LOOKED_AT - 1 => INT8, end => UUID];
    let found = look(tx, (PAGE, bound), limit, (bounds, around)).await?;
    let keys = keys(tx, flows, &found.rows, 1).await?;
    let name = |row: &Row| Columns::of(row).notification_id();
    paged(found, limit, name, |row| {
        let mut columns = Columns::of(row);
        let id = columns.notification_id()?;
        let notification = wide(id, &keys, &mut columns)?;
        Ok(Standing::read(id, &mut columns)?.view(notification))
    })
}

const RETRIES: &str = concat!(
    "select q.id, q.due, q.flow, ",
    wide_columns!(),
    ", ",
    standing_columns!(),
    ", exists (select from queue o where o.lane = 1 and (o.due, o.id) > (q.due, q.id))
     from (
         select *
         from queue
         where lane = 1
         and (due, id) > ($1, $3)
         order by due, id
         limit 5000) as q
     join flow f on f.id = any(array[q.flow])
     left join notification n on n.id = any(array[q.id])
     left join ended e on false
     where ($4::text is null or f.tenant = $4)
     order by q.due, q.id
     limit $2"
);

/// What waits for a retry or is under way with one, soonest first.
pub(super) async fn retry_queue(
    tx: &Tx,
    flows: &Flows,
    tenant: Option<&Tenant>,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Page<View, DueCursor>> {
    let (due, id) = after.map_or((i64::MIN, Uuid::nil()), |after| (after.due.as_micros(), uuid(after.id)));
    let tenant = tenant.map(Tenant::as_str);
    let bound = bind![due => INT8, whole(limit) => INT8, id => UUID, tenant => TEXT];
    let bounds = "
        select id, due
        from queue
        where lane = 1
        and (due, id) > ($1, $2)
        order by due, id
        offset $3
        limit 2";
    let around = bind![due => INT8, id => UUID, MOST_LOOKED_AT - 1 => INT8];
    let found = look(tx, (RETRIES, bound), limit, (bounds, around)).await?;
    let keys = keys(tx, flows, &found.rows, 2).await?;
    let place = |row: &Row| {
        let mut columns = Columns::of(row);
        let id = columns.notification_id()?;
        Ok(DueCursor { due: columns.time()?, id })
    };
    paged(found, limit, place, |row| {
        let mut columns = Columns::of(row);
        let id = columns.notification_id()?;
        columns.skip(2);
        let notification = wide(id, &keys, &mut columns)?;
        Ok(Standing::read(id, &mut columns)?.view(notification))
    })
}

/// The columns of a dead letter `n`, behind its name.
macro_rules! letter_columns {
    () => {
        concat!(
            "n.id, ",
            wide_columns!(),
            ", n.notification, n.reason, n.text, n.attempts, n.replies, n.status, n.created_at, n.resolved_at,
             n.resolved_by, n.failure, n.status_code, n.fingerprint, n.deleted_at"
        )
    };
}

/// A dead letter with its payload and attempts.
pub(super) async fn dead_letter(tx: &Tx, flows: &Flows, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
    let sql = concat!("select ", letter_columns!(), " from dead_letter n where n.id = $1");
    let rows = tx.alone(Mode::Read, sql, bind![letter_uuid(id) => UUID]).await?;
    let keys = keys(tx, flows, &rows, 1).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    letter(row, &keys).map(Some).map_err(|fault| fault.of(id))
}

const LETTERS: &str = concat!(
    "select ",
    letter_columns!(),
    ", exists (select from dead_letter o where o.id < n.id and o.id >= $10)
     from (
         select *
         from dead_letter
         where id < $1
         and id >= $10
         order by id desc
         limit 5000) as n
     join flow f on f.id = any(array[n.flow])
     where ",
    wanted!(),
    "
     and ($8::smallint is null or n.status = $8)
     and ($9::smallint is null or n.failure = $9)
     order by n.id desc
     limit $2"
);

/// Dead letters, newest first.
pub(super) async fn dead_letters(
    tx: &Tx,
    flows: &Flows,
    filter: &DeadLetterFilter,
    before: Option<DeadLetterId>,
    limit: usize,
) -> Result<Page<DeadLetterView, DeadLetterId>> {
    // A dead letter's name carries the time of its death.
    let until = filter.until.map(DeadLetterId::least_at);
    let start = [before, until].into_iter().flatten().min().map_or(LAST, letter_uuid);
    let end = filter.since.map(DeadLetterId::least_at).map_or(FIRST, letter_uuid);
    let bound = bind![
        start => UUID,
        whole(limit) => INT8,
        filter.tenant.as_ref().map(Tenant::as_str) => TEXT,
        filter.channel.map(|channel| i16::from(channel.code())) => INT2,
        filter.destination => TEXT,
        filter.template => TEXT,
        folded(filter.text.as_ref()) => TEXT,
        filter.status.map(|status| i16::from(status.code())) => INT2,
        filter.failure_type.map(|failure| i16::from(failure.code())) => INT2,
        end => UUID,
    ];
    let bounds = "
        select id
        from dead_letter
        where id < $1
        and id >= $3
        order by id desc
        offset $2
        limit 2";
    let around = bind![start => UUID, MOST_LOOKED_AT - 1 => INT8, end => UUID];
    let found = look(tx, (LETTERS, bound), limit, (bounds, around)).await?;
    let keys = keys(tx, flows, &found.rows, 1).await?;
    let name = |row: &Row| Columns::of(row).dead_letter_id();
    paged(found, limit, name, |row| letter(row, &keys))
}

fn letter(row: &Row, keys: &Keys) -> Result<DeadLetterView> {
    let named = Columns::of(row).dead_letter_id()?;
    let notification: Uuid = row.try_get("notification")?;
    let notification = NotificationId::from_bytes(notification.into_bytes());
    let mut columns = Columns::of(row);
    columns.skip(1);
    let notification = wide(notification, keys, &mut columns)?;
    columns.skip(1);
    let reason = columns.maybe_reason()?;
    Ok(DeadLetterView {
        id: named,
        notification,
        reason: reason.ok_or_else(|| Fault::nonsense("a dead letter without a reason"))?,
        text: columns.take()?,
        attempts: attempts_from(columns.take()?, columns.take()?)?,
        status: columns.maybe_status()?.ok_or_else(|| Fault::nonsense("a dead letter without a status"))?,
        created_at: columns.time()?,
        resolved_at: columns.maybe_time()?,
        resolved_by: columns.take()?,
        failure_type: columns.maybe_failure()?,
        status_code: columns.maybe_status_code()?,
        fingerprint: columns.take::<Option<Uuid>>()?.map(Uuid::into_bytes),
        deleted_at: columns.maybe_time()?,
    })
}

/// Who did what, newest first.
pub(super) async fn audit(
    tx: &Tx,
    tenant: Option<&Tenant>,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRow, i64>> {
    let sql = "
        select n.number, n.tenant, n.actor, n.action, n.target, n.at, n.key_id, n.address, n.asked, n.count,
            exists (select from audit o where o.number < n.number)
        from (
            select *
            from audit
            where number < $1
            order by number desc
            limit 5000) as n
        where ($3::text is null or n.tenant = $3)
        order by n.number desc
        limit $2";
    let bounds = "
        select number
        from audit
        where number < $1
        order by number desc
        offset $2
        limit 2";
    let start = before.unwrap_or(i64::MAX);
    let tenant = tenant.map(Tenant::as_str);
    let bound = bind![start => INT8, whole(limit) => INT8, tenant => TEXT];
    let around = bind![start => INT8, MOST_LOOKED_AT - 1 => INT8];
    let found = look(tx, (sql, bound), limit, (bounds, around)).await?;
    let number = |row: &Row| Columns::of(row).take::<i64>();
    paged(found, limit, number, |row| {
        let mut columns = Columns::of(row);
        let (number, tenant) = (columns.take()?, columns.maybe_tenant()?);
        let (actor, action, target) = (columns.take()?, columns.take()?, columns.take()?);
        let (at, key_id, address) = (columns.time()?, columns.take()?, columns.take()?);
        let audit = Audit { tenant, actor, action, target, at, key_id, address };
        let (asked, count) = (columns.take::<i64>()?.unsigned_abs(), columns.take::<i64>()?.unsigned_abs());
        Ok(AuditRow { number, audit, asked, count })
    })
}
