//! Jobs and their runs.

use async_trait::async_trait;
use posthaste_core::job::RunOutcome;
use posthaste_core::lease::NodeId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, Audit, Begun, JobPlan, JobRun, JobStart, JobView, Jobs, Page, UnfinishedRun,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::acts::write_audit;
use super::fault::{Fault, Result};
use super::rows::time;
use super::writer::Tx;
use crate::kept::jobs::{Found, end, started_by};

#[async_trait]
impl Jobs for SqliteStore {
    async fn plan_jobs(&self, plans: Vec<JobPlan>) -> store::Result<()> {
        self.write(plans.len(), move |tx| plan(tx, &plans)).await
    }

    async fn jobs(&self, now: Timestamp) -> store::Result<Vec<JobView>> {
        self.read(move |reader| jobs(&reader.conn, now)).await
    }

    async fn begin_job(&self, start: JobStart, audit: Option<Audit>, now: Timestamp) -> store::Result<Begun> {
        self.write(1, move |tx| begin(tx, &start, audit.as_ref(), now)).await
    }

    async fn finish_job(&self, run: i64, outcome: RunOutcome, now: Timestamp) -> store::Result<bool> {
        self.write(1, move |tx| finish(tx, run, &outcome, now)).await
    }

    async fn pause_job(
        &self,
        name: String,
        paused: bool,
        next_run: Option<Timestamp>,
        audit: Audit,
    ) -> store::Result<bool> {
        self.write(1, move |tx| pause(tx, &name, paused, next_run, &audit)).await
    }

    async fn job_runs(
        &self,
        name: String,
        before: Option<i64>,
        limit: usize,
    ) -> store::Result<Page<JobRun, i64>> {
        self.list(move |reader| runs(&reader.conn, &name, before, limit)).await
    }
}

fn plan(tx: &Tx<'_>, plans: &[JobPlan]) -> Result<()> {
    let mut upsert = tx.conn.prepare_cached(
        "insert into job (name, cron, paused, next_run)
         values (?1, ?2, 0, ?3)
         on conflict (name) do update
         set cron = excluded.cron, next_run = excluded.next_run
         where cron is not excluded.cron",
    )?;
    for plan in plans {
        upsert.execute(params![plan.name, plan.cron, plan.next_run.map(Timestamp::as_micros)])?;
    }
    Ok(())
}

/// The columns that `run` reads.
macro_rules! run_columns {
    () => {
        "number, started_at, finished_at, outcome, count, error, node, node_name, started_by"
    };
}

fn run(row: &Row<'_>) -> Result<JobRun> {
    let finished_at = row.get::<_, Option<i64>>(2)?.map(Timestamp::from_micros);
    let outcome: Option<String> = row.get(3)?;
    Ok(JobRun {
        number: row.get(0)?,
        started_at: time(row, 1)?,
        end: end(finished_at, outcome.as_deref(), row.get(4)?, row.get(5)?).map_err(Fault::damaged)?,
        node: NodeId(row.get(6)?),
        node_name: row.get(7)?,
        started_by: row.get(8)?,
    })
}

fn jobs(conn: &Connection, now: Timestamp) -> Result<Vec<JobView>> {
    let mut select = conn.prepare_cached(
        "select name, cron, paused, next_run
         from job
         order by name",
    )?;
    let mut rows = select.query([])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let running = unfinished(conn, &name)?;
        found.push(JobView {
            cron: row.get(1)?,
            paused: row.get(2)?,
            next_run: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_micros),
            running: match running {
                Some(run) => Some(UnfinishedRun { alive: lives(conn, run.node, now)?, run }),
                None => None,
            },
            last_run: last_finished(conn, &name)?,
            name,
        });
    }
    Ok(found)
}

fn unfinished(conn: &Connection, name: &str) -> Result<Option<JobRun>> {
    let sql = concat!("select ", run_columns!(), " from job_run where job = ?1 and outcome is null");
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([name])?;
    rows.next()?.map(run).transpose()
}

fn last_finished(conn: &Connection, name: &str) -> Result<Option<JobRun>> {
    let sql = concat!(
        "select ",
        run_columns!(),
        " from job_run
         where job = ?1
         and outcome is not null
         order by number desc
         limit 1"
    );
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([name])?;
    rows.next()?.map(run).transpose()
}

pub(super) fn lives(conn: &Connection, node: NodeId, now: Timestamp) -> Result<bool> {
    let mut select = conn.prepare_cached(
        "select 1
         from node
         where id = ?1
         and dead = 0
         and expires > ?2",
    )?;
    Ok(select.exists(params![node.0, now.as_micros()])?)
}

fn begin(tx: &Tx<'_>, start: &JobStart, audit: Option<&Audit>, now: Timestamp) -> Result<Begun> {
    let Some(found) = found(tx.conn, &start.name, now)? else { return Ok(Begun::Unknown) };
    if let Some(refusal) = found.refusal(&start.why) {
        return Ok(refusal);
    }
    if let Some((dead, _)) = found.running {
        finish(tx, dead, &RunOutcome::Interrupted, now)?;
    }
    let mut schedule = tx.conn.prepare_cached("update job set next_run = ?2 where name = ?1")?;
    schedule.execute(params![start.name, found.next_run(&start.why).map(Timestamp::as_micros)])?;
    let mut insert = tx.conn.prepare_cached(
        "insert into job_run (job, started_at, node, node_name, started_by)
         values (?1, ?2, ?3, ?4, ?5)",
    )?;
    let by = started_by(&start.why);
    let run = insert.insert(params![start.name, now.as_micros(), start.node.0, start.node_name, by])?;
    if let Some(audit) = audit {
        write_audit(tx.conn, audit, 1, 1)?;
    }
    Ok(Begun::Started { run })
}

fn found(conn: &Connection, name: &str, now: Timestamp) -> Result<Option<Found>> {
    let mut select = conn.prepare_cached("select paused, next_run from job where name = ?1")?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.map(Timestamp::from_micros)));
    let Some((paused, next_run)) = select.query_row([name], read).optional()? else { return Ok(None) };
    let running = match unfinished(conn, name)? {
        Some(run) => Some((run.number, lives(conn, run.node, now)?)),
        None => None,
    };
    Ok(Some(Found { paused, next_run, running }))
}

fn finish(tx: &Tx<'_>, run: i64, outcome: &RunOutcome, now: Timestamp) -> Result<bool> {
    let mut update = tx.conn.prepare_cached(
        "update job_run
         set finished_at = ?2, outcome = ?3, count = ?4, error = ?5
         where number = ?1
         and outcome is null",
    )?;
    let (count, error) = outcome.parts();
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Ok(update.execute(params![run, now.as_micros(), outcome.word(), count, error])? == 1)
}

fn pause(tx: &Tx<'_>, name: &str, paused: bool, next_run: Option<Timestamp>, audit: &Audit) -> Result<bool> {
    let mut update = tx.conn.prepare_cached("update job set paused = ?2, next_run = ?3 where name = ?1")?;
    let found = update.execute(params![name, paused, next_run.map(Timestamp::as_micros)])? == 1;
    if found {
        write_audit(tx.conn, audit, 1, 1)?;
    }
    Ok(found)
}

fn runs(conn: &Connection, name: &str, before: Option<i64>, limit: usize) -> Result<Page<JobRun, i64>> {
    let sql = concat!(
        "select ",
        run_columns!(),
        " from job_run
         where job = ?1
         and number < ?2
         order by number desc
         limit ?3"
    );
    let mut select = conn.prepare_cached(sql)?;
    let limited = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query(params![name, before.unwrap_or(i64::MAX), limited])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(run(row)?);
    }
    let next = found.last().filter(|_| found.len() == limit).map(|run| run.number);
    Ok(Page { rows: found, next })
}
