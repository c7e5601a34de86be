//! The kept counters say what a count of the rows would say, after whatever happened (I17).

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::filter::Filter;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use crate::conformance::scene::{Scene, at, audit, burial, tenant};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Act, ChannelStats, Stats, Store, View};

pub(super) const PROMISES: &[Promise] = list![
    an_empty_store_counts_nothing,
    every_state_is_counted_where_it_stands,
    counters_follow_every_act,
    discarding_and_restoring_leave_the_end_where_it_was,
    counters_follow_leases,
    ends_are_counted_for_a_day_by_whole_hours,
    counters_are_told_by_tenant_and_channel,
    the_oldest_due_row_is_told,
];

/// Every notification that a list shows, by pages.
pub(super) async fn everything(store: &dyn Store, filter: Filter) -> Result<Vec<View>, Broken> {
    let mut all = vec![];
    let mut before = None;
    loop {
        let page = store.page(filter.clone(), before, 100).await?;
        all.extend(page.rows);
        before = page.next;
        if before.is_none() {
            return Ok(all);
        }
    }
}

/// What the counters must say, counted from the pages.
pub(in crate::conformance) async fn recount(
    store: &dyn Store,
    tenant: Option<Tenant>,
    now: Timestamp,
) -> Result<Stats, Broken> {
    let mut channels: BTreeMap<Channel, ChannelStats> = BTreeMap::new();
    let mut oldest_due = None;
    for view in everything(store, Filter { tenant, ..Filter::default() }).await? {
        let stats = channels.entry(view.notification.channel).or_default();
        let state = view.state;
        let in_retry = matches!(state, State::RetryScheduled | State::Retrying);
        stats.queued += u64::from(state == State::Pending);
        stats.sending += u64::from(state.is_leased());
        stats.in_retry += u64::from(in_retry);
        stats.in_dead_letter += u64::from(state == State::DeadLetter);
        if let Some(end) = view.end {
            let is_recent = (0..24).contains(&(now.as_hours() - end.at.as_hours()));
            stats.ended_24h += u64::from(is_recent);
            stats.delivered_24h += u64::from(is_recent && state == State::Succeeded);
        }
        let waits_since = view.due.filter(|due| *due <= now && !state.is_leased());
        oldest_due = [oldest_due, waits_since].into_iter().flatten().min();
    }
    let some = channels.into_iter().filter(|(_, stats)| *stats != ChannelStats::default());
    Ok(Stats { channels: some.collect(), oldest_due })
}

impl Scene {
    async fn counts(&self, what: &str, now: Timestamp) -> Kept {
        for whose in [None, Some(tenant("acme")), Some(tenant("other"))] {
            let counted = recount(&*self.store, whose.clone(), now).await?;
            same(what, self.store.stats(whose, now).await?, counted)?;
        }
        Ok(())
    }

    async fn webhooks(&self, now: Timestamp) -> Result<ChannelStats, Broken> {
        let stats = self.store.stats(None, now).await?;
        let webhooks = stats.channels.into_iter().find(|(channel, _)| *channel == Channel::Webhook);
        Ok(webhooks.map(|(_, stats)| stats).unwrap_or_default())
    }
}

async fn an_empty_store_counts_nothing(scene: Scene) -> Kept {
    same("all", scene.store.stats(None, at(0)).await?, Stats::default())?;
    same("a tenant", scene.store.stats(Some(tenant("acme")), at(0)).await?, Stats::default())
}

async fn every_state_is_counted_where_it_stands(mut scene: Scene) -> Kept {
    for state in State::ALL {
        scene.in_state(state).await?;
        scene.counts(state.name(), at(100)).await?;
    }
    let wanted = ChannelStats {
        queued: 1,
        sending: 2,
        in_retry: 2,
        in_dead_letter: 1,
        delivered_24h: 1,
        ended_24h: 5,
    };
    same("one in each state", scene.webhooks(at(100)).await?, wanted)
}

async fn counters_follow_every_act(mut scene: Scene) -> Kept {
    let (name, text) = (scene.grave(), "old".to_owned());
    let reason = posthaste_core::reason::Reason::MaxAgeExceeded;
    let acts = [
        (State::Pending, vec![Act::Cancel]),
        (State::RetryScheduled, vec![Act::RetryNow, Act::Expire]),
        (State::Processing, vec![Act::RequestCancel]),
        (State::Pending, vec![Act::Bury { dead_letter: name, reason, text }, Act::Requeue]),
        (State::DeadLetter, vec![Act::Discard, Act::Restore, Act::Discard, Act::Retry]),
        (State::Failed, vec![Act::Retry, Act::Cancel]),
    ];
    for (state, acts) in acts {
        let notification = scene.in_state(state).await?;
        for (turn, act) in (0i64..).zip(acts) {
            // Each act falls into an hour of its own, so that what moves has to be taken out where it was.
            let now = at(3_600 * (turn + 1));
            let what = format!("{act:?}");
            scene.does(&notification, act, Some(audit("act")), now).await?;
            for hour in [at(100), now, now.later(std::time::Duration::from_secs(23 * 3_600))] {
                scene.counts(&what, hour).await?;
            }
        }
    }
    Ok(())
}

async fn discarding_and_restoring_leave_the_end_where_it_was(mut scene: Scene) -> Kept {
    // It dies in the first hour; each act comes in a later one, the last of them after more than a day.
    let notification = scene.in_state(State::DeadLetter).await?;
    let died = scene.view(notification.id).await?.end.map(|end| end.at);
    let acts = [(2, Act::Discard, State::Failed, 0), (3, Act::Restore, State::DeadLetter, 1)];
    let late = [(30, Act::Discard, State::Failed, 0)];
    for (hour, act, state, in_dead_letter) in acts.into_iter().chain(late) {
        let what = format!("{act:?}");
        scene.does(&notification, act, Some(audit("act")), at(hour * 3_600)).await?;
        let view = scene.view(notification.id).await?;
        same(&what, (view.state, view.end.map(|end| end.at)), (state, died))?;
        let first_hour = scene.webhooks(at(100)).await?;
        same(&what, (first_hour.ended_24h, first_hour.in_dead_letter), (1, in_dead_letter))?;
        // A day later only what ended after the first hour would still be counted.
        let later = scene.webhooks(at(hour.max(24) * 3_600)).await?;
        same(&what, later.ended_24h, 0)?;
    }
    Ok(())
}

async fn counters_follow_leases(mut scene: Scene) -> Kept {
    let (_, lease) = scene.held().await?;
    same("held", scene.webhooks(at(1)).await?.sending, 1)?;
    scene.store.release(lease, None).await?;
    let stats = scene.webhooks(at(1)).await?;
    same("released", (stats.queued, stats.sending), (1, 0))?;
    scene.in_state(State::Retrying).await?;
    let stats = scene.webhooks(at(70)).await?;
    same("a retry is counted twice", (stats.sending, stats.in_retry), (1, 1))?;
    scene.store.leave(lease.node).await?;
    let stats = scene.webhooks(at(70)).await?;
    same("left", (stats.sending, stats.in_retry), (0, 1))?;
    let node = scene.store.join("short".to_owned(), std::time::Duration::from_secs(1), at(0)).await?.node;
    let brief = posthaste_core::lease::Lease { node, fence: lease.fence };
    let notification = scene.draft();
    scene.accept(&notification, at(0), Some(brief)).await?;
    scene.store.reclaim(node, 9, at(9)).await?;
    let stats = scene.webhooks(at(70)).await?;
    same("taken back", (stats.queued, stats.sending), (2, 0))?;
    scene.counts("in the end", at(70)).await
}

async fn ends_are_counted_for_a_day_by_whole_hours(mut scene: Scene) -> Kept {
    // Both end at second 10 of an hour.
    scene.in_state(State::Succeeded).await?;
    scene.in_state(State::Failed).await?;
    let told = |stats: ChannelStats| (stats.delivered_24h, stats.ended_24h);
    same("at once", told(scene.webhooks(at(10)).await?), (1, 2))?;
    same("in the 24th hour", told(scene.webhooks(at(24 * 3_600 - 1)).await?), (1, 2))?;
    same("in the 25th hour", told(scene.webhooks(at(24 * 3_600)).await?), (0, 0))?;
    same("an hour before", told(scene.webhooks(at(-1)).await?), (0, 0))?;
    same("channels without a number", scene.store.stats(None, at(24 * 3_600)).await?, Stats::default())
}

async fn counters_are_told_by_tenant_and_channel(mut scene: Scene) -> Kept {
    scene.waiting().await?;
    let (lease, name) = (scene.lease().await?, scene.grave());
    let mail = Notification { not_before: None, ..scene.full_draft() };
    scene.accept(&mail, at(0), Some(lease)).await?;
    scene.fail(&mail, lease, burial(name)).await?;
    let sms = Notification { channel: Channel::Sms, ..scene.draft() };
    scene.accept(&sms, at(0), None).await?;
    let channels = async |whose: Option<&str>| -> Result<Vec<Channel>, Broken> {
        let stats = scene.store.stats(whose.map(tenant), at(20)).await?;
        Ok(stats.channels.into_iter().map(|(channel, _)| channel).collect())
    };
    same("all", channels(None).await?, [Channel::Webhook, Channel::Email, Channel::Sms])?;
    same("acme", channels(Some("acme")).await?, [Channel::Webhook, Channel::Sms])?;
    same("other", channels(Some("other")).await?, [Channel::Email])?;
    same("nobody", channels(Some("nobody")).await?, [])?;
    scene.counts("each", at(20)).await
}

async fn the_oldest_due_row_is_told(mut scene: Scene) -> Kept {
    let (later, theirs) = (scene.draft(), Notification { tenant: tenant("other"), ..scene.draft() });
    scene.accept(&later, at(20), None).await?;
    scene.accept(&theirs, at(10), None).await?;
    scene.held().await?;
    let oldest = async |whose: Option<&str>, second| -> Result<Option<Timestamp>, Broken> {
        Ok(scene.store.stats(whose.map(tenant), at(second)).await?.oldest_due)
    };
    same("before anything is due", oldest(None, 9).await?, None)?;
    same("at second 10", oldest(None, 10).await?, Some(at(10)))?;
    same("of all", oldest(None, 99).await?, Some(at(10)))?;
    same("of acme too early", oldest(Some("acme"), 19).await?, None)?;
    same("of acme", oldest(Some("acme"), 20).await?, Some(at(20)))
}
