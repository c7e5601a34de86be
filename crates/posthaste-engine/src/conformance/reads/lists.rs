//! Lists: their order, their filters, and pages that together show each row once.

use std::fmt::Debug;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Notification;
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use crate::conformance::scene::{Scene, at, burial, failed_attempt, good_attempt, retry_at, tenant};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{
    Accepted, Act, Arrival, DeadLetterView, DueCursor, Ending, LastError, Next, Page, Request, View,
};

pub(super) const PROMISES: &[Promise] = list![
    notifications_are_listed_newest_first_and_each_once,
    a_filter_shows_what_fits_it,
    a_filter_finds_every_state,
    a_filter_finds_how_the_last_attempt_failed,
    a_row_says_what_the_last_attempt_said,
    an_end_by_age_or_expiry_keeps_the_last_error,
    a_text_is_found_in_any_case,
    a_page_looks_at_a_bounded_number_of_rows,
    the_retry_queue_shows_the_soonest_first,
    dead_letters_are_listed_newest_first_and_by_filter,
    a_filter_of_dead_letters_shows_what_fits_it,
];

/// The rows of a page by their keys, and whether there is a next one where that has to be.
pub(super) fn page_is<T, K: PartialEq + Debug, C: PartialEq + Debug>(
    what: &str,
    page: Page<T, C>,
    key: impl Fn(&T) -> K,
    rows: &[K],
    next: Option<C>,
) -> Kept {
    same(what, page.rows.iter().map(key).collect::<Vec<K>>(), rows)?;
    same(what, page.next, next)
}

async fn notifications_are_listed_newest_first_and_each_once(mut scene: Scene) -> Kept {
    let mut ids: Vec<NotificationId> = vec![];
    for state in [State::Pending, State::Succeeded, State::RetryScheduled, State::DeadLetter, State::Pending]
    {
        ids.insert(0, scene.in_state(state).await?.id);
    }
    let page = async |before, limit| scene.store.page(Filter::default(), before, limit).await;
    let is = |what, page, rows, next| page_is(what, page, |row: &View| row.notification.id, rows, next);
    is("all", page(None, 9).await?, &ids, None)?;
    is("just all", page(None, 5).await?, &ids, None)?;
    is("the first page", page(None, 2).await?, &ids[..2], Some(ids[1]))?;
    is("the second page", page(Some(ids[1]), 2).await?, &ids[2..4], Some(ids[3]))?;
    is("the last page", page(Some(ids[3]), 2).await?, &ids[4..], None)?;
    is("after the last", page(Some(ids[4]), 2).await?, &[], None)?;
    let last = page(None, 1).await?.rows;
    same("what a row says", last.into_iter().next(), scene.store.get(ids[0]).await?)
}

async fn a_filter_shows_what_fits_it(mut scene: Scene) -> Kept {
    let (plain, full) = (scene.draft(), scene.full_draft());
    let push = Notification { channel: Channel::Push, template: Some("bye".to_owned()), ..scene.draft() };
    for notification in [&plain, &full, &push] {
        scene.accept(notification, at(0), None).await?;
    }
    let any = Filter::default;
    let full_at = full.created_at();
    let tick_later = Timestamp::from_micros(full_at.as_micros() + 1);
    let table = [
        (any(), vec![&push, &full, &plain]),
        (Filter { tenant: Some(tenant("acme")), ..any() }, vec![&push, &plain]),
        (Filter { tenant: Some(tenant("other")), ..any() }, vec![&full]),
        (Filter { tenant: Some(tenant("nobody")), ..any() }, vec![]),
        (Filter { channels: vec![Channel::Webhook], ..any() }, vec![&plain]),
        (Filter { templates: vec!["welcome".to_owned()], ..any() }, vec![&full]),
        (Filter { templates: vec!["wel".to_owned()], ..any() }, vec![]),
        (Filter { destinations: vec![push.destination.to_string()], ..any() }, vec![&push]),
        (Filter { since: Some(full_at), ..any() }, vec![&push, &full]),
        (Filter { since: Some(tick_later), ..any() }, vec![&push]),
        (Filter { until: Some(full_at), ..any() }, vec![&plain]),
        (Filter { until: Some(tick_later), ..any() }, vec![&full, &plain]),
        (Filter { since: Some(full_at), until: Some(tick_later), ..any() }, vec![&full]),
        (Filter { channels: vec![Channel::Push], templates: vec!["welcome".to_owned()], ..any() }, vec![]),
    ];
    for (filter, wanted) in table {
        let what = format!("{filter:?}");
        let wanted: Vec<NotificationId> = wanted.iter().map(|notification| notification.id).collect();
        let page = scene.store.page(filter, None, 9).await?;
        page_is(&what, page, |row| row.notification.id, &wanted, None)?;
    }
    // A page that is full has a next one only where a row is left that fits.
    let theirs = Filter { tenant: Some(tenant("other")), ..any() };
    let page = scene.store.page(theirs, None, 1).await?;
    page_is("a full page", page, |row| row.notification.id, &[full.id], None)
}

async fn a_filter_finds_every_state(mut scene: Scene) -> Kept {
    for state in State::ALL {
        scene.in_state(state).await?;
    }
    let discarded = scene.discarded().await?;
    for state in State::ALL {
        let filter = Filter { states: vec![state], ..Filter::default() };
        let rows = scene.store.page(filter, None, 99).await?.rows;
        same(state.name(), rows.iter().all(|row| row.state == state), true)?;
        same(state.name(), rows.len(), if state == State::Failed { 2 } else { 1 })?;
        let shown = rows.iter().any(|row| row.notification.id == discarded.id);
        same("the discarded one", shown, state == State::Failed)?;
    }
    let several = [State::Failed, State::Succeeded, State::Retrying, State::Failed];
    let filter = Filter { states: several.to_vec(), ..Filter::default() };
    let rows = scene.store.page(filter, None, 99).await?.rows;
    same("any of several", rows.iter().all(|row| several.contains(&row.state)), true)?;
    same("any of several", rows.len(), 4)?;
    let every = Filter { states: State::ALL.to_vec(), ..Filter::default() };
    same("all of them", scene.store.page(every, None, 99).await?.rows.len(), State::ALL.len() + 1)
}

/// An attempt that failed in that way.
fn failed_as(generation: u32, number: u32, failure_type: FailureType) -> Attempt {
    Attempt { outcome: Outcome::Failed(failure_type), ..failed_attempt(generation, number) }
}

async fn a_filter_finds_how_the_last_attempt_failed(mut scene: Scene) -> Kept {
    use FailureType::{Permanent, Temporary, Timeout};
    scene.waiting().await?;
    scene.in_state(State::Processing).await?;
    scene.in_state(State::Succeeded).await?;
    let waits = scene.in_state(State::RetryScheduled).await?;
    let dead = scene.in_state(State::DeadLetter).await?;
    let mended = scene.in_state(State::RetryScheduled).await?;
    let lease = scene.lease().await?;
    scene.claim(&mended, Lane::Retry, lease, at(60)).await?;
    scene.settle(mended.id, lease, Some(good_attempt(1, 2)), Next::End(Ending::Delivered)).await?;
    // Two attempts in the first generation and one in the second, which is the last one made.
    let again = scene.in_state(State::RetryScheduled).await?;
    let (lease, name) = (scene.lease().await?, scene.grave());
    scene.claim(&again, Lane::Retry, lease, at(60)).await?;
    scene.settle(again.id, lease, Some(failed_as(1, 2, Timeout)), burial(name)).await?;
    scene.does(&again, Act::Requeue, None, at(70)).await?;
    let store = scene.store.clone();
    let list = async |failure_type| {
        let filter = Filter { failure_types: vec![failure_type], ..Filter::default() };
        store.page(filter, None, 99).await
    };
    let is = |what, page, rows: &[NotificationId]| {
        page_is(what, page, |row: &View| row.notification.id, rows, None)
    };
    is("of an earlier generation", list(Timeout).await?, &[again.id])?;
    let lease = scene.lease().await?;
    scene.claim(&again, Lane::Main, lease, at(70)).await?;
    is("none made since", list(Timeout).await?, &[again.id])?;
    scene.settle(again.id, lease, Some(failed_as(2, 1, Permanent)), retry_at(at(90))).await?;
    is("the newest generation", list(Permanent).await?, &[again.id])?;
    is("no longer the last", list(Timeout).await?, &[])?;
    is("the others", list(Temporary).await?, &[dead.id, waits.id])
}

/// What lists and `get` say of it: the last error, its status code, and how many attempts were made.
async fn said_of(scene: &Scene, id: NotificationId) -> Result<(Option<LastError>, u32), Broken> {
    let view = scene.view(id).await?;
    let page = scene.store.page(Filter::default(), None, 99).await?;
    let listed = page.rows.into_iter().find(|row| row.notification.id == id);
    same("in the list", listed, Some(view.clone()))?;
    if matches!(view.state, State::RetryScheduled | State::Retrying) {
        let queue = scene.store.retry_queue(Filter::default(), None, 99).await?;
        let queued = queue.rows.into_iter().find(|row| row.notification.id == id);
        same("in the retry queue", queued, Some(view.clone()))?;
    }
    let made = view.attempts_made();
    Ok((view.last_error, made))
}

async fn a_row_says_what_the_last_attempt_said(mut scene: Scene) -> Kept {
    let error = |text: &str, code| Some(LastError { error: Some(text.to_owned()), status_code: code });
    let later = || error("503: später", Some(503));
    let table = [
        (State::Pending, (None, 0)),
        (State::Processing, (None, 0)),
        (State::Succeeded, (None, 1)),
        (State::RetryScheduled, (later(), 1)),
        (State::Retrying, (later(), 1)),
        (State::Failed, (later(), 1)),
        (State::DeadLetter, (later(), 1)),
    ];
    for (state, wanted) in table {
        let notification = scene.in_state(state).await?;
        same(state.name(), said_of(&scene, notification.id).await?, wanted)?;
    }
    // A second generation has no attempt yet: what is known is of the first.
    let again = scene.in_state(State::RetryScheduled).await?;
    let (lease, name) = (scene.lease().await?, scene.grave());
    scene.claim(&again, Lane::Retry, lease, at(60)).await?;
    let reset = |generation, number| Attempt {
        status_code: None,
        error: Some("reset".to_owned()),
        ..failed_attempt(generation, number)
    };
    scene.settle(again.id, lease, Some(reset(1, 2)), burial(name)).await?;
    same("buried", said_of(&scene, again.id).await?, (error("reset", None), 2))?;
    scene.does(&again, Act::Requeue, None, at(70)).await?;
    same("requeued", said_of(&scene, again.id).await?, (error("reset", None), 0))?;
    let lease = scene.lease().await?;
    scene.claim(&again, Lane::Main, lease, at(70)).await?;
    scene.settle(again.id, lease, Some(failed_attempt(2, 1)), retry_at(at(90))).await?;
    same("failed again", said_of(&scene, again.id).await?, (later(), 1))?;
    let lease = scene.lease().await?;
    scene.claim(&again, Lane::Retry, lease, at(90)).await?;
    scene.settle(again.id, lease, Some(good_attempt(2, 2)), Next::End(Ending::Delivered)).await?;
    same("delivered", said_of(&scene, again.id).await?, (None, 2))
}

async fn an_end_by_age_or_expiry_keeps_the_last_error(mut scene: Scene) -> Kept {
    let reason = Reason::MaxAgeExceeded;
    let bury = |dead_letter| Act::Bury { dead_letter, reason, text: reason.words().to_owned() };
    let (old, unsent, late) = (
        scene.in_state(State::RetryScheduled).await?,
        scene.waiting().await?,
        scene.in_state(State::RetryScheduled).await?,
    );
    let (first, second) = (scene.grave(), scene.grave());
    scene.does(&old, bury(first), None, at(30)).await?;
    scene.does(&unsent, bury(second), None, at(30)).await?;
    scene.does(&late, Act::Expire, None, at(30)).await?;
    let table = [
        (&old, Some("503: später"), Some(FailureType::Temporary), Some(503)),
        (&late, Some("503: später"), Some(FailureType::Temporary), Some(503)),
        (&unsent, Some(reason.words()), None, None),
    ];
    for (notification, why, failure_type, status_code) in table {
        let view = scene.view(notification.id).await?;
        same("why", view.why(), why)?;
        let end = view.end.as_ref().map(|end| (end.failure_type, end.status_code));
        same("for filters", end, Some((failure_type, status_code)))?;
    }
    let letters = scene.store.dead_letters(Filter::default(), None, 9).await?.rows;
    let said: Vec<_> = letters.iter().map(|dead| (dead.why(), dead.status_code)).collect();
    same("dead letters", said, [(reason.words(), None), ("503: später", Some(503))])?;
    let of_503 = Filter { status_codes: vec![503], ..Filter::default() };
    let found = scene.store.page(of_503.clone(), None, 9).await?;
    page_is("by status code", found, |row| row.notification.id, &[late.id, old.id], None)?;
    page_is("by status code", scene.store.dead_letters(of_503, None, 9).await?, |row| row.id, &[first], None)
}

async fn a_text_is_found_in_any_case(mut scene: Scene) -> Kept {
    let plain = scene.draft();
    let marked = Notification {
        to: "Ada_Lovelace%@Example.org".to_owned(),
        subject: Some("Grüße: 100% \\o/".to_owned()),
        event_key: Some("Order.Paid Über".to_owned()),
        correlation_id: Some("CORR-77".to_owned()),
        template: Some("unseen".to_owned()),
        ..scene.draft()
    };
    for notification in [&plain, &marked] {
        scene.accept(notification, at(0), None).await?;
    }
    let found =
        ["ada", "LOVELACE", "e%@ex", "a_l", "grüße", "100%", "\\o", "order.paid", "corr-7", "example.org"];
    let not_found = ["GRÜSSE", "über", "unseen", "ada%love", "ada?", "adaXlovelace", "paid.order", "hello"];
    let texts = found.map(|text| (text, true)).into_iter().chain(not_found.map(|text| (text, false)));
    for (text, is_there) in texts {
        let filter = Filter { text: Some(text.to_owned()), ..Filter::default() };
        let rows = scene.store.page(filter, None, 9).await?.rows;
        let found = rows.iter().any(|row| row.notification.id == marked.id);
        same(text, found, is_there)?;
        let others = rows.iter().any(|row| row.notification.id == plain.id);
        same(text, others, false)?;
    }
    let nothing = Filter { text: Some(String::new()), ..Filter::default() };
    same("an empty text", scene.store.page(nothing, None, 9).await?.rows.len(), 2)
}

async fn a_page_looks_at_a_bounded_number_of_rows(mut scene: Scene) -> Kept {
    let first = scene.draft();
    let like = scene.arrival(&first, at(0), None).await?;
    let mut arrivals = vec![like.clone()];
    for _ in 0..5_001 {
        let notification = Notification { destination: first.destination.clone(), ..scene.draft() };
        arrivals.push(Arrival { notification: notification.into(), ..like.clone() });
    }
    let ids: Vec<NotificationId> = arrivals.iter().rev().map(|arrival| arrival.notification.id).collect();
    let request = Request { idempotency: None, arrivals };
    same("accept", scene.store.accept(vec![request], at(0)).await?.answers, [Accepted::New])?;
    let rare = || Filter { text: Some(first.to.clone()), ..Filter::default() };
    let is = |what, page, rows: &[NotificationId], next| {
        page_is(what, page, |row: &View| row.notification.id, rows, next)
    };
    let page = scene.store.page(rare(), None, 9).await?;
    is("the first 5,000", page, &[], Some(ids[4_999]))?;
    let page = scene.store.page(rare(), Some(ids[0]), 9).await?;
    is("the next 5,000", page, &[], Some(ids[5_000]))?;
    let page = scene.store.page(rare(), Some(ids[1]), 9).await?;
    is("the last 5,000", page, &[first.id], None)?;
    // Rows outside of the wanted time are not looked at, so they neither use the page up nor promise a next one.
    let old = Filter { until: Some(ids[4_000].made_at()), ..rare() };
    is("before a time", scene.store.page(old, None, 9).await?, &[first.id], None)?;
    let new = Filter { since: Some(ids[1_000].made_at()), ..rare() };
    is("since a time", scene.store.page(new, None, 9).await?, &[], None)?;
    let (since, until) = (Some(ids[1].made_at()), Some(ids[4_999].made_at()));
    let some = Filter { since: until, until: since, ..Filter::default() };
    is("in between", scene.store.page(some, None, 2).await?, &[ids[2], ids[3]], Some(ids[3]))?;
    let none = Filter { since, until, ..Filter::default() };
    is("no time at all", scene.store.page(none, None, 9).await?, &[], None)
}

async fn the_retry_queue_shows_the_soonest_first(mut scene: Scene) -> Kept {
    let mut rows: Vec<DueCursor> = vec![];
    for (second, whose) in [(90, "acme"), (60, "acme"), (60, "other"), (70, "acme")] {
        let (notification, lease) = (scene.draft(), scene.lease().await?);
        let notification = Notification { tenant: tenant(whose), ..notification };
        scene.accept(&notification, at(0), Some(lease)).await?;
        scene.fail(&notification, lease, retry_at(at(second))).await?;
        rows.push(DueCursor { due: at(second), id: notification.id });
        if second == 70 {
            let lease = scene.lease().await?;
            same("held", scene.claim(&notification, Lane::Retry, lease, at(80)).await?.len(), 1)?;
        }
    }
    let theirs = rows[2].id;
    scene.waiting().await?;
    scene.in_state(State::DeadLetter).await?;
    rows.sort();
    let queue = async |whose: Option<&str>, after, limit| {
        let filter = Filter { tenant: whose.map(tenant), ..Filter::default() };
        scene.store.retry_queue(filter, after, limit).await
    };
    let ids: Vec<NotificationId> = rows.iter().map(|place| place.id).collect();
    let is = |what, page, rows, next| page_is(what, page, |row: &View| row.notification.id, rows, next);
    is("all", queue(None, None, 9).await?, &ids, None)?;
    is("just all", queue(None, None, 4).await?, &ids, None)?;
    is("the first page", queue(None, None, 1).await?, &ids[..1], Some(rows[0]))?;
    is("the second page", queue(None, Some(rows[0]), 2).await?, &ids[1..3], Some(rows[2]))?;
    is("the last page", queue(None, Some(rows[2]), 2).await?, &ids[3..], None)?;
    is("of a tenant", queue(Some("other"), None, 9).await?, &[theirs], None)?;
    let states: Vec<State> = queue(None, None, 9).await?.rows.iter().map(|row| row.state).collect();
    let (waits, held) = (State::RetryScheduled, State::Retrying);
    same("held or not", states, [waits, waits, held, waits])
}

async fn dead_letters_are_listed_newest_first_and_by_filter(mut scene: Scene) -> Kept {
    let mut names = vec![];
    let drafts = [scene.draft(), scene.draft(), scene.full_draft(), scene.draft()];
    for notification in &drafts {
        let (lease, name) = (scene.lease().await?, scene.grave());
        scene.accept(notification, at(0), Some(lease)).await?;
        scene.fail(notification, lease, burial(name)).await?;
        names.push(name);
    }
    scene.does(&drafts[0], Act::Requeue, None, at(20)).await?;
    scene.does(&drafts[1], Act::Discard, None, at(20)).await?;
    let any = Filter::default;
    let newest: Vec<_> = names.iter().rev().copied().collect();
    let list = async |filter, before, limit| scene.store.dead_letters(filter, before, limit).await;
    let is = |what, page, rows, next| page_is(what, page, |row: &DeadLetterView| row.id, rows, next);
    is("all", list(any(), None, 9).await?, &newest, None)?;
    is("the first page", list(any(), None, 2).await?, &newest[..2], Some(newest[1]))?;
    is("the last page", list(any(), Some(newest[1]), 2).await?, &newest[2..], None)?;
    let of = |status| Filter { statuses: vec![status], ..any() };
    is("pending", list(of(LetterStatus::Pending), None, 9).await?, &newest[..2], None)?;
    is("requeued", list(of(LetterStatus::Requeued), None, 9).await?, &names[..1], None)?;
    is("discarded", list(of(LetterStatus::Discarded), None, 9).await?, &names[1..2], None)?;
    let theirs = Filter { tenant: Some(tenant("other")), ..any() };
    is("of a tenant", list(theirs, None, 9).await?, &names[2..3], None)?;
    let mail = Filter { channels: vec![Channel::Email], ..any() };
    is("of a channel", list(mail, None, 9).await?, &names[2..3], None)?;
    let row = list(any(), None, 1).await?.rows.into_iter().next();
    same("what a row says", row, scene.store.dead_letter(newest[0]).await?)
}

async fn a_filter_of_dead_letters_shows_what_fits_it(mut scene: Scene) -> Kept {
    let buried_at =
        |name| Act::Bury { dead_letter: name, reason: Reason::MaxAgeExceeded, text: "too old".to_owned() };
    let (plain, full, unsent) =
        (scene.in_state(State::RetryScheduled).await?, scene.full_draft(), scene.draft());
    let (first, second, third) = (scene.grave(), scene.grave(), scene.grave());
    let lease = scene.lease().await?;
    scene.claim(&plain, Lane::Retry, lease, at(60)).await?;
    scene.settle(plain.id, lease, Some(failed_as(1, 2, FailureType::Permanent)), burial(first)).await?;
    let lease = scene.lease().await?;
    scene.accept(&full, at(0), Some(lease)).await?;
    scene.fail(&full, lease, burial(second)).await?;
    scene.accept(&unsent, at(0), None).await?;
    scene.does(&unsent, buried_at(third), None, at(30)).await?;
    let any = Filter::default;
    let a_tick_later = |time: Timestamp| Timestamp::from_micros(time.as_micros() + 1);
    let failed = |failure_type| Filter { failure_types: vec![failure_type], ..any() };
    let text = |text: &str| Filter { text: Some(text.to_owned()), ..any() };
    let table = [
        (any(), vec![third, second, first]),
        (Filter { templates: vec!["welcome".to_owned()], ..any() }, vec![second]),
        (Filter { templates: vec!["wel".to_owned()], ..any() }, vec![]),
        (Filter { destinations: vec![plain.destination.to_string()], ..any() }, vec![first]),
        (Filter { destinations: vec!["https://d".to_owned()], ..any() }, vec![]),
        (failed(FailureType::Permanent), vec![first]),
        (failed(FailureType::Temporary), vec![second]),
        (failed(FailureType::Timeout), vec![]),
        (Filter { since: Some(second.made_at()), ..any() }, vec![third, second]),
        (Filter { since: Some(a_tick_later(second.made_at())), ..any() }, vec![third]),
        (Filter { until: Some(first.made_at()), ..any() }, vec![]),
        (Filter { until: Some(a_tick_later(second.made_at())), ..any() }, vec![second, first]),
        (Filter { until: Some(third.made_at()), ..any() }, vec![second, first]),
        (text("HäLLO"), vec![second]),
        (text("USER.created"), vec![second]),
        (text("C-1"), vec![second]),
        (text("/HOOK"), vec![third, second, first]),
        (text("welcome"), vec![]),
        (Filter { since: Some(third.made_at()), ..text("user.created") }, vec![]),
    ];
    for (filter, wanted) in table {
        let what = format!("{filter:?}");
        page_is(&what, scene.store.dead_letters(filter, None, 9).await?, |row| row.id, &wanted, None)?;
    }
    Ok(())
}
