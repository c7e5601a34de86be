//! What the buttons do, each as the API does it.

use serde_json::json;

use super::super::running::{ADMIN, Running, StoreKind, slow};
use super::Browser;

on_each_store! {
    a_dead_letter_is_retried_discarded_and_restored_by_its_buttons;
}

async fn a_dead_letter_is_retried_discarded_and_restored_by_its_buttons(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let (id, letter) = (dead["notificationId"].as_str().unwrap(), dead["deadLetterId"].as_str().unwrap());
    let mut browser = Browser::with(&running, ADMIN).await;
    let page = browser.get("/dead-letters").await.page();
    for column in ["Notification", "Failure reason", "Attempts", "Attempted at", "Retry Now", "Discard"] {
        assert!(page.contains(column), "{column}: {page}");
    }
    let done = browser.press("/dead-letters", &format!("/dead-letters/{letter}/discard"), &[]).await;
    assert_eq!((done.status.as_u16(), done.to()), (303, "/dead-letters"));
    running.admin.wait(id, "failed").await;
    let page = browser.get("/dead-letters").await.page();
    assert!(
        page.contains("Discarded.") && page.contains("Undo") && page.contains(&format!("{letter}/restore")),
        "{page}"
    );
    // It is said once.
    assert!(!browser.get("/dead-letters").await.page().contains("Undo"));
    // A second discard is refused, with the reason.
    browser.press("/dead-letters", &format!("/dead-letters/{letter}/discard"), &[]).await.is(303);
    let page = browser.get("/dead-letters").await.page();
    assert!(page.contains("Not done.") && page.contains("role=\"alert\""), "{page}");
    browser.press("/dead-letters", &format!("/dead-letters/{letter}/restore"), &[]).await.is(303);
    running.admin.wait(id, "deadLetter").await;
    browser.press("/dead-letters", &format!("/dead-letters/{letter}/requeue"), &[]).await.is(303);
    let again = running.admin.wait(id, "deadLetter").await;
    assert_eq!(again["generation"], 2);
    let audit = running.admin.get("/v1/audit?action=discard").await;
    assert_eq!(
        (&audit["data"][0]["actor"], &audit["data"][0]["address"]),
        (&json!("admin"), &json!("127.0.0.1"))
    );
    running.stop().await;
}

#[tokio::test]
async fn with_script_the_row_stays_and_says_what_became_of_it() {
    let running = Running::start(StoreKind::Sqlite).await;
    let dead = running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let letter = dead["deadLetterId"].as_str().unwrap();
    let mut browser = Browser::with(&running, ADMIN).await;
    let token = super::token_of(&browser.get("/dead-letters").await.page());
    let (origin, path) = (browser.origin.clone(), format!("/dead-letters/{letter}/discard"));
    let headers = [("origin", origin.as_str()), ("hx-request", "true")];
    let row =
        browser.ask(http::Method::POST, &path, &headers, super::form(&[("token", &token)])).await.page();
    assert!(
        row.starts_with("<tr")
            && row.contains("Discarded.")
            && row.contains("Undo")
            && !row.contains("Retry Now"),
        "{row}"
    );
    let row =
        browser.ask(http::Method::POST, &path, &headers, super::form(&[("token", &token)])).await.page();
    assert!(row.contains("class=\"bad\""), "{row}");
    // Without a session the whole page goes to log in.
    browser.cookies.clear();
    let gone = browser.ask(http::Method::POST, &path, &headers, super::form(&[("token", &token)])).await;
    assert_eq!(gone.headers["hx-redirect"], "/login");
    running.stop().await;
}

#[tokio::test]
async fn a_notification_is_retried_now_cancelled_and_retried_by_its_buttons() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut sent = running.webhook("/status/503");
    sent["policy"] = slow();
    let waits = running.admin.send_until(&sent, "retryScheduled").await;
    let page = format!("/notifications/{}", waits["notificationId"].as_str().unwrap());
    let mut browser = Browser::with(&running, ADMIN).await;
    let shown = browser.get(&page).await.page();
    for words in
        ["Retrying (attempt 2 of 3)", "Retry now", "Cancel", "Timeline, to scale", "2 attempts are left"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let done = browser.press(&page, &format!("{page}/retry-now"), &[]).await;
    assert_eq!((done.status.as_u16(), done.to()), (303, page.as_str()));
    browser.press(&page, &format!("{page}/cancel"), &[]).await.is(303);
    running.admin.wait(page.rsplit('/').next().unwrap(), "cancelled").await;
    // What is cancelled is not retried, and the page says why.
    browser.press(&page, &format!("{page}/retry"), &[]).await.is(303);
    let shown = browser.get(&page).await.page();
    assert!(shown.contains("Not done.") && shown.contains("only what failed can be retried"), "{shown}");
    running.stop().await;
}

#[tokio::test]
async fn keys_are_made_rotated_and_revoked_on_their_page() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let wrong = browser.press("/keys", "/keys", &[("name", "x"), ("tenant", "*"), ("role", "sender")]).await;
    wrong.is(422);
    assert!(
        wrong.text.contains("Not made.") && wrong.text.contains("reader, operator or admin"),
        "{}",
        wrong.text
    );
    let fields = [("name", "reports"), ("tenant", "acme"), ("role", "reader"), ("expiresAt", "90d")];
    let made = browser.press("/keys", "/keys", &fields).await;
    made.is(201);
    let key = made.text.split("<pre>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    running.caller(Some(&key)).get("/v1/stats").await;
    let listed = running.admin.get("/v1/keys").await;
    let one = &listed["data"][0];
    assert_eq!(
        (&one["name"], &one["role"], &one["tenant"]),
        (&json!("reports"), &json!("reader"), &json!("acme"))
    );
    let id = one["id"].as_str().unwrap().to_owned();
    // The secret is shown once.
    assert!(!browser.get("/keys").await.page().contains(&key));
    let rotated = browser.press("/keys", &format!("/keys/{id}/rotate"), &[]).await.page();
    assert!(rotated.contains("phk_") && !rotated.contains(&key), "{rotated}");
    assert!(rotated.contains("rotated, the old secret until"), "{rotated}");
    browser.press("/keys", &format!("/keys/{id}/revoke"), &[]).await.is(303);
    running.caller(Some(&key)).ask(http::Method::GET, "/v1/stats", &[], "").await.is(401);
    running.stop().await;
}

#[tokio::test]
async fn a_policy_is_saved_only_if_it_is_right() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let path = "/policies/channel:webhook";
    let page = browser.get(path).await.page();
    assert!(page.contains("10 attempts over 3d 11h 8m") && page.contains("<svg"), "{page}");
    for (wrong, words) in
        [("{\"maxAttempts\": 0}", "maxAttempts"), ("{", "not valid JSON"), ("{\"nonsense\": 1}", "nonsense")]
    {
        let shown = browser.press(path, path, &[("policy", wrong)]).await;
        assert!(
            shown.status.is_client_error() && shown.text.contains("Not saved.") && shown.text.contains(words),
            "{wrong}: {shown:?}"
        );
    }
    assert_eq!(running.admin.get("/v1/policies").await["data"], json!([]));
    browser.press(path, path, &[("policy", "{\"maxAttempts\": 4}")]).await.is(303);
    let kept = running.admin.get("/v1/policies/channel:webhook").await;
    assert_eq!(kept["policy"], json!({"maxAttempts": 4}));
    browser.press(path, &format!("{path}/delete"), &[]).await.is(303);
    assert_eq!(running.admin.get("/v1/policies").await["data"], json!([]));
    running.stop().await;
}

#[tokio::test]
async fn jobs_are_run_paused_and_resumed_on_their_page() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let paused = async |running: &Running| {
        let jobs = running.admin.get("/v1/jobs").await;
        jobs["data"].as_array().unwrap().iter().find(|job| job["id"] == "retry-expire").unwrap()["paused"]
            .clone()
    };
    // A job without a schedule waits for no time.
    let page = browser.get("/jobs").await.page();
    let said = |words: &str| page.matches(&format!(">{words}</span>")).count();
    assert_eq!((said("off"), said("waits for its time")), (1, 5), "{page}");
    browser.press("/jobs", "/jobs/retry-expire/pause", &[]).await.is(303);
    assert_eq!(paused(&running).await, true);
    browser.press("/jobs", "/jobs/retry-expire/resume", &[]).await.is(303);
    assert_eq!(paused(&running).await, false);
    browser.press("/jobs", "/jobs/retry-expire/run", &[]).await.is(303);
    let runs = browser.get("/jobs/retry-expire/runs").await.page();
    assert!(runs.contains("Runs of retry-expire") && runs.contains("admin"), "{runs}");
    running.stop().await;
}

/// The payload of a copy whose text was cleared on the page.
async fn cleared(running: &Running, browser: &mut Browser) -> serde_json::Value {
    let mut sent = running.webhook("/status/400");
    sent["body"] = json!("\n some text ");
    let dead = running.admin.send_until(&sent, "deadLetter").await;
    let page = format!("/dead-letters/{}/edit-and-retry", dead["deadLetterId"].as_str().unwrap());
    let form = browser.get(&page).await.page();
    assert!(form.contains(">\n\n some text </textarea>"), "a browser drops the first line break: {form}");
    let done = browser.press(&page, &page, &[("to", &running.sink.url("/ok")), ("body", "")]).await;
    running.admin.wait(done.to().strip_prefix("/notifications/").unwrap(), "succeeded").await["body"].take()
}

#[tokio::test]
async fn a_dead_letter_is_edited_and_sent_as_another_notification() {
    let running = Running::start(StoreKind::Sqlite).await;
    let dead = running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let (id, letter) = (dead["notificationId"].as_str().unwrap(), dead["deadLetterId"].as_str().unwrap());
    let page = format!("/dead-letters/{letter}/edit-and-retry");
    let mut browser = Browser::with(&running, ADMIN).await;
    let form = browser.get(&page).await.page();
    assert!(form.contains("hello") && form.contains("/status/400"), "{form}");
    let (to, fixed) = (running.sink.url("/ok"), "{\"hello\": \"again\"}");
    let wrong = browser.press(&page, &page, &[("to", &to), ("body", "{")]).await;
    assert!(
        wrong.status == 400 && wrong.text.contains("Not sent.") && wrong.text.contains("not valid JSON"),
        "{wrong:?}"
    );
    let wrong = browser.press(&page, &page, &[("to", "nowhere"), ("body", fixed)]).await;
    assert!(
        wrong.status == 422 && wrong.text.contains("Not sent.") && wrong.text.contains("nowhere"),
        "{wrong:?}"
    );
    let done = browser.press(&page, &page, &[("to", &to), ("body", fixed)]).await;
    done.is(303);
    let copy = done.to().strip_prefix("/notifications/").unwrap();
    let copied = running.admin.wait(copy, "succeeded").await;
    assert_eq!((&copied["editOf"], &copied["body"]), (&json!(id), &json!({"hello": "again"})));
    assert_eq!(cleared(&running, &mut browser).await, json!(""), "an empty payload is a payload");
    let shown = browser.get(&format!("/dead-letters/{letter}")).await.page();
    assert!(
        shown.contains("An edited copy was sent in its place") && !shown.contains("Edit and retry<"),
        "{shown}"
    );
    running.stop().await;
}
