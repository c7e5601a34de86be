//! Removal of what has outlived its period. The row of the pass is locked, so chunks of one kind follow each other.

mod oldest;
mod operations;

use async_trait::async_trait;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::retention::Kind;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Audit, Prune, Pruned, Retention};
use tokio_postgres::Row;
use uuid::Uuid;

use self::oldest::{AUDIT, COUNTERS, RUNS, oldest};
use super::acts::write_audit;
use super::counters::{Sums, bind_sums};
use super::fault::Result;
use super::flows::Flows;
use super::rows::{Columns, bigint, letter_uuid, uuid};
use super::series;
use super::tx::{Mode, Statement, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, transact};
use crate::kept::counters::Deltas;
use crate::kept::retention::{Chunk, Pass, answer, most_looked_at};

#[async_trait]
impl Retention for PostgresStore {
    async fn prune(&self, prune: Prune, audit: Audit) -> store::Result<Pruned> {
        Ok(transact!(self, tx => run(&tx, &self.flows, &prune, &audit))?)
    }

    async fn show_deleted(&self, dead_letter: DeadLetterId, audit: Audit) -> store::Result<bool> {
        Ok(transact!(self, tx => show_deleted(&tx, dead_letter, &audit))?)
    }
}

async fn run(tx: &Tx, flows: &Flows, prune: &Prune, audit: &Audit) -> Result<Pruned> {
    let pass = lock(tx, prune.kind).await?;
    let (removed, next) = match prune.kind {
        Kind::Attempts => attempts(tx, prune, &pass).await?,
        Kind::Delivered | Kind::Failed | Kind::Cancelled | Kind::Expired => {
            notifications(tx, flows, prune, &pass).await?
        }
        Kind::RequeuedLetters | Kind::DiscardedLetters => letters(tx, prune, &pass).await?,
        Kind::DeletedLetters => deleted(tx, prune).await?,
        Kind::Audit => oldest(tx, prune, AUDIT, prune.cut_off.as_micros()).await?,
        Kind::JobRuns => oldest(tx, prune, RUNS, prune.cut_off.as_micros()).await?,
        Kind::Counters => oldest(tx, prune, COUNTERS, prune.cut_off.as_hours()).await?,
        Kind::Series => oldest(tx, prune, series::PRUNE, prune.cut_off.as_micros()).await?,
        Kind::OperationItems => operations::items(tx, prune, &pass).await?,
        Kind::Operations => operations::finished(tx, prune, &pass).await?,
        Kind::DestinationHours => oldest(tx, prune, series::PRUNE_HOURS, prune.cut_off.as_micros()).await?,
    };
    let (done, all) = (next.is_none(), pass.removed + removed);
    let mut after = pass.after(removed, next);
    if prune.kind == Kind::Counters {
        after.after = Some(prune.cut_off.as_hours().to_be_bytes().to_vec());
    }
    let sql = "update retention set after = $2, removed = $3 where kind = $1";
    let bound = bind![prune.kind.name() => TEXT, after.after => BYTEA, after.removed => INT8];
    let kept = statement!(sql, bound);
    if done && all > 0 {
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        write_audit(tx, None, audit, all, all, vec![kept]).await?;
    } else {
        tx.send(None, &[kept], Then::Commit).await?;
    }
    Ok(answer(removed, done))
}

/// Begins the transaction and locks the row of the pass.
async fn lock(tx: &Tx, kind: Kind) -> Result<Pass> {
    let make = "insert into retention (kind, removed) values ($1, 0) on conflict (kind) do nothing";
    let lock = "select after, removed from retention where kind = $1 for update";
    let named = bind![kind.name() => TEXT];
    let steps = [statement!(make, named), statement!(lock, named)];
    let mut answers = tx.send(Some(Mode::Write), &steps, Then::Continue).await?;
    let row = single_row(answers.pop().unwrap_or_default())?;
    let mut columns = Columns::of(&row);
    Ok(Pass { after: columns.take()?, removed: columns.take()? })
}

/// Where the rows of a chunk begin and end.
struct Window {
    after: Uuid,
    until: Uuid,
    looked_at: i64,
    limit: i64,
}

impl Window {
    fn of(prune: &Prune, pass: &Pass, until: Uuid) -> Self {
        let after = Uuid::from_slice(pass.start()).unwrap_or(Uuid::nil());
        Self { after, until, looked_at: bigint(most_looked_at(prune)), limit: bigint(prune.limit) }
    }

    /// Where a chunk that is not full has stopped looking; none if it has seen everything.
    async fn bound(&self, tx: &Tx, sql: &str, code: Option<i16>) -> Result<Option<Vec<u8>>> {
        let bound = bind![self.after => UUID, self.until => UUID, self.looked_at => INT8, code => INT2];
        let rows = tx.rows(sql, bound).await?;
        let last: Option<Uuid> = match rows.first() {
            Some(row) => Columns::of(row).take()?,
            None => None,
        };
        Ok(last.map(|id| id.as_bytes().to_vec()))
    }
}

/// The last row of a full window; no row if it is not full. The parameter $4 is not used by every table.
macro_rules! last_of {
    ($window:literal) => {
        concat!(
            "select id
             from (",
            $window,
            "
                 offset $3 - 1
                 limit 1) as w
             where $4::smallint is null or true"
        )
    };
}

/// Whether no operation that is not finished names a notification. Such operations are few.
macro_rules! in_no_operation {
    ($notification:literal) => {
        concat!(
            "not exists (
                 select
                 from operation o
                 join operation_item i on i.operation = any(array[o.id])
                 and i.notification = any(array[",
            $notification,
            "])
                 where not o.finished)"
        )
    };
}

/// Finds what ended, was not named by a dead letter or an operation that is not finished, and is old enough.
macro_rules! find_ended {
    ($of_state:literal) => {
        concat!(
            "select w.id, octet_length(n.content)::bigint, w.at, n.flow
             from (
                 select id, state, at
                 from ended
                 where id > $1
                 and id < $2
                 ",
            $of_state,
            "
                 order by id
                 limit $3) as w
             join notification n on n.id = any(array[w.id])
             where w.state = $4
             and w.at < $5
             and not exists (
                 select
                 from dead_letter d
                 where d.notification = w.id)
             and ",
            in_no_operation!("w.id"),
            "
             order by w.id
             limit $6"
        )
    };
}

async fn attempts(tx: &Tx, prune: &Prune, pass: &Pass) -> Result<(i64, Option<Vec<u8>>)> {
    let find = "
        select w.id, 0::bigint
        from (
            select distinct notification as id
            from attempt
            where notification > $1
            and notification < $2
            order by 1
            limit $3) as w
        join ended e on e.id = any(array[w.id])
        where e.at < $4
        order by w.id
        limit $5";
    let window = Window::of(prune, pass, uuid(NotificationId::least_at(prune.cut_off)));
    let cut_off = prune.cut_off.as_micros();
    let bound = bind![
        window.after => UUID,
        window.until => UUID,
        window.looked_at => INT8,
        cut_off => INT8,
        window.limit => INT8,
    ];
    let chunk = taken(prune, &tx.rows(find, bound).await?)?;
    let next = match &chunk.next {
        Some(_) => chunk.next.clone(),
        None => {
            let last = last_of!(
                "select distinct notification as id
                 from attempt
                 where notification > $1
                 and notification < $2
                 order by 1"
            );
            window.bound(tx, last, None).await?
        }
    };
    let delete = "
        delete from attempt a
        where a.notification = any($1)
        and exists (
            select
            from ended e
            where e.id = a.notification
            and e.at < $2)
        returning 1";
    let removed = if chunk.rows.is_empty() {
        0
    } else {
        tx.rows(delete, bind![chunk.rows => UUID_ARRAY, cut_off => INT8]).await?.len()
    };
    Ok((bigint(removed), next))
}

/// The rows that a chunk takes: their ids and sizes are the first columns.
fn taken(prune: &Prune, rows: &[Row]) -> Result<Chunk<Uuid>> {
    let mut chunk = Chunk::new();
    for row in rows {
        let mut columns = Columns::of(row);
        let (id, bytes): (Uuid, i64) = (columns.take()?, columns.take()?);
        if chunk.take(prune, id.as_bytes(), Some((id, bytes))) {
            break;
        }
    }
    Ok(chunk)
}

/// What ended with the outcome of the kind. Deliveries have no index of their own: everything that ended is looked at.
async fn notifications(tx: &Tx, flows: &Flows, prune: &Prune, pass: &Pass) -> Result<(i64, Option<Vec<u8>>)> {
    let state = prune.kind.state().unwrap_or(State::Expired);
    let code = i16::from(state.code());
    let (find, last) = match state {
        State::Succeeded => (FIND_DELIVERED, LAST_ENDED),
        _ => (FIND_OTHERS, LAST_OTHERS),
    };
    let window = Window::of(prune, pass, uuid(NotificationId::least_at(prune.cut_off)));
    let bound = bind![
        window.after => UUID,
        window.until => UUID,
        window.looked_at => INT8,
        code => INT2,
        prune.cut_off.as_micros() => INT8,
        window.limit => INT8,
    ];
    let rows = tx.rows(find, bound).await?;
    let chunk = taken(prune, &rows)?;
    let next = match &chunk.next {
        Some(_) => chunk.next.clone(),
        None => window.bound(tx, last, Some(code)).await?,
    };
    if chunk.rows.is_empty() {
        return Ok((0, next));
    }
    let ended = ended(&rows[..chunk.rows.len()], state)?;
    let removed = remove(tx, flows, &ended).await?;
    Ok((removed, next))
}

const FIND_DELIVERED: &str = find_ended!("");
const FIND_OTHERS: &str = find_ended!("and state = $4 and state <> 2");
const LAST_ENDED: &str = last_of!(
    "select id
     from ended
     where id > $1
     and id < $2
     order by id"
);
const LAST_OTHERS: &str = last_of!(
    "select id
     from ended
     where id > $1
     and id < $2
     and state = $4
     and state <> 2
     order by id"
);

/// Notifications that ended, in columns.
struct Ended {
    ids: Vec<Uuid>,
    at: Vec<i64>,
    flows: Vec<FlowId>,
    state: State,
}

fn ended(rows: &[Row], state: State) -> Result<Ended> {
    let mut ended = Ended { ids: vec![], at: vec![], flows: vec![], state };
    for row in rows {
        let mut columns = Columns::of(row);
        ended.ids.push(columns.take()?);
        columns.skip(1);
        ended.at.push(columns.take()?);
        ended.flows.push(FlowId(columns.take()?));
    }
    Ok(ended)
}

/// Removes what is still as it was found: whatever happens to a notification that has ended changes the locked row.
async fn remove(tx: &Tx, flows: &Flows, ended: &Ended) -> Result<i64> {
    let lock = "
        select e.id
        from ended e
        where e.id = any($1)
        order by e.id
        for update";
    // An operation may have begun to name it meanwhile.
    let delete = concat!(
        "delete from ended e
         using unnest($1::uuid[], $2::bigint[]) as u (id, at)
         where e.id = any(array[u.id])
         and e.at = u.at
         and e.state = $3
         and ",
        in_no_operation!("e.id"),
        "
         returning e.id"
    );
    let code = i16::from(ended.state.code());
    let locked = bind![ended.ids => UUID_ARRAY];
    let deleted = bind![ended.ids => UUID_ARRAY, ended.at => INT8_ARRAY, code => INT2];
    let steps = [statement!(lock, locked), statement!(delete, deleted)];
    let rows = tx.send(None, &steps, Then::Continue).await?.pop().unwrap_or_default();
    let mut gone = rows.iter().map(|row| Columns::of(row).take()).collect::<Result<Vec<Uuid>>>()?;
    gone.sort();
    let mut deltas = Deltas::default();
    for ((id, at), flow) in ended.ids.iter().zip(&ended.at).zip(&ended.flows) {
        if gone.binary_search(id).is_ok() {
            deltas.ended(*flow, ended.state, Timestamp::from_micros(*at), -1);
        }
    }
    let sums = Sums::of(deltas, tx, flows).await?;
    let (named, counted) = (bind![gone => UUID_ARRAY], bind_sums!(sums));
    let mut steps: Vec<Statement<'_>> = vec![
        statement!("delete from attempt where notification = any($1)", named),
        statement!("delete from event where notification = any($1)", named),
        statement!("delete from notification where id = any($1)", named),
    ];
    if !sums.by.is_empty() {
        steps.push(statement!(Sums::ADD, counted));
    }
    tx.send(None, &steps, Then::Continue).await?;
    Ok(bigint(gone.len()))
}

/// Soft-deletes resolved dead letters that died long ago.
async fn letters(tx: &Tx, prune: &Prune, pass: &Pass) -> Result<(i64, Option<Vec<u8>>)> {
    let find = "
        select w.id, w.bytes
        from (
            select id, created_at, restored_at, octet_length(content)::bigint + octet_length(attempts) as bytes
            from dead_letter
            where status = $4
            and deleted_at is null
            and id > $1
            and id < $2
            order by id
            limit $3) as w
        -- The greatest passes over what is null.
        where greatest(w.created_at, w.restored_at) < $5
        order by w.id
        limit $6";
    let last = last_of!(
        "select id
         from dead_letter
         where status = $4
         and deleted_at is null
         and id > $1
         and id < $2
         order by id"
    );
    let code = prune.kind.letters().map(DeadLetterStatus::code).map(i16::from);
    let window = Window::of(prune, pass, letter_uuid(DeadLetterId::least_at(prune.cut_off)));
    let bound = bind![
        window.after => UUID,
        window.until => UUID,
        window.looked_at => INT8,
        code => INT2,
        prune.cut_off.as_micros() => INT8,
        window.limit => INT8,
    ];
    let chunk = taken(prune, &tx.rows(find, bound).await?)?;
    let next = match &chunk.next {
        Some(_) => chunk.next.clone(),
        None => window.bound(tx, last, code).await?,
    };
    let delete = "
        update dead_letter
        set deleted_at = $2
        where id = any($1)
        and status = $3
        and deleted_at is null
        returning 1";
    let bound = bind![chunk.rows => UUID_ARRAY, prune.now.as_micros() => INT8, code => INT2];
    let removed = if chunk.rows.is_empty() { 0 } else { tx.rows(delete, bound).await?.len() };
    Ok((bigint(removed), next))
}

/// Removes dead letters that were soft-deleted long ago. What an operation that is not finished names is passed over; if it names
/// everything that is looked at, the pass ends there.
async fn deleted(tx: &Tx, prune: &Prune) -> Result<(i64, Option<Vec<u8>>)> {
    let find = concat!(
        "select w.id, w.bytes, w.notification
         from (
             select id, octet_length(content)::bigint + octet_length(attempts) as bytes, notification, deleted_at
             from dead_letter
             where deleted_at < $1
             and deleted_at is not null
             order by deleted_at, id
             limit $3) as w
         where ",
        in_no_operation!("w.notification"),
        "
         order by w.deleted_at, w.id
         limit $2"
    );
    let bound = bind![
        prune.cut_off.as_micros() => INT8,
        bigint(prune.limit) => INT8,
        bigint(most_looked_at(prune)) => INT8,
    ];
    let rows = tx.rows(find, bound).await?;
    let chunk = taken(prune, &rows)?;
    if chunk.rows.is_empty() {
        return Ok((0, None));
    }
    let named = |row: &Row| -> Result<Uuid> {
        let mut columns = Columns::of(row);
        columns.skip(2);
        columns.take()
    };
    let notifications = rows[..chunk.rows.len()].iter().map(named).collect::<Result<Vec<_>>>()?;
    // An act locks the end first, then the dead letter.
    let lock = "
        select e.id
        from ended e
        where e.id = any($1)
        order by e.id
        for update";
    let delete = concat!(
        "delete from dead_letter d
         where d.id = any($1)
         and d.deleted_at is not null
         and ",
        in_no_operation!("d.notification"),
        "
         returning 1"
    );
    let forget = "
        update ended e
        set dead_letter = null
        where e.id = any($1)
        and e.dead_letter = any($2)
        and not exists (
            select
            from dead_letter d
            where d.id = any(array[e.dead_letter]))";
    let (locked, gone) = (bind![notifications => UUID_ARRAY], bind![chunk.rows => UUID_ARRAY]);
    let forgotten = bind![notifications => UUID_ARRAY, chunk.rows => UUID_ARRAY];
    let steps = [statement!(lock, locked), statement!(delete, gone), statement!(forget, forgotten)];
    let answers = tx.send(None, &steps, Then::Continue).await?;
    let removed = answers.get(1).map_or(0, Vec::len);
    // The next chunk begins at the oldest again.
    Ok((bigint(removed), chunk.next.map(|_| vec![])))
}

async fn show_deleted(tx: &Tx, letter: DeadLetterId, audit: &Audit) -> Result<bool> {
    let sql = "
        update dead_letter
        set deleted_at = null, restored_at = $2
        where id = $1
        and deleted_at is not null
        and status <> 0
        returning 1";
    let bound = bind![letter_uuid(letter) => UUID, audit.at.as_micros() => INT8];
    let mut answers = tx.send(Some(Mode::Write), &[statement!(sql, bound)], Then::Continue).await?;
    if answers.pop().unwrap_or_default().is_empty() {
        tx.batch("commit").await?;
        return Ok(false);
    }
    write_audit(tx, None, audit, 1, 1, vec![]).await?;
    Ok(true)
}
