//! What is taken in: whole, readable as it came, leased where that is said.

use std::time::Duration;

use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::state::{Lane, State};

use crate::conformance::scene::{MONTH, Scene, TICK, at, good_attempt, tenant};
use crate::conformance::{Broken, Kept, Promise, list, refused, same};
use crate::store::{
    Acceptance, Accepted, Ending, History, Idempotency, KnownFlow, Next, Progress, Request, Settled, View,
};

pub(super) const PROMISES: &[Promise] = list![
    what_is_accepted_is_read_back_as_it_came,
    what_was_never_accepted_is_not_there,
    a_call_that_names_a_known_id_is_refused_whole,
    a_call_that_names_an_id_twice_is_refused_whole,
    many_requests_are_answered_in_their_order,
    a_request_without_notifications_is_taken,
    a_leased_arrival_is_held_from_the_start,
    a_later_arrival_is_not_due_before_its_time,
    a_flow_keeps_its_number,
    an_accept_names_the_nodes_whose_leases_were_granted,
];

async fn what_is_accepted_is_read_back_as_it_came(mut scene: Scene) -> Kept {
    for (notification, due) in [(scene.draft(), at(0)), (scene.full_draft(), at(3))] {
        scene.accept(&notification, due, None).await?;
        let wanted = View {
            notification: notification.clone().into(),
            state: State::Pending,
            progress: Progress::START,
            due: Some(due),
            cancel_requested: false,
            last_error: None,
            end: None,
        };
        same("what is shown", scene.view(notification.id).await?, wanted)?;
        let history = scene.store.history(notification.id).await?;
        same("its history", history, History::default())?;
        let facts = scene.facts(notification.id).await?;
        let flow = scene.flow_of(&notification).await?;
        same("its flow", facts.bucket.flow, flow)?;
        same("its lane", facts.bucket.lane, Lane::Main)?;
        same("its priority", facts.bucket.priority, notification.priority)?;
        same("its tenant", facts.tenant, notification.tenant.clone())?;
        same("its expiry", facts.standing.expires_at, notification.expires_at)?;
        same("its dead letter", facts.standing.letter(), None)?;
    }
    Ok(())
}

async fn what_was_never_accepted_is_not_there(scene: Scene) -> Kept {
    let unknown = NotificationId::new(at(1), 1);
    same("get", scene.store.get(unknown).await?, None)?;
    same("history", scene.store.history(unknown).await?, History::default())?;
    same("facts", scene.store.facts(vec![unknown]).await?, [])
}

async fn a_call_that_names_a_known_id_is_refused_whole(mut scene: Scene) -> Kept {
    let known = scene.waiting().await?;
    let (first, beside) = (scene.draft(), scene.draft());
    let request = async |notification| {
        let arrivals = vec![scene.arrival(notification, at(0), None).await?];
        Ok::<_, Broken>(Request { idempotency: None, arrivals })
    };
    let mut torn = request(&beside).await?;
    torn.arrivals.push(scene.arrival(&known, at(0), None).await?);
    let call = vec![request(&first).await?, torn];
    refused("accept", scene.store.accept(call, at(1)).await)?;
    same("the request before it", scene.store.get(first.id).await?, None)?;
    same("the notification beside it", scene.store.get(beside.id).await?, None)?;
    same("the known one", scene.state(&known).await?, State::Pending)?;
    scene.accept(&beside, at(0), None).await
}

async fn a_call_that_names_an_id_twice_is_refused_whole(mut scene: Scene) -> Kept {
    let twice = scene.draft();
    let arrival = scene.arrival(&twice, at(0), None).await?;
    let call = vec![Request { idempotency: None, arrivals: vec![arrival.clone(), arrival] }];
    refused("accept", scene.store.accept(call, at(1)).await)?;
    same("what is stored", scene.store.get(twice.id).await?, None)
}

async fn many_requests_are_answered_in_their_order(mut scene: Scene) -> Kept {
    let mut call = vec![];
    let mut ids = vec![];
    for size in [2, 0, 3] {
        let mut arrivals = vec![];
        for _ in 0..size {
            let notification = scene.draft();
            ids.push(notification.id);
            arrivals.push(scene.arrival(&notification, at(0), None).await?);
        }
        call.push(Request { idempotency: None, arrivals });
    }
    let wanted = [Accepted::New, Accepted::New, Accepted::New];
    same("accept", scene.store.accept(call, at(0)).await?.answers, wanted)?;
    same("facts", scene.store.facts(ids.clone()).await?.len(), ids.len())?;
    let flipped: Vec<NotificationId> = ids.into_iter().rev().collect();
    let told: Vec<NotificationId> =
        scene.store.facts(flipped.clone()).await?.iter().map(|facts| facts.id).collect();
    same("facts in the order of the question", told, flipped)
}

async fn a_request_without_notifications_is_taken(scene: Scene) -> Kept {
    let call = vec![Request { idempotency: None, arrivals: vec![] }];
    same("accept", scene.store.accept(call, at(0)).await?.answers, [Accepted::New])?;
    same("accept of nothing", scene.store.accept(vec![], at(0)).await?.answers, [])
}

async fn a_leased_arrival_is_held_from_the_start(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    same("its state", scene.state(&notification).await?, State::Processing)?;
    let other = scene.lease().await?;
    same("claimed", scene.claim(&notification, Lane::Main, other, at(9)).await?, [])?;
    let next = Next::End(Ending::Delivered);
    let settled = scene.settle(notification.id, lease, Some(good_attempt(1, 1)), next).await?;
    same("settled by its holder", settled, Settled::Applied)?;
    same("its state", scene.state(&notification).await?, State::Succeeded)
}

async fn a_later_arrival_is_not_due_before_its_time(mut scene: Scene) -> Kept {
    let (notification, lease) = (scene.draft(), scene.lease().await?);
    scene.accept(&notification, at(60), None).await?;
    let early = scene.claim(&notification, Lane::Main, lease, at(60).earlier(TICK)).await?;
    same("claimed a tick too early", early, [])?;
    same("claimed in time", scene.claim(&notification, Lane::Main, lease, at(60)).await?.len(), 1)
}

async fn a_flow_keeps_its_number(mut scene: Scene) -> Kept {
    let (one, two) = (FlowKey::of(&scene.draft()), FlowKey::of(&scene.full_draft()));
    let theirs = FlowKey { tenant: tenant("theirs"), ..one.clone() };
    let keys = vec![one.clone(), two.clone(), one.clone(), theirs.clone()];
    let first = scene.store.intern(keys).await?;
    same("how many numbers", first.len(), 4)?;
    same("one flow named twice", first[2], first[0])?;
    same("another flow has the number", first[1] == first[0] || first[3] == first[0], false)?;
    same("two others share a number", first[1] == first[3], false)?;
    let again = scene.store.intern(vec![theirs.clone(), one.clone(), two.clone()]).await?;
    same("the numbers later", again, [first[3], first[0], first[1]])?;
    let unknown = FlowId(1 << 40);
    let asked = vec![first[3], unknown, first[1], first[0], first[1]];
    let mut wanted =
        [(first[0], one), (first[1], two), (first[3], theirs)].map(|(id, key)| KnownFlow { id, key });
    wanted.sort_by_key(|flow| flow.id);
    same("the flows of numbers, each once and in their order", scene.store.flows(asked).await?, wanted)?;
    same("an unknown number", scene.store.flows(vec![unknown]).await?, [])?;
    same("no number", scene.store.flows(vec![]).await?, [])
}

impl Scene {
    /// A node that is dead and not forgotten yet, because it still holds a row.
    async fn dead_node(&mut self) -> Result<NodeId, Broken> {
        let node = self.store.join("dead".to_owned(), Duration::from_secs(30), at(0)).await?.node;
        for _ in 0..2 {
            let notification = self.draft();
            self.accept(&notification, at(0), Some(Lease { node, fence: Fence(1) })).await?;
        }
        same("taken back", self.store.reclaim(node, 1, at(30)).await?, 1)?;
        Ok(node)
    }
}

async fn an_accept_names_the_nodes_whose_leases_were_granted(mut scene: Scene) -> Kept {
    let (one, other) =
        (scene.lease().await?.node, scene.store.join("other".to_owned(), MONTH, at(0)).await?.node);
    let (dead, left) =
        (scene.dead_node().await?, scene.store.join("left".to_owned(), MONTH, at(0)).await?.node);
    scene.store.leave(left).await?;
    let mut arrivals = vec![];
    for node in [Some(other), Some(left), None, Some(one), Some(dead), Some(other), Some(NodeId(9_999))] {
        let (notification, lease) = (scene.draft(), node.map(|node| Lease { node, fence: Fence(50) }));
        arrivals.push(scene.arrival(&notification, at(0), lease).await?);
    }
    let call = vec![Request { idempotency: None, arrivals: arrivals.clone() }];
    let taken = scene.store.accept(call, at(0)).await?;
    let mut granted = vec![one, other];
    granted.sort();
    same("accept", taken, Acceptance { answers: vec![Accepted::New], granted: granted.clone() })?;
    for arrival in &arrivals {
        let held = arrival.lease.is_some_and(|lease| granted.contains(&lease.node));
        let wanted = if held { State::Processing } else { State::Pending };
        same("the state of each", scene.state(&arrival.notification).await?, wanted)?;
    }
    let key = |answer: &[u8]| Idempotency {
        tenant: tenant("acme"),
        key: "k".to_owned(),
        hash: [1; 32],
        answer: answer.to_vec(),
    };
    for (answer, granted) in [(Accepted::New, vec![other]), (Accepted::Twin(b"one".to_vec()), vec![])] {
        let (notification, lease) = (scene.draft(), Lease { node: other, fence: Fence(51) });
        let arrivals = vec![scene.arrival(&notification, at(0), Some(lease)).await?];
        let call = vec![Request { idempotency: Some(key(b"one")), arrivals }];
        let wanted = Acceptance { answers: vec![answer], granted };
        same("with a key: only rows that were stored count", scene.store.accept(call, at(0)).await?, wanted)?;
    }
    Ok(())
}
