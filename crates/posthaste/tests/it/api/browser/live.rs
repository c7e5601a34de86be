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

#[tokio::test(flavor = "multi_thread")]
async fn the_live_tail_shows_changes_as_they_happen_until_it_is_paused() {
    let running = Running::start(StoreKind::Sqlite).await;
    let origin = format!("http://{}", running.address());
    let browser = Driver::start().await;
    browser.open(&format!("{origin}/stream?state=succeeded,deadLetter")).await;
    browser.type_into("#key", ADMIN).await;
    browser.click("button.go").await;
    browser.wait_for("#tail-said", "Waiting for the next change").await;
    let dead = running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    browser.wait_for("#tail tbody tr", "HTTP 400, permanent").await;
    browser.click("#tail-pause").await;
    browser.wait_for("#tail-said", "Paused, 0 came meanwhile").await;
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    browser.wait_for("#tail-said", "Paused, 1 came meanwhile").await;
    browser.click("#tail-pause").await;
    browser.wait_for("#tail tbody tr:first-child .st", "Delivered").await;
    browser.wait_for("#tail tbody tr:nth-child(2) .st", "Failed (moved to dead letter queue)").await;
    browser.click("#tail tbody tr:nth-child(2) a").await;
    browser.wait_for(".crumb", dead["notificationId"].as_str().unwrap()).await;
    let complaints = browser.complaints().await;
    assert!(complaints.is_empty(), "{complaints:#?}");
    browser.quit().await;
    running.stop().await;
}
