//! Idempotency keys: a repeated request is known for a day, by its tenant and body.

use std::time::Duration;

use posthaste_core::notification::Notification;
use posthaste_core::time::Timestamp;

use crate::conformance::scene::{Scene, TICK, at, tenant};
use crate::conformance::{Broken, Kept, Promise, list, refused, same};
use crate::store::{Accepted, FirstAnswer, Idempotency, Request};

pub(super) const PROMISES: &[Promise] = list![
    a_twin_gets_the_first_answer_and_is_not_stored,
    a_known_key_with_another_body_is_a_conflict_and_nothing_is_stored,
    twins_in_one_call_are_known_too,
    twins_at_the_same_time_are_stored_once,
    a_key_belongs_to_its_tenant,
    a_key_is_known_for_a_day_from_its_first_request,
    a_key_is_known_across_the_turn_of_the_tables,
    a_key_that_was_forgotten_can_be_used_again,
    a_key_is_not_kept_where_its_call_was_refused,
    a_key_can_be_looked_up_without_being_used,
    a_request_with_a_key_and_no_notifications_is_remembered,
];

const DAY: Duration = Idempotency::LIFE;

fn key(name: &str, body: u8, answer: &[u8]) -> Idempotency {
    Idempotency { tenant: tenant("acme"), key: name.to_owned(), hash: [body; 32], answer: answer.to_vec() }
}

impl Scene {
    async fn keyed(&self, key: Idempotency, notification: &Notification) -> Result<Request, Broken> {
        let arrivals = vec![self.arrival(notification, at(0), None).await?];
        Ok(Request { idempotency: Some(key), arrivals })
    }

    /// Sends a new notification under the key and returns whether it was stored.
    async fn send(&mut self, key: Idempotency, now: Timestamp) -> Result<Accepted, Broken> {
        let notification = self.draft();
        let request = self.keyed(key, &notification).await?;
        let mut answers = self.store.accept(vec![request], now).await?.answers;
        same("how many answers", answers.len(), 1)?;
        let stored = self.store.get(notification.id).await?.is_some();
        same("whether it is stored", stored, answers[0] == Accepted::New)?;
        Ok(answers.remove(0))
    }
}

async fn a_twin_gets_the_first_answer_and_is_not_stored(mut scene: Scene) -> Kept {
    same("the first", scene.send(key("k", 1, b"first"), at(0)).await?, Accepted::New)?;
    let twin = Accepted::Twin(b"first".to_vec());
    same("the second", scene.send(key("k", 1, b"second"), at(1)).await?, twin.clone())?;
    same("the third", scene.send(key("k", 1, b"third"), at(2)).await?, twin)?;
    same("another key", scene.send(key("K", 1, b"other"), at(2)).await?, Accepted::New)
}

async fn a_known_key_with_another_body_is_a_conflict_and_nothing_is_stored(mut scene: Scene) -> Kept {
    same("the first", scene.send(key("k", 1, b"first"), at(0)).await?, Accepted::New)?;
    same("another body", scene.send(key("k", 2, b"second"), at(1)).await?, Accepted::Conflict)?;
    let twin = Accepted::Twin(b"first".to_vec());
    same("the first body again", scene.send(key("k", 1, b"third"), at(2)).await?, twin)
}

async fn twins_in_one_call_are_known_too(mut scene: Scene) -> Kept {
    let (first, second, third) = (scene.draft(), scene.draft(), scene.draft());
    let call = vec![
        scene.keyed(key("k", 1, b"first"), &first).await?,
        scene.keyed(key("k", 1, b"second"), &second).await?,
        scene.keyed(key("k", 2, b"third"), &third).await?,
    ];
    let wanted = [Accepted::New, Accepted::Twin(b"first".to_vec()), Accepted::Conflict];
    same("accept", scene.store.accept(call, at(0)).await?.answers, wanted)?;
    let ids = vec![first.id, second.id, third.id];
    let stored: Vec<_> = scene.store.facts(ids).await?.iter().map(|facts| facts.id).collect();
    same("what is stored", stored, [first.id])
}

async fn twins_at_the_same_time_are_stored_once(mut scene: Scene) -> Kept {
    let mut calls = vec![];
    let mut ids = vec![];
    for number in 0..4u8 {
        let notification = scene.draft();
        ids.push(notification.id);
        calls.push(vec![scene.keyed(key("k", 1, &[number]), &notification).await?]);
    }
    let mut send = || scene.store.accept(calls.pop().unwrap_or_default(), at(0));
    let (one, two, three, four) = tokio::join!(send(), send(), send(), send());
    let answers = [one?.answers, two?.answers, three?.answers, four?.answers].concat();
    let new = answers.iter().filter(|answer| **answer == Accepted::New).count();
    same("how many were stored", new, 1)?;
    same("how many are there", scene.store.facts(ids).await?.len(), 1)?;
    let twins: Vec<&Accepted> = answers.iter().filter(|answer| **answer != Accepted::New).collect();
    same("the twins get one answer", twins.iter().all(|answer| *answer == twins[0]), true)?;
    same("none is a conflict", twins.contains(&&Accepted::Conflict), false)
}

async fn a_key_belongs_to_its_tenant(mut scene: Scene) -> Kept {
    let mine = key("k", 1, b"mine");
    let theirs =
        Idempotency { tenant: tenant("theirs"), hash: [2; 32], answer: b"t".to_vec(), ..mine.clone() };
    same("mine", scene.send(mine.clone(), at(0)).await?, Accepted::New)?;
    same("theirs", scene.send(theirs.clone(), at(0)).await?, Accepted::New)?;
    same("mine again", scene.send(mine, at(1)).await?, Accepted::Twin(b"mine".to_vec()))?;
    same("theirs again", scene.send(theirs, at(1)).await?, Accepted::Twin(b"t".to_vec()))
}

async fn a_key_is_known_for_a_day_from_its_first_request(mut scene: Scene) -> Kept {
    let twin = Accepted::Twin(b"first".to_vec());
    same("the first", scene.send(key("k", 1, b"first"), at(0)).await?, Accepted::New)?;
    same("in between", scene.send(key("k", 1, b"x"), at(43_200)).await?, twin.clone())?;
    let last = at(0).later(DAY).earlier(TICK);
    same("a tick before the day is over", scene.send(key("k", 1, b"x"), last).await?, twin)?;
    same("after a day", scene.send(key("k", 1, b"second"), at(0).later(DAY)).await?, Accepted::New)
}

async fn a_key_is_known_across_the_turn_of_the_tables(mut scene: Scene) -> Kept {
    // The start is at 10:00, so midnight is 14 hours away.
    let (evening, night) = (at(13 * 3_600 + 3_599), at(14 * 3_600 + 1));
    same("in the evening", scene.send(key("k", 1, b"first"), evening).await?, Accepted::New)?;
    same("another at night", scene.send(key("l", 1, b"other"), night).await?, Accepted::New)?;
    let twin = Accepted::Twin(b"first".to_vec());
    same("the first at night", scene.send(key("k", 1, b"x"), night).await?, twin)?;
    same("another body at night", scene.send(key("k", 2, b"x"), night).await?, Accepted::Conflict)
}

async fn a_key_that_was_forgotten_can_be_used_again(mut scene: Scene) -> Kept {
    let mut now = at(0);
    for day in 0..6u8 {
        let answer = [day];
        same("a new day", scene.send(key("k", day, &answer), now).await?, Accepted::New)?;
        let later = now.later(DAY).earlier(TICK);
        let twin = Accepted::Twin(answer.to_vec());
        same("the same day", scene.send(key("k", day, b"x"), later).await?, twin)?;
        now = now.later(DAY);
    }
    let much_later = now.later(DAY * 9);
    same("much later", scene.send(key("k", 5, b"x"), much_later).await?, Accepted::New)
}

async fn a_key_is_not_kept_where_its_call_was_refused(mut scene: Scene) -> Kept {
    let known = scene.waiting().await?;
    let call = vec![scene.keyed(key("k", 1, b"first"), &known).await?];
    refused("accept of a known id", scene.store.accept(call, at(0)).await)?;
    same("the key", scene.send(key("k", 2, b"second"), at(1)).await?, Accepted::New)
}

async fn a_request_with_a_key_and_no_notifications_is_remembered(scene: Scene) -> Kept {
    let request = || Request { idempotency: Some(key("k", 1, b"none")), arrivals: vec![] };
    same("the first", scene.store.accept(vec![request()], at(0)).await?.answers, [Accepted::New])?;
    let twin = [Accepted::Twin(b"none".to_vec())];
    same("the second", scene.store.accept(vec![request()], at(0)).await?.answers, twin)
}

async fn a_key_can_be_looked_up_without_being_used(mut scene: Scene) -> Kept {
    let (mine, name) = (tenant("acme"), "k".to_owned());
    same("before", scene.store.idempotent(mine.clone(), name.clone(), at(0)).await?, None)?;
    same("the first", scene.send(key("k", 1, b"first"), at(0)).await?, Accepted::New)?;
    let first = Some(FirstAnswer { hash: [1; 32], answer: b"first".to_vec() });
    let last = at(0).later(DAY).earlier(TICK);
    for now in [at(0), at(14 * 3_600 + 1), last] {
        same(
            "while it is known",
            scene.store.idempotent(mine.clone(), name.clone(), now).await?,
            first.clone(),
        )?;
    }
    same("another's", scene.store.idempotent(tenant("theirs"), name.clone(), at(1)).await?, None)?;
    same("another", scene.store.idempotent(mine.clone(), "K".to_owned(), at(1)).await?, None)?;
    same("after a day", scene.store.idempotent(mine, name, at(0).later(DAY)).await?, None)?;
    let twin = Accepted::Twin(b"first".to_vec());
    same("the twin after the looks", scene.send(key("k", 1, b"x"), last).await?, twin)?;
    same("a key that was looked up only", scene.send(key("K", 1, b"x"), at(2)).await?, Accepted::New)
}
