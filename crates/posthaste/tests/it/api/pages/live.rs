//! What lists tell of what came since they were made.

use super::super::running::{ADMIN, Running, StoreKind, slow};
use super::Browser;

on_each_store! {
    a_list_hears_of_what_came_since_its_page_was_made;
}

/// The attribute of the first element that has it.
fn attribute<'p>(page: &'p str, name: &str) -> Option<&'p str> {
    let start = format!(" {name}=\"");
    let from = page.find(&start)? + start.len();
    page[from..].split('"').next()
}

fn stream_of(page: &str) -> String {
    let address = attribute(page, "data-stream").unwrap_or_else(|| panic!("no stream: {page}"));
    address.replace("&#38;", "&")
}

/// The next change of a stream.
async fn change(events: &mut posthaste::client::EventStream<'_>) -> serde_json::Value {
    loop {
        let event = tokio::time::timeout(crate::program::PATIENCE, events.next()).await;
        let event = event.expect("a change comes").unwrap().expect("the stream goes on");
        assert_ne!(event.name, "missed", "nothing is missed between the page and its stream");
        if event.name == "notification" {
            return serde_json::from_str(&event.data).unwrap();
        }
    }
}

async fn a_list_hears_of_what_came_since_its_page_was_made(on: StoreKind) {
    let running = Running::start(on).await;
    running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let mut later = running.webhook("/status/503");
    later["policy"] = slow();
    let mut browser = Browser::with(&running, ADMIN).await;
    for (page, names, sent, state) in [
        ("/notifications?status=delivered", "notificationId", running.webhook("/ok"), "succeeded"),
        ("/retry-queue?channel=webhook", "notificationId", later, "retryScheduled"),
        ("/dead-letters?since=1h", "deadLetterId", running.webhook("/status/400"), "deadLetter"),
    ] {
        let shown = browser.get(page).await.page();
        assert_eq!(attribute(&shown, "data-news"), Some(names), "{page}");
        // What comes before the script has opened the stream is told too, and nothing else is.
        running.admin.send_until(&running.webhook("/status/410"), "deadLetter").await;
        let came = running.admin.send_until(&sent, state).await;
        let mut events = running.admin.stream(&stream_of(&shown), None).await;
        let mut told = change(&mut events).await;
        if page.starts_with("/dead-letters") {
            assert_ne!(told[names], came[names], "the other one died first");
            told = change(&mut events).await;
        }
        assert_eq!(told[names], came[names], "{page}");
        let again = browser.get(page).await.page();
        assert!(again.contains(&format!("data-row=\"{}\"", came[names].as_str().unwrap())), "{again}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_page_says_nothing_of_news_that_changes_do_not_tell() {
    let running = Running::start(StoreKind::Sqlite).await;
    for _ in 0..3 {
        running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    }
    let mut browser = Browser::with(&running, ADMIN).await;
    let first = running.admin.get("/v1/notifications?limit=2").await;
    let cursor = first["nextCursor"].as_str().unwrap();
    for silent in [
        format!("/notifications?limit=2&cursor={cursor}"),
        "/dead-letters?status=discarded".to_owned(),
        "/audit".to_owned(),
    ] {
        let page = browser.get(&silent).await.page();
        assert_eq!(attribute(&page, "data-news"), None, "{silent}");
    }
    browser.get("/notifications?since=soon").await.is(422);
    // What would stand behind the last row of a page is not new on it.
    let page = browser.get("/notifications?limit=2").await.page();
    assert_eq!(attribute(&page, "data-last"), first["data"][1]["notificationId"].as_str());
    let whole = browser.get("/notifications").await.page();
    assert_eq!(attribute(&whole, "data-last"), None);
    assert!(whole.contains(">Load again</a>"), "without script the list is loaded again by a link: {whole}");
    running.stop().await;
}

#[tokio::test]
async fn the_live_tail_has_the_stream_of_its_filter_and_says_what_to_do_without_script() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let shown = browser.get("/stream?state=deadLetter&statusCode=410").await.page();
    for words in ["<noscript>", "posthaste tail --state deadLetter --status-code 410", "curl -sSN"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let dead = running.admin.send_until(&running.webhook("/status/410"), "deadLetter").await;
    let mut events = running.admin.stream(&stream_of(&shown), None).await;
    assert_eq!(change(&mut events).await["notificationId"], dead["notificationId"]);
    let typed = browser.get("/stream?state=deadLetter&f=channel%3Dwebhook").await;
    assert_eq!((typed.status.as_u16(), typed.to()), (303, "/stream?state=deadLetter&channel=webhook"));
    for wrong in ["/stream?state=nothing", "/stream?limit=5"] {
        let shown = browser.get(wrong).await;
        shown.is(422);
        assert!(shown.text.contains("The filter is not right"), "{wrong}: {}", shown.text);
        assert_eq!(attribute(&shown.text, "data-stream"), None);
    }
    running.stop().await;
}
