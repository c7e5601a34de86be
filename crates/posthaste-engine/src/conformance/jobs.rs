//! Jobs and their runs.

use std::time::Duration;

use posthaste_core::filter::AuditFilter;
use posthaste_core::job::RunOutcome;
use posthaste_core::lease::NodeId;
use posthaste_core::time::Timestamp;

use super::scene::{Scene, at, audit};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Begun, JobPlan, JobStart, JobView, RunEnd, Why};

pub(super) const PROMISES: &[Promise] = list![
    a_job_is_planned_once_and_again_when_its_expression_changes,
    a_time_is_run_once_by_whoever_is_first,
    a_job_has_one_run_at_a_time_and_a_run_of_a_dead_node_is_interrupted,
    a_run_that_was_taken_for_interrupted_cannot_finish,
    a_paused_job_runs_only_when_it_is_asked_for,
    runs_are_listed_newest_first,
];

/// How long a node of these tests lives without a heartbeat.
const HOLD: Duration = Duration::from_secs(60);

const NAME: &str = "dead-letter-cleanup";

fn plan(name: &str, cron: Option<&str>, second: i64) -> JobPlan {
    JobPlan { name: name.to_owned(), cron: cron.map(str::to_owned), next_run: cron.map(|_| at(second)) }
}

fn timed(node: NodeId, seen: i64, next: i64) -> JobStart {
    let why = Why::Time { seen: Some(at(seen)), next_run: Some(at(next)) };
    JobStart { name: NAME.to_owned(), node, node_name: "n".to_owned(), why }
}

fn asked(node: NodeId) -> JobStart {
    let why = Why::Asked { by: "ops".to_owned() };
    JobStart { name: NAME.to_owned(), node, node_name: "n".to_owned(), why }
}

async fn join(scene: &Scene) -> Result<NodeId, Broken> {
    Ok(scene.store.join("n".to_owned(), HOLD, at(0)).await?.node)
}

fn started(begun: Begun) -> Result<i64, Broken> {
    match begun {
        Begun::Started { run } => Ok(run),
        other => Err(Broken::at_caller(format!("expected a run, found {other:?}"))),
    }
}

async fn one(scene: &Scene, now: Timestamp) -> Result<JobView, Broken> {
    let mut all = scene.store.jobs(now).await?;
    same("the number of jobs", all.len(), 1)?;
    Ok(all.remove(0))
}

async fn a_job_is_planned_once_and_again_when_its_expression_changes(scene: Scene) -> Kept {
    same("at first", scene.store.jobs(at(0)).await?, [])?;
    let plans = vec![plan("b", Some("0 * * * *"), 10), plan("a", None, 0)];
    scene.store.plan_jobs(plans).await?;
    scene.store.plan_jobs(vec![plan("b", Some("0 * * * *"), 99)]).await?;
    let all = scene.store.jobs(at(0)).await?;
    let shown: Vec<_> =
        all.iter().map(|job| (job.name.as_str(), job.cron.as_deref(), job.next_run)).collect();
    same("by name", shown, [("a", None, None), ("b", Some("0 * * * *"), Some(at(10)))])?;
    scene.store.plan_jobs(vec![plan("b", Some("5 * * * *"), 50), plan("a", None, 0)]).await?;
    let all = scene.store.jobs(at(0)).await?;
    same("a new expression", (all[1].cron.as_deref(), all[1].next_run), (Some("5 * * * *"), Some(at(50))))?;
    scene.store.plan_jobs(vec![plan("b", None, 0)]).await?;
    let all = scene.store.jobs(at(0)).await?;
    same("none any more", (all[1].cron.as_deref(), all[1].next_run), (None, None))
}

async fn a_time_is_run_once_by_whoever_is_first(scene: Scene) -> Kept {
    let (one_node, other) = (join(&scene).await?, join(&scene).await?);
    same("unknown", scene.store.begin_job(asked(one_node), None, at(1)).await?, Begun::Unknown)?;
    scene.store.plan_jobs(vec![plan(NAME, Some("0 * * * *"), 10)]).await?;
    let early = scene.store.begin_job(timed(one_node, 11, 20), None, at(1)).await?;
    same("not as seen", early, Begun::NotDue)?;
    let run = started(scene.store.begin_job(timed(one_node, 10, 20), None, at(1)).await?)?;
    let while_it_runs = scene.store.begin_job(timed(other, 20, 30), None, at(1)).await?;
    same("while it runs", while_it_runs, Begun::Running)?;
    same("it ends", scene.store.finish_job(run, RunOutcome::Done { count: 7 }, at(2)).await?, true)?;
    let late = scene.store.begin_job(timed(other, 10, 20), None, at(3)).await?;
    same("who comes late", late, Begun::NotDue)?;
    let job = one(&scene, at(3)).await?;
    same("the next time", job.next_run, Some(at(20)))?;
    let last = job.last_run.map(|run| (run.number, run.started_at, run.end, run.node, run.started_by));
    let end = Some(RunEnd { at: at(2), outcome: RunOutcome::Done { count: 7 } });
    same("the last run", last, Some((run, at(1), end, one_node, None)))
}

async fn a_job_has_one_run_at_a_time_and_a_run_of_a_dead_node_is_interrupted(scene: Scene) -> Kept {
    let (dies, lives) = (join(&scene).await?, join(&scene).await?);
    scene.store.plan_jobs(vec![plan(NAME, Some("0 * * * *"), 1)]).await?;
    let first = started(scene.store.begin_job(timed(dies, 1, 100), None, at(1)).await?)?;
    let running = one(&scene, at(2)).await?.running.map(|running| (running.run.number, running.alive));
    same("under way", running, Some((first, true)))?;
    same("one at a time", scene.store.begin_job(asked(lives), None, at(2)).await?, Begun::Running)?;
    // The time of both is up; one goes on.
    scene.store.heartbeat(lives, HOLD, at(1_000)).await?;
    let running = one(&scene, at(1_000)).await?.running.map(|running| (running.run.number, running.alive));
    same("its node is dead", running, Some((first, false)))?;
    let second = started(scene.store.begin_job(timed(lives, 100, 200), None, at(1_000)).await?)?;
    let page = scene.store.job_runs(NAME.to_owned(), None, 10).await?;
    let shown: Vec<_> = page.rows.into_iter().map(|run| (run.number, run.end)).collect();
    let interrupted = Some(RunEnd { at: at(1_000), outcome: RunOutcome::Interrupted });
    same("both runs", shown, [(second, None), (first, interrupted)])?;
    // A node that leaves is gone at once.
    scene.store.leave(lives).await?;
    let running = one(&scene, at(1_000)).await?.running.map(|running| (running.run.number, running.alive));
    same("its node left", running, Some((second, false)))
}

async fn a_run_that_was_taken_for_interrupted_cannot_finish(scene: Scene) -> Kept {
    let (slow, other) = (join(&scene).await?, join(&scene).await?);
    scene.store.plan_jobs(vec![plan(NAME, None, 0)]).await?;
    let first = started(scene.store.begin_job(asked(slow), None, at(1)).await?)?;
    scene.store.heartbeat(other, HOLD, at(1_000)).await?;
    let second = started(scene.store.begin_job(asked(other), None, at(1_000)).await?)?;
    let late = scene.store.finish_job(first, RunOutcome::Done { count: 1 }, at(1_001)).await?;
    same("the first one", late, false)?;
    let failed = RunOutcome::failed(2, "it broke");
    same("the second one", scene.store.finish_job(second, failed.clone(), at(1_002)).await?, true)?;
    same("twice", scene.store.finish_job(second, failed.clone(), at(1_003)).await?, false)?;
    same("unknown", scene.store.finish_job(second + 100, failed.clone(), at(1_003)).await?, false)?;
    let last = one(&scene, at(1_004)).await?.last_run;
    same("the last run", last.and_then(|run| run.end), Some(RunEnd { at: at(1_002), outcome: failed }))
}

async fn a_paused_job_runs_only_when_it_is_asked_for(scene: Scene) -> Kept {
    let node = join(&scene).await?;
    scene.store.plan_jobs(vec![plan(NAME, Some("0 * * * *"), 5)]).await?;
    let unknown = scene.store.pause_job("x".to_owned(), true, None, audit("pause-job")).await?;
    same("unknown", unknown, false)?;
    scene.store.pause_job(NAME.to_owned(), true, Some(at(5)), audit("pause-job")).await?;
    let by_time = scene.store.begin_job(timed(node, 5, 9), None, at(6)).await?;
    same("by time", by_time, Begun::NotDue)?;
    let run = started(scene.store.begin_job(asked(node), Some(audit("run-job")), at(6)).await?)?;
    scene.store.finish_job(run, RunOutcome::Done { count: 0 }, at(7)).await?;
    let job = one(&scene, at(7)).await?;
    same("still paused", (job.paused, job.next_run), (true, Some(at(5))))?;
    same("by whom", job.last_run.and_then(|run| run.started_by).as_deref(), Some("ops"))?;
    scene.store.pause_job(NAME.to_owned(), false, Some(at(9)), audit("resume-job")).await?;
    started(scene.store.begin_job(timed(node, 9, 12), None, at(9)).await?)?;
    let rows = scene.store.audit(AuditFilter::default(), None, 10).await?.rows;
    let actions: Vec<String> = rows.into_iter().map(|row| row.audit.action).collect();
    same("the audit", actions, ["resume-job", "run-job", "pause-job"])
}

async fn runs_are_listed_newest_first(scene: Scene) -> Kept {
    let node = join(&scene).await?;
    scene.store.plan_jobs(vec![plan(NAME, None, 0), plan("other", None, 0)]).await?;
    let mut made = vec![];
    for second in 0..3 {
        let other = JobStart { name: "other".to_owned(), ..asked(node) };
        let run = started(scene.store.begin_job(other, None, at(second)).await?)?;
        scene.store.finish_job(run, RunOutcome::Done { count: 0 }, at(second)).await?;
        let run = started(scene.store.begin_job(asked(node), None, at(second)).await?)?;
        scene.store.finish_job(run, RunOutcome::Done { count: 0 }, at(second)).await?;
        made.insert(0, run);
    }
    let first = scene.store.job_runs(NAME.to_owned(), None, 2).await?;
    same("a page", first.rows.iter().map(|run| run.number).collect::<Vec<_>>(), &made[..2])?;
    same("its cursor", first.next, Some(made[1]))?;
    let second = scene.store.job_runs(NAME.to_owned(), first.next, 2).await?;
    same("the rest", second.rows.iter().map(|run| run.number).collect::<Vec<_>>(), &made[2..])?;
    same("the end", second.next, None)
}
