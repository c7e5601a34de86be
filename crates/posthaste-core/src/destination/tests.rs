//! Keys, acts and what is kept of a destination.

use super::*;
use crate::breaker::{Health, Tally};

fn at(secs: i64) -> Timestamp {
    Timestamp::from_millis(secs * 1_000)
}

fn flow(tenant: &str, channel: Channel, destination: &str) -> FlowKey {
    FlowKey { tenant: tenant.parse().unwrap(), channel, destination: destination.into() }
}

fn opened() -> Destination {
    let mut tally = Tally::default();
    (0..10).for_each(|_| tally.add(Health::Down, at(0)));
    let (breaker, _) = Breaker::default().tallied(tally, &BreakerSettings::default(), at(0));
    Destination { breaker, ..Destination::default() }
}

#[test]
fn ids_differ_by_kind_tenant_and_name_and_stay_the_same() {
    let key =
        |tenant, destination| DestinationKey::of_flow(&flow(tenant, Channel::Webhook, destination)).unwrap();
    let one = key("acme", "https://a.example:443");
    assert_eq!(one.id().to_string(), "dst_3ww4ec5kejy8mr6jcesn74xpxw");
    assert_eq!(one.flow(), Some(flow("acme", Channel::Webhook, "https://a.example:443")));
    let others = [
        key("beta", "https://a.example:443"),
        key("acme", "https://a.example:8443"),
        key("acme", "sub_1"),
        DestinationKey::provider("https://a.example:443"),
    ];
    for other in others {
        assert_ne!(one.id(), other.id(), "{other:?}");
    }
    assert_eq!(key("acme", "sub_1").kind, DestinationKind::Subscription);
}

#[test]
fn what_goes_over_providers_has_theirs() {
    assert_eq!(DestinationKey::of_flow(&flow("acme", Channel::Sms, "pool:sms")), None);
    assert_eq!(
        pinned_provider(&flow("acme", Channel::Sms, "provider:texts")),
        Some(DestinationKey::provider("texts"))
    );
    assert_eq!(DestinationKey::provider("texts").flow(), None);
}

#[test]
fn a_block_stands_until_it_is_lifted_whatever_the_breaker_does() {
    let (blocked, event) = opened().blocked("ada", Some("maintenance".to_owned()), at(1)).unwrap();
    assert_eq!((event.event, event.by.as_deref()), (EventKind::Blocked, Some("ada")));
    assert_eq!(blocked.blocked("bob", None, at(2)), None);
    assert_eq!(blocked.gate(at(1_000_000)), Gate::Open);
    assert!(!blocked.is_over(&BreakerSettings::default(), at(1_000_000)));
    let (reset, _) = blocked.reset("ada", at(3));
    assert_eq!((reset.gate(at(3)), reset.breaker), (Gate::Open, Breaker::default()));
    let (free, _) = reset.unblocked("ada", at(4)).unwrap();
    assert_eq!((free.gate(at(4)), free.unblocked("ada", at(4))), (Gate::Closed, None));
    assert!(free.is_over(&BreakerSettings::default(), at(4)));
}

#[test]
fn a_pause_is_only_ever_made_longer() {
    let (paused, event) = Destination::default().pause(at(60), at(0)).unwrap();
    assert_eq!((event.event, event.until), (EventKind::Paused, Some(at(60))));
    assert_eq!((paused.paused(at(59)), paused.paused(at(60))), (Some(at(60)), None));
    assert_eq!((paused.pause(at(30), at(1)), paused.pause(at(60), at(1))), (None, None));
    assert!(paused.pause(at(61), at(1)).is_some() && Destination::default().pause(at(1), at(1)).is_none());
    assert!(
        !paused.is_over(&BreakerSettings::default(), at(59))
            && paused.is_over(&BreakerSettings::default(), at(60))
    );
}

#[test]
fn limits_keep_a_row_and_those_of_the_api_stand_before_those_of_the_file() {
    let limits = SendLimits { rate: Some(Rate::per_second(50.0).unwrap()), concurrency: None };
    let (limited, _) = Destination::default().limited(limits, "ada", at(0));
    assert!(!limited.is_over(&BreakerSettings::default(), at(0)));
    let file = SendLimits { rate: Some(Rate::per_second(9.0).unwrap()), concurrency: Some(4) };
    assert_eq!(limited.limits.or(file), SendLimits { concurrency: Some(4), ..limits });
}

#[test]
fn it_is_read_back_as_written_and_errors_are_cut_between_characters() {
    let error = "ü".repeat(400);
    let one = opened().blocked("ada", None, at(1)).unwrap().0.with_error(Some(503), Some(&error));
    assert_eq!(one.last_error.as_ref().map(String::len), Some(MAX_TEXT));
    let one = one.pause(at(90), at(2)).unwrap().0;
    assert_eq!(Destination::from_json(&one.to_json()), Some(one));
    assert_eq!(
        Destination::from_json(r#"{"breaker":{"state":"closed","failures":null}}"#),
        Some(Destination::default())
    );
    assert_eq!(Destination::from_json("{}"), None);
}
