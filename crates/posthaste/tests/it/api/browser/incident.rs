//! A night with 20,000 dead letters of one cause: from the overview to an empty queue in at most five clicks.

use std::time::Duration;

use serde_json::json;

use super::super::running::quick;
use super::Scene;

const DEAD: usize = 20_000;
/// How long 20,000 sends may take, in a build without optimisation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

impl Scene {
    /// So many dead letters whose receiver is well again.
    async fn dies(&self, count: usize) {
        let mut one = self.running.webhook("/sequence/400,200");
        (one["subject"], one["policy"]) = (json!("Your invoice"), quick(1));
        for _ in 0..count / 500 {
            let batch = json!({"notifications": vec![&one; 500]});
            self.running.admin.post("/v1/notifications/batch", &batch).await.is(202);
        }
        self.waits_for_dead_letters(count).await;
    }

    /// Waits until the kept counter says so.
    async fn waits_for_dead_letters(&self, count: usize) {
        let mut last = json!(null);
        let reached = async {
            loop {
                last = self.running.admin.get("/v1/stats").await["inDeadLetter"].clone();
                if last == count {
                    return;
                }
                // A caller of the API can only ask again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, reached).await;
        assert!(waited.is_ok(), "{last} dead letters instead of {count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_is_over_in_five_clicks() {
    let scene = Scene::of_admin().await;
    scene.dies(DEAD).await;
    let browser = &scene.browser;
    scene.open("/").await;
    browser.wait_for(".say", "20,000 dead letters wait").await;
    // One click for each line.
    let clicks = [("nav.side", "Failure groups"), ("ol.grp", "Requeue these"), ("main", "Start: requeue")];
    assert!(clicks.len() <= 5);
    for (place, words) in clicks {
        browser.press_in(place, words).await;
    }
    browser.wait_for(".crumb", "op_").await;
    scene.waits_for_dead_letters(0).await;
    browser.wait_until("return document.querySelector('[data-state=completed]')", json!([])).await;
    browser.wait_for(".say", "20,000").await;
    browser.press_in("nav.side", "Overview").await;
    browser.wait_until("return !document.querySelector('a[data-count=inDeadLetter] .n')", json!([])).await;
    assert_eq!(scene.running.sink.received(), 2 * DEAD as u64);
    scene.end().await;
}
