//! Ticked rows and all that match, and the way from the overview to the end of an incident.

use serde_json::{Value, json};

use super::super::super::program::eventually;
use super::super::retry_operations::finished;
use super::super::running::{ADMIN, Running, StoreKind, slow};
use super::incident::{die, form_of, send};
use super::{Browser, Shown};

on_each_store! {
    ticked_dead_letters_and_all_that_match_are_counted_then_started;
    what_waits_is_cancelled_by_ticks_and_by_filter;
    an_incident_is_drained_in_a_few_clicks;
    an_operation_whose_receivers_are_blocked_says_what_it_waits_for;
}

/// The conditions that stand in the form below a list.
fn filter_of(page: &Shown) -> Vec<(String, String)> {
    let form = page.text.split("id=\"picks\"").nth(1).expect("ticks").split("</form>").next().unwrap();
    let part =
        |tag: &str, name: &str| tag.split(&format!("{name}=\"")).nth(1)?.split('"').next().map(str::to_owned);
    let hidden = form.split("<input type=\"hidden\"").skip(1);
    hidden.map(|tag| (part(tag, "name").unwrap(), part(tag, "value").unwrap())).collect()
}

/// Starts what the page for a new operation counted; returns the operation as it ended.
async fn start(running: &Running, browser: &mut Browser, counted: &Shown) -> Value {
    let started = send(browser, "/retry-operations", &form_of(counted), &[]).await;
    started.is(303);
    finished(&running.admin, started.to().rsplit('/').next().unwrap()).await
}

async fn ticked_dead_letters_and_all_that_match_are_counted_then_started(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = die(&running, &running.admin, &[400, 400, 401]).await;
    let letter = |number: usize| dead[number]["deadLetterId"].as_str().unwrap();
    let mut browser = Browser::with(&running, ADMIN).await;
    let list = browser.get("/dead-letters").await;
    assert_eq!(list.text.matches("form=\"picks\"").count(), 3, "{}", list.text);
    for words in ["The largest causes", "66.6 %", "Requeue all that match", "only these", "all that match"] {
        assert!(list.text.contains(words), "{words}: {}", list.text);
    }
    // A group is one cause: nothing is left to be told apart.
    let group = running.admin.get("/v1/failure-groups").await["data"][0].clone();
    let one = browser.get(&format!("/dead-letters?group={}", group["id"].as_str().unwrap())).await.page();
    assert!(one.contains("One cause:") && !one.contains("The largest causes"), "{one}");
    let filtered = browser.get("/dead-letters?channel=webhook").await.page();
    assert!(!filtered.contains("The largest causes") && filtered.contains("form=\"picks\""), "{filtered}");
    let mut fields = filter_of(&list);
    fields.extend([("ids".to_owned(), letter(0).to_owned()), ("ids".to_owned(), letter(2).to_owned())]);
    // What is ticked stays what it is, whatever dies meanwhile.
    die(&running, &running.admin, &[400]).await;
    let these = [("scope", "page"), ("action", "discard")];
    let counted = send(&mut browser, "/retry-operations/new", &fields, &these).await;
    counted.is(200);
    assert!(
        counted.text.contains("2 picked by hand") && counted.text.contains("Start: discard 2<"),
        "{}",
        counted.text
    );
    let ended = start(&running, &mut browser, &counted).await;
    assert_eq!((&ended["forwarded"], &ended["ids"]), (&json!(2), &json!([letter(0), letter(2)])));
    // All that matched when the list was made.
    let all = [("scope", "filter"), ("action", "requeue")];
    let counted = send(&mut browser, "/retry-operations/new", &fields, &all).await;
    assert!(counted.text.contains("Start: requeue 1<"), "{}", counted.text);
    assert_eq!(start(&running, &mut browser, &counted).await["forwarded"], 1);
    running.admin.wait(dead[1]["notificationId"].as_str().unwrap(), "succeeded").await;
    // What was discarded comes back; what was requeued has no ticks.
    let discarded = browser.get("/dead-letters?status=discarded").await;
    assert_eq!(discarded.text.matches("form=\"picks\"").count(), 2, "{}", discarded.text);
    let counted = send(
        &mut browser,
        "/retry-operations/new",
        &filter_of(&discarded),
        &[("scope", "filter"), ("action", "restore")],
    )
    .await;
    assert_eq!(start(&running, &mut browser, &counted).await["forwarded"], 2);
    assert!(!browser.get("/dead-letters?status=requeued").await.page().contains("form=\"picks\""));
    running.stop().await;
}

async fn what_waits_is_cancelled_by_ticks_and_by_filter(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let mut sent = running.webhook("/status/503");
    sent["policy"] = slow();
    let mut waits = vec![];
    for _ in 0..3 {
        let one = admin.send_until(&sent, "retryScheduled").await;
        waits.push(one["notificationId"].as_str().unwrap().to_owned());
    }
    sent["notBefore"] = json!("2099-01-01T00:00:00Z");
    let queued = admin.send(&sent).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let list = browser.get("/retry-queue").await;
    assert_eq!(list.text.matches("form=\"picks\"").count(), 3, "{}", list.text);
    let mut fields = filter_of(&list);
    fields.push(("ids".to_owned(), waits[0].clone()));
    let these = [("scope", "page"), ("action", "cancel")];
    let counted = send(&mut browser, "/retry-operations/new", &fields, &these).await;
    assert!(counted.text.contains("Start: cancel 1<"), "{}", counted.text);
    assert_eq!(start(&running, &mut browser, &counted).await["forwarded"], 1);
    admin.wait(&waits[0], "cancelled").await;
    // All of the queue is not all that is queued.
    let all = [("scope", "filter"), ("action", "cancel")];
    let counted = send(&mut browser, "/retry-operations/new", &fields, &all).await;
    assert!(counted.text.contains("Start: cancel 2<"), "{}", counted.text);
    assert_eq!(start(&running, &mut browser, &counted).await["forwarded"], 2);
    for id in &waits {
        admin.wait(id, "cancelled").await;
    }
    admin.wait(&queued, "pending").await;
    let live = browser.get("/notifications").await.page();
    assert!(live.contains(&format!("value=\"{queued}\" form=\"picks\"")), "{live}");
    assert!(!live.contains(&format!("value=\"{}\"", waits[0])), "what is over has no tick: {live}");
    assert!(!browser.get("/notifications?status=cancelled").await.page().contains("form=\"picks\""));
    running.stop().await;
}

/// The first link of a page that begins so.
fn link(page: &str, begins: &str) -> String {
    let start = format!("href=\"{begins}");
    let from = page.find(&start).unwrap_or_else(|| panic!("no {begins}: {page}")) + "href=\"".len();
    page[from..].split('"').next().unwrap().replace("&amp;", "&").replace("&#38;", "&")
}

async fn an_incident_is_drained_in_a_few_clicks(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = die(&running, &running.admin, &[400, 400, 400]).await;
    die(&running, &running.admin, &[401]).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let overview = browser.get("/").await.page();
    assert!(overview.contains("3 deaths in this hour and the one before, 3 wait."), "{overview}");
    let group = browser.get(&link(&overview, "/failure-groups/grp_")).await.page();
    let counted = browser.get(&link(&group, "/retry-operations/new?action=requeue")).await;
    assert!(counted.text.contains("Start: requeue 3<"), "{}", counted.text);
    let ended = start(&running, &mut browser, &counted).await;
    assert_eq!((&ended["state"], &ended["forwarded"]), (&json!("completed"), &json!(3)));
    for one in &dead {
        running.admin.wait(one["notificationId"].as_str().unwrap(), "succeeded").await;
    }
    running.stop().await;
}

async fn an_operation_whose_receivers_are_blocked_says_what_it_waits_for(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    die(&running, admin, &[400, 400]).await;
    let known = admin.get("/v1/destinations?all=true").await;
    let destination = format!("/v1/destinations/{}", known["data"][0]["id"].as_str().unwrap());
    admin.act(&format!("{destination}/block")).await.is(200);
    let started = admin.post("/v1/retry-operations", &json!({"all": true})).await.is(202);
    let id = started["id"].as_str().unwrap();
    let path = format!("/v1/retry-operations/{id}");
    let waits =
        eventually(async || Some(admin.get(&path).await).filter(|shown| shown["state"] == "paused")).await;
    assert_eq!(waits.unwrap()["pausedBy"], "breaker");
    let mut browser = Browser::with(&running, ADMIN).await;
    let page = browser.get(&format!("/retry-operations/{id}")).await.page();
    assert!(page.contains("breaker is open. It goes on by itself."), "{page}");
    let list = browser.get("/retry-operations").await.page();
    assert!(list.contains("paused by breaker"), "{list}");
    admin.act(&format!("{destination}/unblock")).await.is(200);
    let ended = finished(admin, id).await;
    assert_eq!((&ended["state"], &ended["forwarded"]), (&json!("completed"), &json!(2)));
    running.stop().await;
}
