//! Lists: a bounded number of rows is looked at for a page, and the last of them is where the next page begins.

use std::fmt;

use posthaste_core::attempt::Outcome;
use posthaste_core::channel::Channel;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Body, Content, Tenant};
use posthaste_engine::store::{
    Audit, AuditRow, DeadLetterFilter, DeadLetterView, DueCursor, Filter, Page, View,
};
use rusqlite::{Row, Rows, params};

use super::fault::{Fault, Result, unless_damaged};
use super::readers::Reader;
use super::reads::{Standing, last_outcome};
use super::rows::{
    Queued, Wide, attempts_from, dead_letter_id, maybe_failure, maybe_reason, maybe_tenant, maybe_time,
    notification_id, queue_columns, status, time, wide_columns,
};

/// The most rows that are looked at for one page.
const MOST_LOOKED_AT: usize = 5_000;

/// The most bytes of content that one page reads; the row that goes beyond is its last.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// The greatest id there can be: the start of a list that goes from the newest to the oldest.
const LAST: [u8; 16] = [0xff; 16];
/// The least id there can be: its end.
const FIRST: [u8; 16] = [0; 16];

/// What a row of a page keeps in memory, in bytes of content.
trait Weigh {
    fn weight(&self) -> usize;
}

impl Weigh for View {
    fn weight(&self) -> usize {
        self.notification.content.weight()
    }
}

impl Weigh for DeadLetterView {
    fn weight(&self) -> usize {
        self.notification.content.weight()
    }
}

impl Weigh for Content {
    fn weight(&self) -> usize {
        let (Body::Text(body) | Body::Json(body)) = &self.body;
        let others = [&self.html, &self.metadata].into_iter().flatten().map(String::len).sum::<usize>();
        body.len() + others + self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

impl Weigh for AuditRow {
    fn weight(&self) -> usize {
        0
    }
}

/// Looks at rows until the page is full, a bound is reached or none are left. `cursor` names a row, `keep` answers
/// with what the page shows of it, if anything. A damaged row is passed over.
fn walk<T: Weigh, C: fmt::Debug>(
    mut rows: Rows<'_>,
    limit: usize,
    cursor: impl Fn(&Row<'_>) -> Result<C>,
    mut keep: impl FnMut(&Row<'_>) -> Result<Option<T>>,
) -> Result<Page<T, C>> {
    let mut page = Page { rows: vec![], next: None };
    let mut last = None;
    let (mut looked_at, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        if page.rows.len() >= limit || looked_at >= MOST_LOOKED_AT || bytes >= MOST_BYTES {
            page.next = last;
            break;
        }
        looked_at += 1;
        let at = cursor(row)?;
        if let Some(kept) = unless_damaged(&at, keep(row))?.flatten() {
            bytes += kept.weight();
            page.rows.push(kept);
        }
        last = Some(at);
    }
    Ok(page)
}

/// Notifications, newest first.
pub(super) fn page(
    reader: &mut Reader,
    filter: &Filter,
    before: Option<NotificationId>,
    limit: usize,
) -> Result<Page<View, NotificationId>> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(concat!(
        "select ",
        wide_columns!(),
        ", id
         from notification
         where id < ?1
         and id >= ?2
         order by id desc"
    ))?;
    let (from, until) =
        (filter.since.map(NotificationId::least_at), filter.until.map(NotificationId::least_at));
    let end = [before, until].into_iter().flatten().min().map_or(LAST, NotificationId::to_bytes);
    let rows = select.query([end, from.map_or(FIRST, NotificationId::to_bytes)])?;
    walk(
        rows,
        limit,
        |row| notification_id(row, 10),
        |row| {
            let id = notification_id(row, 10)?;
            let key = flows.need(conn, posthaste_core::flow::FlowId(row.get(0)?))?;
            if !Wanted::of(filter).fits(&key, row)? {
                return Ok(None);
            }
            let standing = Standing::need(conn, id)?;
            if !filter.states.is_empty() && !filter.states.contains(&standing.seen().state) {
                return Ok(None);
            }
            if let Some(wanted) = filter.failure_type
                && last_outcome(conn, id)? != Some(Outcome::Failed(wanted))
            {
                return Ok(None);
            }
            standing.view(Wide::read(id, key, row, 0)?).map(Some)
        },
    )
}

/// What filters ask of the wide row, which a notification and its dead letter both have.
#[derive(Clone, Copy)]
struct Wanted<'f> {
    tenant: Option<&'f Tenant>,
    channel: Option<Channel>,
    template: Option<&'f str>,
    destination: Option<&'f str>,
    text: Option<&'f str>,
}

impl<'f> Wanted<'f> {
    fn of(filter: &'f Filter) -> Self {
        Self {
            tenant: filter.tenant.as_ref(),
            channel: filter.channel,
            template: filter.template.as_deref(),
            destination: filter.destination.as_deref(),
            text: filter.text.as_deref(),
        }
    }

    fn of_letters(filter: &'f DeadLetterFilter) -> Self {
        Self {
            tenant: filter.tenant.as_ref(),
            channel: filter.channel,
            template: filter.template.as_deref(),
            destination: filter.destination.as_deref(),
            text: filter.text.as_deref(),
        }
    }

    /// Whether a row that begins with `wide_columns` is one that is wanted.
    fn fits(self, key: &FlowKey, row: &Row<'_>) -> Result<bool> {
        let of_flow = self.tenant.is_none_or(|tenant| *tenant == key.tenant)
            && self.channel.is_none_or(|channel| channel == key.channel)
            && self.destination.is_none_or(|destination| *destination == *key.destination);
        if !of_flow || (self.template.is_some() && text(row, 3)? != self.template) {
            return Ok(false);
        }
        let Some(wanted) = self.text else { return Ok(true) };
        for column in [1, 4, 5, 6] {
            if text(row, column)?.is_some_and(|text| holds(text, wanted)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>> {
    Ok(row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?)
}

/// Whether `text` holds `wanted`, in any case of ASCII letters.
fn holds(text: &str, wanted: &str) -> bool {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    wanted.is_empty() || text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted))
}

/// What waits for a retry or is under way with one, soonest first.
pub(super) fn retry_queue(
    reader: &mut Reader,
    tenant: Option<&Tenant>,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Page<View, DueCursor>> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(concat!(
        "select ",
        queue_columns!(),
        ", id
         from queue indexed by queue_retry
         where lane = 1
         and (due, id) > (?1, ?2)
         order by due, id"
    ))?;
    let (due, id) = after.map_or((i64::MIN, [0; 16]), |after| (after.due.as_micros(), after.id.to_bytes()));
    let rows = select.query(params![due, id])?;
    walk(
        rows,
        limit,
        |row| Ok(DueCursor { due: time(row, 3)?, id: notification_id(row, 13)? }),
        |row| {
            let (id, queued) = (notification_id(row, 13)?, Queued::read(row, 0)?);
            let key = flows.need(conn, queued.bucket.flow)?;
            if tenant.is_some_and(|tenant| *tenant != key.tenant) {
                return Ok(None);
            }
            Standing::Live(queued).view(Wide::need(conn, flows, id)?).map(Some)
        },
    )
}

/// The columns of a dead letter, behind its snapshot.
macro_rules! letter_columns {
    () => {
        concat!(
            wide_columns!(),
            ", id, notification, reason, text, attempts, status, created_at, resolved_at, resolved_by, failure,
             status_code, fingerprint, deleted_at, replies"
        )
    };
}

/// A dead letter with its payload and attempts.
pub(super) fn dead_letter(reader: &mut Reader, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
    let Reader { conn, flows } = reader;
    let mut select =
        conn.prepare_cached(concat!("select ", letter_columns!(), " from dead_letter where id = ?1"))?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let key = flows.need(conn, posthaste_core::flow::FlowId(row.get(0)?))?;
    let wide = Wide::read(notification_id(row, 11)?, key, row, 0);
    wide.and_then(|wide| letter(row, wide)).map(Some).map_err(|fault| fault.of(id))
}

/// Dead letters, newest first.
pub(super) fn dead_letters(
    reader: &mut Reader,
    filter: &DeadLetterFilter,
    before: Option<DeadLetterId>,
    limit: usize,
) -> Result<Page<DeadLetterView, DeadLetterId>> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(concat!(
        "select ",
        letter_columns!(),
        "
         from dead_letter
         where id < ?1
         and id >= ?2
         order by id desc"
    ))?;
    // A dead letter's name carries the time of its death.
    let (from, until) = (filter.since.map(DeadLetterId::least_at), filter.until.map(DeadLetterId::least_at));
    let end = [before, until].into_iter().flatten().min().map_or(LAST, DeadLetterId::to_bytes);
    let rows = select.query([end, from.map_or(FIRST, DeadLetterId::to_bytes)])?;
    walk(
        rows,
        limit,
        |row| dead_letter_id(row, 10),
        |row| {
            let key = flows.need(conn, posthaste_core::flow::FlowId(row.get(0)?))?;
            if !Wanted::of_letters(filter).fits(&key, row)?
                || filter.status.is_some_and(|wanted| status(row, 15).is_ok_and(|is| is != wanted))
            {
                return Ok(None);
            }
            // Asked before the content is read, which most letters may be passed over for.
            if let Some(wanted) = filter.failure_type {
                let attempts = attempts_from(text(row, 14)?.unwrap_or("[]"), None)?;
                if attempts.last().map(|attempt| attempt.outcome) != Some(Outcome::Failed(wanted)) {
                    return Ok(None);
                }
            }
            letter(row, Wide::read(notification_id(row, 11)?, key, row, 0)?).map(Some)
        },
    )
}

fn letter(row: &Row<'_>, wide: Wide) -> Result<DeadLetterView> {
    let reason = maybe_reason(row, 12)?;
    Ok(DeadLetterView {
        id: dead_letter_id(row, 10)?,
        notification: wide.notification()?,
        reason: reason.ok_or_else(|| Fault::nonsense("a dead letter without a reason"))?,
        text: row.get(13)?,
        attempts: attempts_from(text(row, 14)?.unwrap_or("[]"), text(row, 23)?)?,
        status: status(row, 15)?,
        created_at: time(row, 16)?,
        resolved_at: maybe_time(row, 17)?,
        resolved_by: row.get(18)?,
        failure_type: maybe_failure(row, 19)?,
        status_code: row.get(20)?,
        fingerprint: row.get(21)?,
        deleted_at: maybe_time(row, 22)?,
    })
}

/// Who did what, newest first.
pub(super) fn audit(
    reader: &mut Reader,
    tenant: Option<&Tenant>,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRow, i64>> {
    let mut select = reader.conn.prepare_cached(
        "select number, tenant, actor, action, target, at, asked, count, key_id, address
         from audit
         where number < ?1
         order by number desc",
    )?;
    let rows = select.query([before.unwrap_or(i64::MAX)])?;
    walk(
        rows,
        limit,
        |row| Ok(row.get(0)?),
        |row| {
            let of = maybe_tenant(row, 1)?;
            if tenant.is_some() && tenant != of.as_ref() {
                return Ok(None);
            }
            let (actor, action, target) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let (key_id, address) = (row.get(8)?, row.get(9)?);
            let audit = Audit { tenant: of, actor, action, target, at: time(row, 5)?, key_id, address };
            let (asked, count) = (row.get::<_, i64>(6)?.unsigned_abs(), row.get::<_, i64>(7)?.unsigned_abs());
            Ok(Some(AuditRow { number: row.get(0)?, audit, asked, count }))
        },
    )
}
