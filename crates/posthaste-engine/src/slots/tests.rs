//! What the slots of a node are used for, and what waits behind rows in the store.

use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::notification::Priority;
use posthaste_core::state::Lane;

use super::*;

const NOW: Timestamp = Timestamp::EPOCH;

const BUCKET: Bucket = Bucket { flow: FlowId(1), lane: Lane::Main, priority: Priority::Normal };

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

fn claimed(number: u128) -> Claimed {
    crate::prefetched::tests::claimed(BUCKET.flow, number)
}

fn numbers(batch: &[Claimed]) -> Vec<NotificationId> {
    batch.iter().map(|claimed| claimed.notification.id).collect()
}

fn sent(in_slots: &[InSlot]) -> Vec<NotificationId> {
    in_slots.iter().map(|one| one.claimed.notification.id).collect()
}

/// A node whose flow has just sent a hundred, and has rows in the store.
fn node() -> NodeSlots {
    let node = NodeSlots::new(16);
    for _ in 0..100 {
        let slot = node.lock().slots.arrive(&acme(), BUCKET, NOW).unwrap();
        node.sent(&Held::Slot(slot), 1);
        node.recorded(1);
    }
    node.ready([(&acme(), BUCKET)]);
    node
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_rows_are_claimed_waits_behind_them_in_memory_and_is_not_stored_too() {
    let node = node();
    let Deal { claims, to_send, .. } = node.deal(16, NOW);
    assert!(to_send.is_empty() && claims.len() == 1);
    // More rows come to the store during the claim, and one to memory behind all of them.
    node.ready([(&acme(), BUCKET)]);
    assert!(matches!(node.take(&acme(), BUCKET, 1, NOW), Hold::Prefetched { .. }));
    assert!(node.prefetch(claimed(9), NOW).is_none());
    let taken = node.claimed(&claims[0], vec![claimed(1), claimed(2)], NOW);
    assert_eq!(sent(&taken.to_send), numbers(&[claimed(1), claimed(2)]));
    let Deal { claims, to_send, .. } = node.deal(16, NOW);
    assert!(to_send.is_empty() && claims.len() == 1, "the later rows of the store come first");
    let taken = node.claimed(&claims[0], vec![claimed(3)], NOW);
    assert_eq!(sent(&taken.to_send), numbers(&[claimed(3)]));
    let Deal { claims, to_send, .. } = node.deal(16, NOW);
    assert!(claims.is_empty(), "nothing is left in the store");
    assert_eq!(sent(&to_send), numbers(&[claimed(9)]));
    assert!(node.take(&acme(), BUCKET, 1, NOW).is_leased());
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_rows_has_its_turn_after_two_claims_also_if_more_rows_come_all_the_time() {
    let node = node();
    let mut number = 100;
    let mut claim = |node: &NodeSlots| {
        let Deal { claims, to_send, .. } = node.deal(16, NOW);
        // More rows come to the store during each claim.
        node.ready([(&acme(), BUCKET)]);
        number += 1;
        for claim in &claims {
            node.claimed(claim, vec![claimed(number)], NOW);
        }
        sent(&to_send)
    };
    claim(&node);
    assert!(matches!(node.take(&acme(), BUCKET, 1, NOW), Hold::Prefetched { .. }));
    assert!(node.prefetch(claimed(9), NOW).is_none());
    assert_eq!(claim(&node), []);
    assert!(matches!(node.take(&acme(), BUCKET, 1, NOW), Hold::Prefetched { .. }));
    assert!(node.prefetch(claimed(10), NOW).is_none());
    assert_eq!(claim(&node), []);
    assert_eq!(claim(&node), numbers(&[claimed(9)]), "what came later still waits");
    assert_eq!(claim(&node), numbers(&[claimed(10)]));
}

#[tokio::test(start_paused = true)]
async fn behind_many_rows_nothing_waits_in_memory() {
    let node = node();
    let Deal { claims, .. } = node.deal(16, NOW);
    let full = (0..u128::from(claims[0].limit())).map(claimed).collect();
    node.claimed(&claims[0], full, NOW);
    assert!(!node.take(&acme(), BUCKET, 1, NOW).is_leased());
}

#[tokio::test(start_paused = true)]
async fn most_of_the_room_is_for_what_is_claimed_ahead() {
    let node = node();
    let behind = (0..100).filter(|_| node.take(&acme(), BUCKET, 1, NOW).is_leased()).count();
    assert_eq!(behind, 25);
    assert_eq!(node.deal(100, NOW).claims[0].ahead, 75);
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_rows_for_too_long_goes_back_to_the_store() {
    let node = node();
    assert!(node.take(&acme(), BUCKET, 1, NOW).is_leased());
    assert!(node.prefetch(claimed(9), NOW).is_none());
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(numbers(&node.stale()), numbers(&[claimed(9)]));
    assert_eq!(node.busy(), 0);
}
