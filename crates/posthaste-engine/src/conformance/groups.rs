//! Failure groups: counts that follow every change of a dead letter, for a tenant and for all.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::group::{GroupBy, GroupId, Grouped};
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;

use super::scene::{Scene, at, failed_attempt, tenant};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Ending, FailureGroup, GroupCursor, Next, Settled, Settlement, Store};

pub(super) const PROMISES: &[Promise] = list![
    a_group_counts_its_pending_dead_letters,
    a_tenant_sees_its_part_of_a_group_and_all_see_the_sum,
    a_group_shows_what_its_newest_dead_letter_says,
    a_group_of_each_kind_has_its_name_and_its_dead_letters,
    groups_are_listed_in_pages_the_largest_first,
    a_batch_of_dead_letters_is_counted_as_one_by_one,
    an_empty_group_is_known_until_it_is_pruned,
    what_has_a_fingerprint_is_not_filled_again,
];

/// The counts of all groups of a kind, by the list of them.
async fn counts(
    store: &dyn Store,
    by: GroupBy,
    whose: Option<&Tenant>,
    now: Timestamp,
) -> Result<BTreeMap<GroupId, u64>, Broken> {
    let (mut counts, mut after) = (BTreeMap::new(), None);
    loop {
        let page = store.failure_groups(by, whose.cloned(), after, 7, now).await?;
        counts.extend(page.rows.iter().map(|group| (group.id, group.count)));
        after = page.next;
        if after.is_none() {
            return Ok(counts);
        }
    }
}

/// The first difference between the groups and a recount of the pending dead letters, of a tenant or of all.
pub(super) async fn recount(store: &dyn Store, whose: Option<&Tenant>, now: Timestamp) -> Kept {
    let filter =
        Filter { tenant: whose.cloned(), statuses: vec![LetterStatus::Pending], ..Filter::default() };
    let (mut pending, mut before) = (vec![], None);
    loop {
        let page = store.dead_letters(filter.clone(), before, 100).await?;
        pending.extend(page.rows);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    for by in GroupBy::ALL {
        let mut counted: BTreeMap<GroupId, u64> = BTreeMap::new();
        for letter in &pending {
            let grouped = letter.fingerprint.map(|print| Grouped::of(&letter.notification, print));
            let group = grouped.and_then(|grouped| grouped.group(by));
            group.into_iter().for_each(|group| *counted.entry(group).or_default() += 1);
        }
        same(by.name(), counts(store, by, whose, now).await?, counted)?;
    }
    Ok(())
}

impl Scene {
    /// A dead letter with that error, which died then.
    async fn dead(
        &mut self,
        notification: &Notification,
        text: &str,
        died: Timestamp,
    ) -> Result<DeadLetterId, Broken> {
        let lease = self.lease().await?;
        self.accept(notification, at(0), Some(lease)).await?;
        let name = DeadLetterId::new(died, self.grave().made_at().as_millis().unsigned_abs().into());
        self.fail(notification, lease, buried(name, text)).await?;
        Ok(name)
    }

    /// The one group of that kind.
    async fn group(&self, by: GroupBy, whose: Option<&Tenant>) -> Result<FailureGroup, Broken> {
        let page = self.store.failure_groups(by, whose.cloned(), None, 10, at(100)).await?;
        same("the number of groups", (page.rows.len(), page.next), (1, None))?;
        page.rows.into_iter().next().ok_or_else(|| Broken::at_caller("no group"))
    }

    async fn groups_equal_a_recount(&self) -> Kept {
        for whose in [None, Some(tenant("acme")), Some(tenant("other"))] {
            recount(&*self.store, whose.as_ref(), at(100)).await?;
        }
        Ok(())
    }
}

fn buried(dead_letter: DeadLetterId, text: &str) -> Next {
    Next::End(Ending::Buried { dead_letter, reason: Reason::MaxAttemptsExceeded, text: text.to_owned() })
}

async fn a_group_counts_its_pending_dead_letters(mut scene: Scene) -> Kept {
    let (one, other, third) = (scene.draft(), scene.draft(), scene.draft());
    scene.dead(&one, "answered 503: try again in 5 s", at(10)).await?;
    scene.dead(&other, "answered 503: try again in 70 s", at(11)).await?;
    scene.dead(&third, "answered 503: try again in 700 s", at(12)).await?;
    let count = async |scene: &Scene, wanted: u64| {
        scene.groups_equal_a_recount().await?;
        let page = scene.store.failure_groups(GroupBy::Fingerprint, None, None, 10, at(100)).await?;
        same("the counts", page.rows.iter().map(|group| group.count).sum::<u64>(), wanted)
    };
    count(&scene, 3).await?;
    scene.does(&one, Act::Requeue, None, at(20)).await?;
    count(&scene, 2).await?;
    scene.does(&other, Act::Discard, None, at(21)).await?;
    count(&scene, 1).await?;
    scene.does(&other, Act::Restore, None, at(22)).await?;
    count(&scene, 2).await?;
    scene.does(&other, Act::Retry, None, at(23)).await?;
    scene.does(&third, Act::Discard, None, at(24)).await?;
    count(&scene, 0).await?;
    // It dies again, as another dead letter of the same group.
    let (name, waits) = (scene.grave(), scene.waiting().await?);
    let act = Act::Bury {
        dead_letter: name,
        reason: Reason::MaxAttemptsExceeded,
        text: "answered 503: try again in 1 s".to_owned(),
    };
    scene.does(&waits, act, None, at(25)).await?;
    count(&scene, 1).await
}

async fn a_tenant_sees_its_part_of_a_group_and_all_see_the_sum(mut scene: Scene) -> Kept {
    let (acme, other) = (tenant("acme"), tenant("other"));
    for (whose, letters) in [(&acme, 2), (&other, 3)] {
        for _ in 0..letters {
            let notification = Notification { tenant: whose.clone(), ..scene.draft() };
            scene.dead(&notification, "refused", at(10)).await?;
        }
    }
    let all = scene.group(GroupBy::Fingerprint, None).await?;
    let parts = [
        scene.group(GroupBy::Fingerprint, Some(&acme)).await?,
        scene.group(GroupBy::Fingerprint, Some(&other)).await?,
    ];
    same("the counts", [all.count, parts[0].count, parts[1].count], [5, 2, 3])?;
    same("the ids", [parts[0].id, parts[1].id], [all.id, all.id])?;
    same("the hours", [all.hours[23], parts[0].hours[23], parts[1].hours[23]], [5, 2, 3])?;
    let by_tenant = counts(&*scene.store, GroupBy::Tenant, None, at(100)).await?;
    same("by tenant", by_tenant.into_values().collect::<Vec<_>>().into_iter().sum::<u64>(), 5)?;
    same("a tenant's own", scene.group(GroupBy::Tenant, Some(&acme)).await?.title, "acme")?;
    let strange = scene.store.failure_group(all.id, Some(tenant("globex")), at(100)).await?;
    same("of another tenant", strange, None)?;
    scene.groups_equal_a_recount().await
}

async fn a_group_shows_what_its_newest_dead_letter_says(mut scene: Scene) -> Kept {
    let (first, last, older) = (scene.draft(), scene.draft(), scene.draft());
    scene.dead(&first, "answered 503: later, after 5 s", at(-3_600 * 2)).await?;
    let sample = scene.dead(&last, "answered 503: later, after 7 s", at(10)).await?;
    scene.dead(&older, "answered 503: later, after 9 s", at(-3_600 * 30)).await?;
    let group = scene.group(GroupBy::Fingerprint, None).await?;
    let mut hours = [0; 24];
    (hours[21], hours[23]) = (1, 1);
    let wanted = FailureGroup {
        id: group.id,
        by: GroupBy::Fingerprint,
        title: "503: later, after … s".to_owned(),
        count: 3,
        first_seen: Timestamp::from_millis(at(-3_600 * 30).as_millis()),
        hours,
        reason: Some(Reason::MaxAttemptsExceeded),
        failure_type: Some(FailureType::Temporary),
        status_code: Some(503),
        sample,
    };
    same("the group", &group, &wanted)?;
    same("when it was last seen", group.last_seen(), Timestamp::from_millis(at(10).as_millis()))?;
    same("by its id", scene.store.failure_group(group.id, None, at(100)).await?, Some(group.clone()))?;
    scene.does(&last, Act::Discard, None, at(20)).await?;
    hours[23] = 0;
    let wanted = FailureGroup { count: 2, hours, ..wanted };
    same(
        "without the newest",
        scene.store.failure_group(group.id, None, at(100)).await?,
        Some(wanted.clone()),
    )?;
    let mut later = [0; 24];
    later[20] = 1;
    let wanted = FailureGroup { hours: later, ..wanted };
    same("an hour later", scene.store.failure_group(group.id, None, at(3_700)).await?, Some(wanted.clone()))?;
    let old = scene.store.prune_group_hours(at(-3_600 * 20), 1_000).await?;
    same(
        "older hours are removed once",
        (old > 0, scene.store.prune_group_hours(at(-3_600 * 20), 1_000).await?),
        (true, 0),
    )?;
    same("the others stay", scene.store.failure_group(group.id, None, at(3_700)).await?, Some(wanted))
}

async fn a_group_of_each_kind_has_its_name_and_its_dead_letters(mut scene: Scene) -> Kept {
    let notification =
        Notification { channel: Channel::Email, template: Some("welcome".to_owned()), ..scene.draft() };
    let name = scene.dead(&notification, "refused", at(10)).await?;
    let plain = scene.draft();
    scene.dead(&plain, "no such user", at(11)).await?;
    let titles = [
        (GroupBy::Fingerprint, "503: refused"),
        (GroupBy::Destination, &*notification.destination),
        (GroupBy::Template, "welcome"),
        (GroupBy::Channel, "email"),
    ];
    for (by, title) in titles {
        let page = scene.store.failure_groups(by, None, None, 10, at(100)).await?;
        let group = page.rows.iter().find(|group| group.title == title);
        let group = group.ok_or_else(|| Broken::at_caller(format!("{title}: {page:?}")))?;
        for whose in [None, Some(tenant("acme"))] {
            let filter = Filter { group: Some(group.id), tenant: whose, ..Filter::default() };
            let listed = scene.store.dead_letters(filter, None, 10).await?;
            same(title, listed.rows.iter().map(|letter| letter.id).collect::<Vec<_>>(), [name])?;
        }
        let of_another = Filter { group: Some(group.id), tenant: Some(tenant("other")), ..Filter::default() };
        same("of another tenant", scene.store.dead_letters(of_another, None, 10).await?.rows.len(), 0)?;
        let resolved =
            Filter { group: Some(group.id), statuses: vec![LetterStatus::Requeued], ..Filter::default() };
        same("in another status", scene.store.dead_letters(resolved, None, 10).await?.rows.len(), 0)?;
    }
    let of_acme = Filter { group: Some(scene.group(GroupBy::Tenant, None).await?.id), ..Filter::default() };
    same("by tenant", scene.store.dead_letters(of_acme.clone(), None, 10).await?.rows.len(), 2)?;
    let narrowed = Filter { channels: vec![Channel::Email], ..of_acme };
    same("and by channel", scene.store.dead_letters(narrowed, None, 10).await?.rows.len(), 1)?;
    let unknown = Filter { group: Some(GroupId::from_bytes([7; 16])), ..Filter::default() };
    same("an unknown group", scene.store.dead_letters(unknown, None, 10).await?.rows.len(), 0)?;
    let templates = counts(&*scene.store, GroupBy::Template, None, at(100)).await?;
    same("without a template it is in no group of them", templates.into_values().collect::<Vec<_>>(), [1])
}

async fn groups_are_listed_in_pages_the_largest_first(mut scene: Scene) -> Kept {
    for (letters, text) in [(1, "alpha"), (3, "beta"), (2, "gamma"), (3, "delta"), (1, "epsilon")] {
        for _ in 0..letters {
            let notification = scene.draft();
            scene.dead(&notification, text, at(10)).await?;
        }
    }
    let (mut found, mut after) = (vec![], None::<GroupCursor>);
    for size in [2, 2, 1] {
        let page = scene.store.failure_groups(GroupBy::Fingerprint, None, after, 2, at(100)).await?;
        same("the size of a page", page.rows.len(), size)?;
        same("the next one", page.next, page.rows.last().map(FailureGroup::cursor).filter(|_| size == 2))?;
        after = page.next;
        found.extend(page.rows);
    }
    same("the counts", found.iter().map(|group| group.count).collect::<Vec<_>>(), [3, 3, 2, 1, 1])?;
    same("equal ones by id", (found[0].id > found[1].id, found[3].id > found[4].id), (true, true))?;
    let numbers = scene.store.group_numbers().await?;
    same("the numbers", numbers.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [5, 10, 0, 1, 1])
}

async fn a_batch_of_dead_letters_is_counted_as_one_by_one(mut scene: Scene) -> Kept {
    let lease = scene.lease().await?;
    let mut batch = vec![];
    for number in 0..40 {
        let whose = if number % 4 == 0 { "other" } else { "acme" };
        let notification = Notification { tenant: tenant(whose), ..scene.draft() };
        scene.accept(&notification, at(0), Some(lease)).await?;
        let text = format!("refused by {number}: {}", if number % 3 == 0 { "full" } else { "closed" });
        batch.push(Settlement {
            id: notification.id,
            lease,
            cancel_seen: false,
            attempt: Some(failed_attempt(1, 1)),
            next: buried(scene.grave(), &text),
        });
    }
    let again = batch[0].clone();
    batch.push(again);
    let settled = scene.store.settle(batch, at(10)).await?;
    same("applied", settled.iter().filter(|one| **one == Settled::Applied).count(), 40)?;
    scene.groups_equal_a_recount().await?;
    let page = scene.store.failure_groups(GroupBy::Fingerprint, None, None, 10, at(100)).await?;
    same("the counts", page.rows.iter().map(|group| group.count).collect::<Vec<_>>(), [26, 14])
}

async fn an_empty_group_is_known_until_it_is_pruned(mut scene: Scene) -> Kept {
    let (gone, stays) = (scene.draft(), scene.draft());
    scene.dead(&gone, "alpha", at(10)).await?;
    scene.dead(&stays, "beta", at(10)).await?;
    let group = scene.store.failure_groups(GroupBy::Fingerprint, None, None, 10, at(100)).await?;
    let group = group.rows.iter().find(|group| group.title == "503: alpha").map(|group| group.id);
    let group = group.ok_or_else(|| Broken::at_caller("no group alpha"))?;
    scene.does(&gone, Act::Discard, None, at(20)).await?;
    let count = async |scene: &Scene| {
        let found = scene.store.failure_group(group, None, at(100)).await?;
        Ok::<_, Broken>(found.map(|group| group.count))
    };
    same("empty", count(&scene).await?, Some(0))?;
    same("too young to be pruned", scene.store.prune_groups(at(9), 100).await?, 0)?;
    same("still known", count(&scene).await?, Some(0))?;
    // By fingerprint and by destination, of the tenant and of all.
    same("pruned", scene.store.prune_groups(at(11), 3).await?, 3)?;
    same("the rest", scene.store.prune_groups(at(11), 3).await?, 1)?;
    same("not known any more", count(&scene).await?, None)?;
    scene.groups_equal_a_recount().await?;
    scene.does(&gone, Act::Restore, None, at(30)).await?;
    same("known again", count(&scene).await?, Some(1))?;
    scene.groups_equal_a_recount().await
}

async fn what_has_a_fingerprint_is_not_filled_again(mut scene: Scene) -> Kept {
    same("an empty store", scene.store.fill_groups(10).await?, 0)?;
    let notification = scene.draft();
    scene.dead(&notification, "refused", at(10)).await?;
    same("nothing is left", scene.store.fill_groups(10).await?, 0)?;
    scene.groups_equal_a_recount().await
}
