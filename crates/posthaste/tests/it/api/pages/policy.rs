//! The page of a policy: a form that says where each value comes from, the schedule while one edits, mistakes at their field.

use http::Method;
use serde_json::json;

use super::super::running::{ADMIN, Running, StoreKind};
use super::{Browser, form, is_safe, token_of};

on_each_store! {
    the_form_of_a_policy_says_where_each_value_comes_from;
    a_preview_shows_what_would_come_of_a_change_and_saves_nothing;
    a_mistake_stands_at_its_field_and_what_is_right_is_saved;
    a_notification_shows_what_is_planned;
}

const PATH: &str = "/policies/tenant:acme";

/// What the scope says before each test.
fn kept() -> serde_json::Value {
    json!({"maxAttempts": 4, "retryOn": {"permanent": true}})
}

/// One whose tenant `acme` has a policy over that of webhooks.
async fn start(on: StoreKind) -> (Running, Browser) {
    let running = Running::start(on).await;
    for (scope, policy) in [("channel:webhook", json!({"preset": "notify"})), ("tenant:acme", kept())] {
        let path = format!("/v1/policies/{scope}");
        running.admin.ask(Method::PUT, &path, &[], policy.to_string()).await.is(200);
    }
    let browser = Browser::with(&running, ADMIN).await;
    (running, browser)
}

async fn the_form_of_a_policy_says_where_each_value_comes_from(on: StoreKind) {
    let (running, mut browser) = start(on).await;
    let page = browser.get(PATH).await.page();
    for words in [
        "Attempts<br><small>here</small>",
        "Jitter<br><small>preset notify</small>",
        "Give up after<br><small>built-in</small>",
        "name=\"maxAttempts\" value=\"4\" placeholder=\"\"",
        "name=\"timeout\" value=\"\" placeholder=\"10s\"",
        "<option value=\"\">(yes)</option>",
        "4 attempts over",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // Who may not put it sees it, without a form.
    let mut tenant = Browser::with(&running, &running.key_of("acme").await).await;
    let seen = tenant.get("/policies/channel:webhook").await.page();
    assert!(seen.contains("preset notify") && !seen.contains("<form class=\"card\""), "{seen}");
    running.stop().await;
}

async fn a_preview_shows_what_would_come_of_a_change_and_saves_nothing(on: StoreKind) {
    let (running, mut browser) = start(on).await;
    let changed = [("maxAttempts", "5"), ("jitter", "none"), ("quick.tries", "0"), ("channel", "webhook")];
    let shown = browser.press(PATH, &format!("{PATH}/preview"), &changed).await;
    is_safe(&shown);
    let page = shown.page();
    for words in [
        "5 attempts over 7m 30s",
        "was 3m 51s",
        "Attempts: 5, was 4",
        "Permanent: left to the wider scopes, was true",
        "Attempts<br><small>changed here</small>",
        "<!doctype html>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // With script only the part that changes.
    let token = token_of(&browser.get("/session").await.page());
    let (origin, path) = (browser.origin.clone(), format!("{PATH}/preview"));
    let headers = [
        ("origin", origin.as_str()),
        ("hx-request", "true"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let typed = form(&[("token", token.as_str()), ("maxAttempts", "0")]);
    let part = browser.ask(Method::POST, &path, &headers, typed).await.page();
    assert!(part.starts_with("<div class=\"stack\" id=\"preview\">"), "{part}");
    assert!(
        part.contains("Not right yet.") && part.contains("maxAttempts") && part.contains("4 attempts over"),
        "{part}"
    );
    let now = running.admin.get("/v1/policies/tenant:acme").await;
    assert_eq!(now["policy"], kept());
    running.stop().await;
}

async fn a_mistake_stands_at_its_field_and_what_is_right_is_saved(on: StoreKind) {
    let (running, mut browser) = start(on).await;
    for (name, wrong) in
        [("maxAttempts", "none"), ("quick.delay", "1m"), ("schedule", "1m, soon"), ("jitter", "200 %")]
    {
        let shown = browser.press(PATH, PATH, &[(name, wrong), ("quick.tries", "3")]).await;
        shown.is(422);
        assert!(shown.text.contains("Not saved."), "{name}: {}", shown.text);
        assert_eq!(shown.text.matches("class=\"err\"").count(), 1, "{name}: {}", shown.text);
        let at = shown.text.find("aria-invalid").unwrap();
        let field = shown.text[..at].rfind("name=\"").unwrap();
        let field = shown.text[field + 6..].split('"').next().unwrap();
        assert!(field == name || (name == "quick.delay" && field.starts_with("quick.")), "{name} {field}");
        assert!(shown.text.contains(&format!("value=\"{wrong}\"")), "{name}: {}", shown.text);
    }
    assert_eq!(running.admin.get("/v1/policies/tenant:acme").await["policy"], kept());
    // What is right is saved.
    let fields = [
        ("maxAttempts", "5"),
        ("jitter", "plus 30s"),
        ("schedule", "1m, 5m"),
        ("quick.statusCodes", "404, 409"),
        ("retryOn.permanent", "false"),
        ("timeout", ""),
    ];
    browser.press(PATH, PATH, &fields).await.is(303);
    let wanted = json!({"maxAttempts": 5, "jitter": {"plus": "30s"}, "schedule": ["1m", "5m"],
        "quick": {"statusCodes": [404, 409]}, "retryOn": {"permanent": false}});
    assert_eq!(running.admin.get("/v1/policies/tenant:acme").await["policy"], wanted);
    running.stop().await;
}

async fn a_notification_shows_what_is_planned(on: StoreKind) {
    let running = Running::start(on).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let mut sent = running.webhook("/status/503");
    sent["policy"] =
        json!({"schedule": ["1h", "2h", "4h"], "jitter": {"percent": 10}, "quick": {"tries": 0}});
    let waits = running.admin.send_until(&sent, "retryScheduled").await;
    let id = waits["notificationId"].as_str().unwrap().to_owned();
    let planned = running.admin.get(&format!("/v1/notifications/{id}")).await["planned"].clone();
    let attempts = planned["attempts"].as_array().unwrap();
    let numbers: Vec<u64> = attempts.iter().map(|one| one["number"].as_u64().unwrap()).collect();
    assert_eq!((numbers, &planned["then"]), (vec![3, 4], &json!("deadLetter")));
    // 2 h and 4 h after the next one, 10 % more or less each.
    let time = |value: &serde_json::Value| {
        let at: posthaste_core::time::Timestamp = value.as_str().unwrap().parse().unwrap();
        at.as_millis() / 60_000
    };
    let next = time(&waits["nextAttemptAt"]);
    let after = |one: &serde_json::Value| (time(&one["earliest"]) - next, time(&one["latest"]) - next);
    assert_eq!((after(&attempts[0]), after(&attempts[1])), ((108, 132), (324, 396)));
    let page = browser.get(&format!("/notifications/{id}")).await.page();
    for words in
        ["Attempt 4, at the latest", "Attempt 3, at the latest", "then dead letter", "1 made, 3 planned"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert_eq!(page.matches("class=\"jt\"").count(), 2, "{page}");
    // A notification that expires before says so; one that has ended plans nothing.
    sent["ttlSeconds"] = json!(2 * 3_600);
    let expires = running.admin.send_until(&sent, "retryScheduled").await;
    let expires = running
        .admin
        .get(&format!("/v1/notifications/{}", expires["notificationId"].as_str().unwrap()))
        .await;
    assert_eq!(expires["planned"], json!({"attempts": [], "then": "expired"}));
    let ended = running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    let ended =
        running.admin.get(&format!("/v1/notifications/{}", ended["notificationId"].as_str().unwrap())).await;
    assert_eq!(ended["planned"], json!(null));
    running.stop().await;
}
