//! Saved views, as a person uses them.

use serde_json::json;

use super::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_saved_as_a_view_used_and_deleted() {
    let scene = Scene::of_admin().await;
    for subject in ["blue", "red"] {
        let mut sent = scene.running.webhook("/ok");
        sent["subject"] = json!(subject);
        scene.running.admin.send_until(&sent, "succeeded").await;
    }
    let rows = async || {
        let script = "return document.querySelectorAll('tr[data-row]').length";
        scene.browser.script(script, json!([])).await.as_u64().unwrap()
    };
    scene.open("/notifications").await;
    assert_eq!(scene.browser.script("return !!document.querySelector('.views')", json!([])).await, false);
    scene.open("/notifications?q=blue").await;
    assert_eq!(rows().await, 1);
    scene.browser.press("Save this filter").await;
    scene.browser.type_into("#view-name", "The <b>blue ones & co").await;
    scene.browser.press_in(".views form", "Save").await;
    scene.browser.wait_for(".views a[aria-current]", "The <b>blue ones & co").await;
    scene.open("/notifications").await;
    assert_eq!(rows().await, 2);
    scene.browser.press("The <b>blue ones & co").await;
    scene.browser.wait_for(".tok", "q=blue").await;
    assert_eq!(rows().await, 1);
    scene.browser.press("Delete this view").await;
    scene.browser.wait_for(".toast", "is deleted").await;
    assert_eq!(scene.running.admin.get("/v1/views").await["data"], json!([]));
    // What was deleted can be saved again at once.
    scene.browser.wait_for(".views summary", "Save this filter").await;
    scene.end().await;
}
