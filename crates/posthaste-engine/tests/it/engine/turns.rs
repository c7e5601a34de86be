//! Whose turn it is: destinations, lanes and priorities beside each other.

use std::sync::Arc;

use posthaste_core::id::NotificationId;
use posthaste_core::notification::Priority;
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Accepted;

use super::PLAIN;
use crate::rig::{
    BEGIN, FaultyStore, Rig, Script, Trouble, assert_arrived, http, ms, notification, pass, secs, send,
};

async fn send_many(engine: &Engine, count: usize, destination: &str, to: &str) -> Vec<NotificationId> {
    send_as(engine, "default", count, destination, to).await
}

async fn send_as(
    engine: &Engine,
    tenant: &str,
    count: usize,
    destination: &str,
    to: &str,
) -> Vec<NotificationId> {
    let new = |_| {
        let mut new = notification(engine, to, PLAIN);
        (new.tenant, new.destination) = (tenant.parse().unwrap(), destination.into());
        new
    };
    let many: Vec<_> = (0..count).map(new).collect();
    let ids = many.iter().map(|new| new.id).collect();
    assert_eq!(engine.accept(None, many).await.unwrap(), Accepted::New);
    ids
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_hangs_does_not_hold_up_another() {
    let rig = Rig::new();
    rig.always("hangs", Script::Hang);
    let engine = rig.start().await;
    send_many(&engine, 1_000, "http://hangs", "hangs").await;
    pass(ms(100)).await;
    let ids = send_many(&engine, 50, "http://works", "works").await;
    pass(ms(100)).await;
    for id in ids {
        assert_arrived(&rig.arrivals(id), &[(1, ms(100))]);
        assert_eq!(rig.state(id).await, State::Succeeded);
    }
}

/// However many destinations of one tenant hang, and while it goes on sending to them, another tenant's first attempts and
/// retries begin at once.
#[tokio::test(start_paused = true)]
async fn a_tenant_whose_destinations_hang_does_not_hold_up_another() {
    for destinations in [8, 200] {
        let rig = Rig::new();
        rig.always("hangs", Script::Hang);
        rig.script("fails", vec![Script::Answer(http(503)); 20]);
        let engine = rig.start().await;
        let begun = rig.elapsed();
        let retried = send_as(&engine, "b", 20, "http://fails", "fails").await;
        for turn in 0..600 {
            let hung = format!("http://hangs{}", turn % destinations);
            send_as(&engine, "a", 5, &hung, "hangs").await;
            if turn % 10 == 0 {
                let sent = rig.elapsed();
                for id in send_as(&engine, "b", 20, "http://works", "works").await {
                    pass(ms(10)).await;
                    let arrivals = rig.arrivals(id);
                    let late = arrivals.first().map(|(_, at)| at.saturating_sub(sent));
                    assert!(late.is_some_and(|late| late <= ms(100)), "{destinations}: {late:?}");
                }
            }
            pass(ms(100)).await;
        }
        for id in retried {
            let late = rig.arrivals(id)[1].1 - begun - secs(60);
            assert!(late <= ms(100), "{destinations}: a retry was {late:?} late");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wave_of_retries_that_hang_does_not_stop_new_ones() {
    let rig = Rig::new();
    let engine = rig.start().await;
    for number in 0..10 {
        let to = format!("d{number}");
        rig.script(&to, vec![Script::Answer(http(503)); 100]);
        rig.always(&to, Script::Hang);
        send_many(&engine, 100, &format!("http://{to}"), &to).await;
    }
    pass(secs(61)).await;
    let retries = rig.channel.arrivals().iter().filter(|(_, attempt, _)| *attempt == 2).count();
    assert!(retries >= 64, "{retries} retries hang");
    let ids = send_many(&engine, 50, "http://works", "works").await;
    pass(ms(100)).await;
    for id in ids {
        assert_arrived(&rig.arrivals(id), &[(1, secs(61))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wave_of_new_ones_that_hang_does_not_stop_a_retry() {
    let rig = Rig::new();
    rig.script("fails", [Script::Answer(http(503))]);
    let engine = rig.start().await;
    let id = send_many(&engine, 1, "http://fails", "fails").await[0];
    pass(secs(59)).await;
    for number in 0..10 {
        let to = format!("d{number}");
        rig.always(&to, Script::Hang);
        send_many(&engine, 200, &format!("http://{to}"), &to).await;
    }
    pass(secs(2)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn the_more_urgent_go_first_and_the_least_urgent_go_too() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 8;
    rig.script("slow", vec![Script::Slowly(secs(1), http(200)); 8]);
    let engine = rig.start().await;
    for number in 0..8 {
        send_many(&engine, 1, &format!("http://{number}"), "slow").await;
    }
    let mut waiting = vec![];
    for priority in [Priority::Low, Priority::Critical] {
        for number in 0..90 {
            let mut new = notification(&engine, "a", PLAIN);
            new.destination = format!("http://{}", number % 9).into();
            new.priority = priority;
            waiting.push((new.id, priority));
            send(&engine, new).await;
        }
    }
    pass(secs(60)).await;
    let arrivals = rig.channel.arrivals();
    let priority_of = |id| waiting.iter().find(|(of, _)| *of == id).map(|(_, priority)| *priority);
    let order: Vec<_> = arrivals.iter().filter_map(|(id, _, _)| priority_of(*id)).collect();
    assert_eq!(order.len(), 180);
    let low = order[..54].iter().filter(|priority| **priority == Priority::Low).count();
    assert!((3..=12).contains(&low), "{low} of the first 54 are the least urgent");
}

#[tokio::test(start_paused = true)]
async fn a_small_node_delivers_a_backlog_of_many_destinations() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 3;
    rig.settings.batch = 4;
    let engine = rig.start().await;
    let mut ids = vec![];
    for number in 0..40 {
        ids.extend(send_many(&engine, 5, &format!("http://{number}"), "a").await);
    }
    pass(secs(1)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    }
    assert_eq!(engine.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn on_a_node_of_few_places_a_retry_has_its_turn_among_new_ones_without_end() {
    for places in 1..=5 {
        let mut rig = Rig::new();
        rig.settings.concurrency = places;
        rig.script("fails", [Script::Answer(http(503))]);
        rig.always("slow", Script::Slowly(ms(100), http(200)));
        let engine = rig.start().await;
        let mut new = notification(&engine, "fails", &PLAIN.replace("60s", "2s"));
        new.destination = "http://fails".into();
        let id = send(&engine, new).await;
        pass(ms(100)).await;
        // Many more than the node can send, to destinations that come and go.
        for number in 0..500 {
            send_many(&engine, 1, &format!("http://{}", number % 30), "slow").await;
            pass(ms(10)).await;
        }
        let arrivals = rig.channel.arrivals();
        let due = BEGIN.later(secs(2));
        let since = arrivals.iter().filter(|(_, _, at)| *at >= due).position(|(of, ..)| *of == id);
        assert!(since.is_some_and(|others| others <= 8), "{places} places: {since:?} others went before it");
    }
}

/// Twenty-five thousand notifications of one tenant become due at one moment, and every look at what is due takes its time.
#[tokio::test(start_paused = true)]
async fn a_wave_that_becomes_due_at_once_does_not_make_others_late() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let at = engine.now().later(secs(30));
    rig.always("a", Script::Hang);
    let wait = |tenant: &str, destination: String, at| {
        let mut new = notification(&engine, tenant, PLAIN);
        (new.tenant, new.destination, new.not_before) =
            (tenant.parse().unwrap(), destination.into(), Some(at));
        new
    };
    let wave: Vec<_> = (0..25_000).map(|number| wait("a", format!("http://{number}"), at)).collect();
    assert_eq!(engine.accept(None, wave).await.unwrap(), Accepted::New);
    let mut others = vec![];
    for number in 1..20 {
        let due = at.later(ms(100 * number));
        let new = wait("b", "http://b".to_owned(), due);
        others.push((new.id, due));
        send(&engine, new).await;
    }
    pass(secs(29)).await;
    store.next("wakes", vec![Trouble::ToldLate(ms(150)); 100]);
    // The safety net does not find them either.
    store.next("buckets", vec![Trouble::ToldLate(secs(5)); 100]);
    pass(secs(5)).await;
    for (id, due) in others {
        let late = rig.arrivals(id)[0].1 - due.since(BEGIN);
        assert!(late <= ms(600), "{late:?} late");
    }
}
