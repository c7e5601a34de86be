//! The page that simulates an outage: a form whose fields are the query, a drawing, sentences and a table.

use posthaste::config::Config;
use posthaste_core::breaker::BreakerSettings;
use serde_json::{Value, json};

use super::super::running::{ADMIN, Running, StoreKind};
use super::{Browser, is_safe};

const PATH: &str = "/policies/channel:webhook/simulate";

#[tokio::test]
async fn an_outage_is_drawn_and_told() {
    // The breaker of servers in tests stays shut otherwise.
    let breaker = |config: &mut Config| config.breaker = BreakerSettings::default();
    let running = Running::with(StoreKind::Sqlite, breaker).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let policy = browser.get("/policies/channel:webhook").await.page();
    assert!(policy.contains(&format!("href=\"{PATH}\"")), "{policy}");
    let empty = browser.get(PATH).await;
    is_safe(&empty);
    let page = empty.page();
    assert!(
        page.contains("ok for 10m, 503 for 20m, ok for 1h")
            && !page.contains("What came of it")
            && !page.contains("uplot"),
        "{page}"
    );
    let asked =
        format!("{PATH}?rate=5&script=ok+for+5m%2C+503+for+10m%2C+ok+for+15m&channel=&most=50&atOnce=");
    let shown = browser.get(&asked).await;
    is_safe(&shown);
    let page = shown.page();
    for words in [
        "Of 9,000 that arrived in 30m",
        "The breaker opened",
        "<svg class=\"sc\"",
        "<td>4m</td>",
        "value=\"50\"",
        "/assets/uplot.min.js?v=",
        "/assets/chart.js?v=",
        "data-under>Sends and what is parked, by ",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // The script draws the figures of the API.
    let body = json!({"rate": 5, "script": "ok for 5m, 503 for 10m, ok for 15m", "limits": {"rate": 50}});
    let told = running.admin.post("/v1/policies/simulate?scope=channel:webhook", &body).await.is(200).clone();
    let load = page.split("data-load=\"").nth(1).unwrap().split('"').next().unwrap().replace("&#34;", "\"");
    let load: Value = serde_json::from_str(&load).unwrap();
    for name in ["arrivals", "sends", "failures", "parked", "waiting"] {
        let steps = told["load"].as_array().unwrap().iter().map(|step| step[name].clone());
        assert_eq!(load[name], Value::from_iter(steps), "{name}");
    }
    assert!(load["parked"].as_array().unwrap().iter().any(|parked| parked.as_u64() > Some(0)), "{load}");
    assert_eq!(load["at"].as_array().unwrap().len(), load["sends"].as_array().unwrap().len());
    for (query, words) in [
        ("rate=5&script=50x", "column 1"),
        ("rate=fast&script=ok+for+1m", "rate"),
        ("rate=&script=ok+for+1m", "rate: is missing"),
        ("rate=5&script=ok+for+1m&channel=fax", "channel"),
    ] {
        let refused = browser.get(&format!("{PATH}?{query}")).await;
        refused.is(422);
        assert!(
            refused.text.contains("Not simulated.") && refused.text.contains(words),
            "{query}: {}",
            refused.text
        );
    }
    browser.get("/policies/nonsense/simulate").await.is(404);
    running.stop().await;
}
