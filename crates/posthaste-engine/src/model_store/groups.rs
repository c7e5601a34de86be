//! Failure groups: changed with each dead letter, never counted from them but to check (I17).

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::group::{GroupBy, GroupId, Grouped, HOURS, MAX_GROUPS, fingerprint, pattern, title};
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::Tables;
use crate::store::{DeadLetterView, FailureGroup, GroupCursor, Groups, Page, Result};

/// Groups of one kind, of one tenant or of all.
type Scope = (GroupBy, Option<Tenant>);

/// The kept groups.
#[derive(Debug, Clone, Default)]
pub struct GroupTable {
    groups: BTreeMap<Scope, BTreeMap<GroupId, Group>>,
    hours: BTreeMap<(i64, GroupBy, Option<Tenant>, GroupId), i64>,
}

#[derive(Debug, Clone, Default)]
struct Group {
    count: i64,
    first_seen: Option<Timestamp>,
    sample: Option<DeadLetterView>,
}

impl GroupTable {
    /// What each group counts.
    pub fn counts(&self) -> BTreeMap<(GroupBy, Option<Tenant>, GroupId), i64> {
        let all = self.groups.iter().flat_map(|((by, tenant), groups)| {
            groups.iter().map(move |(id, group)| ((*by, tenant.clone(), *id), group.count))
        });
        all.filter(|(_, count)| *count != 0).collect()
    }

    /// Whether a list of dead letters of that tenant, or of all, can be asked for the group.
    pub(super) fn knows(&self, id: GroupId, tenant: Option<&Tenant>) -> bool {
        GroupBy::ALL
            .into_iter()
            .any(|by| self.scope(by, tenant).is_some_and(|groups| groups.contains_key(&id)))
    }

    fn scope(&self, by: GroupBy, tenant: Option<&Tenant>) -> Option<&BTreeMap<GroupId, Group>> {
        self.groups.get(&(by, tenant.cloned()))
    }

    /// A dead letter begins (`sign` = 1) or ceases (-1) to count.
    fn add(&mut self, letter: &DeadLetterView, print: [u8; 16], sign: i64) {
        let grouped = Grouped::of(&letter.notification, print);
        for (by, id) in grouped.groups() {
            for tenant in [None, Some(letter.notification.tenant.clone())] {
                let groups = self.groups.entry((by, tenant.clone())).or_default();
                let id = place(groups, by, id, sign);
                let group = groups.entry(id).or_default();
                group.count += sign;
                if sign > 0 {
                    let died = letter.created_at;
                    group.first_seen = Some(group.first_seen.map_or(died, |first| first.min(died)));
                    if group.sample.as_ref().is_none_or(|sample| sample.id < letter.id) {
                        group.sample = Some(letter.clone());
                    }
                }
                *self.hours.entry((letter.created_at.as_hours(), by, tenant, id)).or_default() += sign;
            }
        }
    }

    fn shown(
        &self,
        by: GroupBy,
        tenant: Option<&Tenant>,
        id: GroupId,
        now: Timestamp,
    ) -> Option<FailureGroup> {
        let group = self.scope(by, tenant)?.get(&id)?;
        let (first_seen, sample) = (group.first_seen?, group.sample.as_ref()?);
        let mut hours = [0; HOURS];
        for (ago, shown) in (0..).zip(hours.iter_mut().rev()) {
            let hour = (now.as_hours() - ago, by, tenant.cloned(), id);
            *shown = self.hours.get(&hour).map_or(0, |n| u64::try_from(*n).unwrap_or(0));
        }
        Some(FailureGroup {
            id,
            by,
            title: titled(by, id, sample),
            count: u64::try_from(group.count).unwrap_or(0),
            first_seen,
            hours,
            reason: Some(sample.reason),
            failure_type: sample.failure_type,
            status_code: sample.status_code,
            sample: sample.id,
        })
    }

    fn prune(&mut self, before: Timestamp, limit: usize) -> usize {
        let mut empty: Vec<(Option<DeadLetterId>, Scope, GroupId)> = vec![];
        for (scope, groups) in &self.groups {
            if groups.get(&GroupId::other(scope.0)).is_some_and(|other| other.count != 0) {
                continue;
            }
            let goes = |(id, group): (&GroupId, &Group)| {
                let sample = group.sample.as_ref().map(|sample| sample.id);
                let is_old = sample.is_none_or(|sample| sample.made_at() < before);
                (group.count == 0 && is_old).then(|| (sample, scope.clone(), *id))
            };
            empty.extend(groups.iter().filter_map(goes));
        }
        empty.sort_unstable();
        empty.truncate(limit);
        for (_, scope, id) in &empty {
            self.groups.get_mut(scope).and_then(|groups| groups.remove(id));
        }
        empty.len()
    }
}

/// Where a dead letter of a group counts: in the group, or in `other` if the group is not known and there is no room for it.
fn place(groups: &BTreeMap<GroupId, Group>, by: GroupBy, id: GroupId, sign: i64) -> GroupId {
    let other = GroupId::other(by);
    let has_others = groups.get(&other).is_some_and(|other| other.count > 0);
    let is_full = has_others || groups.keys().filter(|id| **id != other).count() >= MAX_GROUPS;
    if groups.contains_key(&id) || (sign > 0 && !is_full) { id } else { other }
}

fn titled(by: GroupBy, id: GroupId, sample: &DeadLetterView) -> String {
    if id == GroupId::other(by) {
        return "other".to_owned();
    }
    let grouped = Grouped::of(&sample.notification, sample.fingerprint.unwrap_or_default());
    match grouped.name(by) {
        Some(name) => name.to_owned(),
        None => title(sample.reason, sample.failure_type, sample.status_code, &sample.text),
    }
}

/// The fingerprint by which a dead letter counts, if it does.
fn counted(letter: &DeadLetterView) -> Option<[u8; 16]> {
    let pending = letter.status == DeadLetterStatus::Pending && letter.deleted_at.is_none();
    letter.fingerprint.filter(|_| pending)
}

impl Tables {
    /// Keeps a dead letter as it is now. Every change of a dead letter passes here, so that its groups follow.
    pub(super) fn put_letter(&mut self, letter: DeadLetterView) {
        let after = counted(&letter);
        let before = self.dead_letters.insert(letter.id, letter.clone());
        let before = before.as_ref().and_then(counted);
        if before != after {
            if let Some(print) = before
                && !self.has(Planted::GroupKeepsResolved)
            {
                self.groups.add(&letter, print, -1);
            }
            if let Some(print) = after {
                self.groups.add(&letter, print, 1);
            }
        }
    }

    /// What the groups have to count, by the dead letters. The groups that are known are taken as they are.
    pub(super) fn recount_groups(&self) -> BTreeMap<(GroupBy, Option<Tenant>, GroupId), i64> {
        let mut counts = BTreeMap::new();
        for (letter, print) in self.dead_letters.values().filter_map(|one| Some((one, counted(one)?))) {
            for (by, id) in Grouped::of(&letter.notification, print).groups() {
                for tenant in [None, Some(letter.notification.tenant.clone())] {
                    let known =
                        self.groups.scope(by, tenant.as_ref()).is_some_and(|groups| groups.contains_key(&id));
                    let id = if known { id } else { GroupId::other(by) };
                    *counts.entry((by, tenant, id)).or_default() += 1;
                }
            }
        }
        counts
    }
}

#[async_trait]
impl Groups for ModelStore {
    async fn failure_groups(
        &self,
        by: GroupBy,
        tenant: Option<Tenant>,
        after: Option<GroupCursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page<FailureGroup, GroupCursor>> {
        let table = &self.lock().groups;
        let groups = table.scope(by, tenant.as_ref()).into_iter().flatten();
        let mut places: Vec<GroupCursor> = groups
            .filter(|(_, group)| group.count > 0)
            .map(|(id, group)| GroupCursor { count: group.count.unsigned_abs(), id: *id })
            .filter(|place| after.is_none_or(|after| *place < after))
            .collect();
        places.sort_unstable_by(|one, other| other.cmp(one));
        let next = places.get(limit.wrapping_sub(1)).filter(|_| places.len() > limit).copied();
        let shown = places.iter().take(limit);
        let rows = shown.filter_map(|place| table.shown(by, tenant.as_ref(), place.id, now)).collect();
        Ok(Page { rows, next })
    }

    async fn failure_group(
        &self,
        id: GroupId,
        tenant: Option<Tenant>,
        now: Timestamp,
    ) -> Result<Option<FailureGroup>> {
        let table = &self.lock().groups;
        Ok(GroupBy::ALL.into_iter().find_map(|by| table.shown(by, tenant.as_ref(), id, now)))
    }

    async fn group_numbers(&self) -> Result<Vec<(GroupBy, u64)>> {
        let table = &self.lock().groups;
        let number = |by| {
            let groups = table.scope(by, None).into_iter().flatten();
            (by, groups.filter(|(_, group)| group.count > 0).count() as u64)
        };
        Ok(GroupBy::ALL.into_iter().map(number).collect())
    }

    async fn fill_groups(&self, limit: usize) -> Result<usize> {
        let mut tables = self.lock();
        let without = tables.dead_letters.values().filter(|letter| letter.fingerprint.is_none());
        let found: Vec<DeadLetterId> = without.take(limit).map(|letter| letter.id).collect();
        for id in &found {
            let letter = tables.dead_letters[id].clone();
            let print =
                fingerprint(letter.reason, letter.failure_type, letter.status_code, &pattern(&letter.text));
            tables.put_letter(DeadLetterView { fingerprint: Some(print), ..letter });
        }
        Ok(found.len())
    }

    async fn prune_groups(&self, before: Timestamp, limit: usize) -> Result<usize> {
        Ok(self.lock().groups.prune(before, limit))
    }

    async fn prune_group_hours(&self, before: Timestamp, limit: usize) -> Result<usize> {
        let hours = &mut self.lock().groups.hours;
        let old: Vec<_> =
            hours.keys().take_while(|(hour, ..)| *hour < before.as_hours()).take(limit).cloned().collect();
        for key in &old {
            hours.remove(key);
        }
        Ok(old.len())
    }
}
