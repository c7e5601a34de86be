//! What changes on a page while somebody looks at it, and what does not.

use super::super::running::{ADMIN, Running, StoreKind};
use super::driver::Driver;

#[tokio::test(flavor = "multi_thread")]
async fn news_are_counted_at_their_place_and_the_list_changes_when_it_is_asked_to() {
    let running = Running::start(StoreKind::Sqlite).await;
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    let origin = format!("http://{}", running.address());
    let browser = Driver::start().await;
    browser.open(&format!("{origin}/notifications")).await;
    browser.type_into("#key", ADMIN).await;
    browser.click("button.go").await;
    browser.wait_for(".fresh.idle", "up to date").await;
    let (one, other) = (running.webhook("/ok"), running.webhook("/status/400"));
    running.admin.send_until(&one, "succeeded").await;
    let other = running.admin.send_until(&other, "deadLetter").await;
    browser.wait_for(".fresh:not(.idle)", "2 new, show").await;
    // Nothing jumped: the list ends with its pager, which counts what it shows.
    browser.wait_for(".pager", "1 rows").await;
    browser.keys(".").await;
    browser.wait_for(".pager", "3 rows").await;
    browser.wait_for(".fresh.idle", "up to date").await;
    // A row that the page shows is no news, whatever becomes of it.
    let retry = format!("/v1/notifications/{}/retry", other["notificationId"].as_str().unwrap());
    running.admin.act(&retry).await.is(202);
    running.admin.send_until(&one, "succeeded").await;
    browser.wait_for(".fresh", "1 new, show").await;
    let complaints = browser.complaints().await;
    assert!(complaints.is_empty(), "{complaints:#?}");
    // Whoever looks at an old page is told since when it is old, and still sees it.
    running.stop().await;
    browser.wait_for("[data-live=off]", "Not live since").await;
    browser.wait_for(".pager", "3 rows").await;
    browser.quit().await;
}
