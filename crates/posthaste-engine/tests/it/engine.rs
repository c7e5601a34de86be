//! What the engine promises, on paused time.

use std::time::Duration;

use posthaste_core::state::State;

use crate::rig::{Rig, Script, http, notification, pass, send};

const QUICKLESS: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 3, "jitter": "none", "timeout": "10s", "quick": {"tries": 0}}"#;

#[tokio::test(start_paused = true)]
async fn a_passing_failure_is_retried_at_its_time_and_delivered() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", QUICKLESS)).await;
    pass(Duration::from_secs(59)).await;
    assert_eq!(rig.view(id).await.state, State::RetryScheduled);
    pass(Duration::from_millis(1_100)).await;
    assert_eq!(rig.view(id).await.state, State::Succeeded);
    let arrivals = rig.channel.arrivals();
    assert_eq!(arrivals.len(), 2);
    let between = arrivals[1].2.since(arrivals[0].2);
    assert!((60_000..60_050).contains(&between.as_millis()), "{between:?}");
}
