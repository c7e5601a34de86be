//! An incident: its causes, one act on many, and how far that is.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::retry_operations::finished;
use super::super::running::{ADMIN, Caller, Running, StoreKind};
use super::{Browser, Shown};

on_each_store! {
    causes_are_counted_and_noted;
    what_was_counted_is_started_once;
    what_is_wrong_starts_nothing;
    an_operation_is_watched_paused_and_cancelled;
}

/// Dead letters that were refused with these statuses, whose next attempt arrives.
pub(super) async fn die(running: &Running, caller: &Caller, statuses: &[u16]) -> Vec<Value> {
    let mut all = vec![];
    for status in statuses {
        let sent = running.webhook(&format!("/sequence/{status},200"));
        all.push(caller.send_until(&sent, "deadLetter").await);
    }
    all
}

async fn groups(caller: &Caller) -> Vec<Value> {
    caller.all("/v1/failure-groups").await
}

/// The fields of the form for a new operation, as a browser would send them with its button.
pub(super) fn form_of(page: &Shown) -> Vec<(String, String)> {
    let part = |tag: &str, name: &str| -> Option<String> {
        let value = tag.split_once(&format!(" {name}=\""))?.1.split('"').next()?;
        Some(value.replace("&#38;", "&").replace("&#39;", "'").replace("&#34;", "\""))
    };
    let form = page.text.split("<form method=\"post\" action=\"/retry-operations\"").nth(1).expect("a form");
    let form = form.split("</form>").next().unwrap();
    let mut fields = vec![];
    for tag in form.split("<input").skip(1).map(|tag| tag.split('>').next().unwrap()) {
        let is_chosen = !tag.contains("type=\"radio\"") || tag.contains(" checked");
        if let Some(name) = part(tag, "name").filter(|_| is_chosen) {
            fields.push((name, part(tag, "value").unwrap_or_default()));
        }
    }
    let button = form.split("<button").find(|tag| tag.contains("name=\"sure\""));
    fields.extend(button.map(|tag| ("sure".to_owned(), part(tag, "value").unwrap())));
    fields
}

/// Sends a form with some of its fields changed.
pub(super) async fn send(
    browser: &mut Browser,
    path: &str,
    fields: &[(String, String)],
    change: &[(&str, &str)],
) -> Shown {
    let changed = |name: &str| change.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
    let mut all: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), changed(name).unwrap_or(value.as_str()))).collect();
    all.extend(change.iter().filter(|(name, _)| !fields.iter().any(|(given, _)| given == name)).copied());
    browser.send("/retry-operations/new", path, &all).await
}

async fn causes_are_counted_and_noted(on: StoreKind) {
    let running = Running::start(on).await;
    let acme = running.tenant("acme").await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let page = browser.get("/failure-groups").await.page();
    assert!(page.contains("No failure groups") && page.contains("grouped here by its cause"), "{page}");
    die(&running, &running.admin, &[400, 400]).await;
    die(&running, &acme, &[400, 401]).await;
    let known = groups(&running.admin).await;
    let id = known[0]["id"].as_str().unwrap();
    let page = browser.get("/failure-groups").await.page();
    for words in [
        "2 groups hold 4 dead letters.",
        "Growing fastest: 400",
        "75.0 %",
        "3 in the last 24 hours",
        &format!("href=\"/dead-letters?group={id}\""),
        &format!("/retry-operations/new?action=requeue&amp;group={id}"),
        &format!("/retry-operations/new?action=discard&amp;group={id}"),
        "Add a note",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // The part of one tenant, and other kinds.
    let page = browser.get("/failure-groups?tenant=acme").await.page();
    assert!(
        page.contains("2 groups hold 2 dead letters.") && page.contains(&format!("{id}&#38;tenant=acme")),
        "{page}"
    );
    let page = browser.get("/failure-groups?by=tenant").await.page();
    assert!(page.contains(">acme<") && page.contains("aria-current=\"true\">Tenant"), "{page}");
    let wrong = browser.get("/failure-groups?by=colour").await;
    wrong.is(422);
    assert!(
        wrong.text.contains("The filter is not right") && wrong.text.contains("destination"),
        "{}",
        wrong.text
    );
    // A note is kept, and removed by an empty text.
    let (own, note) = (format!("/failure-groups/{id}"), format!("/failure-groups/{id}/note"));
    browser.press(&own, &note, &[("text", "their <b>deploy</b>")]).await.is(303);
    let page = browser.get(&own).await.page();
    assert!(page.contains("The note is kept.") && page.contains("their &#60;b&#62;deploy"), "{page}");
    assert_eq!(groups(&running.admin).await[0]["note"]["text"], "their <b>deploy</b>");
    let long = "x".repeat(2_001);
    browser.press(&own, &note, &[("text", &long)]).await.is(303);
    let page = browser.get(&own).await.page();
    assert!(page.contains("Not done.") && page.contains("2000 characters"), "{page}");
    assert_eq!(groups(&running.admin).await[0]["note"]["text"], "their <b>deploy</b>");
    browser.press(&own, &note, &[("text", "")]).await.is(303);
    assert_eq!(groups(&running.admin).await[0]["note"], Value::Null);
    running.stop().await;
}

async fn what_was_counted_is_started_once(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = die(&running, &running.admin, &[400, 400, 401]).await;
    let group = groups(&running.admin).await[0]["id"].as_str().unwrap().to_owned();
    let mut browser = Browser::with(&running, ADMIN).await;
    let page = browser.get(&format!("/retry-operations/new?action=requeue&group={group}")).await;
    for words in [
        "Requeue in bulk",
        "Start: requeue 2<",
        "Sample, 2 of 2",
        "Audited as admin",
        "until=",
        "--canary 100",
    ] {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
    let fields = form_of(&page);
    // What dies after the count is not part of it.
    let later = die(&running, &running.admin, &[400]).await;
    let started = send(&mut browser, "/retry-operations", &fields, &[]).await;
    started.is(303);
    // A double click gets the same operation.
    let twin = send(&mut browser, "/retry-operations", &fields, &[]).await;
    assert_eq!((twin.status.as_u16(), twin.to()), (303, started.to()));
    let id = started.to().rsplit('/').next().unwrap().to_owned();
    let ended = finished(&running.admin, &id).await;
    assert_eq!((&ended["state"], &ended["forwarded"]), (&json!("completed"), &json!(2)));
    assert_eq!(running.admin.all("/v1/retry-operations").await.len(), 1);
    for one in &dead[..2] {
        running.admin.wait(one["notificationId"].as_str().unwrap(), "succeeded").await;
    }
    for one in [&dead[2], &later[0]] {
        let letter = one["deadLetterId"].as_str().unwrap();
        assert_eq!(running.admin.get(&format!("/v1/dead-letters/{letter}")).await["status"], "pending");
    }
    let page = browser.get(started.to()).await.page();
    for words in [
        "It has started, and is safe on disk.",
        "Requeue 2 dead letters",
        "Done: 2 of 2 are on their way.",
        "2 forwarded + 0 skipped + 0 remaining = 2",
        "Marking",
        "Canary",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("Pause") && !page.contains("data-poll"), "it is over: {page}");
    let page = browser.get("/retry-operations").await.page();
    assert!(page.contains("Requeue 2 dead letters") && page.contains(&format!("group={group}")), "{page}");
    running.stop().await;
}

async fn what_is_wrong_starts_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    die(&running, &running.admin, &[400]).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    for (query, status, words) in [
        ("group=grp_00000000000000000000000000", 200, "Nothing matches"),
        ("group=grp_x", 422, "must be the id of a failure group"),
        ("status=requeued", 422, "pending dead letters only"),
        ("all=true&action=explode", 422, "explode"),
        ("all=true&rate=0", 422, "rate must be from 1"),
        ("all=true&rate=fast", 422, "rate"),
        ("all=true&canary=5000", 422, "size must be from 1 to"),
        ("ids=dl_nothing", 422, "not the id of"),
        ("action=retryNow&status=delivered", 422, "retryNow acts on"),
        ("colour=red", 422, "`colour` is unknown"),
        ("", 200, "Nothing is selected yet."),
    ] {
        let shown = browser.get(&format!("/retry-operations/new?{query}")).await;
        shown.is(status);
        assert!(shown.text.contains(words), "{query}: {}", shown.text);
        assert!(!shown.text.contains("Start: "), "{query}: {}", shown.text);
    }
    let page = browser.get("/retry-operations/new?all=true&action=discard").await;
    assert!(page.text.contains("Start: discard 1<"), "{}", page.text);
    let fields = form_of(&page);
    for (change, words) in [
        // The button said discard.
        (&[("action", "requeue")][..], "it was changed"),
        (&[("f", "channel=email")], "it was changed"),
        (&[("rate", "0")], "rate must be from 1"),
        (&[("until", "soon")], "until must be a time"),
        (&[("status", "requeued")], "pending dead letters only"),
        (&[("ids", "dl_x"), ("scope", "page")], "not the id of"),
    ] {
        let shown = send(&mut browser, "/retry-operations", &fields, change).await;
        shown.is(422);
        assert!(
            shown.text.contains("Not started.") && shown.text.contains(words),
            "{change:?}: {}",
            shown.text
        );
        // What was wrong is shown again, and can be mended.
        assert!(shown.text.contains("id=\"again\""), "{}", shown.text);
    }
    let shown = send(&mut browser, "/retry-operations/new", &[fields[0].clone()], &[("scope", "page")]).await;
    shown.is(422);
    assert!(shown.text.contains("nothing is selected"), "{}", shown.text);
    // A key that was used with something else is a conflict, not another operation.
    send(&mut browser, "/retry-operations", &fields, &[]).await.is(303);
    let other = send(&mut browser, "/retry-operations", &fields, &[("rate", "7")]).await;
    other.is(409);
    assert!(other.text.contains("Not started."), "{}", other.text);
    let all = running.admin.all("/v1/retry-operations").await;
    assert_eq!((all.len(), &all[0]["action"]), (1, &json!("discard")), "{all:?}");
    running.stop().await;
}

/// Looks at a page until it says this.
async fn until_it_says(browser: &mut Browser, path: &str, words: &str) -> String {
    let mut last = String::new();
    for _ in 0..800 {
        last = browser.get(path).await.page();
        if last.contains(words) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{path} never said {words}: {last}");
}

async fn an_operation_is_watched_paused_and_cancelled(on: StoreKind) {
    let running = Running::start(on).await;
    die(&running, &running.admin, &[400, 400, 400]).await;
    let started = running.admin.post("/v1/retry-operations", &json!({"all": true, "rate": 1})).await.is(202);
    let path = format!("/retry-operations/{}", started["id"].as_str().unwrap());
    let mut browser = Browser::with(&running, ADMIN).await;
    browser.press(&path, &format!("{path}/pause"), &[]).await.is(303);
    let page = browser.get(&path).await.page();
    for words in [
        "paused by admin",
        "it waits until somebody resumes it",
        "Resume",
        "Cancel the rest of this operation?",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // The navigation of every page shows it; what was read is good for a second.
    let page = until_it_says(&mut browser, "/notifications", "<br>paused").await;
    assert!(page.contains(&format!("class=\"going\" href=\"{path}\"")), "{page}");
    let listed = running.admin.get("/v1/retry-operations?unfinished=true").await;
    assert_eq!(listed["data"][0]["id"], started["id"]);
    assert!(browser.get("/retry-operations?unfinished=true").await.page().contains(&path));
    // The part that changes, as the script asks for it.
    let part = browser.ask(http::Method::GET, &path, &[("hx-request", "true")], String::new()).await.page();
    assert!(
        part.starts_with("<div class=\"stack\" data-poll") && part.contains("data-state=\"paused\""),
        "{part}"
    );
    browser.press(&path, &format!("{path}/resume"), &[]).await.is(303);
    assert!(browser.get(&path).await.page().contains("It goes on."));
    browser.press(&path, &format!("{path}/cancel"), &[]).await.is(303);
    let ended = finished(&running.admin, started["id"].as_str().unwrap()).await;
    assert_eq!((&ended["state"], &ended["stoppedBy"]), (&json!("cancelled"), &json!("admin")));
    let page = until_it_says(&mut browser, &path, "Stopped with").await;
    let skipped = ended["skipped"].as_u64().unwrap();
    assert!(skipped == 0 || (page.contains("CANCELLED") && page.contains("before their turn")), "{page}");
    // What is over is not changed, and the page says so.
    browser.press(&path, &format!("{path}/pause"), &[]).await.is(303);
    let page = browser.get(&path).await.page();
    assert!(page.contains("Not done.") && !page.contains(">Resume<"), "{page}");
    assert_eq!(running.admin.get("/v1/retry-operations?unfinished=true").await["data"], json!([]));
    running.admin.ask(http::Method::GET, "/v1/retry-operations?unfinished=perhaps", &[], "").await.is(422);
    running.stop().await;
}
