//! The kept counters: changed with each row, never counted from the rows but to check them (I17).

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::tables::{Ended, Row};
use crate::store::ChannelStats;

/// What is counted, by tenant and channel, and ends also by the hour. What is zero is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// How many notifications stand where.
    pub standing: BTreeMap<(Tenant, Channel), Standing>,
    /// How many ended in which hour since the epoch.
    pub ends: BTreeMap<(i64, Tenant, Channel), Ends>,
}

/// How many notifications of a tenant and channel stand where. Signed, so that a drift shows instead of wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Pending.
    pub queued: i64,
    /// Processing and Retrying.
    pub sending: i64,
    /// RetryScheduled and Retrying.
    pub in_retry: i64,
    /// DeadLetter.
    pub in_dead_letter: i64,
}

/// How many notifications of a tenant and channel ended in an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ends {
    /// As Succeeded.
    pub delivered: i64,
    /// In any way.
    pub all: i64,
}

/// Whether a row comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It comes.
    In,
    /// It goes.
    Out,
}

impl Way {
    const fn sign(self) -> i64 {
        match self {
            Self::In => 1,
            Self::Out => -1,
        }
    }
}

impl Counters {
    /// A row of the queue comes or goes.
    pub(super) fn queued(&mut self, row: &Row, way: Way) {
        let sign = way.sign();
        self.stand(&row.notification, |standing| {
            let state = row.state();
            standing.queued += if state == State::Pending { sign } else { 0 };
            standing.sending += if state.is_leased() { sign } else { 0 };
            standing.in_retry += if row.lane == Lane::Retry { sign } else { 0 };
        });
    }

    /// An ended row comes or goes.
    pub(super) fn ended(&mut self, notification: &Notification, ended: &Ended, way: Way) {
        let sign = way.sign();
        if ended.state == State::DeadLetter {
            self.stand(notification, |standing| standing.in_dead_letter += sign);
        }
        let key = (ended.at.as_hours(), notification.tenant.clone(), notification.channel);
        let ends = self.ends.entry(key.clone()).or_default();
        ends.all += sign;
        ends.delivered += if ended.state == State::Succeeded { sign } else { 0 };
        if *ends == Ends::default() {
            self.ends.remove(&key);
        }
    }

    /// What `Store::stats` tells of each channel that has any.
    pub(super) fn stats(&self, tenant: Option<&Tenant>, now: Timestamp) -> Vec<(Channel, ChannelStats)> {
        let is_theirs = |owner: &Tenant| tenant.is_none_or(|tenant| tenant == owner);
        let shown = |number: i64| u64::try_from(number).unwrap_or(0);
        let mut channels: BTreeMap<Channel, ChannelStats> = BTreeMap::new();
        for ((owner, channel), standing) in &self.standing {
            if is_theirs(owner) {
                let stats = channels.entry(*channel).or_default();
                stats.queued += shown(standing.queued);
                stats.sending += shown(standing.sending);
                stats.in_retry += shown(standing.in_retry);
                stats.in_dead_letter += shown(standing.in_dead_letter);
            }
        }
        for ((hour, owner, channel), ends) in &self.ends {
            let age = now.as_hours() - hour;
            if is_theirs(owner) && (0..24).contains(&age) {
                let stats = channels.entry(*channel).or_default();
                stats.delivered_24h += shown(ends.delivered);
                stats.ended_24h += shown(ends.all);
            }
        }
        channels.into_iter().filter(|(_, stats)| *stats != ChannelStats::default()).collect()
    }

    fn stand(&mut self, notification: &Notification, change: impl FnOnce(&mut Standing)) {
        let key = (notification.tenant.clone(), notification.channel);
        let standing = self.standing.entry(key.clone()).or_default();
        change(standing);
        if *standing == Standing::default() {
            self.standing.remove(&key);
        }
    }
}
