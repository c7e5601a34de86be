//! Lists: every row once, in order, with filters that do what they say.

use std::collections::BTreeSet;

use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use super::running::{Running, StoreKind, quick, slow};

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_else(|| panic!("{name} of {row}"))
}

fn ids(rows: &[Value]) -> Vec<String> {
    rows.iter().map(|row| text(row, "notificationId").to_owned()).collect()
}

async fn paging_shows_every_row_once_while_new_ones_arrive(on: StoreKind) {
    let running = Running::start(on).await;
    let one = running.webhook("/ok");
    let told = running
        .admin
        .post("/v1/notifications/batch", &json!({"notifications": vec![one.clone(); 300]}))
        .await
        .is(202);
    let sent: BTreeSet<String> = told["accepted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| text(one, "notificationId").to_owned())
        .collect();
    let (mut seen, mut pages, mut cursor) = (vec![], 0, String::new());
    loop {
        let page = running.admin.get(&format!("/v1/notifications?limit=37{cursor}")).await;
        let rows = page["data"].as_array().unwrap();
        assert!(rows.len() <= 37);
        seen.extend(ids(rows));
        pages += 1;
        running
            .admin
            .post("/v1/notifications/batch", &json!({"notifications": vec![one.clone(); 5]}))
            .await
            .is(202);
        match page["nextCursor"].as_str() {
            None => break,
            Some(next) => cursor = format!("&cursor={next}"),
        }
    }
    assert!(pages >= 9, "{pages}");
    // Newest first, so what arrives meanwhile comes before the page that was begun with.
    assert!(seen.is_sorted_by(|newer, older| newer > older), "out of order, or twice");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), sent);
    let everything = running.admin.all("/v1/notifications?limit=500").await;
    assert_eq!(everything.len(), 300 + 5 * pages);
    running.stop().await;
}

/// Every filter of a list, and which of the notifications of `mixed` it finds.
const FILTERS: &[(&str, &[usize])] = &[
    ("", &[0, 1, 2, 3, 4]),
    ("state=succeeded", &[0]),
    ("state=pending", &[4]),
    ("state=deadLetter,retryScheduled", &[1, 2, 3]),
    ("state=cancelled", &[]),
    ("channel=webhook", &[0, 1, 2, 3, 4]),
    ("channel=email", &[]),
    ("template=welcome", &[0, 1]),
    ("template=welcom", &[]),
    ("failureType=permanent", &[1]),
    ("failureType=authenticationFailure", &[2]),
    ("failureType=timeout", &[]),
    ("tenant=default", &[0, 1, 2, 3, 4]),
    ("tenant=other", &[]),
    ("q=order-1", &[1]),
    ("q=ORDER-", &[0, 1, 2, 3, 4]),
    ("q=gr%C3%BC", &[2]),
    ("q=%2Fstatus%2F503", &[3]),
    ("q=corr", &[4]),
    ("q=%25", &[]),
    ("template=welcome&state=deadLetter&q=order", &[1]),
];

async fn mixed(running: &Running) -> Vec<String> {
    let mut sent = vec![];
    for (at, (path, state)) in [
        ("/ok", "succeeded"),
        ("/status/400", "deadLetter"),
        ("/status/401", "deadLetter"),
        ("/status/503", "retryScheduled"),
        ("/ok", "pending"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut one = running.webhook(path);
        one["policy"] = slow();
        one["eventKey"] = json!(format!("order-{at}"));
        match at {
            0 | 1 => one["template"] = json!("welcome"),
            2 => one["subject"] = json!("Viele Grüße"),
            4 => {
                one["correlationId"] = json!("Corr-7");
                one["notBefore"] = json!("2999-01-01T00:00:00Z");
            }
            _ => {}
        }
        sent.push(text(&running.admin.send_until(&one, state).await, "notificationId").to_owned());
    }
    sent
}

async fn each_filter_finds_what_it_says_and_nothing_else(on: StoreKind) {
    let running = Running::start(on).await;
    let sent = mixed(&running).await;
    for (query, wanted) in FILTERS {
        let mut found = ids(&running.admin.all(&format!("/v1/notifications?{query}")).await);
        found.reverse();
        let wanted: Vec<String> = wanted.iter().map(|at| sent[*at].clone()).collect();
        assert_eq!(found, wanted, "{query}");
    }
    let shown = running.admin.get(&format!("/v1/notifications/{}", sent[2])).await;
    let (created, destination) =
        (text(&shown, "createdAt"), posthaste::client::encode(text(&shown, "destination")));
    let found =
        async |query: String| ids(&running.admin.all(&format!("/v1/notifications?{query}")).await).len();
    assert_eq!(found(format!("destination={destination}")).await, 5);
    assert_eq!(found("destination=http%3A%2F%2Fother%3A80".to_owned()).await, 0);
    // `since` is at or after, `until` before: together they part the list.
    let (from, before) = (found(format!("since={created}")).await, found(format!("until={created}")).await);
    assert_eq!((from, before), (3, 2));
    assert_eq!(found(format!("since={created}&until={created}")).await, 0);
    assert_eq!(found("since=2999-01-01T00:00:00Z".to_owned()).await, 0);
    let failed = running.admin.all("/v1/notifications/failed?channel=webhook").await;
    assert_eq!(ids(&failed), [sent[2].clone(), sent[1].clone()]);
    assert_eq!(running.admin.all(&format!("/v1/notifications/failed?until={created}")).await.len(), 1);
    running.stop().await;
}

async fn the_retry_queue_shows_what_is_due_soonest_first(on: StoreKind) {
    let running = Running::start(on).await;
    let mut wanted = vec![];
    for minutes in [30, 5, 90, 10, 60, 20] {
        let mut one = running.webhook("/status/503");
        one["policy"] = json!({"strategy": "fixed", "initialDelay": format!("{minutes}m"), "jitter": "none", "quick": {"tries": 0}});
        let shown = running.admin.send_until(&one, "retryScheduled").await;
        wanted.push((minutes, text(&shown, "notificationId").to_owned()));
    }
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    wanted.sort_unstable();
    let rows = running.admin.all("/v1/retry-queue?limit=2").await;
    assert_eq!(ids(&rows), wanted.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    assert!(rows.is_sorted_by_key(|row| text(row, "nextAttemptAt").parse::<Timestamp>().unwrap()));
    assert!(rows.iter().all(|row| row["status"] == "retrying" && row["attempt"] == 2));
    assert!(text(&rows[0], "words").starts_with("Retrying (attempt 2 of "), "{}", rows[0]);
    running.stop().await;
}

async fn dead_letters_are_listed_by_status_and_keep_their_payload_and_history(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let mut letters = vec![];
    for at in 0..3 {
        let mut one = running.webhook("/sequence/503,400,200");
        one["eventKey"] = json!(format!("order-{at}"));
        one["correlationId"] = json!("c-1");
        one["metadata"] = json!({"at": at});
        let dead = admin.send_until(&one, "deadLetter").await;
        letters.push((text(&dead, "deadLetterId").to_owned(), text(&dead, "notificationId").to_owned()));
    }
    let act = async |at: usize, act: &str| {
        admin.act(&format!("/v1/dead-letters/{}/{act}", letters[at].0)).await.is(202)
    };
    let (letter, notification) = &letters[1];
    assert_eq!(
        act(1, "requeue").await,
        json!({"id": letter, "notificationId": notification, "status": "queued", "attempt": 1})
    );
    assert_eq!(act(2, "discard").await["status"], "failed");
    let listed = async |query: &str| -> Vec<String> {
        let rows = admin.all(&format!("/v1/dead-letters{query}")).await;
        rows.iter().map(|row| text(row, "id").to_owned()).collect()
    };
    let of = |wanted: &[usize]| wanted.iter().map(|at| letters[*at].0.clone()).collect::<Vec<_>>();
    assert_eq!(listed("").await, of(&[0]));
    assert_eq!(listed("?status=pending").await, of(&[0]));
    assert_eq!(listed("?status=requeued").await, of(&[1]));
    assert_eq!(listed("?status=cancelled").await, of(&[2]));
    assert_eq!(listed("?status=all&limit=1").await, of(&[2, 1, 0]));
    assert_eq!(listed("?status=all&q=order-1").await, of(&[1]));
    assert_eq!(listed("?failureType=permanent").await, of(&[0]));
    assert_eq!(listed("?failureType=temporary").await, of(&[]));

    let shown = admin.get(&format!("/v1/dead-letters/{}", letters[0].0)).await;
    assert_eq!((text(&shown, "reasonCode"), text(&shown, "status")), ("PERMANENT_FAILURE", "pending"));
    assert_eq!(shown["payload"]["body"], json!({"hello": "world"}));
    assert_eq!(shown["payload"]["metadata"], json!({"at": 0}));
    assert_eq!(
        (text(&shown, "recipient"), text(&shown, "correlationId")),
        (&*running.sink.url("/sequence/503,400,200"), "c-1")
    );
    let codes: Vec<_> =
        shown["attempts"].as_array().unwrap().iter().map(|one| one["statusCode"].clone()).collect();
    assert_eq!(codes, [json!(503), json!(400)]);
    assert_eq!(shown["lastAttemptAt"], shown["attempts"][1]["startedAt"]);

    // Requeued: attempts from 1 in a new generation, the same notification; discarded: failed for good, until restored.
    let again = admin.wait(notification, "succeeded").await;
    assert_eq!(
        (&again["attempt"], &again["generation"], &again["maxAttempts"]),
        (&json!(1), &json!(2), &json!(3))
    );
    let discarded = admin.wait(&letters[2].1, "failed").await;
    assert_eq!(
        (text(&discarded, "reasonCode"), text(&discarded, "words")),
        ("DISCARDED", "Permanently Failed")
    );
    act(2, "restore").await;
    admin.wait(&letters[2].1, "deadLetter").await;
    assert_eq!(listed("").await, of(&[2, 0]));
    running.stop().await;
}

/// What a row says about its attempts.
fn said(row: &Value) -> [Value; 4] {
    ["lastError", "lastStatusCode", "attemptsMade", "reason"].map(|name| row[name].clone())
}

async fn lists_and_one_notification_say_why_it_is_retried_or_ended(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, error) = (&running.admin, json!("answered 503: failed as told"));
    let sent = async |path: &str, policy: Value, ttl: Value, state: &str| {
        let mut one = running.webhook(path);
        one["policy"] = policy;
        if !ttl.is_null() {
            one["ttlSeconds"] = ttl;
        }
        text(&admin.send_until(&one, state).await, "notificationId").to_owned()
    };
    let aged = json!({"strategy": "fixed", "initialDelay": "1s", "jitter": "none", "quick": {"tries": 0}, "maxAge": "500ms"});
    let none = Value::Null;
    let table = [
        (
            sent("/sequence/503,200", quick(3), none.clone(), "succeeded").await,
            [none.clone(), none.clone(), json!(2), none.clone()],
        ),
        (
            sent("/status/503", slow(), none.clone(), "retryScheduled").await,
            [error.clone(), json!(503), json!(1), none.clone()],
        ),
        // They end by time before their second attempt.
        (
            sent("/status/503", slow(), json!(1), "expired").await,
            [error.clone(), json!(503), json!(1), error.clone()],
        ),
        (
            sent("/status/503", aged, none.clone(), "deadLetter").await,
            [error.clone(), json!(503), json!(1), error.clone()],
        ),
        (
            sent("/reset", quick(1), none.clone(), "deadLetter").await,
            [json!("*"), none.clone(), json!(1), json!("*")],
        ),
    ];
    let list = admin.all("/v1/notifications").await;
    for (id, wanted) in &table {
        let shown = admin.get(&format!("/v1/notifications/{id}")).await;
        let listed = list.iter().find(|row| row["notificationId"] == **id).unwrap();
        assert_eq!(said(listed), said(&shown), "{shown}");
        let any = |at: usize| {
            wanted[at] == "*" && shown["lastError"].is_string() && said(&shown)[at] == shown["lastError"]
        };
        assert!((0..4).all(|at| said(&shown)[at] == wanted[at] || any(at)), "{shown}");
    }
    let queue = admin.all("/v1/retry-queue").await;
    assert_eq!((ids(&queue), said(&queue[0])), (vec![table[1].0.clone()], table[1].1.clone()));
    // Both kinds of end are found by how their last attempt failed, and a dead letter says it too.
    let found = ids(&admin.all("/v1/notifications?statusCode=503&state=expired,deadLetter").await);
    assert_eq!(found, [table[3].0.clone(), table[2].0.clone()]);
    let letters = admin.all("/v1/dead-letters?statusCode=503").await;
    let letter = letters.first().unwrap();
    assert_eq!((letters.len(), text(letter, "reasonCode")), (1, "MAX_AGE_EXCEEDED"));
    assert_eq!((&letter["reason"], &letter["exceptionDetails"]), (&error, &error));
    assert_eq!((&letter["lastStatusCode"], &letter["statusNumber"]), (&json!(503), &json!(0)));
    running.stop().await;
}

async fn an_attempt_says_when_each_try_was_made(on: StoreKind) {
    let running = Running::start(on).await;
    let mut one = running.webhook("/sequence/503,503,200");
    one["policy"] = json!({"quick": {"tries": 2, "delay": "20ms", "backoff": "constant", "jitter": false}});
    let done = running.admin.send_until(&one, "succeeded").await;
    let attempt = &done["attempts"][0];
    let tries = attempt["quickTries"].as_array().unwrap();
    let mut times: Vec<Timestamp> = tries.iter().map(|one| text(one, "startedAt").parse().unwrap()).collect();
    times.push(text(attempt, "lastTryAt").parse().unwrap());
    assert_eq!((times.len(), text(attempt, "startedAt")), (3, text(&tries[0], "startedAt")));
    // The waits are between the tries.
    assert!(times.is_sorted_by(|one, next| next.since(*one).as_millis() >= 19), "{attempt}");
    assert!(text(attempt, "endedAt") >= text(attempt, "lastTryAt"), "{attempt}");
    // A dead letter shows it too. The only try of an attempt is the last.
    one["to"] = json!(running.sink.url("/sequence/503,503,400,503,400"));
    let dead = running.admin.send_until(&one, "deadLetter").await;
    let letter = format!("/v1/dead-letters/{}", text(&dead, "deadLetterId"));
    let (shown, made) = (running.admin.get(&letter).await["attempts"][0].clone(), &dead["attempts"][0]);
    assert_eq!((&shown["lastTryAt"], &shown["quickTries"]), (&made["lastTryAt"], &made["quickTries"]));
    assert_eq!(made["quickTries"].as_array().map(Vec::len), Some(2));
    one["policy"] = quick(1);
    let only = &running.admin.send_until(&one, "deadLetter").await["attempts"][0];
    assert_eq!(only["lastTryAt"], only["startedAt"]);
    running.stop().await;
}

async fn each_act_leaves_its_row_in_the_audit(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let dead = admin.send_until(&running.webhook("/sequence/400,400,200"), "deadLetter").await;
    let (id, letter) = (text(&dead, "notificationId"), text(&dead, "deadLetterId"));
    for act in ["discard", "restore"] {
        admin.act(&format!("/v1/dead-letters/{letter}/{act}")).await.is(202);
    }
    admin.act(&format!("/v1/notifications/{id}/retry")).await.is(202);
    let dead = admin.wait(id, "deadLetter").await;
    admin.act(&format!("/v1/dead-letters/{}/requeue", text(&dead, "deadLetterId"))).await.is(202);
    let done = admin.wait(id, "succeeded").await;
    admin.act(&format!("/v1/notifications/{id}/cancel")).await.problem(409, "STATE_CONFLICT");
    let rows = admin.all("/v1/audit?limit=2").await;
    let acts: Vec<_> =
        rows.iter().map(|row| text(row, "action")).filter(|action| *action != "make-secret").collect();
    assert_eq!(acts, ["requeue", "retry", "restore", "discard"]);
    assert!(rows.is_sorted_by(|newer, older| newer["number"].as_i64() > older["number"].as_i64()));
    for row in rows.iter().filter(|row| row["action"] != "make-secret") {
        assert_eq!(
            (text(row, "actor"), text(row, "tenant"), text(row, "outcome")),
            ("admin", "default", "done")
        );
        assert_eq!((&row["asked"], &row["count"]), (&json!(1), &json!(1)));
    }
    let events: Vec<_> =
        done["events"].as_array().unwrap().iter().map(|event| text(event, "event")).collect();
    assert_eq!(events, ["discard", "restore", "retry", "requeue"]);
    running.stop().await;
}

on_each_store! {
    paging_shows_every_row_once_while_new_ones_arrive;
    each_filter_finds_what_it_says_and_nothing_else;
    the_retry_queue_shows_what_is_due_soonest_first;
    dead_letters_are_listed_by_status_and_keep_their_payload_and_history;
    lists_and_one_notification_say_why_it_is_retried_or_ended;
    an_attempt_says_when_each_try_was_made;
    each_act_leaves_its_row_in_the_audit;
}
