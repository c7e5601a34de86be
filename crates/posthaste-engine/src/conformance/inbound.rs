//! Inbound limits: reservations follow each other and are kept, and the main lane is counted.

use posthaste_core::inbound::{AllTaken, IDLE_AT_ONCE, InboundKey, InboundLimits, Reserved, WINDOW, Wanted};
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::scene::{Scene, TICK, at, tenant};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Ending, Next};

pub(super) const PROMISES: &[Promise] = list![
    a_reservation_counts_for_all_that_follow,
    reservations_at_once_share_one_limit,
    a_module_is_limited_with_its_tenant,
    what_is_taken_of_a_limit_is_shown,
    a_limit_that_is_not_used_any_more_is_forgotten,
    the_main_lane_is_counted_over_all_tenants,
];

const ONLY_TENANT: InboundLimits = InboundLimits { per_tenant: 3, per_module: 0 };
const BOTH: InboundLimits = InboundLimits { per_tenant: 4, per_module: 2 };

fn wanted(owner: &str, module: &str) -> Wanted {
    let module = (!module.is_empty()).then(|| module.into());
    Wanted { tenant: tenant(owner), module, expires_at: None }
}

fn key(owner: &str, module: &str) -> InboundKey {
    InboundKey { tenant: tenant(owner), module: (!module.is_empty()).then(|| module.into()) }
}

fn times(reserved: &[Reserved]) -> Vec<Timestamp> {
    reserved.iter().map(|one| one.at).collect()
}

async fn a_reservation_counts_for_all_that_follow(scene: Scene) -> Kept {
    let reserve = async |count, now| {
        let wanted = vec![wanted("acme", ""); count];
        Ok::<_, Broken>(times(&scene.store.reserve(wanted, ONLY_TENANT, now).await?))
    };
    same("none", reserve(0, at(0)).await?, vec![])?;
    same("the first", reserve(2, at(0)).await?, vec![at(0), at(0)])?;
    let later = at(1).later(TICK);
    same("more than a minute has", reserve(3, later).await?, vec![later, at(60), at(60)])?;
    same("those that wait count", reserve(1, at(30)).await?, vec![later.later(WINDOW)])?;
    same("a minute later", reserve(1, at(70)).await?, vec![at(120)])?;
    let free = at(181);
    same("when all is free", reserve(4, free).await?, vec![free, free, free, free.later(WINDOW)])
}

async fn reservations_at_once_share_one_limit(scene: Scene) -> Kept {
    let reserve = || scene.store.reserve(vec![wanted("acme", "m"); 3], BOTH, at(0));
    let (a, b, c, d) = tokio::try_join!(reserve(), reserve(), reserve(), reserve())?;
    let mut all: Vec<Timestamp> = [a, b, c, d].iter().flat_map(|reserved| times(reserved)).collect();
    all.sort_unstable();
    let two_a_minute: Vec<Timestamp> = (0..6).flat_map(|minute| [at(minute * 60); 2]).collect();
    same("two in each minute", all, two_a_minute)
}

async fn a_module_is_limited_with_its_tenant(scene: Scene) -> Kept {
    let all = vec![
        wanted("acme", "a"),
        wanted("acme", "a"),
        wanted("globex", "a"),
        wanted("acme", "a"),
        wanted("acme", "b"),
        wanted("acme", ""),
        wanted("acme", "ü \u{1f980}"),
    ];
    let reserved = scene.store.reserve(all, BOTH, at(0)).await?;
    let seconds = [0, 0, 0, 60, 0, 0, 60].map(at).to_vec();
    same("in one call", times(&reserved), seconds)?;
    let deferred: Vec<bool> = reserved.iter().map(|one| one.is_deferred).collect();
    same("who waits", deferred, [false, false, false, true, false, false, true].to_vec())?;
    let next = scene.store.reserve(vec![wanted("acme", "ü \u{1f980}")], BOTH, at(1)).await?;
    same("in another", times(&next), vec![at(60)])
}

async fn what_is_taken_of_a_limit_is_shown(scene: Scene) -> Kept {
    same("nothing yet", scene.store.inbound_taken(vec![key("acme", "")]).await?, AllTaken::new())?;
    let mut taken = AllTaken::new();
    for (now, one) in [(0, wanted("acme", "a")), (5, wanted("globex", "")), (9, wanted("acme", "a"))] {
        let wanted = vec![one; 3];
        let reserved = posthaste_core::inbound::reserve(&mut taken, &wanted, BOTH, at(now));
        same("reserved", scene.store.reserve(wanted, BOTH, at(now)).await?, reserved)?;
    }
    let all = vec![key("globex", ""), key("acme", "a"), key("acme", ""), key("acme", "b"), key("acme", "a")];
    same("all", scene.store.inbound_taken(all).await?, taken.clone())?;
    taken.retain(|key, _| key.module.is_some());
    same("one", scene.store.inbound_taken(vec![key("acme", "a")]).await?, taken)?;
    same("nothing asked", scene.store.inbound_taken(vec![]).await?, AllTaken::new())
}

async fn a_limit_that_is_not_used_any_more_is_forgotten(scene: Scene) -> Kept {
    let names: Vec<String> = (0..=IDLE_AT_ONCE).map(|number| format!("m{number:04}")).collect();
    let all = names.iter().map(|name| wanted("acme", name)).collect();
    scene.store.reserve(all, InboundLimits { per_tenant: 0, ..BOTH }, at(0)).await?;
    let keys = || names.iter().map(|name| key("acme", name)).collect();
    same("at first", scene.store.inbound_taken(keys()).await?.len(), names.len())?;
    let all_taken = scene.store.inbound_taken(keys()).await?;
    let idle_from = all_taken.values().map(posthaste_core::inbound::Taken::idle_from).max();
    let idle_from = idle_from.ok_or_else(|| Broken::at_caller("nothing was kept"))?;
    let look = async |now| {
        scene.store.reserve(vec![wanted("globex", "")], ONLY_TENANT, now).await?;
        Ok::<_, Broken>(scene.store.inbound_taken(keys()).await?.len())
    };
    same("a moment before", look(idle_from.earlier(TICK)).await?, names.len())?;
    same("then", look(idle_from).await?, 1)?;
    same("and then", look(idle_from).await?, 0)?;
    let used = scene.store.inbound_taken(vec![key("globex", "")]).await?;
    same("what is used stays", used.len(), 1)
}

async fn the_main_lane_is_counted_over_all_tenants(mut scene: Scene) -> Kept {
    same("none", scene.store.main_lane().await?, 0)?;
    scene.waiting().await?;
    let other = scene.full_draft();
    scene.accept(&other, at(3), None).await?;
    let (sending, lease) = scene.held().await?;
    same("two wait and one is sent", scene.store.main_lane().await?, 3)?;
    scene.in_state(State::RetryScheduled).await?;
    same("a retry is in the other lane", scene.store.main_lane().await?, 3)?;
    let settled = scene.settle(sending.id, lease, None, Next::End(Ending::Cancelled)).await?;
    same("settled", settled, crate::store::Settled::Applied)?;
    same("one has ended", scene.store.main_lane().await?, 2)?;
    scene.does(&other, Act::Cancel, None, at(5)).await?;
    same("one is cancelled", scene.store.main_lane().await?, 1)?;
    let lane = scene.facts(other.id).await.map(|facts| facts.bucket.lane)?;
    same("it was there", lane, Lane::Main)
}
