//! What no alarm tells of is found by looking at every bucket, however many there are.

use posthaste_core::state::State;
use posthaste_engine::model_store::Tables;
use posthaste_engine::store::Accepted;

use super::PLAIN;
use crate::rig::{BEGIN, Rig, assert_arrived, notification, pass, secs};

/// A notification that becomes due while no node runs, behind so many buckets that are due tomorrow.
async fn found_behind(buckets: usize) {
    let rig = Rig::new();
    let engine = rig.start().await;
    let new = |number: usize, due: u64| {
        let mut new = notification(&engine, "a", PLAIN);
        new.destination = format!("http://{number}").into();
        new.not_before = Some(BEGIN.later(secs(due)));
        new
    };
    // One after the other: flows, and with them buckets, are numbered in the order in which they come.
    for number in 0..buckets {
        assert_eq!(engine.accept(None, vec![new(number, 86_400)]).await.unwrap(), Accepted::New);
    }
    let last = new(buckets, 60);
    let id = last.id;
    assert_eq!(engine.accept(None, vec![last]).await.unwrap(), Accepted::New);
    let in_front = |tables: &Tables| {
        let flow = tables.queue[&id].flow;
        tables.queue.values().filter(|row| row.flow < flow).count()
    };
    assert_eq!(rig.model.inspect(in_front), buckets);
    drop(engine);
    pass(secs(100)).await;
    let _other = rig.start().await;
    pass(secs(1)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(100))]);
    assert_eq!(rig.state(id).await, State::Succeeded, "behind {buckets} buckets");
}

#[tokio::test(start_paused = true)]
async fn what_is_due_behind_pages_of_other_buckets_is_sent_after_a_restart() {
    let page = Rig::new().settings.batch;
    for buckets in [page - 1, page, page + 1, 2 * page, 2 * page + 100] {
        found_behind(buckets).await;
    }
}
