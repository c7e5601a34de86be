//! Inbound limits: of one tenant, and of one module of a tenant, at most so many notifications within any minute.
//!
//! Each notification reserves a time. A limit of `n` is `n` units, and a reservation takes one unit for a minute: within no minute
//! can there be more than `n` of them. All that is kept of a limit is until when its units are taken, so it needs `n` times at most,
//! however many notifications were deferred. Where a unit is free, the reserved time is now; else it is the earliest time at which
//! one of the tenant and one of the module are free.
//!
//! A unit that is taken at a later time than now is the one that is free last before it. With that, no unit waits for a module while
//! another module could use it, and the earliest time at which some unit is free is the earliest time that keeps every minute within
//! its limit. A test below compares this with all times that were reserved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::notification::{Notification, Priority, Tenant};
use crate::time::Timestamp;

#[cfg(test)]
mod tests;

/// Within any time of this length a limit holds.
pub const WINDOW: Duration = Duration::from_secs(60);

/// How long a row stays after all of it is free, at least: clocks of nodes differ by less.
const IDLE_KEPT: Duration = Duration::from_secs(600);
/// Rows are removed by the hour, so that the hour of a row seldom changes.
const IDLE_STEP: i64 = 3_600_000_000;
/// The most idle rows that one call removes.
pub const IDLE_AT_ONCE: usize = 100;

/// How many notifications a minute may have; 0: as many as there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboundLimits {
    pub per_tenant: u32,
    pub per_module: u32,
}

impl InboundLimits {
    pub const fn is_off(self) -> bool {
        self.per_tenant == 0 && self.per_module == 0
    }

    /// The limit for a key; `None` if there is none.
    fn of(self, key: &InboundKey) -> Option<u32> {
        let limit = if key.module.is_some() { self.per_module } else { self.per_tenant };
        (limit > 0).then_some(limit)
    }
}

/// Whose limit it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboundKey {
    pub tenant: Tenant,
    /// None for all notifications of the tenant.
    pub module: Option<Arc<str>>,
}

/// A notification that wants a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub tenant: Tenant,
    pub module: Option<Arc<str>>,
    /// It takes nothing if it would have expired by its time: nothing of it will be sent.
    pub expires_at: Option<Timestamp>,
}

impl Wanted {
    /// None if the notification is exempt from limits.
    pub fn of(notification: &Notification) -> Option<Self> {
        (notification.priority != Priority::Critical).then(|| Self::whatever_its_priority(notification))
    }

    /// The same for one that is exempt as well.
    pub fn whatever_its_priority(notification: &Notification) -> Self {
        Self {
            tenant: notification.tenant.clone(),
            module: notification.content.module.as_deref().map(Into::into),
            expires_at: notification.expires_at,
        }
    }

    /// The limits that it needs a unit of: of its tenant, then of its module.
    pub fn keys(&self, limits: InboundLimits) -> impl Iterator<Item = InboundKey> {
        let tenant = || self.tenant.clone();
        let of_tenant = (limits.per_tenant > 0).then(|| InboundKey { tenant: tenant(), module: None });
        let module = self.module.clone().filter(|_| limits.per_module > 0);
        let of_module = module.map(|module| InboundKey { tenant: tenant(), module: Some(module) });
        of_tenant.into_iter().chain(of_module)
    }
}

/// The time of a notification, and what is left after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    pub at: Timestamp,
    /// Whether it has to wait for that time.
    pub is_deferred: bool,
    pub allowances: Allowances,
}

/// What is left of the limits of a notification, where there are limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowances {
    pub tenant: Option<Allowance>,
    pub module: Option<Allowance>,
}

/// What is left of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub limit: u32,
    /// How many more would be sent at once.
    pub left: u32,
    /// When there is one more; `None` if nothing is taken.
    pub more_at: Option<Timestamp>,
}

impl Allowance {
    /// What is left of a limit of which this much is taken.
    fn of(limit: u32, taken: &Taken, now: Timestamp) -> Self {
        let left = u64::from(limit).saturating_sub(taken.count(now));
        let more_at = if left > 0 { taken.first(now) } else { Some(taken.free_at(limit, now)) };
        Self { limit, left: u32::try_from(left).unwrap_or(u32::MAX), more_at }
    }

    /// The one of which less is left.
    fn tighter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|one| (one.left, std::cmp::Reverse(one.more_at)))
    }
}

impl Allowances {
    /// The least that is left for any of several notifications.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        Self {
            tenant: Allowance::tighter(self.tenant, other.tenant),
            module: Allowance::tighter(self.module, other.module),
        }
    }

    /// When one more notification would be sent at once: where nothing is left, when something is; else when more is.
    pub fn more_at(self) -> Option<Timestamp> {
        let all = || self.tenant.into_iter().chain(self.module);
        let exhausted = all().filter(|one| one.left == 0).filter_map(|one| one.more_at).max();
        exhausted.or_else(|| all().filter_map(|one| one.more_at).min())
    }
}

/// Until when the units of one limit are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The latest time of a reservation. Clocks of nodes differ a little, and this one counts for all.
    seen: Timestamp,
    /// How many are taken until each time.
    until: BTreeMap<Timestamp, u64>,
    /// All of them together.
    sum: u64,
}

impl Default for Taken {
    fn default() -> Self {
        Self { seen: Timestamp::MIN, until: BTreeMap::new(), sum: 0 }
    }
}

impl Taken {
    fn count(&self, now: Timestamp) -> u64 {
        self.sum - self.until.range(..=now).map(|(_, count)| count).sum::<u64>()
    }

    /// When the first unit that is taken is free.
    fn first(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.range(next(now)..).next().map(|(until, _)| *until)
    }

    /// When a unit is free, if there are so many. If the limit was higher before, more may be taken than there are.
    fn free_at(&self, limit: u32, now: Timestamp) -> Timestamp {
        let mut over = match self.count(now).checked_sub(u64::from(limit)) {
            None => return now,
            Some(over) => over,
        };
        for (until, count) in self.until.range(next(now)..) {
            match over.checked_sub(*count) {
                None => return *until,
                Some(rest) => over = rest,
            }
        }
        now
    }

    /// Forgets the units that are free.
    fn forget(&mut self, now: Timestamp) {
        while let Some(first) = self.until.first_entry().filter(|first| *first.key() <= now) {
            self.sum -= first.remove();
        }
    }

    /// Takes the unit that is free last before `at`, or one that nothing is known of.
    fn take(&mut self, at: Timestamp) {
        if let Some((until, count)) = self.until.range_mut(..=at).next_back() {
            *count -= 1;
            self.sum -= 1;
            let (until, is_used_up) = (*until, *count == 0);
            if is_used_up {
                self.until.remove(&until);
            }
        }
        *self.until.entry(at.later(WINDOW)).or_default() += 1;
        self.sum += 1;
    }

    /// From when on the row of it can be removed.
    pub fn idle_from(&self) -> Timestamp {
        let last = self.until.keys().next_back().copied().unwrap_or(self.seen);
        let least = last.max(self.seen).later(IDLE_KEPT).as_micros();
        let hours = least.div_euclid(IDLE_STEP).saturating_add(1);
        Timestamp::from_micros(hours.saturating_mul(IDLE_STEP))
    }

    /// As a text to be stored: microseconds between the times, and how many each of them has.
    pub fn to_text(&self) -> String {
        let (mut numbers, mut before) = (vec![self.seen.as_micros()], self.seen.as_micros());
        for (until, count) in &self.until {
            numbers.push(until.as_micros().saturating_sub(before));
            numbers.push(i64::try_from(*count).unwrap_or(i64::MAX));
            before = until.as_micros();
        }
        serde_json::to_string(&numbers).expect("numbers are JSON")
    }

    /// None if the text was not made by `to_text`.
    pub fn from_text(text: &str) -> Option<Self> {
        let numbers: Vec<i64> = serde_json::from_str(text).ok()?;
        let (seen, rest) = numbers.split_first()?;
        let (pairs, []) = rest.as_chunks::<2>() else { return None };
        let (mut before, mut until, mut sum) = (*seen, BTreeMap::new(), 0_u64);
        for [after, count] in pairs {
            before = before.checked_add(*after).filter(|_| *after > 0)?;
            let count = u64::try_from(*count).ok().filter(|count| *count > 0)?;
            sum = sum.checked_add(count)?;
            until.insert(Timestamp::from_micros(before), count);
        }
        Some(Self { seen: Timestamp::from_micros(*seen), until, sum })
    }
}

/// The first time after `time`.
fn next(time: Timestamp) -> Timestamp {
    time.later(Duration::from_micros(1))
}

/// What is taken of each limit that was used.
pub type AllTaken = BTreeMap<InboundKey, Taken>;

/// Reserves a time for each of these, in their order. `taken` holds what is kept of the limits that they need.
pub fn reserve(
    taken: &mut AllTaken,
    wanted: &[Wanted],
    limits: InboundLimits,
    now: Timestamp,
) -> Vec<Reserved> {
    wanted.iter().map(|one| reserve_one(taken, one, limits, now)).collect()
}

fn reserve_one(taken: &mut AllTaken, wanted: &Wanted, limits: InboundLimits, now: Timestamp) -> Reserved {
    let keys: Vec<InboundKey> = wanted.keys(limits).collect();
    let seen = keys.iter().filter_map(|key| taken.get(key)).map(|taken| taken.seen);
    let now = seen.fold(now, Timestamp::max);
    let mut at = now;
    for key in &keys {
        let of_key = taken.entry(key.clone()).or_default();
        of_key.seen = now;
        of_key.forget(now);
        at = at.max(limits.of(key).map_or(now, |limit| of_key.free_at(limit, now)));
    }
    if wanted.expires_at.is_none_or(|expiry| at < expiry) {
        for key in &keys {
            taken.entry(key.clone()).or_default().take(at);
        }
    }
    Reserved { at, is_deferred: at > now, allowances: allowances(taken, wanted, limits, now) }
}

/// What is left for such a notification.
pub fn allowances(taken: &AllTaken, wanted: &Wanted, limits: InboundLimits, now: Timestamp) -> Allowances {
    let mut left = Allowances::default();
    for key in wanted.keys(limits) {
        let unused = Taken::default();
        let of_key = taken.get(&key).unwrap_or(&unused);
        let now = now.max(of_key.seen);
        let allowance = limits.of(&key).map(|limit| Allowance::of(limit, of_key, now));
        if key.module.is_some() { left.module = allowance } else { left.tenant = allowance }
    }
    left
}
