//! The pages of destinations: what is down, when it is tried again, and what people do about it.

use serde_json::json;

use super::super::destinations::{lasting, receiver, until};
use super::super::running::{ADMIN, Running, StoreKind};
use super::{Browser, is_safe};

on_each_store! {
    an_open_breaker_stands_where_people_look;
    a_destination_is_limited_blocked_unblocked_and_reset_by_forms;
}

/// One whose receiver failed until its breaker opened.
async fn start(on: StoreKind) -> (Running, Browser, String) {
    let running = Running::with(on, lasting).await;
    let id = receiver(&running, "default");
    running.admin.send_until(&running.webhook("/status/503"), "deadLetter").await;
    until(&running.admin, &id, |shown| shown["state"] == "open").await;
    let browser = Browser::with(&running, ADMIN).await;
    (running, browser, id)
}

fn holds(page: &str, all: &[&str]) {
    for words in all {
        assert!(page.contains(words), "{words}: {page}");
    }
}

async fn an_open_breaker_stands_where_people_look(on: StoreKind) {
    let (running, mut browser, id) = start(on).await;
    let waits = running.admin.send(&running.webhook("/ok")).await;
    let shown = until(&running.admin, &id, |shown| shown["parked"] == 1).await;
    let probe = shown["blockedUntil"].as_str().unwrap().to_owned();
    let listed = browser.get("/destinations").await;
    is_safe(&listed);
    let page = listed.page();
    let (link, countdown) = (format!("href=\"/destinations/{id}\""), format!("data-distance=\"{probe}\""));
    let wanted =
        ["1 open. 1 notification is parked", "data-s=\"open\">Open<", "answered 503", &link, &countdown];
    holds(&page, &wanted);
    holds(&page, &["3 failed attempts in a row", ">Reset</button>", "/notifications?destination="]);
    // Was it down before? A strip of twelve hours says so, and a longer one where it is asked for.
    holds(&page, &[">Last 12 hours<", "aria-label=\"open since ", "<rect class=\"f\""]);
    let longer = browser.get("/destinations?history=3d").await.page();
    holds(&longer, &["<th scope=\"col\" class=\"hide-s hide-m\">Since <time", "aria-label=\"open since "]);
    let wrong = browser.get("/destinations?history=never").await;
    wrong.is(422);
    holds(&wrong.text, &["The filter is not right.", "history: `never` is no time"]);
    // The destination itself, with its history as a drawing and as a table.
    let one = browser.get(&format!("/destinations/{id}")).await.page();
    let wanted = [
        "The next probe follows at",
        "1 notification waits for it",
        "The breaker opened",
        "aria-label=\"In the last 24 hours open since ",
    ];
    holds(&one, &wanted);
    holds(&one, &[&countdown, "aria-current=\"page\">Destinations<"]);
    // The overview, and the notification that waits.
    let overview = browser.get("/").await.page();
    holds(&overview, &["1 destination is down.", " is down</a>", &link]);
    let waiting = browser.get(&format!("/notifications/{waits}")).await.page();
    holds(&waiting, &["It is due and waits:", "Parked:", "no attempt is spent", &link, &countdown]);
    holds(
        &waiting,
        &["class=\"key pk\"", "<line class=\"pk\" x1=\"", "its destination was open all the time"],
    );
    // By name, all of them, and a mistake at its place.
    let by_name = format!("/destinations?name={}", running.sink.url("/x"));
    holds(&browser.get(&by_name).await.page(), &[&link]);
    holds(&browser.get("/destinations?all=true").await.page(), &[&link]);
    let wrong = browser.get("/destinations?all=maybe").await;
    wrong.is(422);
    holds(&wrong.text, &["The filter is not right."]);
    running.stop().await;
}

async fn a_destination_is_limited_blocked_unblocked_and_reset_by_forms(on: StoreKind) {
    let (running, mut browser, id) = start(on).await;
    let path = format!("/destinations/{id}");
    let kept = async || running.admin.get(&format!("/v1/destinations/{id}")).await;
    browser.press(&path, &path, &[("rate", "12.5"), ("concurrency", "4")]).await.is(303);
    let limited = kept().await;
    assert_eq!((&limited["rate"], &limited["concurrency"]), (&json!(12.5), &json!(4)));
    holds(&browser.get(&path).await.page(), &["12.5 a second, 4 at once", "Saved.", "value=\"12.5\""]);
    // What is wrong is said in the words of the API, and nothing changes.
    browser.press(&path, &path, &[("rate", "fast"), ("concurrency", "")]).await.is(303);
    holds(&browser.get(&path).await.page(), &["Not done.", "value=\"12.5\""]);
    browser.press(&path, &path, &[("rate", ""), ("concurrency", "")]).await.is(303);
    assert_eq!(
        (kept().await["rate"].clone(), kept().await["concurrency"].clone()),
        (json!(null), json!(null))
    );
    let act = |name: &str| format!("{path}/{name}");
    browser.press(&path, &act("block"), &[("reason", "until <b>noon</b>")]).await.is(303);
    let blocked = browser.get(&path).await.page();
    holds(&blocked, &["blocked it", "until &#60;b&#62;noon", ">Unblock</button>", "Blocked by a person"]);
    assert!(!blocked.contains("Block until unblocked"), "{blocked}");
    holds(&browser.get("/destinations").await.page(), &["1 blocked by a person", "; blocked since "]);
    let waits = running.admin.send(&running.webhook("/ok")).await;
    browser.press(&path, &act("unblock"), &[]).await.is(303);
    browser.press(&path, &act("reset"), &[]).await.is(303);
    // What kept a notification is drawn also when it has arrived; one that came later was kept by nothing.
    running.admin.wait(&waits, "succeeded").await;
    let kept_by = browser.get(&format!("/notifications/{waits}")).await.page();
    holds(&kept_by, &["<line class=\"pk\"", "Since it was accepted, its destination was ", "blocked "]);
    let later = running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    let later = format!("/notifications/{}", later["notificationId"].as_str().unwrap());
    assert!(!browser.get(&later).await.page().contains("class=\"pk\""));
    let reset = kept().await;
    assert_eq!((&reset["state"], &reset["blockedBy"]), (&json!("closed"), &json!(null)));
    let page = browser.get(&path).await.page();
    holds(&page, &["Reset: closed at full speed", "All that is due is sent", "Block until unblocked"]);
    holds(&browser.get("/destinations").await.page(), &["A destination is the origin of webhooks"]);
    // A reader sees the same without acts.
    let reader = running.admin.post("/v1/keys", &json!({"name": "r", "tenant": "*", "role": "reader"})).await;
    let reader = reader.is(201)["key"].as_str().unwrap().to_owned();
    let mut reader = Browser::with(&running, &reader).await;
    let seen = reader.get(&path).await.page();
    assert!(!seen.contains("Block until unblocked") && !seen.contains("Save the limits"), "{seen}");
    running.stop().await;
}
