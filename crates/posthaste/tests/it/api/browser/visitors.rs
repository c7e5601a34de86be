//! Who may do what, and pages of other sites that try to act for a visitor.

use serde_json::json;

use super::super::running::ADMIN;
use super::super::tenants::populate;
use super::Scene;
use super::server::{RawServer, answer};
use super::tour::pages;

/// The forms of a page that change something, and what a key would press.
const ACTS: &str = "return [...document.querySelectorAll('form')] \
    .filter((form) => form.method === 'post').map((form) => new URL(form.action).pathname) \
    .concat([...document.querySelectorAll('[data-key], [hx-post]')].map((one) => one.outerHTML))";
/// What everybody may do with a session.
const OWN: [&str; 5] = ["/theme", "/shortcuts", "/logout", "/logout-everywhere", "/login"];

impl Scene {
    async fn key(&self, role: &str) -> String {
        let wanted = json!({"name": role, "tenant": "a", "role": role});
        self.running.admin.post("/v1/keys", &wanted).await.is(201)["key"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_no_act_on_any_page_and_a_sender_sees_no_page() {
    let scene = Scene::start().await;
    let made = json!({"name": "of a", "tenant": "a"});
    let made = scene.running.admin.post("/v1/keys", &made).await.is(201);
    let a = scene.running.caller(made["key"].as_str());
    let (_, dead_letters) = populate(&scene.running, &a).await;
    let sender = scene.key("sender").await;
    scene.open("/login").await;
    scene.browser.type_into("#key", &sender).await;
    scene.browser.press("Sign in").await;
    scene.browser.wait_for("[role=alert]", "may only send").await;

    let reader = scene.key("reader").await;
    scene.log_in(&reader).await;
    let mut looked_at = 0;
    for path in pages().filter(|page| !page.contains('{')).chain(["/dead-letters?status=all"]) {
        scene.open(path).await;
        scene.has_no_act(path).await;
        looked_at += 1;
        let details = "return [...document.querySelectorAll('tr[data-row] a.l1')].slice(0, 9).map((one) => one.pathname)";
        for detail in scene.browser.script(details, json!([])).await.as_array().unwrap() {
            let detail = detail.as_str().unwrap();
            scene.open(detail).await;
            scene.has_no_act(detail).await;
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "{looked_at}");
    // Nor do keys act.
    scene.open("/dead-letters").await;
    scene.browser.keys("jdr").await;
    scene.browser.wait_for("tr.cur", "/sequence/400,200").await;
    scene.running.admin.get(&format!("/v1/dead-letters/{}", dead_letters["pending"])).await;
    assert_eq!(a.get("/v1/stats").await["inDeadLetter"], 2);
    scene.end_after(&["status of 403"]).await;
}

impl Scene {
    async fn has_no_act(&self, path: &str) {
        let acts = self.browser.script(ACTS, json!([])).await;
        let acts = acts.as_array().unwrap();
        assert!(acts.iter().all(|act| OWN.contains(&act.as_str().unwrap())), "{path}: {acts:#?}");
    }
}

/// A page of another site, of which the browser is on the same machine, so that it sends the cookies along.
fn trap(origin: &str, letter: &str, token: &str) -> String {
    let page = format!(
        "<!doctype html><title>Win</title><form method=post action=\"{origin}/dead-letters/{letter}/discard\">\
         <input name=token value=\"{token}\"><button>Win a prize</button></form><iframe src=\"{origin}/dead-letters\"></iframe>"
    );
    answer("200 OK", "text/html", &page)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_acts_for_nobody() {
    let scene = Scene::start().await;
    let dead = scene.running.admin.send_until(&scene.running.webhook("/status/400"), "deadLetter").await;
    let letter = dead["deadLetterId"].as_str().unwrap();
    scene.log_in(ADMIN).await;
    scene.open("/session").await;
    let token = scene.browser.script("return document.querySelector('[name=token]').value", json!([])).await;
    // Even with the token of the session.
    let trap = RawServer::start(trap(&scene.origin, letter, token.as_str().unwrap())).await;
    scene.browser.open(&format!("http://{}/", trap.address)).await;
    scene.browser.press("Win a prize").await;
    scene.browser.wait_for("[role=alert]", "another site").await;

    // Nor by script, which may send but not read.
    scene.browser.open(&format!("http://{}/", trap.address)).await;
    let send = "const [address, token] = arguments, done = arguments[2]; \
        fetch(address, {method: 'POST', mode: 'no-cors', credentials: 'include', body: new URLSearchParams({token})}) \
            .then((answer) => done(answer.type), (error) => done(String(error)))";
    for path in ["/discard", "/requeue"] {
        let address = format!("{}/dead-letters/{letter}{path}", scene.origin);
        assert_eq!(scene.browser.promised(send, json!([address, token])).await, "opaque");
    }
    let heard = scene.browser.heard().await;
    let is_refused = |text: &str| heard.complaints.iter().any(|complaint| complaint.contains(text));
    assert!(is_refused("frame-ancestors") && is_refused("status of 403"), "{heard:#?}");
    let shown = scene
        .running
        .admin
        .get(&format!("/v1/notifications/{}", dead["notificationId"].as_str().unwrap()))
        .await;
    assert_eq!((&shown["state"], &shown["generation"]), (&json!("deadLetter"), &json!(1)));
    // The form that the trap imitates works where it belongs.
    scene.open("/dead-letters").await;
    scene.browser.press_in("tr[data-row]", "Discard").await;
    scene.browser.wait_for("tr.gone", "Discarded").await;
    scene.end().await;
}
