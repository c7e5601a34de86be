//! What waits in memory, alone: how much there is room for, and in which order it comes out.

use std::sync::Arc;

use posthaste_core::channel::Channel;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use proptest::prelude::*;

use super::pace::WINDOW;
use super::*;
use crate::store::Progress;

const ONE: FlowId = FlowId(1);

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

/// A claimed notification of that flow.
pub(crate) fn claimed(flow: FlowId, number: u128) -> Claimed {
    let now = Timestamp::from_micros(0);
    let key =
        FlowKey { tenant: acme(), channel: Channel::Webhook, destination: "https://example.com:443".into() };
    let content = Content::of(Body::Text(String::new()));
    let to = "https://example.com/hook".to_owned();
    let notification = Notification::new(NotificationId::new(now, number), key, to, content);
    Claimed {
        notification: Arc::new(notification),
        flow,
        lane: Lane::Main,
        due: now,
        progress: Progress::START,
        first_due: now,
        delay: Duration::ZERO,
        interruptions: 0,
        cancel_requested: false,
        lease: Lease { node: NodeId(1), fence: Fence(1) },
    }
}

/// One whose flow has just sent so many.
fn moved(count: u32, now: Instant) -> Prefetched {
    let mut prefetched = Prefetched::new(256, now);
    (0..count).for_each(|_| prefetched.sent(&acme(), ONE, 1_000, now));
    prefetched
}

#[test]
fn a_flow_has_as_much_room_as_it_sent_in_a_short_while() {
    let now = Instant::now();
    let mut prefetched = moved(3, now);
    assert!(
        (0..3).all(|_| prefetched.reserve(&acme(), ONE, 10, now))
            && !prefetched.reserve(&acme(), ONE, 10, now)
    );
    assert!(
        !prefetched.reserve(&acme(), FlowId(2), 10, now),
        "this one has not sent, and three of its tenant wait"
    );
    prefetched.cancel(&acme(), ONE, 10);
    assert!(prefetched.reserve(&acme(), ONE, 10, now + WINDOW), "the window before still counts");
    prefetched.cancel(&acme(), ONE, 10);
    assert!(!prefetched.reserve(&acme(), ONE, 10, now + WINDOW * 2), "it has stopped");
    assert_eq!((prefetched.len(), prefetched.bytes), (2, 20));
}

#[test]
fn one_flow_has_half_at_most_and_bytes_are_bounded() {
    let now = Instant::now();
    let mut prefetched = moved(100_000, now);
    assert_eq!(prefetched.reserve_ahead(&acme(), ONE, 100_000, now), 2_048);
    assert_eq!(prefetched.reserve_ahead(&acme(), ONE, 100_000, now), 0);
    let mut prefetched = moved(100_000, now);
    assert!(
        !prefetched.reserve(&acme(), ONE, MOST_BYTES + 1, now)
            && prefetched.reserve(&acme(), ONE, MOST_BYTES, now)
    );
    assert_eq!(prefetched.reserve_ahead(&acme(), ONE, 100, now), 0, "no bytes are left");
}

#[test]
fn rows_are_claimed_ahead_once_half_of_the_room_is_free() {
    let now = Instant::now();
    let mut prefetched = moved(100, now);
    assert_eq!(prefetched.reserve_ahead(&acme(), ONE, 500, now), 100);
    (0..50).for_each(|_| prefetched.cancel(&acme(), ONE, 0));
    assert_eq!(prefetched.reserve_ahead(&acme(), ONE, 500, now), 0);
    prefetched.cancel(&acme(), ONE, 0);
    assert_eq!(prefetched.reserve_ahead(&acme(), ONE, 500, now), 51);
}

#[test]
fn flows_that_have_not_sent_have_room_for_one_while_their_tenant_sends() {
    let now = Instant::now();
    let mut prefetched = moved(10, now);
    let of = |flow: i64| FlowId(100 + flow);
    let took = (0..20).filter(|flow| prefetched.reserve(&acme(), of(*flow), 1, now)).count();
    assert_eq!(took, 10, "as many as the tenant sent");
    prefetched.cancel(&acme(), of(3), 1);
    assert!(!prefetched.reserve(&acme(), of(4), 1, now), "this flow has one");
    assert!(prefetched.reserve(&acme(), of(3), 1, now));
    let other: Tenant = "other".parse().unwrap();
    assert!(!prefetched.reserve(&other, of(30), 1, now), "this tenant has not sent");
    (0..10).for_each(|flow| prefetched.cancel(&acme(), of(flow), 1));
    assert!(prefetched.by_tenant.is_empty());
    assert!(!prefetched.reserve(&acme(), of(0), 1, now + WINDOW * 2), "the tenant has stopped");
    let mut prefetched = moved(100_000, now);
    let took = (0..4_096).filter(|flow| prefetched.reserve(&acme(), of(*flow), 1, now)).count();
    assert_eq!(took, 2_048, "half of the room is kept for flows that send");
}

#[derive(Debug, Clone)]
enum Step {
    Sent(i64),
    /// Reserves room and fills it, behind rows in the store or not.
    Arrive(i64, bool),
    /// Reserves room for several, and fills so many of it.
    Ahead(i64, u32, u32),
    Join(i64),
    Pop(i64, u32),
    Stale,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0i64..3).prop_map(Step::Sent),
        6 => (0i64..3, any::<bool>()).prop_map(|(flow, behind)| Step::Arrive(flow, behind)),
        2 => (0i64..3, 0u32..20, 0u32..20).prop_map(|(flow, asked, came)| Step::Ahead(flow, asked, came)),
        1 => (0i64..3).prop_map(Step::Join),
        3 => (0i64..3, 0u32..10).prop_map(|(flow, limit)| Step::Pop(flow, limit)),
        1 => Just(Step::Stale),
        2 => (0u64..900).prop_map(Step::Pass),
    ]
}

/// What is expected to wait: numbers and since when, in their order, and those behind rows in the store.
type Line = Vec<(u128, Instant)>;

proptest! {
    #[test]
    fn everything_comes_out_once_in_its_order_and_the_bounds_hold(steps in prop::collection::vec(step(), 1..150)) {
        let begin = Instant::now();
        let (mut now, mut number) = (begin, 0u128);
        let mut prefetched = Prefetched::new(4, begin);
        let mut lines: [(Line, Line); 3] = Default::default();
        let bucket = |flow: i64| claimed(FlowId(flow), 0).bucket();
        let ids = |batch: &[Claimed]| batch.iter().map(|claimed| claimed.notification.id).collect::<Vec<_>>();
        let named = |numbers: &[u128]| {
            numbers.iter().map(|one| NotificationId::new(Timestamp::from_micros(0), *one)).collect::<Vec<_>>()
        };
        for step in steps {
            match step {
                Step::Sent(flow) => prefetched.sent(&acme(), FlowId(flow), 100, now),
                Step::Arrive(flow, behind) => {
                    number += 1;
                    let new = claimed(FlowId(flow), number);
                    let bytes = new.bytes();
                    let line = &mut lines[flow as usize];
                    if behind && prefetched.reserve_behind(&acme(), FlowId(flow), bytes, now) {
                        prefetched.push_behind(new, now);
                        line.1.push((number, now));
                    } else if !behind && prefetched.reserve(&acme(), FlowId(flow), bytes, now) {
                        prefetched.push(new, now);
                        line.0.push((number, now));
                    }
                }
                Step::Ahead(flow, asked, came) => {
                    let room = prefetched.reserve_ahead(&acme(), FlowId(flow), asked, now);
                    prop_assert!(room <= asked);
                    for _ in 0..came.min(room) {
                        number += 1;
                        prop_assert!(prefetched.push_ahead(claimed(FlowId(flow), number), now).is_none());
                        lines[flow as usize].0.push((number, now));
                    }
                    (came.min(room)..room).for_each(|_| prefetched.cancel(&acme(), FlowId(flow), 0));
                }
                Step::Join(flow) => {
                    prefetched.join(bucket(flow));
                    let line = &mut lines[flow as usize];
                    let behind = std::mem::take(&mut line.1);
                    line.0.extend(behind);
                }
                Step::Pop(flow, limit) => {
                    let line = &mut lines[flow as usize].0;
                    let count = line.len().min(limit as usize);
                    let expected: Vec<u128> = line.drain(..count).map(|(one, _)| one).collect();
                    prop_assert_eq!(ids(&prefetched.pop(bucket(flow), limit)), named(&expected));
                }
                Step::Stale => {
                    // A queue is in the order of arrival but for what joined it, which may be older than what was claimed ahead:
                    // it is given back a little later, with what stands before it.
                    for claimed in prefetched.stale(now) {
                        for line in lines.iter_mut().flat_map(|(line, behind)| [line, behind]) {
                            line.retain(|(one, since)| {
                                let same = claimed.notification.id == NotificationId::new(Timestamp::from_micros(0), *one);
                                assert!(!same || *since + LONGEST <= now);
                                !same
                            });
                        }
                    }
                }
                Step::Pass(millis) => now += Duration::from_millis(millis),
            }
            let waiting: usize = lines.iter().map(|(line, behind)| line.len() + behind.len()).sum();
            prop_assert_eq!(prefetched.len() as usize, waiting);
            prop_assert!(prefetched.len() <= prefetched.most && prefetched.bytes <= MOST_BYTES);
            for flow in 0..3 {
                let of_flow = lines[flow as usize].0.len() + lines[flow as usize].1.len();
                prop_assert!(of_flow <= (prefetched.most / 2) as usize);
                prop_assert_eq!(prefetched.has(bucket(flow)), !lines[flow as usize].0.is_empty());
            }
        }
        let left = prefetched.take_all();
        let expected: usize = lines.iter().map(|(line, behind)| line.len() + behind.len()).sum();
        prop_assert_eq!((left.len(), prefetched.len(), prefetched.bytes), (expected, 0, 0));
        prop_assert!(prefetched.by_flow.is_empty());
    }
}
