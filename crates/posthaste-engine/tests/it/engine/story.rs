//! The acceptance tests of S1, the story about retries of e-mail, on its own minutes and jitter.
//!
//! Its sixth test, about the widget of the dashboard, is a matter of the pages.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::policy::Scope;
use posthaste_core::reason::Reason;
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Reads;

use crate::rig::{BEGIN, Rig, Script, ada, assert_at, http, ms, notification, pass, secs, send};

const MINUTE: Duration = secs(60);
const JITTER: Duration = secs(30);
/// What the timer of the runtime may add.
const TIMER: Duration = ms(5);

/// A rig that sends e-mail.
fn rig(seed: u64) -> Rig {
    let mut rig = Rig::new();
    rig.ways.push(Channel::Email);
    rig.seed = seed;
    rig
}

/// An engine on which the preset `story` is in force, and four attempts for one template.
async fn start(rig: &Rig) -> Engine {
    let engine = rig.start().await;
    let policies =
        [(Scope::Global, r#"{"preset": "story"}"#), (Scope::template("patient"), r#"{"maxAttempts": 4}"#)];
    for (scope, layer) in policies {
        let layer = serde_json::from_str(layer).unwrap();
        engine.put_policy(&scope, Some(layer), &ada()).await.unwrap();
    }
    engine
}

async fn send_mail(engine: &Engine, to: &str, template: Option<&str>) -> NotificationId {
    let mut mail = notification(engine, to, "{}");
    mail.content.policy = None;
    mail.channel = Channel::Email;
    mail.template = template.map(str::to_owned);
    send(engine, mail).await
}

/// What the dashboard says of a notification.
async fn words(rig: &Rig, engine: &Engine, id: NotificationId) -> String {
    let view = rig.view(id).await;
    let most = view.progress.base + engine.policies().of(&view.notification).max_attempts;
    view.state.words(view.progress.attempt, most)
}

/// The dead letters that nobody has acted on.
async fn dead_letter_queue(rig: &Rig) -> Vec<DeadLetterId> {
    let filter = Filter { statuses: vec![LetterStatus::Pending], ..Filter::default() };
    let page = rig.model.dead_letters(filter, None, 500).await.unwrap();
    page.rows.iter().map(|dead| dead.id).collect()
}

/// A mail that failed with every attempt it had.
async fn exhausted(rig: &Rig, engine: &Engine) -> (NotificationId, DeadLetterId) {
    rig.script("a@example.org", vec![Script::Answer(http(503)); 3]);
    let id = send_mail(engine, "a@example.org", None).await;
    pass(10 * MINUTE).await;
    assert_eq!(words(rig, engine, id).await, "Failed (moved to dead letter queue)");
    let dead = rig.dead_letter(id).await;
    assert_eq!((dead.attempts.len(), dead.reason), (3, Reason::MaxAttemptsExceeded));
    assert_eq!(dead_letter_queue(rig).await, [dead.id]);
    (id, dead.id)
}

#[tokio::test(start_paused = true)]
async fn test_1_automatic_retry_on_transient_failure() {
    let refused = Reply::fault(Fault::Refused, "connection refused");
    let answer = Script::Answer;
    let transient = [
        (answer(http(503)), FailureType::Temporary, Some(503)),
        (answer(http(500)), FailureType::Temporary, Some(500)),
        (answer(http(502)), FailureType::Temporary, Some(502)),
        (answer(http(504)), FailureType::Temporary, Some(504)),
        (answer(http(429)), FailureType::RateLimit, Some(429)),
        (answer(refused), FailureType::NetworkFailure, None),
        (Script::Hang, FailureType::Timeout, None),
    ];
    for (script, failure_type, code) in transient {
        let rig = rig(7);
        let engine = start(&rig).await;
        rig.script("a@example.org", [script]);
        let begun = rig.elapsed();
        let id = send_mail(&engine, "a@example.org", None).await;
        pass(MINUTE - secs(1)).await;
        assert_eq!(words(&rig, &engine, id).await, "Retrying (attempt 2 of 3)");
        assert_eq!(rig.arrivals(id).len(), 1);
        pass(JITTER + secs(35)).await;
        assert_eq!(words(&rig, &engine, id).await, "Delivered");

        let (attempts, arrivals) = (rig.attempts(id).await, rig.arrivals(id));
        assert_eq!((attempts.len(), arrivals.len()), (2, 2));
        assert_eq!((attempts[0].outcome, attempts[0].status_code), (Outcome::Failed(failure_type), code));
        assert_eq!((attempts[1].outcome, attempts[1].status_code), (Outcome::Delivered, Some(200)));
        assert_at(attempts[0].started_at.since(BEGIN), begun);
        for (attempt, (number, came)) in attempts.iter().zip(arrivals) {
            assert_eq!((attempt.generation, attempt.number), (1, number));
            assert_at(came, attempt.started_at.since(BEGIN));
        }
        assert!(dead_letter_queue(&rig).await.is_empty());
    }
}

/// How long the attempts of a mail lie apart, over many seeds, with several mails each.
async fn intervals(template: Option<&str>, attempts: usize) -> Vec<Vec<Duration>> {
    let mut all = vec![vec![]; attempts - 1];
    for seed in 0..25 {
        let rig = rig(seed);
        let engine = start(&rig).await;
        rig.always("a@example.org", Script::Answer(http(503)));
        let mut ids = vec![];
        for _ in 0..8 {
            ids.push(send_mail(&engine, "a@example.org", template).await);
        }
        // Longer than every wait and every jitter, the one that must not be waited included.
        pass(40 * MINUTE).await;
        for id in ids {
            assert_eq!(rig.state(id).await, State::DeadLetter);
            let made = rig.attempts(id).await;
            assert_eq!(made.len(), attempts);
            assert_eq!(rig.arrivals(id).len(), attempts);
            for (place, pair) in made.windows(2).enumerate() {
                all[place].push(pair[1].started_at.since(pair[0].started_at));
            }
        }
    }
    all
}

/// Each interval is the promised one with a jitter of 0 to 30 s, and the jitter really varies over all of that.
fn assert_promised(measured: &[Duration], promised: Duration) {
    for interval in measured {
        let most = promised + JITTER + TIMER;
        assert!((promised..=most).contains(interval), "{interval:?}, not {promised:?} and up to 30 s");
    }
    let jitters: Vec<u64> = measured.iter().map(|interval| (*interval - promised).as_secs()).collect();
    for third in 0..3 {
        let within = jitters.iter().filter(|jitter| **jitter / 10 == third).count();
        assert!(within * 5 > measured.len(), "{within} of {} in third {third}", measured.len());
    }
    let different: BTreeSet<&Duration> = measured.iter().collect();
    assert!(different.len() > measured.len() / 2, "only {} differ", different.len());
    assert!(measured.iter().any(|interval| *interval < promised + secs(1)));
    assert!(measured.iter().any(|interval| *interval > promised + JITTER - secs(1)));
}

#[tokio::test(start_paused = true)]
async fn test_2_exponential_backoff_timing() {
    let measured = intervals(None, 3).await;
    assert_eq!(measured.iter().map(Vec::len).collect::<Vec<_>>(), [200, 200]);
    assert_promised(&measured[0], MINUTE);
    assert_promised(&measured[1], 5 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn test_2_exponential_backoff_timing_with_a_fourth_attempt() {
    let measured = intervals(Some("patient"), 4).await;
    assert_eq!(measured.iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 200]);
    assert_promised(&measured[0], MINUTE);
    assert_promised(&measured[1], 5 * MINUTE);
    assert_promised(&measured[2], 15 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn test_3_permanent_failure_does_not_retry() {
    let said = |status, text: &str| Reply { text: text.to_owned(), ..Reply::http(status) };
    let enhanced = Some((5, 1, 1));
    let bounce = Reply::smtp(550, enhanced, "5.1.1 no such user");
    let permanent = [
        (bounce, FailureType::InvalidRecipient, "answered 550: 5.1.1 no such user"),
        (said(400, "invalid recipient"), FailureType::Permanent, "answered 400: invalid recipient"),
        (said(401, ""), FailureType::AuthenticationFailure, "answered 401"),
        (said(403, ""), FailureType::AuthenticationFailure, "answered 403"),
    ];
    for (reply, failure_type, reason) in permanent {
        let rig = rig(7);
        let engine = start(&rig).await;
        rig.always("no one", Script::Answer(reply));
        let id = send_mail(&engine, "no one", None).await;
        pass(TIMER).await;
        assert_eq!(words(&rig, &engine, id).await, "Failed (moved to dead letter queue)");
        let dead = rig.dead_letter(id).await;
        assert_eq!((dead.reason, dead.text.as_str()), (Reason::PermanentFailure, reason));
        assert_eq!(dead.attempts.len(), 1);
        assert_eq!(dead_letter_queue(&rig).await, [dead.id]);
        assert!(rig.model.retry_queue(Filter::default(), None, 9).await.unwrap().rows.is_empty());
        pass(60 * MINUTE).await;
        assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Failed(failure_type))]);
        assert_eq!(rig.arrivals(id).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn test_4_dead_letter_queue_manual_retry() {
    let rig = rig(7);
    let engine = start(&rig).await;
    let (id, dead) = exhausted(&rig, &engine).await;
    rig.script("a@example.org", [Script::Answer(http(503)), Script::Slowly(secs(2), http(503))]);
    engine.requeue(dead, &ada()).await.unwrap();
    assert!(dead_letter_queue(&rig).await.is_empty());
    pass(secs(1)).await;
    assert_eq!(words(&rig, &engine, id).await, "Retrying (attempt 2 of 3)");
    pass(MINUTE + JITTER + secs(5)).await;
    assert_eq!(words(&rig, &engine, id).await, "Retrying (attempt 3 of 3)");
    pass(5 * MINUTE + JITTER).await;
    assert_eq!(words(&rig, &engine, id).await, "Delivered");

    let failed = Outcome::Failed(FailureType::Temporary);
    let fresh = [(2, 1, failed), (2, 2, failed), (2, 3, Outcome::Delivered)];
    assert_eq!(rig.outcomes(id).await[3..], fresh);
    assert!(dead_letter_queue(&rig).await.is_empty());
    let letter = rig.model.dead_letter(dead).await.unwrap().unwrap();
    assert_eq!((letter.status, letter.resolved_by.as_deref()), (DeadLetterStatus::Requeued, Some("ada")));
}

#[tokio::test(start_paused = true)]
async fn test_5_dead_letter_queue_discard() {
    let rig = rig(7);
    let engine = start(&rig).await;
    let (id, dead) = exhausted(&rig, &engine).await;
    let before = rig.audit().len();
    engine.discard(dead, &ada()).await.unwrap();
    assert_eq!(rig.state(id).await, State::Failed);
    assert_eq!(words(&rig, &engine, id).await, "Permanently Failed");

    assert!(dead_letter_queue(&rig).await.is_empty());
    assert!(rig.model.retry_queue(Filter::default(), None, 9).await.unwrap().rows.is_empty());
    let live = State::ALL.into_iter().filter(|state| !state.is_end() || *state == State::DeadLetter);
    let active = Filter { states: live.collect(), ..Filter::default() };
    assert!(rig.model.page(active, None, 9).await.unwrap().rows.is_empty());
    let stats = rig.model.stats(None, engine.now()).await.unwrap();
    for (_, channel) in &stats.channels {
        assert_eq!((channel.queued, channel.sending, channel.in_retry, channel.in_dead_letter), (0, 0, 0, 0));
    }

    let rows = rig.audit();
    let [row] = &rows[before..] else { panic!("{rows:?}") };
    assert_eq!((row.audit.actor.as_str(), row.audit.action.as_str()), ("ada", "discard"));
    assert_eq!((row.audit.target.clone(), row.count, row.outcome()), (id.to_string(), 1, "done"));
    pass(60 * MINUTE).await;
    assert_eq!(rig.arrivals(id).len(), 3);
    assert_eq!(rig.state(id).await, State::Failed);
}
