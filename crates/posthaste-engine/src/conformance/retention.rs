//! What is removed because of its age, and what is not.

use std::time::Duration;

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::{AuditFilter, Filter, LetterStatus};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::job::RunOutcome;
use posthaste_core::notification::Notification;
use posthaste_core::operation::{Action, OperationChange};
use posthaste_core::reason::Reason;
use posthaste_core::retention::{Kind, LOOKED_AT};
use posthaste_core::state::{Lane, State};

use super::scene::{Scene, at, audit, burial, failed_attempt, good_attempt};
use super::{Broken, Kept, Promise, list, operations, same};
use crate::store::{
    Act, Audit, DeadLetterView, Ending, History, JobPlan, JobRun, JobStart, Next, Prune, Pruned, Rest,
    Settled, Settlement, Stats, Why,
};

pub(super) const PROMISES: &[Promise] = list![
    what_has_outlived_its_period_is_removed_with_everything_that_belongs_to_it,
    what_lives_or_is_a_pending_dead_letter_is_never_removed,
    what_ended_long_after_its_acceptance_is_found_by_a_later_pass,
    a_notification_stays_while_a_dead_letter_names_it,
    what_an_operation_names_stays_until_it_is_finished,
    a_pass_goes_on_where_it_was_and_is_audited_once,
    attempts_are_removed_before_their_notification_and_a_dead_letter_keeps_its_own,
    resolved_dead_letters_are_deleted_and_come_back_as_they_were,
    a_pending_dead_letter_that_is_deleted_comes_back_pending,
    old_audit_rows_are_removed_oldest_first,
    old_runs_are_removed_and_numbers_are_not_given_again,
    counters_of_old_hours_are_removed_and_the_figures_stay,
];

const DAY: i64 = 86_400;
/// Later than everything that these promises make.
const LATER: i64 = 1_000 * DAY;

fn chunk(kind: Kind, cut_off: i64, limit: usize) -> Prune {
    Prune { kind, cut_off: at(cut_off), limit, now: at(LATER) }
}

/// Makes whole passes until nothing is left to remove. Returns how many rows were removed.
async fn prune(scene: &Scene, kind: Kind, cut_off: i64) -> Result<u64, Broken> {
    let mut all = 0;
    for _ in 0..1_000 {
        let Pruned { removed, done } = scene.store.prune(chunk(kind, cut_off, 100), audit("prune")).await?;
        all += removed;
        if done {
            return Ok(all);
        }
    }
    Err(Broken::at_caller("a pass has no end"))
}

/// The notifications of a list.
async fn listed(scene: &Scene, filter: Filter) -> Result<Vec<NotificationId>, Broken> {
    let page = scene.store.page(filter, None, 1_000).await?;
    same("the next page", page.next, None)?;
    Ok(page.rows.into_iter().map(|view| view.notification.id).collect())
}

async fn letters(scene: &Scene, status: LetterStatus) -> Result<Vec<DeadLetterId>, Broken> {
    let filter = Filter { statuses: vec![status], ..Filter::default() };
    let page = scene.store.dead_letters(filter, None, 1_000).await?;
    Ok(page.rows.into_iter().map(|letter| letter.id).collect())
}

async fn letter(scene: &Scene, id: DeadLetterId) -> Result<DeadLetterView, Broken> {
    scene.store.dead_letter(id).await?.ok_or_else(|| Broken::at_caller(format!("{id} is not there")))
}

/// The dead letter that a notification ended as.
async fn letter_of(scene: &Scene, notification: &Notification) -> Result<DeadLetterId, Broken> {
    let letter = scene.facts(notification.id).await?.standing.letter();
    letter.map(|(id, _)| id).ok_or_else(|| Broken::at_caller("it has no dead letter"))
}

const REMOVED: [(Kind, State); 4] = [
    (Kind::Delivered, State::Succeeded),
    (Kind::Failed, State::Failed),
    (Kind::Cancelled, State::Cancelled),
    (Kind::Expired, State::Expired),
];

async fn what_has_outlived_its_period_is_removed_with_everything_that_belongs_to_it(
    mut scene: Scene,
) -> Kept {
    let before = scene.store.stats(None, at(100)).await?;
    for (kind, state) in REMOVED {
        let (one, other) = (scene.in_state(state).await?, scene.in_state(state).await?);
        let all = listed(&scene, Filter::default()).await?;
        same("all", all.len(), 2)?;
        // They ended at second 10.
        same("too young", prune(&scene, kind, 10).await?, 0)?;
        for (other_kind, _) in REMOVED.into_iter().filter(|(other, _)| *other != kind) {
            same("of another outcome", prune(&scene, other_kind, LATER).await?, 0)?;
        }
        same("all stay", listed(&scene, Filter::default()).await?, all)?;
        same("removed", prune(&scene, kind, 11).await?, 2)?;
        for id in [one.id, other.id] {
            same("gone", scene.store.get(id).await?, None)?;
            same("its history", scene.store.history(id).await?, History::default())?;
            same("its facts", scene.store.facts(vec![id]).await?, [])?;
        }
        let tenant = Some(one.tenant.clone());
        let destinations = vec![one.destination.to_string()];
        let of_state = Filter { states: vec![state], ..Filter::default() };
        let of_flow = Filter { tenant: tenant.clone(), destinations, ..Filter::default() };
        for filter in [Filter::default(), Filter { tenant, ..Filter::default() }, of_state, of_flow] {
            same("a list", listed(&scene, filter).await?, [])?;
        }
        same("the counters", scene.store.stats(None, at(100)).await?, before.clone())?;
        same("again", prune(&scene, kind, LATER).await?, 0)?;
    }
    Ok(())
}

async fn what_lives_or_is_a_pending_dead_letter_is_never_removed(mut scene: Scene) -> Kept {
    let mut kept = vec![];
    for state in State::ALL.into_iter().filter(|state| !state.is_end() || *state == State::DeadLetter) {
        let notification = scene.in_state(state).await?;
        kept.push((notification.id, scene.all_of(notification.id).await?));
    }
    let all = listed(&scene, Filter::default()).await?;
    for kind in Kind::ALL.into_iter().filter(|kind| ![Kind::Attempts, Kind::Counters].contains(kind)) {
        same("removed", prune(&scene, kind, LATER).await?, 0)?;
    }
    for (id, before) in kept {
        same("it stays", scene.all_of(id).await?.0, before.0)?;
        same("its history stays", scene.store.history(id).await?, before.1)?;
    }
    same("the list", listed(&scene, Filter::default()).await?, all)
}

async fn what_ended_long_after_its_acceptance_is_found_by_a_later_pass(mut scene: Scene) -> Kept {
    let (late, lease) = scene.held().await?;
    let quick = scene.in_state(State::Succeeded).await?;
    same("what ended at once", prune(&scene, Kind::Delivered, 90 * DAY).await?, 1)?;
    same("the other lives", scene.state(&late).await?, State::Processing)?;
    let item = Settlement {
        id: late.id,
        lease,
        cancel_seen: false,
        attempt: Some(good_attempt(1, 1)),
        next: Next::End(Ending::Delivered),
    };
    same("100 days later", scene.store.settle(vec![item], at(100 * DAY)).await?, [Settled::Applied])?;
    same("it is young", prune(&scene, Kind::Delivered, 100 * DAY).await?, 0)?;
    same("its attempts too", prune(&scene, Kind::Attempts, 100 * DAY).await?, 0)?;
    same("its attempts", prune(&scene, Kind::Attempts, 101 * DAY).await?, 1)?;
    same("it is found", prune(&scene, Kind::Delivered, 101 * DAY).await?, 1)?;
    same("gone", (scene.store.get(late.id).await?, scene.store.get(quick.id).await?), (None, None))
}

async fn a_notification_stays_while_a_dead_letter_names_it(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::DeadLetter).await?;
    let grave = letter_of(&scene, &notification).await?;
    scene.does(&notification, Act::Requeue, None, at(20)).await?;
    let lease = scene.lease().await?;
    scene.claim(&notification, Lane::Main, lease, at(21)).await?;
    let delivered = Next::End(Ending::Delivered);
    let settled = scene.settle(notification.id, lease, Some(good_attempt(2, 1)), delivered).await?;
    same("delivered in the end", settled, Settled::Applied)?;
    same("a dead letter names it", prune(&scene, Kind::Delivered, LATER).await?, 0)?;
    same("soft-deleted", prune(&scene, Kind::RequeuedLetters, LATER).await?, 1)?;
    same("it still does", prune(&scene, Kind::Delivered, LATER).await?, 0)?;
    same("purged", prune(&scene, Kind::DeletedLetters, LATER + 1).await?, 1)?;
    same("gone", scene.store.dead_letter(grave).await?, None)?;
    same("now it is removed", prune(&scene, Kind::Delivered, LATER).await?, 1)?;
    let discarded = scene.discarded().await?;
    same("a discarded one", prune(&scene, Kind::Failed, LATER).await?, 0)?;
    same("soft-deleted", prune(&scene, Kind::DiscardedLetters, LATER).await?, 1)?;
    same("purged", prune(&scene, Kind::DeletedLetters, LATER + 1).await?, 1)?;
    same("without its letter", scene.view(discarded.id).await?.end.and_then(|end| end.dead_letter), None)?;
    same("now it is removed", prune(&scene, Kind::Failed, LATER).await?, 1)
}

async fn what_an_operation_names_stays_until_it_is_finished(mut scene: Scene) -> Kept {
    let delivered = scene.in_state(State::Succeeded).await?;
    let discarded = scene.discarded().await?;
    let operation = operations::new_operation(1, Action::Restore);
    let node = operations::staged(&scene, &operation, &[delivered.id, discarded.id]).await?;
    let removed = async |scene: &Scene| {
        let letters = prune(scene, Kind::DeletedLetters, LATER + 1).await?;
        Ok::<_, Broken>((letters, prune(scene, Kind::Delivered, LATER).await?))
    };
    same("soft-deleted", prune(&scene, Kind::DiscardedLetters, LATER).await?, 1)?;
    same("held", removed(&scene).await?, (0, 0))?;
    let cancel = OperationChange::Cancel { by: "bo".to_owned() };
    let stopped = scene.store.change_operation(operation.id, cancel, None, at(35)).await?;
    same("stopped", stopped.map(|made| made.is_ok()), Some(true))?;
    scene.store.skip_items(operation.id, node, Rest::Stopped(9), at(36)).await?;
    same("let go, not finished", removed(&scene).await?, (0, 0))?;
    same("finished", operations::finish(&scene, operation.id, node).await?.is_ok(), true)?;
    same("removed", removed(&scene).await?, (1, 1))?;
    same("the other", prune(&scene, Kind::Failed, LATER).await?, 1)
}

async fn a_pass_goes_on_where_it_was_and_is_audited_once(mut scene: Scene) -> Kept {
    let mut ids = vec![];
    for _ in 0..5 {
        ids.push(scene.in_state(State::Cancelled).await?.id);
    }
    let step = |kind| {
        let store = scene.store.clone();
        async move { store.prune(chunk(kind, 11, 2), audit("prune")).await }
    };
    same("the first two", step(Kind::Cancelled).await?, Pruned { removed: 2, done: false })?;
    same("the oldest first", listed(&scene, Filter::default()).await?, [ids[4], ids[3], ids[2]])?;
    same("another kind", step(Kind::Expired).await?, Pruned { removed: 0, done: true })?;
    same("the next two", step(Kind::Cancelled).await?, Pruned { removed: 2, done: false })?;
    same("no audit yet", scene.store.audit(AuditFilter::default(), None, 9).await?.rows.len(), 0)?;
    same("the last", step(Kind::Cancelled).await?, Pruned { removed: 1, done: true })?;
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    let shown: Vec<_> = rows.iter().map(|row| (row.audit.action.as_str(), row.asked, row.count)).collect();
    same("one row for the pass", shown, [("prune", 5, 5)])?;
    same("nothing left", step(Kind::Cancelled).await?, Pruned { removed: 0, done: true })?;
    same("nothing to audit", scene.store.audit(AuditFilter::default(), None, 9).await?.rows.len(), 1)?;
    // What cannot be removed is passed over, a bounded number at once.
    for _ in 0..=LOOKED_AT {
        scene.in_state(State::DeadLetter).await?;
    }
    let behind = scene.in_state(State::Succeeded).await?;
    let one = chunk(Kind::Delivered, 11, 1);
    same("looked at", scene.store.prune(one, audit("x")).await?, Pruned { removed: 0, done: false })?;
    same("found", scene.store.prune(one, audit("x")).await?, Pruned { removed: 1, done: false })?;
    same("gone", scene.store.get(behind.id).await?, None)?;
    same("the end", scene.store.prune(one, audit("x")).await?, Pruned { removed: 0, done: true })
}

async fn attempts_are_removed_before_their_notification_and_a_dead_letter_keeps_its_own(
    mut scene: Scene,
) -> Kept {
    let (failed, dead) = (scene.in_state(State::Failed).await?, scene.in_state(State::DeadLetter).await?);
    let waits = scene.in_state(State::RetryScheduled).await?;
    let (grave, before) = (letter_of(&scene, &dead).await?, scene.view(failed.id).await?);
    let own = letter(&scene, grave).await?;
    same("removed", prune(&scene, Kind::Attempts, 11).await?, 2)?;
    same("of the live one", scene.store.history(waits.id).await?.attempts, [failed_attempt(1, 1)])?;
    same("of the failed one", scene.store.history(failed.id).await?.attempts, [])?;
    let after = scene.view(failed.id).await?;
    same("how it ended stays", after.end.clone(), before.end)?;
    same("what its attempt said", after.last_error, None)?;
    let filter = Filter { status_codes: vec![503], states: vec![State::Failed], ..Filter::default() };
    same("it is still found by it", listed(&scene, filter).await?, [failed.id])?;
    same("the dead letter", letter(&scene, grave).await?, own)?;
    scene.does(&dead, Act::Requeue, None, at(20)).await?;
    let lease = scene.lease().await?;
    let again = scene.claim(&dead, Lane::Main, lease, at(21)).await?;
    same("requeued from its own snapshot", again.len(), 1)?;
    same("its content", &again[0].notification.content, &dead.content)?;
    let next = burial(scene.grave());
    let settled = scene.settle(dead.id, lease, Some(failed_attempt(2, 1)), next).await?;
    same("it dies again", settled, Settled::Applied)
}

async fn resolved_dead_letters_are_deleted_and_come_back_as_they_were(mut scene: Scene) -> Kept {
    let discarded = scene.discarded().await?;
    let grave = letter_of(&scene, &discarded).await?;
    let waiting = scene.in_state(State::DeadLetter).await?;
    let pending = letter_of(&scene, &waiting).await?;
    let before = letter(&scene, grave).await?;
    let notification = scene.view(discarded.id).await?;
    same("too young", prune(&scene, Kind::DiscardedLetters, 0).await?, 0)?;
    same("of another status", prune(&scene, Kind::RequeuedLetters, LATER).await?, 0)?;
    same("deleted", prune(&scene, Kind::DiscardedLetters, LATER).await?, 1)?;
    same("not in the list", letters(&scene, LetterStatus::Discarded).await?, [])?;
    same("the pending one", letters(&scene, LetterStatus::Pending).await?, [pending])?;
    same("among the deleted", letters(&scene, LetterStatus::Deleted).await?, [grave])?;
    let deleted = DeadLetterView { deleted_at: Some(at(LATER)), ..before.clone() };
    same("as it was but for that", letter(&scene, grave).await?, deleted)?;
    same("once", prune(&scene, Kind::DiscardedLetters, LATER).await?, 0)?;
    same("its notification", scene.view(discarded.id).await?, notification)?;
    same("not restored by an act", scene.act(&discarded, Act::Restore, None, at(LATER)).await?, false)?;
    let now = at(LATER + 5);
    let restore = Audit { at: now, ..audit("restore") };
    same("a pending one", scene.store.show_deleted(pending, restore.clone()).await?, false)?;
    same("no audit", scene.store.audit(AuditFilter::default(), None, 9).await?.rows.len(), 1)?;
    same("restored", scene.store.show_deleted(grave, restore.clone()).await?, true)?;
    same("audited", scene.store.audit(AuditFilter::default(), None, 9).await?.rows.len(), 2)?;
    let restored = DeadLetterView { restored_at: Some(now), ..before };
    same("as it was", letter(&scene, grave).await?, restored)?;
    same("twice", scene.store.show_deleted(grave, restore).await?, false)?;
    same("it counts from then", prune(&scene, Kind::DiscardedLetters, LATER + 5).await?, 0)?;
    same("deleted again", prune(&scene, Kind::DiscardedLetters, LATER + 6).await?, 1)?;
    same("too young to purge", prune(&scene, Kind::DeletedLetters, LATER).await?, 0)?;
    same("purged", prune(&scene, Kind::DeletedLetters, LATER + 1).await?, 1)?;
    same("gone", scene.store.dead_letter(grave).await?, None)?;
    same("from the lists", letters(&scene, LetterStatus::Deleted).await?, [])
}

async fn a_pending_dead_letter_that_is_deleted_comes_back_pending(mut scene: Scene) -> Kept {
    let dead = scene.in_state(State::DeadLetter).await?;
    let grave = letter_of(&scene, &dead).await?;
    let (before, view) = (letter(&scene, grave).await?, scene.view(dead.id).await?);
    let stats = scene.store.stats(None, at(100)).await?;
    scene.does(&dead, Act::Delete, None, at(30)).await?;
    let deleted = DeadLetterView { deleted_at: Some(at(30)), ..before.clone() };
    same("deleted", letter(&scene, grave).await?, deleted)?;
    same("not pending", letters(&scene, LetterStatus::Pending).await?, [])?;
    same("among the deleted", letters(&scene, LetterStatus::Deleted).await?, [grave])?;
    let failed = scene.view(dead.id).await?;
    let reason = failed.end.as_ref().and_then(|end| end.reason);
    same("given up", (failed.state, reason), (State::Failed, Some(Reason::Discarded)))?;
    let none = scene.store.stats(None, at(100)).await?.channels;
    same("not counted", none.iter().map(|(_, stats)| stats.in_dead_letter).sum::<u64>(), 0)?;
    same("not shown by itself", scene.store.show_deleted(grave, audit("x")).await?, false)?;
    scene.does(&dead, Act::Restore, None, at(40)).await?;
    let restored = DeadLetterView { restored_at: Some(at(40)), ..before };
    same("as it was", letter(&scene, grave).await?, restored)?;
    same("its notification", scene.view(dead.id).await?, view)?;
    same("the counters", scene.store.stats(None, at(100)).await?, stats)?;
    scene.does(&dead, Act::Delete, None, at(50)).await?;
    scene.does(&dead, Act::Retry, None, at(60)).await?;
    let retried = letter(&scene, grave).await?;
    same("a retry", (retried.status, retried.deleted_at), (DeadLetterStatus::Requeued, None))
}

async fn old_audit_rows_are_removed_oldest_first(scene: Scene) -> Kept {
    for second in 1..=4 {
        let row = Audit { at: at(second), ..audit("set") };
        scene.store.put_setting("name".to_owned(), Some(second.to_string()), row).await?;
    }
    let last = Audit { at: at(9), ..audit("prune") };
    let step = |cut_off, limit| scene.store.prune(chunk(Kind::Audit, cut_off, limit), last.clone());
    same("one", step(4, 1).await?, Pruned { removed: 1, done: false })?;
    same("the others", step(4, 9).await?, Pruned { removed: 2, done: true })?;
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    let shown: Vec<_> = rows.iter().map(|row| (row.number, row.audit.action.as_str(), row.count)).collect();
    same("what is left", shown, [(5, "prune", 3), (4, "set", 1)])
}

async fn old_runs_are_removed_and_numbers_are_not_given_again(scene: Scene) -> Kept {
    let node = scene.store.join("n".to_owned(), Duration::from_secs(60), at(0)).await?.node;
    let name = "retention".to_owned();
    scene.store.plan_jobs(vec![JobPlan { name: name.clone(), cron: None, next_run: None }]).await?;
    let begin = || {
        let why = Why::Asked { by: "ops".to_owned() };
        let start = JobStart { name: name.clone(), node, node_name: "n".to_owned(), why };
        scene.store.begin_job(start, None, at(1))
    };
    for second in [10, 20] {
        begin().await?;
        let number = scene.store.job_runs(name.clone(), None, 1).await?.rows[0].number;
        scene.store.finish_job(number, RunOutcome::Done { count: 0 }, at(second)).await?;
    }
    begin().await?;
    let step = |cut_off| scene.store.prune(chunk(Kind::JobRuns, cut_off, 9), audit("prune"));
    same("none is old", step(10).await?, Pruned { removed: 0, done: true })?;
    same("the first", step(20).await?, Pruned { removed: 1, done: true })?;
    same("not what is under way", step(LATER).await?, Pruned { removed: 1, done: true })?;
    let numbers = |rows: Vec<JobRun>| rows.iter().map(|run| run.number).collect::<Vec<_>>();
    let left = numbers(scene.store.job_runs(name.clone(), None, 9).await?.rows);
    same("it stays", left, [3])?;
    scene.store.finish_job(3, RunOutcome::Done { count: 0 }, at(30)).await?;
    same("the last", step(LATER).await?, Pruned { removed: 1, done: true })?;
    begin().await?;
    same("numbers", numbers(scene.store.job_runs(name.clone(), None, 9).await?.rows), [4])
}

async fn counters_of_old_hours_are_removed_and_the_figures_stay(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::Succeeded).await?;
    scene.in_state(State::DeadLetter).await?;
    scene.in_state(State::Pending).await?;
    let now = |hours| at(hours * 3_600);
    let before = scene.store.stats(None, now(3)).await?;
    let cut_off = |hours: i64| Prune { cut_off: now(hours), ..chunk(Kind::Counters, 0, 100) };
    let step = |hours| scene.store.prune(cut_off(hours), audit("prune"));
    same("not the hour of the cut-off", step(0).await?, Pruned { removed: 0, done: true })?;
    same("the figures", scene.store.stats(None, now(3)).await?, before.clone())?;
    while !step(1).await?.done {}
    let after = scene.store.stats(None, now(3)).await?;
    let ends =
        |stats: &Stats| stats.channels.iter().map(|(_, of)| of.ended_24h + of.delivered_24h).sum::<u64>();
    same("ends were counted", ends(&before), 3)?;
    same("they are not", ends(&after), 0)?;
    let standing = |stats: &Stats| {
        stats.channels.iter().map(|(_, of)| (of.queued, of.in_dead_letter)).collect::<Vec<_>>()
    };
    same("what stands is", standing(&after), standing(&before))?;
    // What is removed later is not subtracted from what is not there.
    same("removed", prune(&scene, Kind::Delivered, LATER).await?, 1)?;
    while !step(1).await?.done {}
    same("gone", scene.store.get(notification.id).await?, None)?;
    same("the figures stay", scene.store.stats(None, now(3)).await?, after)
}
