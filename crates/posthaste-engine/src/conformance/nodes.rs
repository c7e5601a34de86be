//! Nodes live by their heartbeats; what a dead one held comes back, what a living one holds is its own.

use std::time::Duration;

use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::Notification;
use posthaste_core::rate::Share;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::scene::{Scene, TICK, at, failed_attempt, retry_at};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Held, HistoryEvent, Joined, LEVEL, NodeView, Pulse, Settled};

pub(super) const PROMISES: &[Promise] = list![
    every_node_has_a_number_of_its_own,
    a_heartbeat_tells_the_time_and_who_is_dead,
    a_heartbeat_never_shortens_a_hold,
    the_nodes_are_told_with_what_each_holds,
    what_a_node_holds_is_listed_in_pages,
    a_late_node_that_nobody_touched_lives_on,
    a_living_node_loses_nothing,
    the_leases_of_a_dead_node_come_back,
    a_dead_node_stays_dead,
    whoever_is_gone_is_given_nothing,
    leases_are_taken_back_in_the_order_of_ids_within_the_limit,
    a_lease_taken_back_cannot_settle,
    interruptions_add_up_until_an_attempt_fails,
    a_release_gives_back_what_the_grant_holds,
    a_release_of_named_ids_gives_back_only_those,
    whoever_leaves_interrupts_nothing,
];

const HOLD: Duration = Duration::from_secs(30);

impl Scene {
    async fn node(&self) -> Result<NodeId, Broken> {
        Ok(self.store.join("short".to_owned(), HOLD, at(0)).await?.node)
    }

    /// So many notifications held by one grant of the node.
    async fn held_by(&mut self, node: NodeId, fence: i64, count: usize) -> Result<Vec<Notification>, Broken> {
        let mut all = vec![];
        for _ in 0..count {
            let notification = self.draft();
            self.accept(&notification, at(0), Some(Lease { node, fence: Fence(fence) })).await?;
            all.push(notification);
        }
        Ok(all)
    }
}

fn alive(now: Timestamp, dead: Vec<NodeId>, (before, nodes): (u32, u32)) -> Pulse {
    Pulse::Alive { now, dead, level: LEVEL, share: Share::new(before, nodes), destinations: 0 }
}

fn interrupted(second: i64, attempt: u32) -> HistoryEvent {
    HistoryEvent { at: at(second), word: "interrupted".to_owned(), actor: None, generation: 1, attempt }
}

async fn every_node_has_a_number_of_its_own(scene: Scene) -> Kept {
    let Joined { node: first, now } = scene.store.join("a".to_owned(), HOLD, at(5)).await?;
    same("the time", now, at(5))?;
    let second = scene.store.join("a".to_owned(), HOLD, at(5)).await?.node;
    same("the second counts up", second > first, true)?;
    scene.store.leave(second).await?;
    let third = scene.store.join("b".to_owned(), HOLD, at(5)).await?.node;
    same("a number is given once", third > second, true)
}

async fn a_heartbeat_tells_the_time_and_who_is_dead(scene: Scene) -> Kept {
    let (one, two, three) = (scene.node().await?, scene.node().await?, scene.node().await?);
    let all_alive = alive(at(10), vec![], (1, 3));
    same("at second 10", scene.store.heartbeat(two, HOLD, at(10)).await?, all_alive)?;
    let last = at(30).earlier(TICK);
    let still_alive = alive(last, vec![], (1, 3));
    same("a tick before the end", scene.store.heartbeat(two, HOLD, last).await?, still_alive)?;
    let dead = alive(at(30), vec![one, three], (0, 1));
    same("when the hold is over", scene.store.heartbeat(two, HOLD, at(30)).await?, dead)?;
    same("an unknown node", scene.store.heartbeat(NodeId(1 << 40), HOLD, at(30)).await?, Pulse::Lost)
}

async fn a_heartbeat_never_shortens_a_hold(scene: Scene) -> Kept {
    let (long, watcher) = (scene.node().await?, scene.node().await?);
    scene.store.heartbeat(long, HOLD * 10, at(1)).await?;
    scene.store.heartbeat(long, TICK, at(2)).await?;
    let pulse = scene.store.heartbeat(watcher, HOLD, at(300)).await?;
    same("still held", pulse, alive(at(300), vec![], (1, 2)))?;
    let pulse = scene.store.heartbeat(watcher, HOLD, at(301)).await?;
    same("over in the end", pulse, alive(at(301), vec![long], (0, 1)))
}

async fn the_nodes_are_told_with_what_each_holds(mut scene: Scene) -> Kept {
    let before = scene.store.nodes(at(0)).await?;
    let (one, two) = (scene.node().await?, scene.store.join("second".to_owned(), HOLD, at(5)).await?.node);
    scene.held_by(two, 1, 3).await?;
    scene.held_by(two, 2, 1).await?;
    scene.store.heartbeat(two, HOLD, at(20)).await?;
    let view = |id, name: &str, times: [i64; 3], alive, held| NodeView {
        id,
        name: name.to_owned(),
        joined_at: at(times[0]),
        beat_at: at(times[1]),
        expires_at: at(times[2]),
        alive,
        held,
        level: LEVEL,
    };
    let told = |first_lives| {
        let ours =
            [view(one, "short", [0, 0, 30], first_lives, 0), view(two, "second", [5, 20, 50], true, 4)];
        before.iter().cloned().chain(ours).collect::<Vec<_>>()
    };
    same("a tick before the first dies", scene.store.nodes(at(30).earlier(TICK)).await?, told(true))?;
    same("when the first is dead", scene.store.nodes(at(30)).await?, told(false))?;
    scene.store.reclaim(one, 10, at(30)).await?;
    scene.store.leave(two).await?;
    same("when they are gone", scene.store.nodes(at(30)).await?, before)
}

async fn what_a_node_holds_is_listed_in_pages(mut scene: Scene) -> Kept {
    let (node, other) = (scene.node().await?, scene.node().await?);
    // The higher grant holds the lower ids.
    let mut all = scene.held_by(node, 9, 2).await?;
    scene.held_by(other, 5, 1).await?;
    let claimed = scene.waiting().await?;
    scene.waiting().await?;
    all.extend(scene.held_by(node, 1, 2).await?);
    let fences = [9, 9, 1, 1].map(Fence);
    let held = |(one, fence): (&Notification, Fence)| Held { id: one.id, fence };
    let mut wanted: Vec<_> = all.iter().zip(fences).map(held).collect();
    same("what it was given at arrival", scene.store.held(node, None, 99).await?, wanted.clone())?;
    scene.claim(&claimed, Lane::Main, Lease { node, fence: Fence(4) }, at(1)).await?;
    wanted.insert(2, Held { id: claimed.id, fence: Fence(4) });
    same("and what it claimed", scene.store.held(node, None, 99).await?, wanted.clone())?;
    for limit in 1..7 {
        let mut after = None;
        for rows in wanted.chunks(limit) {
            same("a page", scene.store.held(node, after, limit).await?, rows)?;
            after = rows.last().map(|row| row.id);
        }
        same("after the last row", scene.store.held(node, after, limit).await?, [])?;
    }
    let last = Lease { node, fence: Fence(1) };
    scene.fail(&all[3], last, retry_at(at(60))).await?;
    scene.store.release(Lease { node, fence: Fence(9) }, Some(vec![all[0].id])).await?;
    let rest = [wanted[1], wanted[2], wanted[3]];
    same("what was settled or given back is not held", scene.store.held(node, None, 9).await?, rest)?;
    scene.store.reclaim(node, 99, at(30)).await?;
    same("a node that is forgotten", scene.store.held(node, None, 9).await?, [])?;
    same("a node that never was", scene.store.held(NodeId(9_999), None, 9).await?, [])
}

async fn a_late_node_that_nobody_touched_lives_on(mut scene: Scene) -> Kept {
    let node = scene.node().await?;
    let all = scene.held_by(node, 1, 1).await?;
    let pulse = scene.store.heartbeat(node, HOLD, at(100)).await?;
    same("its own heartbeat", pulse, alive(at(100), vec![], (0, 1)))?;
    same("taken back", scene.store.reclaim(node, 10, at(101)).await?, 0)?;
    let pulse = scene.store.heartbeat(node, Duration::ZERO, at(200)).await?;
    same("a node never hears of itself", pulse, alive(at(200), vec![], (0, 1)))?;
    same("its row", scene.state(&all[0]).await?, State::Processing)
}

async fn a_living_node_loses_nothing(mut scene: Scene) -> Kept {
    let node = scene.node().await?;
    let all = scene.held_by(node, 1, 2).await?;
    let before = scene.all_of(all[0].id).await?;
    for now in [at(0), at(29), at(30).earlier(TICK)] {
        same("taken back", scene.store.reclaim(node, 10, now).await?, 0)?;
    }
    same("what is shown", scene.all_of(all[0].id).await?, before)?;
    let pulse = scene.store.heartbeat(node, HOLD, at(29)).await?;
    same("its heartbeat", pulse, alive(at(29), vec![], (0, 1)))?;
    same("an unknown node", scene.store.reclaim(NodeId(1 << 40), 10, at(99)).await?, 0)
}

async fn the_leases_of_a_dead_node_come_back(mut scene: Scene) -> Kept {
    let (node, other) = (scene.node().await?, scene.node().await?);
    let mut all = scene.held_by(node, 1, 1).await?;
    all.extend(scene.held_by(node, 2, 1).await?);
    let theirs = scene.held_by(other, 1, 1).await?;
    scene.store.heartbeat(other, HOLD * 10, at(1)).await?;
    same("taken back", scene.store.reclaim(node, 10, at(30)).await?, 2)?;
    let lease = scene.lease().await?;
    for notification in &all {
        let view = scene.view(notification.id).await?;
        same("its state", view.state, State::Pending)?;
        same("the attempt is not spent", view.progress.attempt, 1)?;
        let history = scene.store.history(notification.id).await?;
        same("its events", history.events, [interrupted(30, 1)])?;
        same("its attempts", history.attempts, [])?;
        let batch = scene.claim(notification, Lane::Main, lease, at(31)).await?;
        same("claimed again", batch.len(), 1)?;
        same("interruptions", batch[0].interruptions, 1)?;
    }
    same("what another node holds", scene.state(&theirs[0]).await?, State::Processing)?;
    same("its events", scene.store.history(theirs[0].id).await?.events, [])?;
    same("nothing is left", scene.store.reclaim(node, 10, at(31)).await?, 0)
}

async fn a_dead_node_stays_dead(mut scene: Scene) -> Kept {
    let (node, watcher) = (scene.node().await?, scene.node().await?);
    scene.held_by(node, 1, 2).await?;
    scene.store.heartbeat(watcher, HOLD * 10, at(1)).await?;
    same("taken back", scene.store.reclaim(node, 1, at(30)).await?, 1)?;
    same("its heartbeat", scene.store.heartbeat(node, HOLD, at(31)).await?, Pulse::Lost)?;
    let pulse = scene.store.heartbeat(watcher, HOLD, at(31)).await?;
    same("what others hear", pulse, alive(at(31), vec![node], (0, 1)))?;
    // Even by a clock that says it should be alive.
    let pulse = scene.store.heartbeat(watcher, HOLD, at(29)).await?;
    same("what others hear then", pulse, alive(at(29), vec![node], (0, 1)))?;
    same("the rest is taken back", scene.store.reclaim(node, 5, at(29)).await?, 1)?;
    let pulse = scene.store.heartbeat(watcher, HOLD, at(32)).await?;
    same("it is forgotten", pulse, alive(at(32), vec![], (0, 1)))?;
    same("its heartbeat", scene.store.heartbeat(node, HOLD, at(33)).await?, Pulse::Lost)?;
    let idle = scene.node().await?;
    same("a node that held nothing", scene.store.reclaim(idle, 5, at(30)).await?, 0)?;
    same("is forgotten too", scene.store.heartbeat(idle, HOLD, at(30)).await?, Pulse::Lost)
}

async fn whoever_is_gone_is_given_nothing(mut scene: Scene) -> Kept {
    let (left, dead) = (scene.node().await?, scene.node().await?);
    scene.held_by(dead, 1, 2).await?;
    scene.store.leave(left).await?;
    same("dead, with a row still to be taken back", scene.store.reclaim(dead, 1, at(30)).await?, 1)?;
    for node in [left, dead, NodeId(9_999)] {
        let lease = Lease { node, fence: Fence(7) };
        let notification = scene.draft();
        scene.accept(&notification, at(0), Some(lease)).await?;
        same(
            "what was to be leased at its arrival waits",
            scene.state(&notification).await?,
            State::Pending,
        )?;
        let batch = scene.claim(&notification, Lane::Main, lease, at(1)).await?;
        same("what a claim hands out", batch.len(), 0)?;
    }
    Ok(())
}

async fn leases_are_taken_back_in_the_order_of_ids_within_the_limit(mut scene: Scene) -> Kept {
    let node = scene.node().await?;
    // The higher grant holds the lower ids.
    let mut all = scene.held_by(node, 9, 2).await?;
    all.extend(scene.held_by(node, 1, 2).await?);
    for (taken, count) in [(3, 3), (3, 1), (3, 0)] {
        same("taken back", scene.store.reclaim(node, taken, at(30)).await?, count)?;
        if count == 3 {
            let mut held = vec![];
            for notification in &all {
                held.push(scene.state(notification).await? == State::Processing);
            }
            same("what is still held", held, [false, false, false, true])?;
        }
    }
    Ok(())
}

async fn a_lease_taken_back_cannot_settle(mut scene: Scene) -> Kept {
    let node = scene.node().await?;
    let all = scene.held_by(node, 1, 1).await?;
    scene.store.reclaim(node, 10, at(30)).await?;
    let late = Lease { node, fence: Fence(1) };
    let attempt = Some(failed_attempt(1, 1));
    let settled = scene.settle(all[0].id, late, attempt.clone(), retry_at(at(60))).await?;
    same("while nobody holds it", settled, Settled::LeaseLost)?;
    let lease = scene.lease().await?;
    scene.claim(&all[0], Lane::Main, lease, at(31)).await?;
    let settled = scene.settle(all[0].id, late, attempt, retry_at(at(60))).await?;
    same("while another holds it", settled, Settled::LeaseLost)?;
    same("its attempts", scene.store.history(all[0].id).await?.attempts, [])
}

async fn interruptions_add_up_until_an_attempt_fails(mut scene: Scene) -> Kept {
    let notification = scene.waiting().await?;
    for round in 0..3u32 {
        let node = scene.node().await?;
        let lease = Lease { node, fence: Fence(1) };
        let batch = scene.claim(&notification, Lane::Main, lease, at(1)).await?;
        same("interruptions", batch.first().map(|claimed| claimed.interruptions), Some(round))?;
        same("taken back", scene.store.reclaim(node, 10, at(30)).await?, 1)?;
    }
    same("events", scene.store.history(notification.id).await?.events, vec![interrupted(30, 1); 3])?;
    let lease = scene.lease().await?;
    scene.claim(&notification, Lane::Main, lease, at(1)).await?;
    scene.store.release(lease, None).await?;
    let again = scene.lease().await?;
    let batch = scene.claim(&notification, Lane::Main, again, at(1)).await?;
    same("a release leaves them", batch.first().map(|claimed| claimed.interruptions), Some(3))?;
    scene.fail(&notification, again, retry_at(at(60))).await?;
    let lease = scene.lease().await?;
    let batch = scene.claim(&notification, Lane::Retry, lease, at(60)).await?;
    same("after an attempt", batch.first().map(|claimed| claimed.interruptions), Some(0))
}

async fn a_release_gives_back_what_the_grant_holds(mut scene: Scene) -> Kept {
    let node = scene.node().await?;
    let mine = scene.held_by(node, 1, 2).await?;
    let beside = scene.held_by(node, 2, 1).await?;
    let lease = Lease { node, fence: Fence(1) };
    same("given back", scene.store.release(lease, None).await?, 2)?;
    for notification in &mine {
        let view = scene.view(notification.id).await?;
        same("its state", (view.state, view.progress.attempt), (State::Pending, 1))?;
        same("its events", scene.store.history(notification.id).await?.events, [])?;
    }
    same("another grant", scene.state(&beside[0]).await?, State::Processing)?;
    same("a second time", scene.store.release(lease, None).await?, 0)?;
    let retrying = scene.in_state(State::RetryScheduled).await?;
    let lease = scene.lease().await?;
    scene.claim(&retrying, Lane::Retry, lease, at(60)).await?;
    same("a retry given back", scene.store.release(lease, None).await?, 1)?;
    let view = scene.view(retrying.id).await?;
    let wanted = (State::RetryScheduled, 2, Some(at(60)));
    same("waits as before", (view.state, view.progress.attempt, view.due), wanted)
}

async fn a_release_of_named_ids_gives_back_only_those(mut scene: Scene) -> Kept {
    let node = scene.node().await?;
    let mine = scene.held_by(node, 1, 3).await?;
    let beside = scene.held_by(node, 2, 1).await?;
    let waiting = scene.waiting().await?;
    let lease = Lease { node, fence: Fence(1) };
    let named = vec![mine[2].id, beside[0].id, waiting.id, mine[0].id];
    same("given back", scene.store.release(lease, Some(named)).await?, 2)?;
    same("the first", scene.state(&mine[0]).await?, State::Pending)?;
    same("the one not named", scene.state(&mine[1]).await?, State::Processing)?;
    same("the third", scene.state(&mine[2]).await?, State::Pending)?;
    same("another grant", scene.state(&beside[0]).await?, State::Processing)?;
    same("no names", scene.store.release(lease, Some(vec![])).await?, 0)
}

async fn whoever_leaves_interrupts_nothing(mut scene: Scene) -> Kept {
    let (node, other) = (scene.node().await?, scene.node().await?);
    let mut mine = scene.held_by(node, 1, 1).await?;
    mine.extend(scene.held_by(node, 2, 1).await?);
    let theirs = scene.held_by(other, 1, 1).await?;
    scene.does(&mine[0], Act::RequestCancel, None, at(1)).await?;
    scene.store.leave(node).await?;
    let lease = scene.lease().await?;
    for (notification, cancel) in mine.iter().zip([true, false]) {
        let batch = scene.claim(notification, Lane::Main, lease, at(1)).await?;
        same("claimed again", batch.len(), 1)?;
        same("interruptions", batch[0].interruptions, 0)?;
        same("the mark", batch[0].cancel_requested, cancel)?;
        let events = scene.store.history(notification.id).await?.events;
        same("interrupted events", events.iter().any(|event| event.word == "interrupted"), false)?;
    }
    same("what another node holds", scene.state(&theirs[0]).await?, State::Processing)?;
    same("its heartbeat", scene.store.heartbeat(node, HOLD, at(1)).await?, Pulse::Lost)?;
    let pulse = scene.store.heartbeat(other, HOLD, at(29)).await?;
    same("it is not dead, it is gone", pulse, alive(at(29), vec![], (0, 2)))?;
    scene.store.leave(node).await?;
    Ok(())
}
