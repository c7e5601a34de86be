//! Jobs and their runs.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::job::RunOutcome;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use crate::store::{
    Audit, Begun, JobPlan, JobRun, JobStart, JobView, Jobs, Page, Prune, Result, RunEnd, UnfinishedRun, Why,
};

/// Every known job, and every run.
#[derive(Debug, Clone, Default)]
pub(super) struct JobTable {
    jobs: BTreeMap<String, Job>,
    /// With the name of the job, by number.
    runs: BTreeMap<i64, (String, JobRun)>,
    last_run: i64,
}

#[derive(Debug, Clone)]
struct Job {
    cron: Option<String>,
    paused: bool,
    next_run: Option<Timestamp>,
}

impl JobTable {
    fn unfinished(&self, name: &str) -> Option<&JobRun> {
        self.runs.values().find(|(job, run)| job == name && run.end.is_none()).map(|(_, run)| run)
    }

    fn end(&mut self, run: i64, outcome: RunOutcome, now: Timestamp) -> bool {
        let Some((_, run)) = self.runs.get_mut(&run).filter(|(_, run)| run.end.is_none()) else {
            return false;
        };
        run.end = Some(RunEnd { at: now, outcome });
        true
    }

    /// Removes old runs that are finished. Returns how many, and whether there are no more.
    pub(super) fn prune(&mut self, prune: Prune) -> (u64, bool) {
        let oldest = self.runs.iter().take(prune.limit);
        let old = oldest.filter(|(_, (_, run))| run.end.as_ref().is_some_and(|end| end.at < prune.cut_off));
        let old: Vec<i64> = old.map(|(number, _)| *number).collect();
        for number in &old {
            self.runs.remove(number);
        }
        (old.len() as u64, old.len() < prune.limit)
    }
}

#[async_trait]
impl Jobs for ModelStore {
    async fn plan_jobs(&self, plans: Vec<JobPlan>) -> Result<()> {
        let jobs = &mut self.lock().jobs.jobs;
        for JobPlan { name, cron, next_run } in plans {
            match jobs.get_mut(&name) {
                Some(known) if known.cron == cron => {}
                Some(known) => (known.cron, known.next_run) = (cron, next_run),
                None => drop(jobs.insert(name, Job { cron, paused: false, next_run })),
            }
        }
        Ok(())
    }

    async fn jobs(&self, now: Timestamp) -> Result<Vec<JobView>> {
        let tables = self.lock();
        let show = |(name, job): (&String, &Job)| {
            let finished = |(of, run): &&(String, JobRun)| of == name && run.end.is_some();
            let running = tables.jobs.unfinished(name).cloned();
            JobView {
                name: name.clone(),
                cron: job.cron.clone(),
                paused: job.paused,
                next_run: job.next_run,
                running: running.map(|run| UnfinishedRun { alive: tables.lives(run.node, now), run }),
                last_run: tables.jobs.runs.values().rfind(finished).map(|(_, run)| run.clone()),
            }
        };
        Ok(tables.jobs.jobs.iter().map(show).collect())
    }

    async fn begin_job(&self, start: JobStart, audit: Option<Audit>, now: Timestamp) -> Result<Begun> {
        let mut tables = self.lock();
        let Some(job) = tables.jobs.jobs.get(&start.name).cloned() else { return Ok(Begun::Unknown) };
        let running = tables.jobs.unfinished(&start.name).map(|run| (run.number, run.node));
        let under_way = running.is_some_and(|(_, node)| tables.lives(node, now));
        if under_way && !tables.has(Planted::TwoRunsOfAJob) {
            return Ok(Begun::Running);
        }
        if let Why::Time { seen, .. } = start.why
            && (job.paused || job.next_run != seen)
        {
            return Ok(Begun::NotDue);
        }
        if let Some((dead, _)) = running {
            tables.jobs.end(dead, RunOutcome::Interrupted, now);
        }
        tables.jobs.last_run += 1;
        let number = tables.jobs.last_run;
        let (next_run, started_by) = match start.why {
            Why::Time { next_run, .. } => (next_run, None),
            Why::Asked { by } => (job.next_run, Some(by)),
        };
        let JobStart { name, node, node_name, .. } = start;
        tables.jobs.jobs.insert(name.clone(), Job { next_run, ..job });
        let run = JobRun { number, started_at: now, end: None, node, node_name, started_by };
        tables.jobs.runs.insert(number, (name, run));
        if let Some(audit) = audit {
            tables.write_audit(audit, 1, 1);
        }
        Ok(Begun::Started { run: number })
    }

    async fn finish_job(&self, run: i64, outcome: RunOutcome, now: Timestamp) -> Result<bool> {
        Ok(self.lock().jobs.end(run, outcome, now))
    }

    async fn pause_job(
        &self,
        name: String,
        paused: bool,
        next_run: Option<Timestamp>,
        audit: Audit,
    ) -> Result<bool> {
        let mut tables = self.lock();
        let Some(job) = tables.jobs.jobs.get_mut(&name) else { return Ok(false) };
        (job.paused, job.next_run) = (paused, next_run);
        tables.write_audit(audit, 1, 1);
        Ok(true)
    }

    async fn job_runs(&self, name: String, before: Option<i64>, limit: usize) -> Result<Page<JobRun, i64>> {
        let tables = self.lock();
        let older = |(number, (job, _)): &(&i64, &(String, JobRun))| {
            *job == name && before.is_none_or(|before| **number < before)
        };
        let rows = tables.jobs.runs.iter().rev().filter(older).take(limit);
        let rows: Vec<JobRun> = rows.map(|(_, (_, run))| run.clone()).collect();
        let next = rows.last().filter(|_| rows.len() == limit).map(|run| run.number);
        Ok(Page { rows, next })
    }
}
