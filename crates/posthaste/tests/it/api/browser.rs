//! The dashboard in a real browser: Debian's chromium, driven over WebDriver by our own HTTP client.

mod driver;
mod live;

use serde_json::json;

use self::driver::Driver;
use super::running::{ADMIN, Running, StoreKind};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_finds_what_failed_and_retries_it() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut sent = running.webhook("/status/400");
    sent["subject"] = json!("<script>alert(1)</script>");
    let failed = running.admin.send_until(&sent, "deadLetter").await;
    let id = failed["notificationId"].as_str().unwrap();
    let origin = format!("http://{}", running.address());
    let browser = Driver::start().await;

    browser.open(&format!("{origin}/notifications")).await;
    browser.type_into("#key", ADMIN).await;
    browser.click("button.go").await;
    // Back on the page that was asked for.
    browser.wait_for("h1", "Notifications").await;
    browser.wait_for("tbody tr .st", "Failed (moved to dead letter queue)").await;

    // The keyboard: the first row, then open it.
    browser.keys("j").await;
    browser.wait_for("tr.cur", "<script>alert(1)</script>").await;
    browser.keys("\u{e007}").await;
    browser.wait_for(".crumb", id).await;
    browser.wait_for(".say", "is not retried by itself").await;
    browser.click("button.go").await;
    browser.wait_for(".toast", "Requeued").await;
    assert_eq!(running.admin.wait(id, "deadLetter").await["generation"], 2);

    // In the list the row stays and says what became of it, and the discard can be undone.
    browser.open(&format!("{origin}/dead-letters")).await;
    browser.click("button[data-key=d]").await;
    browser.wait_for("tr.gone", "Discarded.").await;
    running.admin.wait(id, "failed").await;
    browser.click("tr.gone button[data-key=u]").await;
    browser.wait_for("tr.gone", "among the dead letters again").await;
    running.admin.wait(id, "deadLetter").await;

    // Times are local, and the page says so; what is new is told while one looks.
    browser.wait_for("[data-live]", "Live").await;

    let asked = browser.addresses().await;
    assert!(asked.len() > 5 && asked.iter().all(|address| address.starts_with(&origin)), "{asked:#?}");
    let complaints = browser.complaints().await;
    assert!(complaints.is_empty(), "{complaints:#?}");
    browser.quit().await;
    running.stop().await;
}
