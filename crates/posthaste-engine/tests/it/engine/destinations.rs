//! What people see of destinations and do to them.

use posthaste_core::destination::{DestinationKey, DestinationName, EventKind, SendLimits};
use posthaste_core::rate::Rate;
use posthaste_engine::destinations::{DestinationError, DestinationTarget};
use posthaste_engine::engine::Engine;

use crate::rig::{Rig, ada, notification, pass, secs, send, someone_of};

const URL: &str = "http://127.0.0.1:9";

fn key(tenant: &str) -> DestinationKey {
    DestinationName::parse(URL).unwrap().key(Some(tenant.parse().unwrap())).unwrap()
}

fn target(key: &DestinationKey) -> DestinationTarget {
    DestinationTarget { id: key.id(), named: None }
}

fn named(key: &DestinationKey) -> DestinationTarget {
    DestinationTarget { named: Some(key.clone()), ..target(key) }
}

async fn started(rig: &Rig) -> Engine {
    let engine = rig.start().await;
    pass(secs(2)).await;
    engine
}

#[tokio::test(start_paused = true)]
async fn a_destination_is_limited_blocked_unblocked_and_reset_by_people_with_audit_and_history() {
    let rig = Rig::new();
    let engine = started(&rig).await;
    let (own, ada) = (key("default"), ada());
    let unknown = engine.block_destination(target(&own), None, &ada).await;
    assert!(matches!(unknown, Err(DestinationError::NotFound(_))), "nothing is known of it");
    let reason = Some("it asked us to".to_owned());
    let blocked = engine.block_destination(named(&own), reason.clone(), &ada).await.unwrap();
    assert_eq!(
        blocked.value.block.as_ref().map(|block| (&*block.by, block.reason.clone())),
        Some(("ada", reason))
    );
    let again = engine.block_destination(target(&own), None, &ada).await;
    assert!(matches!(again, Err(DestinationError::BlockedAlready(_))));
    let limits = SendLimits { rate: Some(Rate::per_second(5.0).unwrap()), concurrency: Some(2) };
    assert_eq!(engine.limit_destination(target(&own), limits, &ada).await.unwrap().limits, limits);
    let nonsense = SendLimits { concurrency: Some(0), ..limits };
    let refused = engine.limit_destination(target(&own), nonsense, &ada).await;
    assert!(matches!(refused, Err(DestinationError::BadConcurrency)));
    engine.unblock_destination(target(&own), &ada).await.unwrap();
    let again = engine.unblock_destination(target(&own), &ada).await;
    assert!(matches!(again, Err(DestinationError::NotBlocked(_))));
    let reset = engine.reset_destination(target(&own), &ada).await.unwrap();
    assert_eq!((reset.limits, reset.value.block), (limits, None), "limits stay");
    let reads = engine.reads(None);
    let history = reads.destination_history(&own).await.unwrap();
    let events: Vec<EventKind> = history.iter().map(|event| event.event).collect();
    assert_eq!(events, [EventKind::Reset, EventKind::Unblocked, EventKind::Limited, EventKind::Blocked]);
    let audit: Vec<String> = rig.audit().into_iter().map(|row| row.audit.action).collect();
    assert_eq!(audit, ["block-destination", "limit-destination", "unblock-destination", "reset-destination"]);
    engine.limit_destination(target(&own), SendLimits::default(), &ada).await.unwrap();
    assert_eq!(reads.destinations(None, 10).await.unwrap().rows, [], "there is nothing to say any more");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_sees_and_touches_its_own_destinations_only() {
    let rig = Rig::new();
    let engine = started(&rig).await;
    send(&engine, notification(&engine, "a", "{}")).await;
    let (own, provider) = (key("default"), DestinationKey::provider("mail"));
    engine.block_destination(target(&own), None, &ada()).await.unwrap();
    engine.block_destination(named(&provider), None, &ada()).await.unwrap();
    let eve = someone_of("other");
    for theirs in [&own, &provider] {
        let refused = engine.unblock_destination(named(theirs), &eve).await;
        assert!(matches!(refused, Err(DestinationError::NotFound(_))));
        let reads = engine.reads(eve.tenant.clone());
        assert_eq!(reads.destination(theirs.id()).await.unwrap(), None);
        assert_eq!(reads.destination_history(theirs).await.unwrap(), []);
        assert_eq!(reads.destinations(None, 10).await.unwrap().rows, []);
    }
    let all = engine.reads(None).destinations(None, 10).await.unwrap().rows;
    assert_eq!(all.into_iter().map(|view| view.key).collect::<Vec<_>>(), [provider, own.clone()]);
    let own_reads = engine.reads(own.tenant.clone());
    let known = own_reads.all_destinations(None, 10).await.unwrap().rows;
    assert_eq!(known.into_iter().map(|view| view.key).collect::<Vec<_>>(), [own]);
    let other = key("other");
    let mismatched = DestinationTarget { named: Some(other.clone()), ..target(&key("default")) };
    let refused = engine.reset_destination(mismatched, &ada()).await;
    assert!(matches!(refused, Err(DestinationError::OtherName { .. })));
}
