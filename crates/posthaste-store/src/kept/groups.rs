//! Failure groups: the changes that a transaction makes to them, and how their rows are read.

use std::collections::{BTreeMap, HashMap};

use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::Filter;
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::group::{GroupBy, GroupId, Grouped, HOURS, fingerprint, pattern, title};
use posthaste_core::id::DeadLetterId;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::FailureGroup;

use super::counters::ALL;
use super::damage::{Damaged, Result};

/// A dead letter that counts in its groups: it is pending, not deleted, and has a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) id: DeadLetterId,
    pub(crate) flow: FlowId,
    pub(crate) template: Option<String>,
    pub(crate) fingerprint: [u8; 16],
    pub(crate) died: Timestamp,
}

/// What a transaction changes of one group or of several that follow from the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GroupDelta {
    pub(crate) by: i64,
    /// Of those that began to count: the first time, and the newest.
    pub(crate) first_seen: Option<Timestamp>,
    pub(crate) sample: Option<DeadLetterId>,
}

impl GroupDelta {
    fn add(&mut self, other: Self) {
        self.by += other.by;
        self.first_seen = [self.first_seen, other.first_seen].into_iter().flatten().min();
        self.sample = self.sample.max(other.sample);
    }
}

/// The changes of one transaction, by what the groups follow from and by the hour of death.
#[derive(Default)]
pub(crate) struct GroupDeltas {
    of: HashMap<(FlowId, Option<String>, [u8; 16], i64), GroupDelta>,
}

/// Which group: its kind, the tenant or `ALL`, its id.
pub(crate) type GroupPlace = (GroupBy, String, GroupId);

/// A group that a transaction changes.
pub(crate) struct ChangedGroup {
    pub(crate) delta: GroupDelta,
    /// How many of them died in which hour.
    pub(crate) hours: BTreeMap<i64, i64>,
    /// The label; none by fingerprint, where it is the text of the sample.
    pub(crate) name: Option<String>,
    /// The key by fingerprint.
    pub(crate) fingerprint: Option<[u8; 16]>,
}

impl GroupDeltas {
    /// A dead letter was made, changed or removed: how it counted before and how it counts now.
    pub(crate) fn note(&mut self, before: Option<Counted>, after: Option<Counted>) {
        if before == after {
            return;
        }
        for (counted, by) in [(before, -1), (after, 1)] {
            let Some(Counted { id, flow, template, fingerprint, died }) = counted else { continue };
            let began = by > 0;
            let delta = GroupDelta { by, first_seen: began.then_some(died), sample: began.then_some(id) };
            self.of.entry((flow, template, fingerprint, died.as_hours())).or_default().add(delta);
        }
    }

    /// Discards the changes of a transaction that was rolled back.
    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }

    /// Takes all changes, by group. `key` says what a flow is.
    pub(crate) fn take<E>(
        &mut self,
        mut key: impl FnMut(FlowId) -> std::result::Result<std::sync::Arc<FlowKey>, E>,
    ) -> std::result::Result<BTreeMap<GroupPlace, ChangedGroup>, E> {
        let mut groups: BTreeMap<GroupPlace, ChangedGroup> = BTreeMap::new();
        for ((flow, template, fingerprint, hour), delta) in self.of.drain() {
            let key = key(flow)?;
            let grouped = Grouped {
                fingerprint,
                tenant: key.tenant.as_str(),
                channel: key.channel,
                destination: &key.destination,
                template: template.as_deref(),
            };
            for (by, id) in grouped.groups() {
                for tenant in [ALL, key.tenant.as_str()] {
                    let group = groups.entry((by, tenant.to_owned(), id)).or_insert_with(|| ChangedGroup {
                        delta: GroupDelta::default(),
                        hours: BTreeMap::new(),
                        name: label(by, &grouped),
                        fingerprint: (by == GroupBy::Fingerprint).then_some(fingerprint),
                    });
                    group.delta.add(delta);
                    *group.hours.entry(hour).or_default() += delta.by;
                }
            }
        }
        Ok(groups)
    }
}

fn label(by: GroupBy, grouped: &Grouped<'_>) -> Option<String> {
    match by {
        GroupBy::Channel => Some(grouped.channel.code().to_string()),
        by => grouped.name(by).map(str::to_owned),
    }
}

/// The fingerprint of a dead letter from before.
pub(crate) fn print(
    reason: Reason,
    failure: Option<FailureType>,
    status_code: Option<u16>,
    text: &str,
) -> [u8; 16] {
    fingerprint(reason, failure, status_code, &pattern(text))
}

/// The row of a group.
pub(crate) struct GroupRow {
    pub(crate) by: GroupBy,
    pub(crate) id: GroupId,
    pub(crate) count: i64,
    pub(crate) first_seen: Option<Timestamp>,
    pub(crate) sample: Option<DeadLetterId>,
    pub(crate) reason: Option<Reason>,
    pub(crate) failure: Option<FailureType>,
    pub(crate) status_code: Option<u16>,
    pub(crate) label: Option<String>,
    pub(crate) fingerprint: Option<[u8; 16]>,
}

impl GroupRow {
    /// The group as it is shown. `hours` are its numbers by hour.
    pub(crate) fn shown(self, hours: &[(i64, i64)], now: Timestamp) -> Result<FailureGroup> {
        let missing = |what: &str| Damaged(format!("{} without {what}", self.id));
        let mut shown = [0; HOURS];
        for (hour, n) in hours {
            let ago = usize::try_from(now.as_hours() - hour).ok().filter(|ago| *ago < HOURS);
            if let Some(ago) = ago {
                shown[HOURS - 1 - ago] = u64::try_from(*n).unwrap_or(0);
            }
        }
        Ok(FailureGroup {
            id: self.id,
            by: self.by,
            title: self.title()?,
            count: u64::try_from(self.count).unwrap_or(0),
            first_seen: self.first_seen.ok_or_else(|| missing("a first time"))?,
            hours: shown,
            reason: self.reason,
            failure_type: self.failure,
            status_code: self.status_code,
            sample: self.sample.ok_or_else(|| missing("a sample"))?,
        })
    }

    fn title(&self) -> Result<String> {
        if self.id.is_other() {
            return Ok("other".to_owned());
        }
        let label = self.label.as_deref().unwrap_or_default();
        Ok(match (self.by, self.reason) {
            (GroupBy::Fingerprint, Some(reason)) => title(reason, self.failure, self.status_code, label),
            (GroupBy::Channel, _) => channel(label)?.name().to_owned(),
            _ => label.to_owned(),
        })
    }

    /// A filter that asks for a group, with the fields that the group stands for. None if no dead letter can match both.
    pub(crate) fn narrow(&self, filter: &Filter) -> Result<Option<Filter>> {
        let mut narrowed = filter.clone();
        let label = self.label.clone().unwrap_or_default();
        fn only<T: PartialEq>(wanted: &mut Vec<T>, one: T) -> bool {
            let fits = wanted.is_empty() || wanted.contains(&one);
            *wanted = vec![one];
            fits
        }
        let fits = match self.by {
            GroupBy::Fingerprint => self.fingerprint.is_some(),
            GroupBy::Destination => only(&mut narrowed.destinations, label),
            GroupBy::Template => only(&mut narrowed.templates, label),
            GroupBy::Channel => only(&mut narrowed.channels, channel(&label)?),
            GroupBy::Tenant => {
                let tenant = label.parse().map_err(|_| Damaged(format!("the tenant {label:?}")))?;
                narrowed.tenant.replace(tenant).is_none_or(|before| Some(before) == narrowed.tenant)
            }
        };
        Ok(fits.then_some(narrowed))
    }
}

fn channel(label: &str) -> Result<Channel> {
    let code = label.parse().ok().and_then(|code| Channel::from_code(code).ok());
    code.ok_or_else(|| Damaged(format!("the channel {label:?} of a group")))
}

/// The kind of groups with that number.
pub(crate) fn kind(code: u8) -> Result<GroupBy> {
    GroupBy::from_code(code).ok_or_else(|| Damaged(format!("the kind {code} of a group")))
}

/// The counts of groups, as kept or as counted.
#[cfg(feature = "planted")]
pub(crate) type Counts = BTreeMap<GroupPlace, i64>;

/// Compares kept counts, empty groups included, with those of the dead letters that count. Describes the first difference.
#[cfg(feature = "planted")]
pub(crate) fn compare<'l>(kept: &Counts, counting: impl Iterator<Item = Grouped<'l>>) -> Option<String> {
    let mut counted = Counts::new();
    for grouped in counting {
        for (by, id) in grouped.groups() {
            for tenant in [ALL, grouped.tenant] {
                let place = (by, tenant.to_owned(), id);
                let other = (by, tenant.to_owned(), GroupId::other(by));
                let place = if kept.contains_key(&place) { place } else { other };
                *counted.entry(place).or_default() += 1;
            }
        }
    }
    let wrong = kept.iter().find(|(place, n)| **n != counted.get(place).copied().unwrap_or(0));
    let missing = counted.iter().find(|(place, _)| !kept.contains_key(place));
    (wrong.is_some() || missing.is_some())
        .then(|| format!("groups: kept {wrong:?}, missing {missing:?}, of {} counted", counted.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_batch_costs_as_much_as_it_has_groups() {
        let key = |flow: FlowId| -> std::result::Result<Arc<FlowKey>, ()> {
            let (channel, destination) = (Channel::Webhook, format!("d{}", flow.0).into());
            Ok(Arc::new(FlowKey { tenant: "acme".parse().unwrap(), channel, destination }))
        };
        let counted = |number: u32| Counted {
            id: DeadLetterId::new(Timestamp::from_millis(i64::from(number)), number.into()),
            flow: FlowId(i64::from(number % 2)),
            template: None,
            fingerprint: [7; 16],
            died: Timestamp::from_millis(i64::from(number)),
        };
        let mut deltas = GroupDeltas::default();
        (0..1_000).for_each(|number| deltas.note(None, Some(counted(number))));
        (0..10).for_each(|number| deltas.note(Some(counted(number)), None));
        let changed = deltas.take(key).unwrap();
        // A cause, two destinations, a channel and a tenant; of the tenant and of all.
        assert_eq!(changed.len(), 10);
        let all: i64 = changed.values().map(|group| group.delta.by).sum();
        assert_eq!(all, 990 * 8);
        assert!(changed.values().all(|group| group.hours.len() == 1));
        let newest = changed.values().filter_map(|group| group.delta.sample).max();
        assert_eq!(newest, Some(counted(999).id));
        assert!(deltas.take(key).unwrap().is_empty());
        deltas.note(Some(counted(1)), Some(counted(1)));
        assert!(deltas.take(key).unwrap().is_empty(), "what counts as before changes nothing");
    }
}
