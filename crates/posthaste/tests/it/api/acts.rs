//! The requests of acts: nothing may be said in them, and a caller that goes away leaves nothing half done.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use http::Method;
use serde_json::json;

use super::running::{ADMIN, Running, StoreKind, slow};

const ACTS: [&str; 6] = [
    "/v1/notifications/{id}/retry",
    "/v1/notifications/{id}/retry-now",
    "/v1/notifications/{id}/cancel",
    "/v1/dead-letters/{id}/requeue",
    "/v1/dead-letters/{id}/discard",
    "/v1/dead-letters/{id}/restore",
];

async fn an_act_takes_an_empty_body_and_refuses_what_it_would_ignore(on: StoreKind) {
    let running = Running::start(on).await;
    let mut waiting = running.webhook("/ok");
    waiting["notBefore"] = json!("2100-01-01T00:00:00Z");
    let admin = &running.admin;
    let id = admin.send(&waiting).await;
    let dead = admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let letter = dead["deadLetterId"].as_str().unwrap();
    let large = format!("{{{}}}", " ".repeat(20_000));
    for path in ACTS {
        let path = path.replace("{id}", if path.contains("dead-letters") { letter } else { &id });
        for (body, headers, status, code, pointer) in [
            (r#"{"delay": "1h"}"#, &[][..], 422, "VALIDATION_FAILED", Some("/delay")),
            ("[]", &[], 422, "VALIDATION_FAILED", Some("")),
            ("{", &[], 400, "BAD_JSON", None),
            (&large, &[], 413, "PAYLOAD_TOO_LARGE", None),
            (
                "a=b",
                &[("content-type", "application/x-www-form-urlencoded")],
                415,
                "UNSUPPORTED_MEDIA_TYPE",
                None,
            ),
        ] {
            let told = admin.ask(Method::POST, &path, headers, body.to_owned()).await;
            let problem = told.problem(status, code);
            assert_eq!(problem["pointer"].as_str(), pointer, "{path} {body}: {problem}");
        }
    }
    assert_eq!(admin.get(&format!("/v1/notifications/{id}")).await["state"], "pending");
    assert_eq!(admin.get(&format!("/v1/dead-letters/{letter}")).await["status"], "pending");
    // Some programs name a type for a body that they do not send.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    admin.ask(Method::POST, &format!("/v1/dead-letters/{letter}/discard"), &form, "").await.is(202);
    admin.post(&format!("/v1/dead-letters/{letter}/restore"), &json!({})).await.is(202);
    admin.ask(Method::POST, &format!("/v1/notifications/{id}/cancel"), &[], " {}\n").await.is(202);
    running.stop().await;
}

/// Asks, and goes away without waiting for the answer.
fn ask_and_go(running: &Running, path: &str, key: &str, body: &str, after: Duration) {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\nidempotency-key: {key}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(running.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    // How far the server comes in the meantime is what differs from one to the next.
    std::thread::sleep(after);
}

async fn a_sender_that_goes_away_has_sent_all_or_nothing(on: StoreKind) {
    const SENDS: u64 = 40;
    let running = Running::start(on).await;
    let letter = |number: u64| {
        let mut one = running.webhook("/ok");
        one["correlationId"] = json!(format!("gone-{number}"));
        one.to_string()
    };
    for number in 0..SENDS {
        let after = Duration::from_micros(number * 50);
        ask_and_go(&running, "/v1/notifications", &format!("k-{number}"), &letter(number), after);
    }
    for number in 0..SENDS {
        let (key, body) = (format!("k-{number}"), letter(number));
        let told =
            running.admin.ask(Method::POST, "/v1/notifications", &[("idempotency-key", &key)], body).await;
        running.admin.wait(told.is(202)["notificationId"].as_str().unwrap(), "succeeded").await;
    }
    assert_eq!(running.admin.all("/v1/notifications").await.len() as u64, SENDS);
    assert_eq!(running.sink.received(), SENDS);
    running.stop().await;
}

async fn an_act_of_somebody_who_goes_away_is_done_or_not_and_what_follows_is_too(on: StoreKind) {
    let running = Running::start(on).await;
    let mut letters = vec![];
    for _ in 0..20 {
        let mut one = running.webhook("/sequence/400,200");
        one["policy"] = slow();
        let dead = running.admin.send_until(&one, "deadLetter").await;
        letters.push((dead["notificationId"].clone(), dead["deadLetterId"].clone()));
    }
    for (number, (_, letter)) in letters.iter().enumerate() {
        let path = format!("/v1/dead-letters/{}/requeue", letter.as_str().unwrap());
        ask_and_go(&running, &path, "-", "", Duration::from_micros(number as u64 * 50));
    }
    for (id, letter) in &letters {
        // What came too late to be heard is asked for again.
        let path = format!("/v1/dead-letters/{}", letter.as_str().unwrap());
        if running.admin.get(&path).await["status"] == "pending" {
            running.admin.act(&format!("{path}/requeue")).await;
        }
        let shown = running.admin.wait(id.as_str().unwrap(), "succeeded").await;
        assert_eq!(shown["attempts"].as_array().unwrap().len(), 2, "{shown}");
    }
    running.stop().await;
}

/// The text of the problem never advises what was just asked for.
async fn an_act_on_what_was_sent_again_names_what_stands_for_it_now(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let dead = admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let id = dead["notificationId"].as_str().unwrap();
    let first = dead["deadLetterId"].as_str().unwrap();
    let ask = async |letter: &str, act: &str| admin.act(&format!("/v1/dead-letters/{letter}/{act}")).await;
    let refused = async |letter: &str, act: &str| -> String {
        let problem = ask(letter, act).await.problem(409, "DEAD_LETTER_RESOLVED");
        problem["detail"].as_str().unwrap().to_owned()
    };
    let pending = format!("{first} is pending already: only a discarded one can be restored");
    assert_eq!(refused(first, "restore").await, pending);
    ask(first, "discard").await.is(202);
    assert_eq!(refused(first, "discard").await, format!("{first} was discarded already"));
    assert_eq!(refused(first, "requeue").await, format!("{first} was discarded: restore it first"));
    // Retried since, it died again: the first dead letter cannot come back, the second one is named.
    admin.act(&format!("/v1/notifications/{id}/retry")).await.is(202);
    let again = admin.wait(id, "deadLetter").await;
    let second = again["deadLetterId"].as_str().unwrap();
    assert_ne!(second, first);
    for act in ["restore", "requeue", "discard"] {
        let detail = refused(first, act).await;
        assert!(detail.ends_with(&format!("its dead letter is now {second}")), "{act}: {detail}");
    }
    // While it lives, its state is named.
    let mut waits = running.webhook("/sequence/400,503");
    waits["policy"] = slow();
    let dead = admin.send_until(&waits, "deadLetter").await;
    let (id, letter) = (dead["notificationId"].as_str().unwrap(), dead["deadLetterId"].as_str().unwrap());
    ask(letter, "discard").await.is(202);
    admin.act(&format!("/v1/notifications/{id}/retry")).await.is(202);
    admin.wait(id, "retryScheduled").await;
    let told = ask(letter, "restore").await.problem(409, "DEAD_LETTER_RESOLVED");
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("retried since; {id} is ")), "{detail}");
    assert_eq!(told["state"], "retryScheduled");
    admin.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    let told = admin.act(&format!("/v1/notifications/{id}/cancel")).await.problem(409, "STATE_CONFLICT");
    assert_eq!(told["detail"], format!("{id} is cancelled already"));
    running.stop().await;
}

on_each_store! {
    an_act_on_what_was_sent_again_names_what_stands_for_it_now;
    an_act_takes_an_empty_body_and_refuses_what_it_would_ignore;
    a_sender_that_goes_away_has_sent_all_or_nothing(flavor = "multi_thread", worker_threads = 2);
    an_act_of_somebody_who_goes_away_is_done_or_not_and_what_follows_is_too(flavor = "multi_thread", worker_threads = 2);
}
