//! The dashboard by keyboard alone, and without script.

use serde_json::{Value, json};

use super::super::running::{ADMIN, quick};
use super::Scene;

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// What the page is doing, for a person who does not use a mouse.
const STATE: &str = "const text = (one) => one ? one.textContent.trim() : null; \
    return { \
        row: text(document.querySelector('tr.cur .l2')), \
        focus: text(document.activeElement), \
        inFilter: document.activeElement.id === 'f', \
        dialog: document.querySelector('#keys').open }";

impl Scene {
    /// Dead letters with these subjects; the last is the newest.
    async fn dead(&self, subjects: &[&str]) -> Vec<Value> {
        let mut dead = vec![];
        for subject in subjects {
            let mut sent = self.running.webhook("/status/400");
            (sent["subject"], sent["policy"]) = (json!(subject), quick(1));
            dead.push(self.running.admin.send_until(&sent, "deadLetter").await);
        }
        dead
    }

    /// Waits until something about the page is so.
    async fn is(&self, name: &str, wanted: Value) {
        self.browser
            .until(&format!("{name} is not {wanted}"), async || {
                let state = self.browser.script(STATE, json!([])).await;
                let is_so = match (&state[name], &wanted) {
                    (Value::String(text), Value::String(part)) => text.starts_with(part.as_str()),
                    (value, wanted) => value == wanted,
                };
                if is_so { Ok(()) } else { Err(state) }
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_reaches_rows_acts_and_pages() {
    let scene = Scene::of_admin().await;
    let dead = scene.dead(&["oldest", "middle", "newest"]).await;
    let (browser, admin) = (&scene.browser, &scene.running.admin);
    let id = |place: usize| dead[place]["notificationId"].as_str().unwrap();
    scene.open("/dead-letters").await;
    for (keys, row) in [("j", "newest"), ("jj", "oldest"), ("j", "oldest"), ("k", "middle")] {
        browser.keys(keys).await;
        scene.is("row", json!(row)).await;
    }
    // Discard the row, and take it back. The row stays the chosen one.
    browser.keys("d").await;
    browser.wait_for("tr.gone", "Discarded").await;
    admin.wait(id(1), "failed").await;
    scene.is("row", json!("middle")).await;
    browser.keys("u").await;
    browser.wait_for("tr.gone", "among the dead letters again").await;
    admin.wait(id(1), "deadLetter").await;
    browser.keys("jr").await;
    browser.wait_for("tr.gone.cur", "Requeued").await;
    assert_eq!(admin.wait(id(0), "deadLetter").await["generation"], 2);

    // What is typed into the filter is no command.
    browser.keys("/").await;
    scene.is("inFilter", json!(true)).await;
    browser.keys("jd?").await;
    let typed = browser.script("return document.querySelector('#f').value", json!([])).await;
    assert_eq!(typed, "jd?");
    scene.is("row", json!("oldest")).await;
    scene.is("dialog", json!(false)).await;

    // Enter opens the row, and letters lead to pages. What was requeued died again and is the newest now.
    scene.open("/dead-letters").await;
    browser.keys("jj").await;
    browser.keys(ENTER).await;
    browser.wait_for("h1", "newest").await;
    for (keys, heading) in
        [("gn", "Notifications"), ("gq", "Retry queue"), ("gd", "Dead letter queue"), ("go", "Overview")]
    {
        browser.keys(keys).await;
        browser.wait_for("h1", heading).await;
        browser.is_painted().await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_switched_off_and_on_again() {
    let scene = Scene::of_admin().await;
    scene.dead(&["one"]).await;
    let browser = &scene.browser;
    scene.open("/session").await;
    browser.press("Switch them off").await;
    browser.wait_for(".help", "They are off in this browser.").await;
    scene.open("/dead-letters").await;
    browser.keys("?").await;
    browser.keys("jd/").await;
    for (name, wanted) in [("row", Value::Null), ("dialog", json!(false)), ("inFilter", json!(false))] {
        scene.is(name, wanted).await;
    }
    assert_eq!(scene.running.admin.get("/v1/stats").await["inDeadLetter"], 1);
    // The list of keys is still there, and says where they are switched on.
    browser.press_in("ul.who", "Keys").await;
    browser.press_in("#keys", "Session").await;
    browser.press("Switch them on").await;
    browser.wait_for(".help", "They are on.").await;
    scene.open("/dead-letters").await;
    browser.keys("j").await;
    scene.is("row", json!("one")).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_focus_comes_back_to_where_it_was() {
    let scene = Scene::of_admin().await;
    scene.dead(&["one", "two"]).await;
    let browser = &scene.browser;
    scene.open("/dead-letters").await;
    let focus = "document.querySelector(arguments[0]).focus()";
    browser.script(focus, json!(["nav.side a[data-open=keys]"])).await;
    browser.keys(ENTER).await;
    scene.is("dialog", json!(true)).await;
    scene.is("focus", json!("Close")).await;
    browser.keys(ESCAPE).await;
    scene.is("dialog", json!(false)).await;
    scene.is("focus", json!("Keys")).await;
    // Keys that are pressed in the list of keys do nothing.
    browser.keys("?").await;
    scene.is("dialog", json!(true)).await;
    browser.keys("dr").await;
    browser.keys(ENTER).await;
    scene.is("dialog", json!(false)).await;
    assert_eq!(scene.running.admin.get("/v1/stats").await["inDeadLetter"], 2);

    // An act swaps the row in which the focus was.
    browser.script(focus, json!(["tr[data-row] button[data-key=d]"])).await;
    browser.keys(ENTER).await;
    browser.wait_for("tr.gone", "Discarded").await;
    scene.is("focus", json!("Undo")).await;
    browser.keys(ENTER).await;
    browser.wait_for("tr.gone", "among the dead letters again").await;
    scene.is("focus", json!("Retry Now")).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_and_single_acts_work_without_script() {
    let scene = Scene::start().await;
    let dead = scene.dead(&["first", "second", "third"]).await;
    let (browser, admin) = (&scene.browser, &scene.running.admin);
    let id = |place: usize| dead[place]["notificationId"].as_str().unwrap();
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    scene.log_in(ADMIN).await;
    scene.open("/dead-letters?limit=2").await;
    // No script ran: the zone is still that of the server, and what only a script can do is not offered.
    browser.wait_for("[data-zone]", "UTC").await;
    browser.wait_until("return document.querySelector('[data-open=keys]').hidden", json!([])).await;
    browser.press("Next page").await;
    browser.wait_for("tr[data-row]", "first").await;
    browser.type_into("#f", "q=second").await;
    browser.press("Filter").await;
    browser.wait_for(".tok", "second").await;
    browser.wait_until("return document.querySelectorAll('tr[data-row]').length === 1", json!([])).await;
    // Each act loads the page again, with a sentence about what came of it.
    browser.press_in("tr[data-row]", "Discard").await;
    browser.wait_for(".toast", "Discarded").await;
    admin.wait(id(1), "failed").await;
    browser.press_in(".toast", "Undo").await;
    browser.wait_for(".toast", "among the dead letters again").await;
    admin.wait(id(1), "deadLetter").await;
    scene.open(&format!("/notifications/{}", id(2))).await;
    browser.press("Retry Now").await;
    browser.wait_for(".toast", "Requeued").await;
    assert_eq!(admin.wait(id(2), "deadLetter").await["generation"], 2);
    let letter = dead[0]["deadLetterId"].as_str().unwrap();
    scene.open(&format!("/dead-letters/{letter}")).await;
    browser.press("Edit and retry").await;
    browser.type_into("#subject", " and edited").await;
    browser.press("Send the edited copy").await;
    browser.wait_for("h1", "first and edited").await;
    admin.wait(id(0), "failed").await;
    scene.end().await;
}
