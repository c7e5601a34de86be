//! Lists: the plan of `walk` says which ranges of indexes are merged, and each row that comes up is looked at.

mod blocks;
mod merge;
mod ranges;

use std::cmp::Reverse;

use posthaste_core::filter::{AuditFilter, Filter, LetterStatus};
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::group::Grouped;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Body, Content};
use posthaste_engine::store::{Audit, AuditRow, DeadLetterView, DueCursor, Page, View};
use rusqlite::{Connection, Row, Rows, Statement, params};

use self::blocks::OfFlows;
use self::merge::{Filling, Merge, Weigh, Went};
use self::ranges::{Range, Soonest};
use super::ends;
use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::groups;
use super::readers::Reader;
use super::reads::{last_failure, need_place};
use super::rows::{
    Wide, dead_letter_id, maybe_failure, maybe_reason, maybe_tenant, maybe_text, maybe_time, notification_id,
    status, time, wide_columns,
};
use crate::kept::attempts::attempts_from;
use crate::walk::{
    AuditStart, AuditWalk, ByFlows, MAX_FLOWS, MAX_LOOKED_AT, Walk, by_flows, names_flows, of_notifications,
};

/// The greatest id there can be: the start of a list that goes from the newest to the oldest.
const LAST: [u8; 16] = [0xff; 16];
/// The least id there can be: its end.
const FIRST: [u8; 16] = [0; 16];

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

/// Notifications, newest first.
pub(super) fn page(
    reader: &mut Reader,
    filter: &Filter,
    before: Option<NotificationId>,
    limit: usize,
) -> Result<Page<View, NotificationId>> {
    let Reader { conn, flows } = reader;
    let from = filter.since.map_or(FIRST, |since| NotificationId::least_at(since).to_bytes());
    let until = filter.until.map(NotificationId::least_at);
    let mut filling = Filling::new(limit);
    let mut start = [before, until].into_iter().flatten().min();
    for walk in of_notifications(filter) {
        let source = Source::of(conn, filter, walk)?;
        let fetch = |range: usize, after: Option<NotificationId>, limit| {
            let before = after.map_or(LAST, NotificationId::to_bytes);
            source.fetch(conn, range, (from, before), limit)
        };
        let mut merge = Merge::new(source.count(), start, limit, fetch)?;
        match filling.walk(&mut merge, |id| look(conn, flows, filter, id))? {
            Went::ToTheBound(key) => start = Some(key),
            Went::ToTheEnd if let Some(key) = source.stopped() => start = Some(key),
            went => return Ok(filling.page(went)),
        }
    }
    Ok(filling.page(start.map_or(Went::ToTheEnd, Went::ToTheBound)))
}

/// Where a walk finds its notifications.
enum Source {
    Ranges(Vec<Range>),
    OfFlows(OfFlows),
}

impl Source {
    fn of(conn: &Connection, filter: &Filter, walk: Walk) -> Result<Self> {
        Ok(Self::Ranges(match walk {
            Walk::All => ranges::all(),
            Walk::Flows => match ranges::flows(conn, filter)? {
                flows if flows.len() <= MAX_FLOWS => return Ok(Self::OfFlows(OfFlows::new(flows))),
                _ => ranges::all(),
            },
            Walk::Ends(states) => ranges::ends(&states, filter.tenant.as_ref()),
            Walk::Queue => ranges::queue(),
            Walk::Retries => ranges::retries(),
            Walk::Held => ranges::held(conn)?,
        }))
    }

    const fn count(&self) -> usize {
        match self {
            Self::Ranges(ranges) => ranges.len(),
            Self::OfFlows(_) => 1,
        }
    }

    fn fetch(
        &self,
        conn: &Connection,
        range: usize,
        bounds: ([u8; 16], [u8; 16]),
        limit: usize,
    ) -> Result<Vec<NotificationId>> {
        match self {
            Self::Ranges(ranges) => ranges[range].newest(conn, bounds, limit, notification_id),
            Self::OfFlows(of_flows) => of_flows.fetch(conn, bounds, limit),
        }
    }

    /// Where it stopped, if it did so before its end.
    fn stopped(&self) -> Option<NotificationId> {
        match self {
            Self::Ranges(_) => None,
            Self::OfFlows(of_flows) => of_flows.stopped(),
        }
    }
}

/// A notification, if the filter wants it and it was not removed. What is cheap to know is asked first.
fn look(conn: &Connection, flows: &mut Flows, filter: &Filter, id: NotificationId) -> Result<Option<View>> {
    let mut select =
        conn.prepare_cached(concat!("select ", wide_columns!(), " from notification where id = ?1"))?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let key = flows.need(conn, FlowId(row.get(0)?))?;
    if !filter.wants_flow(&key) || !wants_content(filter, row)? {
        return Ok(None);
    }
    let place = need_place(conn, id)?;
    let wanted = filter.wants_state(place.seen().state)
        && filter.wants_reason(place.reason())
        && (!filter.asks_for_failure() || filter.wants_failure(last_failure(conn, id, &place)?));
    if !wanted {
        return Ok(None);
    }
    // Only of rows that are shown, so a page costs one more look into the attempts for each of them.
    let last = ends::last_attempt(conn, id)?.failed();
    Ok(Some(place.view(Wide::read(id, key, row, 0)?.notification()?, last)))
}

/// Whether a row that begins with `wide_columns` has the template and the text.
fn wants_content(filter: &Filter, row: &Row<'_>) -> Result<bool> {
    if !filter.wants_template(maybe_text(row, 3)?) {
        return Ok(false);
    }
    Ok(filter.text.is_none()
        || filter.wants_text([
            maybe_text(row, 1)?,
            maybe_text(row, 4)?,
            maybe_text(row, 5)?,
            maybe_text(row, 6)?,
        ]))
}

/// What waits for a retry or is under way with one, soonest first.
pub(super) fn retry_queue(
    reader: &mut Reader,
    filter: &Filter,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Page<View, DueCursor>> {
    let Reader { conn, flows } = reader;
    let named = if names_flows(filter) { Some(ranges::flows(conn, filter)?) } else { None };
    let walks = named.as_ref().map_or(&[ByFlows::Everything][..], |flows| by_flows(flows.len()));
    let mut filling: Filling<View, Soonest> = Filling::new(limit);
    let mut start = after.map(Reverse);
    let mut went = Went::ToTheEnd;
    for walk in walks {
        let ranges = match walk {
            ByFlows::Everything => ranges::retry_queue(),
            ByFlows::Merge => ranges::retry_queue_of(named.as_deref().unwrap_or_default()),
        };
        let fetch = |range: usize, after, limit| ranges[range].retries(conn, after, limit);
        let mut merge = Merge::new(ranges.len(), start, limit, fetch)?;
        went = filling.walk(&mut merge, |Reverse(DueCursor { id, .. })| {
            let in_time = filter.since.is_none_or(|since| NotificationId::least_at(since) <= id)
                && filter.until.is_none_or(|until| id < NotificationId::least_at(until));
            if in_time { look(conn, flows, filter, id) } else { Ok(None) }
        })?;
        let Went::ToTheBound(key) = went else { break };
        start = Some(key);
    }
    let Page { rows, next } = filling.page(went);
    Ok(Page { rows, next: next.map(|Reverse(place)| place) })
}

/// The columns of a dead letter, behind its snapshot.
macro_rules! letter_columns {
    () => {
        concat!(
            wide_columns!(),
            ", id, notification, reason, text, attempts, status, created_at, resolved_at, resolved_by, failure,
             status_code, fingerprint, deleted_at, replies, restored_at"
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
    let key = flows.need(conn, FlowId(row.get(0)?))?;
    let wide = Wide::read(notification_id(row, 11)?, key, row, 0);
    wide.and_then(|wide| letter(row, wide)).map(Some).map_err(|fault| fault.of(id))
}

/// Dead letters, newest first.
pub(super) fn dead_letters(
    reader: &mut Reader,
    filter: &Filter,
    before: Option<DeadLetterId>,
    limit: usize,
) -> Result<Page<DeadLetterView, DeadLetterId>> {
    let Reader { conn, flows } = reader;
    let Some((filter, fingerprint)) = groups::narrowed(conn, filter)? else {
        return Ok(Page { rows: vec![], next: None });
    };
    let filter = &filter;
    // The id of a dead letter carries the time of its death.
    let from = filter.since.map_or(FIRST, |since| DeadLetterId::least_at(since).to_bytes());
    let until = filter.until.map(DeadLetterId::least_at);
    let (statuses, tenant) = (filter.letter_statuses(), filter.tenant.as_ref());
    let named = if filter.destinations.is_empty() { vec![] } else { ranges::flows(conn, filter)? };
    // A tenant's dead letters have an index; only destinations need their flows.
    let by_flow = !filter.destinations.is_empty() && fingerprint.is_none();
    let walks = if by_flow { by_flows(named.len()) } else { &[ByFlows::Everything] };
    let mut filling = Filling::new(limit);
    let mut start = [before, until].into_iter().flatten().min();
    let mut went = Went::ToTheEnd;
    for walk in walks {
        let ranges = match walk {
            ByFlows::Everything => match fingerprint {
                Some(print) => ranges::letters_of_cause(statuses, tenant, print),
                None => ranges::letters(statuses, tenant),
            },
            ByFlows::Merge => ranges::letters_of_flows(statuses, &named),
        };
        let fetch = |range: usize, after: Option<DeadLetterId>, limit| {
            let before = after.map_or(LAST, DeadLetterId::to_bytes);
            ranges[range].newest(conn, (from, before), limit, dead_letter_id)
        };
        let mut merge = Merge::new(ranges.len(), start, limit, fetch)?;
        went = filling.walk(&mut merge, |id| look_at_letter(conn, flows, filter, id))?;
        let Went::ToTheBound(key) = went else { break };
        start = Some(key);
    }
    Ok(filling.page(went))
}

/// A dead letter, if the filter wants it. What is cheap to know is asked first.
fn look_at_letter(
    conn: &Connection,
    flows: &mut Flows,
    filter: &Filter,
    id: DeadLetterId,
) -> Result<Option<DeadLetterView>> {
    let mut select =
        conn.prepare_cached(concat!("select ", letter_columns!(), " from dead_letter where id = ?1"))?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let key = flows.need(conn, FlowId(row.get(0)?))?;
    let deleted = maybe_time(row, 22)?.is_some();
    let wanted = filter.wants_flow(&key)
        && wants_content(filter, row)?
        && wants_group(filter, &key, row)?
        && filter.wants_status(LetterStatus::of(status(row, 15)?, deleted))
        && filter.wants_reason(maybe_reason(row, 12)?)
        && (!filter.asks_for_failure()
            || filter.wants_failure(maybe_failure(row, 19)?.zip(Some(row.get(20)?))));
    if !wanted {
        return Ok(None);
    }
    letter(row, Wide::read(notification_id(row, 11)?, key, row, 0)?).map(Some)
}

/// Whether a row of `letter_columns` is in the group.
fn wants_group(filter: &Filter, key: &FlowKey, row: &Row<'_>) -> Result<bool> {
    let (template, fingerprint) = (maybe_text(row, 3)?, row.get::<_, Option<[u8; 16]>>(21)?);
    Ok(filter.wants_group(fingerprint.map(|fingerprint| Grouped {
        fingerprint,
        tenant: key.tenant.as_str(),
        channel: key.channel,
        destination: &key.destination,
        template,
    })))
}

fn letter(row: &Row<'_>, wide: Wide) -> Result<DeadLetterView> {
    let reason = maybe_reason(row, 12)?;
    Ok(DeadLetterView {
        id: dead_letter_id(row, 10)?,
        notification: wide.notification()?,
        reason: reason.ok_or_else(|| Fault::damaged("a dead letter without a reason"))?,
        text: row.get(13)?,
        attempts: attempts_from(maybe_text(row, 14)?.unwrap_or("[]"), maybe_text(row, 23)?)?,
        status: status(row, 15)?,
        created_at: time(row, 16)?,
        resolved_at: maybe_time(row, 17)?,
        resolved_by: row.get(18)?,
        failure_type: maybe_failure(row, 19)?,
        status_code: row.get(20)?,
        fingerprint: row.get(21)?,
        deleted_at: maybe_time(row, 22)?,
        restored_at: maybe_time(row, 24)?,
    })
}

/// Who did what, newest first.
pub(super) fn audit(
    reader: &mut Reader,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRow, i64>> {
    let of_all = "
        select number, tenant, actor, action, target, at, asked, count, key_id, address
        from audit
        where number < ?1
        order by number desc
        limit ?2";
    let of_tenant = "
        select number, tenant, actor, action, target, at, asked, count, key_id, address
        from audit indexed by audit_tenant
        where tenant = ?3
        and number < ?1
        order by number desc
        limit ?2";
    let conn = &reader.conn;
    let mut select = conn.prepare_cached(if filter.tenant.is_some() { of_tenant } else { of_all })?;
    let mut start = AuditStart::new(filter, before);
    while let Some(number) = start.look_below() {
        let mut rows = audit_below(&mut select, filter, number)?;
        let row = rows.next()?.map(|row| Ok::<_, Fault>((row.get(0)?, time(row, 5)?))).transpose()?;
        start.found(number, row);
    }
    let mut rows = audit_below(&mut select, filter, start.below())?;
    let mut walk = AuditWalk::new(filter, limit);
    while let Some(row) = rows.next()? {
        let number = row.get(0)?;
        if walk.take(number, unless_damaged(&number, audit_row(row))?) {
            break;
        }
    }
    Ok(walk.page)
}

/// The newest rows below a number. A row is read when the walk comes to it.
fn audit_below<'s>(select: &'s mut Statement<'_>, filter: &AuditFilter, number: i64) -> Result<Rows<'s>> {
    let one_more = MAX_LOOKED_AT as i64 + 1;
    Ok(match &filter.tenant {
        Some(tenant) => select.query(params![number, one_more, tenant.as_str()])?,
        None => select.query(params![number, one_more])?,
    })
}

fn audit_row(row: &Row<'_>) -> Result<AuditRow> {
    let (actor, action, target) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let (key_id, address) = (row.get(8)?, row.get(9)?);
    let audit =
        Audit { tenant: maybe_tenant(row, 1)?, actor, action, target, at: time(row, 5)?, key_id, address };
    let (asked, count) = (row.get::<_, i64>(6)?.unsigned_abs(), row.get::<_, i64>(7)?.unsigned_abs());
    Ok(AuditRow { number: row.get(0)?, audit, asked, count })
}
