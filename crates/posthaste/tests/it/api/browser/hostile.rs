//! What senders and receivers say never becomes part of a page: no element, no script, no dialog, no request.

use http::Method;
use serde_json::{Value, json};

use super::super::running::{quick, slow};
use super::Scene;
use super::server::{RawServer, answer};
use crate::program::eventually;

/// Ends every kind of text that HTML has. What it tries: elements, requests by htmx, which no policy forbids, and scripts.
const EVIL: &str = "\"'--></textarea></title></script><b data-planted hx-get=/planted hx-trigger=load>x</b>\
    <img src=/planted onerror=window.planted=1><script>window.planted=1;alert(1)</script>";
/// The same for names, which are short.
const EVIL_NAME: &str =
    "\"'><b data-planted hx-get=/planted hx-trigger=load><script>alert(window.planted=1)</script>";
/// What came of it on a page: whether a script ran, the elements that were built, and whether the text is shown.
const CAME: &str = "const texts = [document.documentElement.textContent, \
        ...[...document.querySelectorAll('input, textarea')].map((one) => one.value), \
        ...[...document.querySelectorAll('[title]')].map((one) => one.title)]; \
    return { ran: !!window.planted, built: document.querySelectorAll('[data-planted]').length, \
        shown: texts.some((text) => text.includes('data-planted')) }";

impl Scene {
    /// Fills every field that a sender, a receiver or the holder of a key writes, and returns addresses of what came of it.
    async fn be_hostile(&self, receiver: &RawServer) -> Vec<String> {
        let admin = &self.running.admin;
        let path = "/%3Cb%20data-planted%3E/';alert(1)//";
        let mut sent = json!({
            "channel": "webhook", "to": format!("http://{}{path}", receiver.address),
            "subject": EVIL, "eventKey": EVIL, "correlationId": EVIL, "module": EVIL, "template": EVIL, "userId": EVIL,
            "body": {EVIL: EVIL, "list": [EVIL]}, "metadata": {EVIL: EVIL}, "headers": {"x-evil": EVIL},
            "policy": quick(1),
        });
        let dead = admin.send_until(&sent, "deadLetter").await;
        admin.send_until(&sent, "deadLetter").await;
        sent["body"] = json!(EVIL);
        sent["policy"] = slow();
        sent["policy"]["quick"] = json!({"tries": 1, "delay": "1ms"});
        sent["to"] = json!(format!("{}?{EVIL}", self.running.sink.url("/status/503")));
        let told = admin.post("/v1/notifications", &sent).await;
        // An address that is no address is refused; one that is a bad taste is not.
        if told.status == 422 {
            sent["to"] = json!(self.running.sink.url("/status/503?%22%3E%3Cb%20data-planted%3E"));
        }
        let waits = admin.send_until(&sent, "retryScheduled").await;
        let wanted = json!({"name": EVIL_NAME, "tenant": "*", "role": "admin"});
        let key = admin.post("/v1/keys", &wanted).await.is(201)["key"].as_str().unwrap().to_owned();

        // With that name come acts, notes and runs.
        let evil = self.running.caller(Some(&key));
        let letters = evil.all("/v1/dead-letters").await;
        evil.act(&format!("/v1/dead-letters/{}/discard", text(&letters[0]["id"]))).await.is(202);
        evil.act("/v1/jobs/retry-expire/run").await;
        for group in evil.all("/v1/failure-groups").await {
            let note = format!("/v1/failure-groups/{}/note", text(&group["id"]));
            evil.ask(Method::PUT, &note, &[], json!({"text": EVIL}).to_string()).await.is(200);
        }
        let started = evil.post("/v1/retry-operations", &json!({"filter": {"q": EVIL}})).await.is(202);
        let path = format!("/v1/retry-operations/{}", text(&started["id"]));
        let ended = async || Some(evil.get(&path).await).filter(|one| one["finishedAt"].is_string());
        eventually(ended).await.expect("the operation ends");
        // What it sent again dies again, before its receiver is blocked.
        evil.wait(&text(&dead["notificationId"]), "deadLetter").await;
        evil.ask(Method::PUT, "/v1/policies/tenant:default", &[], json!({"maxAttempts": 4}).to_string())
            .await
            .is(200);
        let mut also = vec![];
        for one in evil.all("/v1/destinations?all=true").await {
            let path = format!("/destinations/{}", text(&one["id"]));
            evil.post(&format!("/v1{path}/block"), &json!({"reason": EVIL})).await.is(200);
            also.push(path);
        }
        self.log_in(&key).await;
        also.extend([
            format!("/notifications/{}", text(&dead["notificationId"])),
            format!("/notifications/{}", text(&waits["notificationId"])),
            format!("/dead-letters/{}", text(&dead["deadLetterId"])),
            "/dead-letters?status=all".to_owned(),
        ]);
        also
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_others_wrote_runs_on_any_page() {
    let scene = Scene::start().await;
    let receiver = RawServer::start(answer("400 <script>alert(1)</script>", EVIL, EVIL)).await;
    let mut also = scene.be_hostile(&receiver).await;
    let evil: String = url::form_urlencoded::byte_serialize(EVIL.as_bytes()).collect();
    for list in ["notifications", "dead-letters", "retry-queue", "audit"] {
        also.push(format!("/{list}?q={evil}"));
        also.push(format!("/{list}?since={evil}&cursor={evil}"));
        also.push(format!("/{list}?{evil}={evil}"));
    }
    also.push(format!("/login?to={evil}&once={evil}"));
    also.push(format!("/policies/{evil}"));
    also.push(format!("/jobs/{evil}/runs"));
    let mut showing = vec![];
    scene
        .tour(&also, 3, async |path, route| {
            let came = scene.browser.script(CAME, json!([])).await;
            assert!(came["ran"] == false && came["built"] == 0, "{path}: {came}");
            if came["shown"] == true {
                showing.push(route);
            }
        })
        .await;
    // The test can fail: the texts were on the pages.
    for route in [
        "/notifications",
        "/notifications/{id}",
        "/retry-queue",
        "/dead-letters",
        "/dead-letters/{id}",
        "/dead-letters/{id}/edit-and-retry",
        "/audit",
        "/keys",
        "/jobs",
        "/destinations",
        "/destinations/{id}",
    ] {
        assert!(showing.contains(&route), "{route} shows nothing hostile: {showing:?}");
    }
    let heard = scene.browser.heard().await;
    assert!(!heard.addresses.iter().any(|address| address.ends_with("/planted")), "{heard:#?}");
    assert!(heard.addresses.iter().all(|address| address.starts_with(&scene.origin)), "{heard:#?}");
    assert!(heard.dialogs.is_empty(), "{heard:#?}");
    // Pages that refuse a filter or do not exist say so by their status.
    let refusals = ["status of 403", "status of 404", "status of 422"];
    let is_refusal = |complaint: &String| refusals.iter().any(|status| complaint.contains(status));
    assert!(heard.complaints.iter().all(is_refusal), "{heard:#?}");
    scene.open("/").await;
    scene.end().await;
}
