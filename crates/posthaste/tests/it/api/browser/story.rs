//! The acceptance tests of the retry story (S1), as a person clicks them. `story.rs` tells them over the API.

use std::time::Duration;

use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use super::super::running::{quick, slow};
use super::Scene;

/// Times on a page are those of the attempts, to the millisecond; the engine counts from the latest that the answer can have come.
const ROUNDED: Duration = Duration::from_millis(5);

impl Scene {
    /// Sends something to a path of the receiver.
    async fn sent(&self, path: &str, policy: &Value) -> String {
        let mut sent = self.running.webhook(path);
        sent["subject"] = json!("Your invoice");
        sent["policy"] = policy.clone();
        self.running.admin.send(&sent).await
    }

    /// The times of the attempts that the page of a notification shows, oldest first.
    async fn attempt_times(&self) -> Vec<Timestamp> {
        let script = "return [...document.querySelectorAll('.story li:has(details) > time')].map((one) => one.dateTime)";
        let shown = self.browser.script(script, json!([])).await;
        shown.as_array().unwrap().iter().rev().map(time).collect()
    }

    /// The planned time of the next attempt that the page of a notification shows.
    async fn planned(&self) -> Timestamp {
        let script = "return document.querySelector('.story .nxt:has(b) > time').dateTime";
        time(&self.browser.script(script, json!([])).await)
    }

    /// The state that the page of a notification shows once the first attempt is over.
    async fn after_the_first_attempt(&self) -> String {
        let script = "const badge = document.querySelector('.st.big').textContent; \
            return document.querySelector('.story li details') && badge";
        let words = self.browser.until("there is no attempt", async || {
            let words = self.browser.script(script, json!([])).await;
            if let Some(words) = words.as_str() {
                return Ok(words.to_owned());
            }
            self.browser.reload().await;
            Err(words)
        });
        words.await
    }

    /// What a tile of the overview says.
    async fn tile(&self, name: &str) -> String {
        let script = "return [...document.querySelectorAll('.tiles > div')] \
            .find((tile) => tile.querySelector('dt').textContent.startsWith(arguments[0])) \
            .querySelector('dd').firstChild.textContent.trim()";
        self.browser.script(script, json!([name])).await.as_str().unwrap().to_owned()
    }

    /// The number of rows in the list of a page.
    async fn rows(&self, path: &str) -> u64 {
        self.open(path).await;
        self.browser
            .script("return document.querySelectorAll('tr[data-row]').length", json!([]))
            .await
            .as_u64()
            .unwrap()
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().expect("a time").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn test_1_automatic_retry_on_transient_failure() {
    let scene = Scene::of_admin().await;
    let mut seen = None;
    // A slow machine may show the page only when the retry is over; then the next one waits longer.
    for delay in [2, 4, 8, 16] {
        let policy = json!({"strategy": "fixed", "initialDelay": format!("{delay}s"), "maxAttempts": 3,
            "jitter": "none", "quick": {"tries": 0}});
        let id = scene.sent("/sequence/503,200", &policy).await;
        let path = format!("/notifications/{id}");
        scene.open(&path).await;
        let words = scene.after_the_first_attempt().await;
        if words == "Retrying (attempt 2 of 3)" {
            seen = Some((id, path, delay));
            break;
        }
    }
    let (id, path, delay) = seen.expect("the page shows that it retries");
    scene.running.admin.wait(&id, "succeeded").await;
    scene.reads(&path, ".st.big", "Delivered").await;
    scene.browser.wait_for(".story", "503").await;
    let times = scene.attempt_times().await;
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(times[1].since(times[0]) + ROUNDED >= Duration::from_secs(delay), "{times:?}");
    assert_eq!(scene.rows("/dead-letters").await, 0);
    assert_eq!(scene.rows("/retry-queue").await, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_2_exponential_backoff_timing() {
    let scene = Scene::of_admin().await;
    let policy = json!({"strategy": "schedule", "schedule": ["1m", "5m", "15m"], "maxAttempts": 4,
        "jitter": {"plus": "30s"}, "quick": {"tries": 0}});
    let id = scene.sent("/status/503", &policy).await;
    let path = format!("/notifications/{id}");
    // The page names the time of the next attempt. A person does not wait for it, but for the plan.
    for (attempt, minutes) in [(2, 1), (3, 5), (4, 15)] {
        scene.reads(&path, ".st.big", &format!("Retrying (attempt {attempt} of 4)")).await;
        let (made, planned) = (scene.attempt_times().await, scene.planned().await);
        assert_eq!(made.len(), attempt - 1, "{made:?}");
        let (delay, took) = (Duration::from_secs(60 * minutes), Duration::from_secs(20));
        let wait = planned.since(*made.last().unwrap());
        assert!(wait + ROUNDED >= delay, "attempt {attempt} is planned after {wait:?}");
        assert!(
            wait <= delay + Duration::from_secs(30) + took,
            "attempt {attempt} is planned after {wait:?}"
        );
        scene.browser.press("Retry now").await;
    }
    scene.reads(&path, ".st.big", "Failed (moved to dead letter queue)").await;
    assert_eq!(scene.attempt_times().await.len(), 4);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_3_permanent_failure_does_not_retry() {
    let scene = Scene::of_admin().await;
    let id = scene.sent("/status/400", &slow()).await;
    scene.running.admin.wait(&id, "deadLetter").await;
    scene.browser.press_in("nav.side", "Dead letters").await;
    scene.browser.wait_for("tr[data-row]", "400").await;
    scene.browser.wait_for("tr[data-row]", "1 made").await;
    scene.browser.press_in("nav.side", "Retry queue").await;
    scene.browser.wait_for(".empty", "Nothing waits for a retry").await;
    scene.open(&format!("/notifications/{id}")).await;
    scene.browser.wait_for(".st.big", "Failed (moved to dead letter queue)").await;
    scene.browser.wait_for(".say", "is not retried by itself").await;
    scene.browser.wait_for("dl.kv", "PERMANENT_FAILURE").await;
    assert_eq!(scene.attempt_times().await.len(), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_4_dead_letter_queue_manual_retry() {
    let scene = Scene::of_admin().await;
    let id = scene.sent("/sequence/503,503,503,503,200", &quick(3)).await;
    scene.running.admin.wait(&id, "deadLetter").await;
    scene.browser.press_in("nav.side", "Dead letters").await;
    scene.browser.wait_for("tr[data-row]", "503").await;
    scene.browser.wait_for("tr[data-row]", "3 made").await;
    scene.browser.press_in("tr[data-row]", "Retry Now").await;
    // The row stays where it was and says what became of it.
    scene.browser.wait_for("tr.gone", "Requeued").await;
    scene.browser.press_in("tr.gone", "See it").await;
    scene.browser.wait_for(".crumb", &id).await;
    scene.reads(&format!("/notifications/{id}"), ".st.big", "Delivered").await;
    // Three attempts, and a fresh set of which the second arrived.
    assert_eq!(scene.attempt_times().await.len(), 5);
    scene.browser.wait_for(".story", "generation 2").await;
    assert_eq!(scene.rows("/dead-letters").await, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_5_dead_letter_queue_discard() {
    let scene = Scene::of_admin().await;
    let id = scene.sent("/status/400", &quick(3)).await;
    scene.running.admin.wait(&id, "deadLetter").await;
    scene.browser.press_in("nav.side", "Dead letters").await;
    scene.browser.press_in("tr[data-row]", "Discard").await;
    scene.browser.wait_for("tr.gone", "Discarded").await;
    scene.browser.wait_for("tr.gone", "Undo").await;
    scene.open(&format!("/notifications/{id}")).await;
    scene.browser.wait_for(".st.big", "Permanently Failed").await;
    scene.browser.wait_for(".say", "Its dead letter says what became of it").await;
    scene.open("/notifications").await;
    scene.browser.wait_for("tr[data-row]", "ended").await;
    for list in ["/dead-letters", "/retry-queue"] {
        assert_eq!(scene.rows(list).await, 0, "{list}");
    }
    scene.browser.press_in("nav.side", "Audit").await;
    scene.browser.wait_for("tr[data-row]", "discard").await;
    scene.browser.wait_for("tr[data-row]", &id).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_6_retry_metrics_on_admin_dashboard() {
    let scene = Scene::of_admin().await;
    for (path, policy, state, count) in [
        ("/ok", quick(3), "succeeded", 3),
        ("/sequence/503,200", quick(3), "succeeded", 1),
        ("/status/503", slow(), "retryScheduled", 2),
        ("/status/503", quick(2), "deadLetter", 1),
        ("/status/400", quick(3), "deadLetter", 1),
    ] {
        for _ in 0..count {
            let id = scene.sent(path, &policy).await;
            scene.running.admin.wait(&id, state).await;
        }
    }
    scene.reads("/", "a[data-count=inRetry]", "2").await;
    assert_eq!(scene.tile("In retry").await, "2");
    assert_eq!(scene.tile("In dead letter queue").await, "2");
    // Four of the six that came to an end arrived, one of them by a retry.
    assert_eq!(scene.tile("Success rate").await, "66.6 %");
    scene.browser.wait_for(".tiles", "50.0 % by the first try").await;

    // While one looks, the counters follow.
    scene.browser.wait_for("[data-live]", "Live").await;
    let id = scene.sent("/status/400", &quick(3)).await;
    scene.running.admin.wait(&id, "deadLetter").await;
    scene.browser.wait_for("a[data-count=inDeadLetter] .n", "3").await;
    scene.end().await;
}
