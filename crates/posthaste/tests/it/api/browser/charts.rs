//! Charts with a cursor, and how they are drawn without script.

use serde_json::json;

use super::Scene;

const SIMULATION: &str =
    "/policies/channel:webhook/simulate?rate=5&script=ok+for+5m%2C+503+for+10m%2C+ok+for+15m";
/// What stands below a chart.
const UNDER: &str = "[data-under]";

impl Scene {
    /// The chart is drawn by the script, in place of the drawing of the server, and says what that one said.
    async fn drawn(&self) {
        self.browser
            .wait_until("return !!document.querySelector('.uplot[role=img][aria-label] canvas')", json!([]))
            .await;
        let instead = self
            .browser
            .script("return !document.querySelector('[data-series] svg, [data-load] svg')", json!([]))
            .await;
        assert_eq!(instead, true);
    }

    async fn under(&self) -> String {
        let script = "return document.querySelector(arguments[0]).textContent";
        self.browser.script(script, json!([UNDER])).await.as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_of_a_simulation_tells_the_load_under_the_cursor() {
    let scene = Scene::of_admin().await;
    scene.open(SIMULATION).await;
    scene.drawn().await;
    let said = scene.under().await;
    assert!(said.starts_with("Sends and what is parked, by "), "{said}");
    scene.browser.point_at(".u-over").await;
    scene.browser.wait_for(UNDER, "From 1").await;
    let told = scene.under().await;
    for words in ["arrivals", "sends", "failed", "parked", "waiting"] {
        assert!(told.contains(words), "{told}");
    }
    // The middle of half an hour.
    assert!(told.starts_with("From 14m") || told.starts_with("From 15m"), "{told}");
    scene.browser.point_at("h1").await;
    scene.browser.wait_for(UNDER, &said).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_of_the_overview_tells_the_figures_under_the_cursor() {
    let scene = Scene::of_admin().await;
    scene.running.admin.send_until(&scene.running.webhook("/ok"), "succeeded").await;
    scene.reads("/?range=1h", ".help", "1 delivered").await;
    scene.drawn().await;
    let said = scene.under().await;
    scene.browser.point_at(".u-over").await;
    scene.browser.wait_for(UNDER, "0 accepted, 0 delivered, 0 retries, 0 dead letters, 0 failed").await;
    scene.browser.point_at("h1").await;
    scene.browser.wait_for(UNDER, &said).await;
    scene.end().await;
}
