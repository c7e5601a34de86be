//! Jobs and their runs.

use async_trait::async_trait;
use posthaste_core::job::RunOutcome;
use posthaste_core::lease::NodeId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, Audit, Begun, JobPlan, JobRun, JobStart, JobView, Jobs, Page, UnfinishedRun,
};
use tokio_postgres::Row;

use super::acts::write_audit;
use super::fault::{Fault, Result};
use super::rows::{Columns, bigint};
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, list, transact};
use crate::kept::jobs::{Found, end, started_by};

#[async_trait]
impl Jobs for PostgresStore {
    async fn plan_jobs(&self, plans: Vec<JobPlan>) -> store::Result<()> {
        Ok(transact!(self, tx => plan(&tx, &plans))?)
    }

    async fn jobs(&self, now: Timestamp) -> store::Result<Vec<JobView>> {
        Ok(transact!(self, tx => jobs(&tx, now))?)
    }

    async fn begin_job(&self, start: JobStart, audit: Option<Audit>, now: Timestamp) -> store::Result<Begun> {
        Ok(transact!(self, tx => begin(&tx, &start, audit.as_ref(), now))?)
    }

    async fn finish_job(&self, run: i64, outcome: RunOutcome, now: Timestamp) -> store::Result<bool> {
        Ok(transact!(self, tx => finish(&tx, run, &outcome, now))?)
    }

    async fn pause_job(
        &self,
        name: String,
        paused: bool,
        next_run: Option<Timestamp>,
        audit: Audit,
    ) -> store::Result<bool> {
        Ok(transact!(self, tx => pause(&tx, &name, paused, next_run, &audit))?)
    }

    async fn job_runs(
        &self,
        name: String,
        before: Option<i64>,
        limit: usize,
    ) -> store::Result<Page<JobRun, i64>> {
        Ok(list!(self, tx => runs(&tx, &name, before, limit))?)
    }
}

/// In the order of the names, so that two nodes that start at once cannot deadlock.
async fn plan(tx: &Tx, plans: &[JobPlan]) -> Result<()> {
    let mut plans: Vec<&JobPlan> = plans.iter().collect();
    plans.sort_unstable_by_key(|plan| &plan.name);
    let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    let crons: Vec<Option<&str>> = plans.iter().map(|plan| plan.cron.as_deref()).collect();
    let times: Vec<Option<i64>> = plans.iter().map(|plan| plan.next_run.map(Timestamp::as_micros)).collect();
    let sql = "
        insert into job (name, cron, paused, next_run)
        select name, cron, false, next_run
        from unnest($1::text[], $2::text[], $3::bigint[]) as plan (name, cron, next_run)
        on conflict (name) do update
        set cron = excluded.cron, next_run = excluded.next_run
        where job.cron is distinct from excluded.cron";
    let bound = bind![names => TEXT_ARRAY, crons => TEXT_ARRAY, times => INT8_ARRAY];
    tx.alone(Mode::Write, sql, bound).await?;
    Ok(())
}

/// The columns that `run` reads.
macro_rules! run_columns {
    () => {
        "r.number, r.started_at, r.finished_at, r.outcome, r.count, r.error, r.node, r.node_name, r.started_by"
    };
}

fn run(columns: &mut Columns<'_>) -> Result<JobRun> {
    let (number, started_at) = (columns.take()?, columns.time()?);
    let finished_at = columns.maybe_time()?;
    let (outcome, count, error): (Option<String>, _, _) = (columns.take()?, columns.take()?, columns.take()?);
    Ok(JobRun {
        number,
        started_at,
        end: end(finished_at, outcome.as_deref(), count, error).map_err(Fault::damaged)?,
        node: NodeId(columns.take()?),
        node_name: columns.take()?,
        started_by: columns.take()?,
    })
}

/// A run beside a job, where there is one.
fn run_beside(columns: &mut Columns<'_>, exists: bool) -> Result<Option<JobRun>> {
    if exists {
        return run(columns).map(Some);
    }
    columns.skip(9);
    Ok(None)
}

/// Each job with its unfinished run and with the last one that is finished.
const JOBS: &str = concat!(
    "select j.name, j.cron, j.paused, j.next_run, r.number is not null,
        exists (
            select
            from node
            where node.id = r.node
            and not node.dead
            and node.expires > $1), ",
    run_columns!(),
    "
     from job j
     left join job_run r on r.job = j.name and r.outcome is null
     order by j.name"
);

const LAST_RUNS: &str = concat!(
    "select j.name, ",
    run_columns!(),
    "
     from job j
     cross join lateral (
         select *
         from job_run
         where job_run.job = j.name
         and job_run.outcome is not null
         order by job_run.number desc
         limit 1) as r
     order by j.name"
);

async fn jobs(tx: &Tx, now: Timestamp) -> Result<Vec<JobView>> {
    let steps = [statement!(JOBS, bind![now.as_micros() => INT8]), statement!(LAST_RUNS, &[])];
    let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?;
    let (last_runs, jobs) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
    let mut found = vec![];
    for row in &jobs {
        let mut columns = Columns::of(row);
        let (name, cron, paused) = (columns.take()?, columns.take()?, columns.take()?);
        let next_run = columns.maybe_time()?;
        let (exists, alive): (bool, bool) = (columns.take()?, columns.take()?);
        let running = run_beside(&mut columns, exists)?.map(|run| UnfinishedRun { run, alive });
        found.push(JobView { name, cron, paused, next_run, running, last_run: None });
    }
    for row in &last_runs {
        let mut columns = Columns::of(row);
        let name: String = columns.take()?;
        let last = run(&mut columns)?;
        if let Some(job) = found.iter_mut().find(|job| job.name == name) {
            job.last_run = Some(last);
        }
    }
    Ok(found)
}

/// The lock on the row of the job makes starts follow each other.
async fn begin(tx: &Tx, start: &JobStart, audit: Option<&Audit>, now: Timestamp) -> Result<Begun> {
    let lock = "select paused, next_run from job where name = $1 for update";
    // A separate statement, so that it sees what was committed while the one before it waited.
    let look = "
        select r.number, exists (
            select
            from node
            where node.id = r.node
            and not node.dead
            and node.expires > $2)
        from job_run r
        where r.job = $1
        and r.outcome is null";
    let (named, looked) = (bind![start.name => TEXT], bind![start.name => TEXT, now.as_micros() => INT8]);
    let steps = [statement!(lock, named), statement!(look, looked)];
    let mut answers = tx.send(Some(Mode::Write), &steps, Then::Continue).await?;
    let (running, job) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
    let Some(job) = job.first() else { return refuse(tx, Begun::Unknown).await };
    let found = found(job, running.first())?;
    if let Some(refusal) = found.refusal(&start.why) {
        return refuse(tx, refusal).await;
    }
    if let Some((dead, _)) = found.running {
        let (sql, count) = (FINISH, None::<i64>);
        let word = RunOutcome::Interrupted.word();
        let bound =
            bind![dead => INT8, now.as_micros() => INT8, word => TEXT, count => INT8, None::<String> => TEXT];
        tx.send(None, &[statement!(sql, bound)], Then::Continue).await?;
    }
    let run = insert_run(tx, start, found.next_run(&start.why), now).await?;
    match audit {
        Some(audit) => write_audit(tx, None, audit, 1, 1, vec![]).await?,
        None => tx.batch("commit").await?,
    }
    Ok(Begun::Started { run })
}

fn found(job: &Row, running: Option<&Row>) -> Result<Found> {
    let mut columns = Columns::of(job);
    let (paused, next_run) = (columns.take()?, columns.maybe_time()?);
    let number_and_life = |row| -> Result<(i64, bool)> {
        let mut columns = Columns::of(row);
        Ok((columns.take()?, columns.take()?))
    };
    Ok(Found { paused, next_run, running: running.map(number_and_life).transpose()? })
}

async fn refuse(tx: &Tx, refusal: Begun) -> Result<Begun> {
    tx.batch("commit").await?;
    Ok(refusal)
}

async fn insert_run(tx: &Tx, start: &JobStart, next_run: Option<Timestamp>, now: Timestamp) -> Result<i64> {
    let schedule = "update job set next_run = $2 where name = $1";
    let insert = "
        insert into job_run (job, started_at, node, node_name, started_by)
        values ($1, $2, $3, $4, $5)
        returning number";
    let next_run = next_run.map(Timestamp::as_micros);
    let scheduled = bind![start.name => TEXT, next_run => INT8];
    let inserted = bind![
        start.name => TEXT,
        now.as_micros() => INT8,
        start.node.0 => INT8,
        start.node_name => TEXT,
        started_by(&start.why) => TEXT,
    ];
    let steps = [statement!(schedule, scheduled), statement!(insert, inserted)];
    let mut answers = tx.send(None, &steps, Then::Continue).await?;
    Columns::of(&single_row(answers.pop().unwrap_or_default())?).take()
}

const FINISH: &str = "
    update job_run
    set finished_at = $2, outcome = $3, count = coalesce($4, 0), error = $5
    where number = $1
    and outcome is null
    returning 1";

async fn finish(tx: &Tx, run: i64, outcome: &RunOutcome, now: Timestamp) -> Result<bool> {
    let (count, error) = outcome.parts();
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let bound = bind![
        run => INT8,
        now.as_micros() => INT8,
        outcome.word() => TEXT,
        Some(count) => INT8,
        error => TEXT,
    ];
    Ok(!tx.alone(Mode::Write, FINISH, bound).await?.is_empty())
}

async fn pause(
    tx: &Tx,
    name: &str,
    paused: bool,
    next_run: Option<Timestamp>,
    audit: &Audit,
) -> Result<bool> {
    let sql = "update job set paused = $2, next_run = $3 where name = $1 returning 1";
    let next_run = next_run.map(Timestamp::as_micros);
    let bound = bind![name => TEXT, paused => BOOL, next_run => INT8];
    let mut answers = tx.send(Some(Mode::Write), &[statement!(sql, bound)], Then::Continue).await?;
    if answers.pop().unwrap_or_default().is_empty() {
        tx.batch("commit").await?;
        return Ok(false);
    }
    write_audit(tx, None, audit, 1, 1, vec![]).await?;
    Ok(true)
}

async fn runs(tx: &Tx, name: &str, before: Option<i64>, limit: usize) -> Result<Page<JobRun, i64>> {
    let sql = concat!(
        "select ",
        run_columns!(),
        "
         from job_run r
         where r.job = $1
         and r.number < $2
         order by r.number desc
         limit $3"
    );
    let bound = bind![name => TEXT, before.unwrap_or(i64::MAX) => INT8, bigint(limit) => INT8];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let rows: Vec<JobRun> = rows.iter().map(|row| run(&mut Columns::of(row))).collect::<Result<_>>()?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|run| run.number);
    Ok(Page { rows, next })
}
