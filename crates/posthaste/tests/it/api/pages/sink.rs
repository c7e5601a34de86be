//! The test receiver of `posthaste dev`: its inbox, its dial, and who may turn it.

use http::Method;
use serde_json::json;

use super::super::running::{ADMIN, Running, StoreKind};
use super::{Browser, form, is_safe, token_of};

on_each_store! {
    a_newcomer_makes_the_sink_fail_and_sees_the_retries_arrive;
}

async fn a_newcomer_makes_the_sink_fail_and_sees_the_retries_arrive(on: StoreKind) {
    let running = Running::start(on).await;
    running.show_sink();
    let mut browser = Browser::with(&running, ADMIN).await;
    let welcome = browser.get("/").await.page();
    assert!(welcome.contains("href=\"/sink\"") && welcome.contains(&running.sink.url("/ok")), "{welcome}");
    let empty = browser.get("/sink").await.page();
    assert!(
        empty.contains("Nothing has arrived yet") && empty.contains("as the path of a request says"),
        "{empty}"
    );
    let dial = [("answer", "503"), ("delay", "1ms"), ("times", "2")];
    let done = browser.press("/sink", "/sink/dial", &dial).await;
    assert_eq!((done.status.as_u16(), done.to()), (303, "/sink"));
    assert!(browser.get("/sink").await.page().contains("503 after 1 ms, for 2 more requests"));
    let mut sent = running.webhook("/ok");
    sent["body"] = json!("<script>alert(1)</script>");
    sent["headers"] = json!({"x-evil": "<img src=x>"});
    let sent = running.admin.send_until(&sent, "succeeded").await;
    assert_eq!(sent["attemptsMade"], 3, "{sent}");
    let shown = browser.get("/sink").await;
    is_safe(&shown);
    let page = shown.page();
    let answers: Vec<&str> = ["succeeded\">200", "failed\">503"]
        .iter()
        .filter_map(|answer| page.contains(answer).then_some(*answer))
        .collect();
    assert_eq!(answers.len(), 2, "{page}");
    assert!(page.find("\">200<").unwrap() < page.find("\">503<").unwrap(), "the newest stands first: {page}");
    let id = sent["notificationId"].as_str().unwrap();
    assert_eq!(page.matches(&format!("href=\"/notifications/{id}\"")).count(), 3);
    for words in [
        "POST /ok",
        "webhook-timestamp: ",
        "x-evil: &#60;img",
        "&#60;script&#62;alert(1)",
        "as the path of a request says",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("<script>alert"));
    // Back before it has answered all of them.
    browser.press("/sink", "/sink/dial", &[("answer", "400")]).await.is(303);
    browser.press("/sink", "/sink/reset", &[]).await.is(303);
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    for (answer, delay, times) in [("600", "", ""), ("503", "2h", ""), ("503", "", "0")] {
        let wrong = [("answer", answer), ("delay", delay), ("times", times)];
        browser.press("/sink", "/sink/dial", &wrong).await.is(303);
        let page = browser.get("/sink").await.page();
        assert!(
            page.contains("Not done.") && page.contains("as the path of a request says"),
            "{wrong:?}: {page}"
        );
    }
    browser.press("/sink", "/sink/clear", &[]).await.is(303);
    assert_eq!((running.sink.received(), running.sink.arrivals()), (0, vec![]));
    running.stop().await;
}

#[tokio::test]
async fn the_inbox_goes_on_where_its_page_ends() {
    let running = Running::start(StoreKind::Sqlite).await;
    running.show_sink();
    let batch = json!({"notifications": vec![running.webhook("/ok"); 60]});
    running.admin.post("/v1/notifications/batch", &batch).await.is(202);
    running.sink.wait_for(60).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let first = browser.get("/sink").await.page();
    assert_eq!(first.matches("<tr data-row").count(), 50);
    assert!(first.contains("href=\"/sink?before=11\""), "{first}");
    let last = browser.get("/sink?before=11").await.page();
    assert_eq!(last.matches("<tr data-row").count(), 10);
    assert!(!last.contains("data-news") && !last.contains("Next page"), "{last}");
    browser.get("/sink?before=x").await.is(422);
    browser.get("/sink?other=1").await.is(422);
    running.stop().await;
}

#[tokio::test]
async fn only_an_admin_for_all_tenants_sees_and_turns_it_and_only_where_there_is_one() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut admin = Browser::with(&running, ADMIN).await;
    admin.get("/sink").await.is(404);
    let none = admin.press("/sink", "/sink/dial", &[("answer", "503")]).await;
    none.is(404);
    assert!(none.text.contains("posthaste dev"), "{none:?}");
    running.show_sink();
    assert!(admin.get("/session").await.page().contains("href=\"/sink\""));
    for (tenant, role) in [("*", "reader"), ("*", "operator"), ("a", "admin")] {
        let wanted = json!({"name": "k", "tenant": tenant, "role": role});
        let made = running.admin.post("/v1/keys", &wanted).await.is(201);
        let mut browser = Browser::with(&running, made["key"].as_str().unwrap()).await;
        browser.get("/sink").await.is(403);
        let session = browser.get("/session").await.page();
        assert!(!session.contains("href=\"/sink\""), "{role} of {tenant}");
        let (origin, token) = (browser.origin.clone(), token_of(&session));
        for path in ["/sink/dial", "/sink/reset", "/sink/clear"] {
            let fields = form(&[("token", token.as_str()), ("answer", "503")]);
            browser.ask(Method::POST, path, &[("origin", &origin)], fields).await.is(403);
        }
    }
    assert_eq!(running.sink.inbox().dial(), None);
    running.stop().await;
}
