//! Jobs: one node runs each, at its time, and a run that is lost is repeated.

use std::sync::Arc;

use posthaste_core::job::{Job, RunOutcome, Schedule};
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::jobs::{JobError, JobSettings};
use posthaste_engine::store::{Begun, JobRun, JobStart, Jobs, Nodes, Why};

use super::PLAIN;
use crate::rig::{BEGIN, FaultyStore, Rig, Script, Trouble, ada, http, ms, notification, pass, secs, send};

/// A rig with one job, which runs at the full hour. The first is 46 minutes and 40 seconds after the start.
fn rig(job: Job) -> Rig {
    let mut rig = Rig::new();
    rig.settings.jobs = JobSettings {
        schedules: vec![(job, Some(Schedule::parse("0 * * * *").unwrap()))],
        expire_failed_after: secs(86_400),
    };
    rig
}

const FIRST: u64 = 46 * 60 + 40;

async fn runs(rig: &Rig, job: Job) -> Vec<JobRun> {
    rig.model.job_runs(job.name().to_owned(), None, 100).await.unwrap().rows
}

/// When runs started, in seconds since the start, and how they ended; the first one first.
async fn history(rig: &Rig, job: Job) -> Vec<(u64, Option<RunOutcome>)> {
    let shown = |run: JobRun| (run.started_at.since(BEGIN).as_secs(), run.end.map(|end| end.outcome));
    runs(rig, job).await.into_iter().rev().map(shown).collect()
}

fn done(count: u64) -> Option<RunOutcome> {
    Some(RunOutcome::Done { count })
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_at_its_times_once_in_the_whole_cluster() {
    let rig = rig(Job::RetryExpire);
    let nodes = [rig.start().await, rig.start().await, rig.start().await];
    pass(secs(FIRST - 1)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await, []);
    pass(secs(2 * 3_600 + 60)).await;
    let times = [FIRST, FIRST + 3_600, FIRST + 7_200];
    assert_eq!(history(&rig, Job::RetryExpire).await, times.map(|time| (time, done(0))));
    let view = nodes[0].job(Job::RetryExpire).await.unwrap();
    assert_eq!(view.next_run, Some(BEGIN.later(secs(FIRST + 3 * 3_600))));
    let told: u64 = nodes.iter().flat_map(|node| node.metrics().job_runs).map(|(_, done, _)| done).sum();
    assert_eq!(told, 3);
}

#[tokio::test(start_paused = true)]
async fn every_job_is_known_as_soon_as_the_engine_has_started() {
    let rig = rig(Job::RetryExpire);
    let node = rig.start().await;
    let names: Vec<String> = node.jobs().await.unwrap().into_iter().map(|job| job.name).collect();
    assert_eq!(names, [Job::RetryExpire.name()]);
}

#[tokio::test(start_paused = true)]
async fn times_that_passed_while_no_node_ran_are_made_up_for_once() {
    let rig = rig(Job::RetryExpire);
    let node = rig.start().await;
    pass(secs(1)).await;
    drop(node);
    pass(secs(FIRST + 5 * 3_600)).await;
    let _node = rig.start().await;
    pass(secs(60)).await;
    let late = history(&rig, Job::RetryExpire).await;
    assert_eq!(late.len(), 1, "{late:?}");
    pass(secs(3_600)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_waits_and_goes_on_from_its_next_time() {
    let rig = rig(Job::RetryExpire);
    let node = rig.start().await;
    pass(secs(1)).await;
    assert!(node.pause_job(Job::RetryExpire, &ada()).await.unwrap().paused);
    pass(secs(FIRST + 3_600)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await, []);
    let run = node.run_job(Job::RetryExpire, &ada()).await.unwrap();
    pass(secs(1)).await;
    let asked = &runs(&rig, Job::RetryExpire).await[0];
    assert_eq!((asked.number, asked.started_by.as_deref()), (run, Some("ada")));
    let resumed = node.resume_job(Job::RetryExpire, &ada()).await.unwrap();
    assert_eq!(resumed.next_run, Some(BEGIN.later(secs(FIRST + 2 * 3_600))));
    pass(secs(3_600)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await.len(), 2);
    let actions: Vec<String> = rig.audit().into_iter().map(|row| row.audit.action).collect();
    assert_eq!(actions, ["pause-job", "run-job", "resume-job"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_under_way_is_not_started_again() {
    let rig = rig(Job::RetryExpire);
    let node = rig.start().await;
    pass(secs(1)).await;
    let other = rig.model.join("other".to_owned(), secs(86_400), node.now()).await.unwrap().node;
    // A run of the other node that takes long.
    let start = JobStart {
        name: Job::RetryExpire.name().to_owned(),
        node: other,
        node_name: "other".to_owned(),
        why: Why::Asked { by: "eve".to_owned() },
    };
    let begun = rig.model.begin_job(start, None, node.now()).await.unwrap();
    let Begun::Started { run } = begun else { panic!("{begun:?}") };
    let refused = node.run_job(Job::RetryExpire, &ada()).await;
    assert!(matches!(refused, Err(JobError::Running(Job::RetryExpire))), "{refused:?}");
    pass(secs(FIRST + 600)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await, [(1, None)]);
    // Once it has ended, the time that passed is made up for.
    assert!(rig.model.finish_job(run, RunOutcome::Done { count: 0 }, node.now()).await.unwrap());
    pass(secs(60)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_node_died_is_interrupted_and_repeated_by_another() {
    let rig = rig(Job::RetryExpire);
    let node = rig.start().await;
    pass(secs(1)).await;
    let dead = rig.model.join("dead".to_owned(), secs(12), node.now()).await.unwrap().node;
    let why = Why::Asked { by: "eve".to_owned() };
    let start = JobStart { name: "retry-expire".to_owned(), node: dead, node_name: "dead".to_owned(), why };
    rig.model.begin_job(start, None, node.now()).await.unwrap();
    pass(secs(120)).await;
    let history = history(&rig, Job::RetryExpire).await;
    assert_eq!(history.len(), 2, "{history:?}");
    assert_eq!(history[0], (1, Some(RunOutcome::Interrupted)));
    // Not before a minute after the start, and what the dead node held is nothing.
    assert!((61..=95).contains(&history[1].0) && history[1].1.is_some(), "{history:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_says_why_and_the_next_one_comes() {
    let rig = rig(Job::RetryExpire);
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let node: Engine = rig.start_on(faulty.clone()).await;
    pass(secs(1)).await;
    // Only the job asks for the nodes.
    faulty.next("nodes", [Trouble::Nonsense]);
    node.run_job(Job::RetryExpire, &ada()).await.unwrap();
    pass(secs(1)).await;
    let outcome = runs(&rig, Job::RetryExpire).await[0].end.clone().map(|end| end.outcome);
    assert!(matches!(&outcome, Some(RunOutcome::Failed { error, .. }) if !error.is_empty()), "{outcome:?}");
    pass(secs(FIRST)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await[1], (FIRST, done(0)));
    let counted: Vec<_> =
        node.metrics().job_runs.into_iter().filter(|run| (run.1, run.2) != (0, 0)).collect();
    assert_eq!(counted, [(Job::RetryExpire, 1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_a_store_that_does_not_serve_for_a_moment_and_not_for_ever() {
    let rig = rig(Job::RetryExpire);
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let node: Engine = rig.start_on(faulty.clone()).await;
    pass(secs(1)).await;
    faulty.refuse(&["nodes"]);
    node.run_job(Job::RetryExpire, &ada()).await.unwrap();
    pass(secs(50)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await, [(1, None)]);
    faulty.refuse(&[]);
    pass(secs(2)).await;
    assert_eq!(history(&rig, Job::RetryExpire).await, [(1, done(0))]);
    faulty.refuse(&["nodes"]);
    node.run_job(Job::RetryExpire, &ada()).await.unwrap();
    pass(secs(65)).await;
    let outcome = runs(&rig, Job::RetryExpire).await[0].end.clone().map(|end| end.outcome);
    assert!(matches!(outcome, Some(RunOutcome::Failed { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_gets_further_is_not_given_up() {
    let mut rig = rig(Job::ExpireFailed);
    rig.settings.batch = 1;
    rig.always("a", Script::Answer(http(400)));
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let node: Engine = rig.start_on(faulty.clone()).await;
    for _ in 0..4 {
        send(&node, notification(&node, "a", PLAIN)).await;
    }
    pass(secs(86_400 + 600)).await;
    // Three times it gets no further for 40 s, each time after one more.
    for _ in 0..3 {
        faulty.next("transition", [Trouble::ToldLate(ms(1))]);
        faulty.next("transition", [Trouble::Refuse; 40]);
    }
    node.run_job(Job::ExpireFailed, &ada()).await.unwrap();
    pass(secs(150)).await;
    let runs = runs(&rig, Job::ExpireFailed).await;
    let outcome = runs[0].end.clone().map(|end| end.outcome);
    assert_eq!(outcome, done(4));
    assert!(node.now().since(runs[0].started_at) > secs(120));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_start_was_answered_as_an_error_is_worked_on_by_its_node() {
    let rig = rig(Job::RetryExpire);
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let node: Engine = rig.start_on(faulty.clone()).await;
    pass(secs(1)).await;
    let late = Trouble::Stall { told: secs(5), done: secs(40) };
    for trouble in [Trouble::Lie, late] {
        faulty.next("begin_job", [trouble]);
        assert!(matches!(node.run_job(Job::RetryExpire, &ada()).await, Err(JobError::Store(_))));
        pass(secs(80)).await;
    }
    // The one that its schedule asks for.
    faulty.next("begin_job", [Trouble::Lie]);
    pass(secs(FIRST)).await;
    let ends: Vec<_> = history(&rig, Job::RetryExpire).await.into_iter().map(|(_, end)| end).collect();
    assert_eq!(ends, [done(0), done(0), done(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_began_is_worked_on_though_the_next_job_cannot_begin() {
    let mut rig = rig(Job::RetryExpire);
    rig.settings.jobs.schedules.push((Job::RetryProcessor, Some(Schedule::parse("0 * * * *").unwrap())));
    let store = Arc::new(FaultyStore::on(&rig.model));
    let _node = rig.start_on(store.clone()).await;
    pass(secs(FIRST - 1)).await;
    // The first of the two begins.
    store.next("begin_job", [Trouble::ToldLate(ms(1)), Trouble::Refuse]);
    pass(secs(30)).await;
    assert_eq!(store.calls("begin_job"), 3);
    assert_eq!(history(&rig, Job::RetryExpire).await, [(FIRST, done(0))]);
    let other = history(&rig, Job::RetryProcessor).await;
    assert_eq!((other.len(), other[0].1.clone()), (1, done(0)), "{other:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_taken_for_dead_drops_its_run_and_one_node_repeats_it() {
    let mut rig = rig(Job::RetryExpire);
    rig.settings.hold = secs(4);
    rig.settings.beat = secs(1);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let slow = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(1)).await;
    let before = slow.node_id();
    // A run that takes ten minutes.
    store.next("nodes", [Trouble::ToldLate(secs(600))]);
    slow.run_job(Job::RetryExpire, &ada()).await.unwrap();
    store.refuse(&["heartbeat"]);
    pass(secs(15)).await;
    store.refuse(&[]);
    pass(secs(5)).await;
    assert_ne!(slow.node_id(), before, "it joined again");
    pass(secs(120)).await;
    let all = history(&rig, Job::RetryExpire).await;
    assert_eq!((all.len(), all[0].1.clone()), (2, Some(RunOutcome::Interrupted)), "{all:?}");
    assert_eq!(all[1].1, done(0), "{all:?}");
    pass(secs(600)).await;
    // Nothing of the first run goes on.
    let ends = [&slow, &other].map(|node| node.metrics().job_runs);
    let ends: u64 = ends.iter().flatten().map(|(_, done, failed)| done + failed).sum();
    assert_eq!(ends, 1);
}

#[tokio::test(start_paused = true)]
async fn expire_failed_discards_what_is_older_than_its_age_and_nothing_else() {
    let mut rig = rig(Job::ExpireFailed);
    rig.settings.batch = 3;
    rig.always("a", Script::Answer(http(400)));
    let node = rig.start().await;
    let (mut old, mut young) = (vec![], vec![]);
    for _ in 0..10 {
        old.push(send(&node, notification(&node, "a", PLAIN)).await);
    }
    pass(secs(86_400)).await;
    for _ in 0..4 {
        young.push(send(&node, notification(&node, "a", PLAIN)).await);
    }
    pass(secs(3_600)).await;
    for id in old {
        assert_eq!(rig.state(id).await, State::Failed);
    }
    for id in young {
        assert_eq!(rig.state(id).await, State::DeadLetter);
    }
    let last = history(&rig, Job::ExpireFailed).await;
    assert_eq!(last.iter().filter(|(_, end)| *end == done(10)).count(), 1, "{last:?}");
    let rows = rig.audit();
    assert!(rows.iter().all(|row| row.audit.actor == "posthaste" && row.audit.action == "discard"));
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 10);
}
