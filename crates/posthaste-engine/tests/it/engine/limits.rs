//! Limits of destinations: rates, concurrency, of one tenant, of a provider, over all nodes.

use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::destination::{DestinationKey, DestinationName, SendLimits};
use posthaste_core::notification::Notification;
use posthaste_core::rate::Rate;
use posthaste_engine::destinations::DestinationTarget;
use posthaste_engine::engine::Engine;

use crate::rig::{Rig, Script, ada, http, ms, notification, pass, secs};

const URL: &str = "http://127.0.0.1:9";

fn limits(rate: Option<f64>, concurrency: Option<u32>) -> SendLimits {
    SendLimits { rate: rate.map(|rate| Rate::per_second(rate).unwrap()), concurrency }
}

fn of(engine: &Engine, tenant: &str) -> Notification {
    let mut one = notification(engine, "a", r#"{"quick": {"tries": 0}}"#);
    one.tenant = tenant.parse().unwrap();
    one
}

async fn accept(engine: &Engine, count: usize, make: impl Fn(&Engine) -> Notification) {
    let all: Vec<Notification> = (0..count).map(|_| make(engine)).collect();
    for batch in all.chunks(100) {
        engine.accept(None, batch.to_vec()).await.unwrap();
    }
}

fn arrived(rig: &Rig) -> Vec<Duration> {
    let begin = crate::rig::BEGIN;
    rig.channel.arrivals().into_iter().map(|(_, _, at)| at.since(begin)).collect()
}

/// The most that were under way at once, if each takes so long.
fn most_at_once(arrivals: &[Duration], each: Duration) -> usize {
    let at = |now: &Duration| arrivals.iter().filter(|one| *one <= now && *now < **one + each).count();
    arrivals.iter().map(at).max().unwrap_or(0)
}

/// The most that arrived in any stretch of that length.
fn most_within(arrivals: &[Duration], length: Duration) -> usize {
    let from =
        |begin: &Duration| arrivals.iter().filter(|one| *one >= begin && **one < *begin + length).count();
    arrivals.iter().map(from).max().unwrap_or(0)
}

async fn nodes(rig: &mut Rig, count: u64) -> Vec<Engine> {
    let mut nodes = vec![];
    for seed in 0..count {
        rig.seed = seed;
        nodes.push(rig.start().await);
    }
    pass(secs(4)).await;
    nodes
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_smooth_and_holds_over_all_nodes() {
    for count in [1, 3] {
        let mut rig = Rig::new();
        let nodes = nodes(&mut rig, count).await;
        let key = DestinationName::parse(URL).unwrap().key(Some("default".parse().unwrap())).unwrap();
        let target = DestinationTarget { id: key.id(), named: Some(key) };
        nodes[0].limit_destination(target, limits(Some(50.0), None), &ada()).await.unwrap();
        pass(secs(2)).await;
        for node in &nodes {
            accept(node, 200, |engine| of(engine, "default")).await;
        }
        pass(secs(20)).await;
        let arrivals = arrived(&rig);
        assert_eq!(arrivals.len(), 200 * nodes.len());
        assert!(most_within(&arrivals, secs(1)) <= 50 + 3 * 3, "{}", most_within(&arrivals, secs(1)));
        assert!(most_within(&arrivals, ms(100)) <= 5 + 2 * 5, "{}", most_within(&arrivals, ms(100)));
        let took = *arrivals.last().unwrap() - arrivals[0];
        let whole = Duration::from_secs_f64(arrivals.len() as f64 / 50.0);
        assert!(took <= whole.mul_f64(1.1), "{took:?} for {whole:?}: the rate is used");
    }
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_holds_over_all_nodes_and_what_waited_before_the_start_keeps_to_it() {
    let mut rig = Rig::new();
    rig.always("a", Script::Slowly(ms(200), http(200)));
    {
        // Nobody sends yet.
        let node = rig.start().await;
        let late = |engine: &Engine| {
            let mut one = of(engine, "default");
            one.not_before = Some(engine.now().later(secs(60)));
            one
        };
        accept(&node, 100, late).await;
    }
    rig.settings.destination_limits = [(DestinationName::parse(URL).unwrap(), limits(None, Some(5)))].into();
    pass(secs(70)).await;
    let nodes = nodes(&mut rig, 3).await;
    for node in &nodes {
        accept(node, 50, |engine| of(engine, "default")).await;
    }
    pass(secs(60)).await;
    let arrivals = arrived(&rig);
    assert_eq!(arrivals.len(), 250);
    let joining = secs(74) + ms(500);
    let after: Vec<Duration> = arrivals.iter().copied().filter(|at| *at > joining).collect();
    assert!(most_at_once(&after, ms(199)) <= 5, "{}", most_at_once(&after, ms(199)));
    assert!(most_at_once(&arrivals, ms(199)) <= 15, "each node thought that it was alone at most once");
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_configuration_counts_for_each_tenant_by_itself() {
    let mut rig = Rig::new();
    rig.always("a", Script::Slowly(secs(1), http(200)));
    rig.settings.destination_limits = [(DestinationName::parse(URL).unwrap(), limits(None, Some(2)))].into();
    let node = rig.start().await;
    pass(secs(2)).await;
    for tenant in ["one", "two"] {
        accept(&node, 10, |engine| of(engine, tenant)).await;
    }
    pass(secs(6)).await;
    let arrivals = arrived(&rig);
    assert_eq!((arrivals.len(), most_at_once(&arrivals, ms(999))), (20, 4), "two for each");
}

#[tokio::test(start_paused = true)]
async fn two_tenants_share_the_limit_of_a_provider() {
    let mut rig = Rig::new();
    rig.ways = vec![Channel::Email];
    rig.always("a", Script::Slowly(secs(1), http(200)));
    rig.settings.destination_limits =
        [(DestinationName::parse("email-relay").unwrap(), limits(None, Some(3)))].into();
    let node = rig.start().await;
    pass(secs(2)).await;
    for tenant in ["one", "two"] {
        let make = |engine: &Engine| {
            let mut one = of(engine, tenant);
            (one.channel, one.destination) = (Channel::Email, "pool:email".into());
            one
        };
        accept(&node, 9, make).await;
    }
    pass(secs(10)).await;
    let arrivals = arrived(&rig);
    assert_eq!((arrivals.len(), most_at_once(&arrivals, ms(999))), (18, 3));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_blocked_parks_its_pool_until_it_is_unblocked() {
    let mut rig = Rig::new();
    rig.ways = vec![Channel::Email];
    let node = rig.start().await;
    pass(secs(2)).await;
    let key = DestinationKey::provider("email-relay");
    let target = DestinationTarget { id: key.id(), named: None };
    node.block_destination(target.clone(), None, &ada()).await.unwrap();
    let make = |engine: &Engine| {
        let mut one = of(engine, "one");
        (one.channel, one.destination) = (Channel::Email, "pool:email".into());
        one
    };
    accept(&node, 5, make).await;
    pass(secs(20)).await;
    assert_eq!(arrived(&rig).len(), 0);
    let view = node.reads(None).destination(key.id()).await.unwrap().unwrap();
    assert_eq!(view.parked, 5);
    node.unblock_destination(target, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(arrived(&rig).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_a_message_made_short_does_not_blame_a_provider() {
    for (policy, blames) in [(r#"{"timeout": "100ms"}"#, false), ("{}", true)] {
        let mut rig = Rig::new();
        rig.ways = vec![Channel::Email];
        rig.always("a", Script::Hang);
        let node = rig.start().await;
        pass(secs(2)).await;
        let make = |engine: &Engine| {
            let mut one = notification(engine, "a", policy);
            (one.channel, one.destination) = (Channel::Email, "pool:email".into());
            one
        };
        accept(&node, 15, make).await;
        pass(secs(12)).await;
        let id = DestinationKey::provider("email-relay").id();
        let view = node.reads(None).destination(id).await.unwrap().unwrap();
        assert_eq!(view.value.breaker.failures().is_some(), blames, "{policy}: {:?}", view.value.breaker);
    }
}
