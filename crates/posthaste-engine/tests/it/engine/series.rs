//! Figures over time: what is counted, and when it is written.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::notification::Tenant;
use posthaste_core::series::{Figures, Points, Span};
use posthaste_core::time::Timestamp;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Series as _;

use super::PLAIN;
use crate::rig::{BEGIN, FaultyStore, Rig, Script, ada, http, ms, notification, pass, secs, send};

const DESTINATION: &str = "http://127.0.0.1:9";

fn hours() -> (Timestamp, Timestamp) {
    let start = Span::Hour.start(BEGIN);
    (start, start.later(Duration::from_secs(2 * 3_600)))
}

/// The figures of everything, by the sums of the minutes and by the hours of the destination.
async fn figures(engine: &Engine, tenant: Option<Tenant>) -> [Figures; 2] {
    let (reads, (from, until)) = (engine.reads(tenant), hours());
    let points = |length| Points::new(from, until, length).unwrap();
    let of_all = reads.series(None, None, &points(Span::Minute.length()), Span::Minute).await.unwrap();
    let of_one =
        reads.series_of(&DESTINATION.into(), None, None, &points(Span::Hour.length())).await.unwrap();
    [of_all, of_one].map(|points| {
        points.into_iter().fold(Figures::default(), |mut sum, point| {
            sum.merge(&point);
            sum
        })
    })
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_without_an_attempt_is_in_the_figures_of_its_destination() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.settings.age_check = secs(60);
    rig.longest_timeout = secs(600);
    rig.always("hangs", Script::Hang);
    rig.always("fails", Script::Answer(http(503)));
    let engine = rig.start().await;
    let patient = PLAIN.replace("10s", "600s");
    for _ in 0..2 {
        send(&engine, notification(&engine, "hangs", &patient)).await;
    }
    pass(ms(10)).await;
    // These wait behind the two that hang.
    let short = PLAIN.replacen('{', r#"{"maxAge": "30s", "#, 1);
    send(&engine, notification(&engine, "buried", &short)).await;
    let mut expires = notification(&engine, "expires", PLAIN);
    expires.expires_at = Some(BEGIN.later(secs(40)));
    send(&engine, expires).await;
    let cancelled = send(&engine, notification(&engine, "cancelled", PLAIN)).await;
    engine.cancel(cancelled, &ada()).await.unwrap();
    pass(secs(100)).await;
    for tenant in [None, Some("default".parse().unwrap())] {
        for figures in figures(&engine, tenant).await {
            let ended = (figures.dead_lettered, figures.expired, figures.cancelled);
            assert_eq!((figures.accepted, ended), (5, (1, 1, 1)));
        }
    }
    let [of_all, of_one] = figures(&engine, Some("nobody".parse().unwrap())).await;
    assert_eq!([of_all, of_one], [Figures::default(), Figures::default()]);
}

#[tokio::test(start_paused = true)]
async fn hours_of_destinations_are_written_every_ten_seconds_and_at_the_end() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let written = async || {
        let (from, until) = hours();
        let rows = rig.model.destination_hours(None, DESTINATION.into(), from, until).await.unwrap();
        rows.iter().map(|row| row.figures.accepted).sum::<u64>()
    };
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(ms(9_500)).await;
    assert_eq!((store.calls("put_destination_hours"), written().await), (0, 0));
    assert!(store.calls("put_series") > 0);
    pass(secs(1)).await;
    assert_eq!((store.calls("put_destination_hours"), written().await), (1, 1));
    pass(secs(60)).await;
    assert_eq!(store.calls("put_destination_hours"), 1, "nothing happened");
    // A write that is refused is made again.
    store.refuse(&["put_destination_hours"]);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(15)).await;
    assert_eq!(written().await, 1);
    store.refuse(&[]);
    pass(secs(10)).await;
    assert_eq!(written().await, 2);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    engine.drain(secs(5)).await.unwrap();
    assert_eq!(written().await, 3, "what is gathered is written before the node leaves");
}
