//! Charts: what they draw are the figures of the API, as a drawing, as a table and in words.

use serde_json::json;

use super::super::running::{ADMIN, Running, StoreKind};
use super::{Browser, is_safe};

on_each_store! {
    the_overview_draws_what_was_delivered_and_what_was_given_up;
    the_retry_queue_draws_what_comes_due;
}

/// Asks until the page fits: figures are counted a moment after what they tell of.
async fn until(browser: &mut Browser, path: &str, fits: impl Fn(&str) -> bool) -> String {
    let asked = async {
        loop {
            let page = browser.get(path).await.page();
            if fits(&page) {
                return page;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), asked)
        .await
        .unwrap_or_else(|_| panic!("{path} does not come to fit"))
}

/// What stands between two texts.
fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
    let from = page.find(before).unwrap_or_else(|| panic!("no {before} in {page}")) + before.len();
    page[from..].split(after).next().unwrap()
}

async fn the_overview_draws_what_was_delivered_and_what_was_given_up(on: StoreKind) {
    let running = Running::start(on).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let new = browser.get("/").await.page();
    assert!(new.contains("Nothing has been sent yet") && !new.contains("uplot"), "{new}");
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    for _ in 0..3 {
        a.send_until(&running.webhook("/ok"), "succeeded").await;
    }
    a.send_until(&running.webhook("/status/400"), "deadLetter").await;
    b.send_until(&running.webhook("/ok"), "succeeded").await;
    let whole = "4 delivered";
    for (path, step) in [("/", "5m"), ("/?range=1h", "1m"), ("/?range=24h", "5m"), ("/?range=7d", "1h")] {
        let page =
            until(&mut browser, path, |page| page.contains(whole) && page.contains("1 was given up")).await;
        let figure = between(&page, "<figure", "</figure>");
        assert!(
            figure.contains("<rect class=\"f\"") && figure.contains("<path class=\"ln\""),
            "{path}: {figure}"
        );
        assert!(figure.contains("/dead-letters?status=all&amp;since="), "{path}: {figure}");
        assert!(figure.contains("/notifications?since="), "{path}: {figure}");
        // The script asks the API for the same figures, with the same session.
        let source = between(figure, "data-series=\"", "\"").replace("&#38;", "&");
        assert!(source.ends_with(&format!("step={step}")), "{source}");
        let series: serde_json::Value = serde_json::from_str(&browser.get(&source).await.page()).unwrap();
        let sum = |name: &str| -> u64 {
            series["data"].as_array().unwrap().iter().map(|point| point[name].as_u64().unwrap()).sum()
        };
        assert_eq!((sum("delivered"), sum("deadLettered")), (4, 1), "{path}");
        for file in ["uplot.min.js", "chart.js", "chart.css"] {
            assert!(page.contains(&format!("/assets/{file}?v=")), "{path} lacks {file}");
        }
    }
    // The links of the table lead to the lists of that time.
    let page = browser.get("/?range=7d").await.page();
    let link = format!("/dead-letters?status=all&since={}", between(&page, "status=all&amp;since=", "\""));
    let listed = browser.get(&link.replace("&amp;", "&")).await.page();
    assert!(listed.contains("/status/400"), "{listed}");
    // A page without a chart does not load it.
    assert!(!browser.get("/nodes").await.page().contains("uplot"));
    let wrong = browser.get("/?range=9h").await;
    wrong.is(422);
    assert!(wrong.text.contains("range must be 1h, 24h or 7d"), "{}", wrong.text);
    is_safe(&wrong);
    running.stop().await;
}

async fn the_retry_queue_draws_what_comes_due(on: StoreKind) {
    let running = Running::start(on).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    let mut retries = running.webhook("/status/503");
    for (caller, delay) in [(&a, "30m"), (&a, "30m"), (&a, "3h"), (&b, "30m")] {
        retries["policy"] = json!({"strategy": "fixed", "initialDelay": delay, "maxAttempts": 3, "jitter": "none", "quick": {"tries": 0}});
        caller.send_until(&retries, "retryScheduled").await;
    }
    let mut browser = Browser::with(&running, ADMIN).await;
    // What each tile says, in the order of the page.
    let counts = |page: &str| -> Vec<String> {
        between(page, "<dl class=\"tiles\">", "</dl>")
            .split("<dd>")
            .skip(1)
            .map(|part| part.split('<').next().unwrap().to_owned())
            .collect()
    };
    for (path, wanted, bars) in [
        ("/retry-queue", ["0", "0", "3"], 1),
        ("/retry-queue?tenant=a", ["0", "0", "2"], 1),
        ("/retry-queue?range=6h", ["0", "3", "4"], 2),
        ("/retry-queue?range=24h&tenant=b", ["1", "1", "1"], 1),
        ("/retry-queue?tenant=nobody", ["0", "0", "0"], 0),
    ] {
        let page = browser.get(path).await.page();
        assert_eq!(counts(&page), wanted, "{path}");
        let figure = between(&page, "<figure", "</figure>");
        // Two sends may lie in two steps beside each other.
        let drawn = figure.matches("<rect class=\"q\"").count();
        assert!((bars..=bars * 2).contains(&drawn), "{path}: {figure}");
        assert!(!page.contains("There are more"), "{path}");
    }
    // The links of the chart keep the filter, and the filter does not know the range.
    let page = browser.get("/retry-queue?range=6h&tenant=a").await.page();
    assert!(page.contains("href=\"/retry-queue?range=24h&#38;tenant=a\""), "{page}");
    assert!(page.contains("retry-queue --tenant a") && !page.contains("range=</i>"), "{page}");
    let wrong = browser.get("/retry-queue?range=2d").await;
    wrong.is(422);
    assert!(wrong.text.contains("range must be 1h, 6h or 24h"), "{}", wrong.text);
    running.stop().await;
}
