//! The jobs `retention` and `dead-letter-cleanup`: what has outlived its period goes, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::job::{Job, RunOutcome, Schedule};
use posthaste_core::retention::Periods;
use posthaste_core::state::State;
use posthaste_engine::jobs::JobSettings;
use posthaste_engine::store::{Jobs, Reads};

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, ada, http, notification, pass, secs, send};

const HOUR: u64 = 3_600;

/// A rig whose jobs of retention run each hour, with the periods of the specification but for these.
fn rig(periods: Periods) -> Rig {
    let mut rig = Rig::new();
    let schedule = |job| (job, Some(Schedule::parse("0 * * * *").unwrap()));
    rig.settings.jobs = JobSettings {
        schedules: [Job::DeadLetterCleanup, Job::Retention].map(schedule).into(),
        expire_failed_after: secs(HOUR),
    };
    rig.settings.retention = periods;
    rig
}

fn removed(rig: &Rig, id: NotificationId) -> bool {
    rig.model.inspect(|tables| !tables.notifications.contains_key(&id) && !tables.events.contains_key(&id))
}

#[tokio::test(start_paused = true)]
async fn what_was_delivered_goes_after_its_period_and_its_attempts_before() {
    let rig = rig(Periods { delivered: secs(3 * HOUR), attempts: secs(HOUR), ..Periods::default() });
    let node = rig.start().await;
    let old = send(&node, notification(&node, "a", PLAIN)).await;
    pass(secs(2 * HOUR)).await;
    let history = rig.model.history(old).await.unwrap();
    assert_eq!((rig.state(old).await, history.attempts.len()), (State::Succeeded, 0));
    pass(secs(HOUR)).await;
    let young = send(&node, notification(&node, "a", PLAIN)).await;
    pass(secs(HOUR)).await;
    assert!(removed(&rig, old));
    assert_eq!(rig.state(young).await, State::Succeeded);
    assert_eq!(rig.model.drift(), None);
    let rows = rig.audit();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            (row.audit.actor.as_str(), row.audit.action.as_str(), row.audit.target.as_str(), row.count)
        })
        .collect();
    assert_eq!(shown[..2], [("posthaste", "remove", "attempts", 1), ("posthaste", "remove", "delivered", 1)]);
    let told: Vec<_> = node.metrics().removed.into_iter().filter(|(_, rows)| *rows > 0).collect();
    assert!(told.iter().any(|(kind, rows)| (kind.name(), *rows) == ("delivered", 1)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_nobody_resolves_stays_for_ever_unless_a_period_is_set() {
    for (after, shown) in [(None, true), (Some(secs(2 * HOUR)), false)] {
        let short = secs(HOUR);
        let rig = rig(Periods {
            purge_pending_after: after,
            failed: short,
            dead_letters: short,
            dead_letters_restorable: short,
            ..Periods::default()
        });
        rig.always("a", Script::Answer(http(400)));
        let node = rig.start().await;
        let id = send(&node, notification(&node, "a", PLAIN)).await;
        pass(secs(3 * HOUR)).await;
        let letter = rig.dead_letter(id).await;
        assert_eq!(letter.deleted_at.is_none(), shown);
        if !shown {
            assert_eq!(rig.state(id).await, State::Failed);
            node.restore(letter.id, &ada()).await.unwrap();
            assert_eq!(rig.state(id).await, State::DeadLetter);
            pass(secs(HOUR)).await;
            assert_eq!(rig.dead_letter(id).await.deleted_at, None, "its period counts from the restoration");
        }
        pass(secs(6 * HOUR)).await;
        assert_eq!(removed(&rig, id), !shown, "purged with its notification, or kept");
        assert_eq!(rig.model.drift(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_dead_letter_comes_back_as_it_was() {
    let rig = rig(Periods { dead_letters: secs(HOUR), ..Periods::default() });
    rig.always("a", Script::Answer(http(400)));
    let node = rig.start().await;
    let id = send(&node, notification(&node, "a", PLAIN)).await;
    pass(secs(1)).await;
    let letter = rig.dead_letter(id).await;
    node.discard(letter.id, &ada()).await.unwrap();
    let discarded = rig.dead_letter(id).await;
    pass(secs(2 * HOUR)).await;
    assert!(rig.dead_letter(id).await.deleted_at.is_some());
    node.restore(letter.id, &ada()).await.unwrap();
    let back = rig.dead_letter(id).await;
    assert_eq!(
        (back.status, back.resolved_at, back.deleted_at),
        (discarded.status, discarded.resolved_at, None)
    );
    node.restore(letter.id, &ada()).await.unwrap();
    assert_eq!(rig.state(id).await, State::DeadLetter, "the second time it is pending again");
    assert_eq!(rig.audit().iter().filter(|row| row.audit.action == "restore").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_failed_half_way_is_gone_on_with() {
    let mut rig = rig(Periods { delivered: secs(HOUR), ..Periods::default() });
    rig.settings.jobs.schedules = vec![(Job::Retention, Some(Schedule::parse("0 * * * *").unwrap()))];
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let node = rig.start_on(faulty.clone()).await;
    for _ in 0..600 {
        send(&node, notification(&node, "a", PLAIN)).await;
    }
    pass(secs(HOUR)).await;
    // The first answer of a run is about attempts, the second and third about deliveries.
    faulty.next(
        "prune",
        [Trouble::DoneLate(Duration::ZERO), Trouble::DoneLate(Duration::ZERO), Trouble::Nonsense],
    );
    pass(secs(HOUR)).await;
    let left = rig.model.inspect(|tables| tables.notifications.len());
    assert!(left > 0 && left < 600, "{left} are left");
    pass(Duration::from_secs(HOUR)).await;
    assert_eq!(rig.model.inspect(|tables| tables.notifications.len()), 0);
    let runs = rig.model.job_runs("retention".to_owned(), None, 100).await.unwrap().rows;
    let failed = |outcome: &RunOutcome| matches!(outcome, RunOutcome::Failed { .. });
    assert_eq!(runs.iter().filter(|run| run.end.as_ref().is_some_and(|end| failed(&end.outcome))).count(), 1);
    let counts: u64 =
        rig.audit().iter().filter(|row| row.audit.target == "delivered").map(|row| row.count).sum();
    assert_eq!(counts, 600);
}
