//! Questions, with limits and cursors that cut through what is there.

use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{AuditFilter, Filter, LetterStatus};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::{AUDITED, Generator, TENANTS, tenant};
use crate::store::slice::Call;
use crate::store::{DueCursor, acts, key_uses, queue, reads, settings, waking};

impl Generator {
    pub(super) fn read(&mut self) -> Call {
        let limit = self.rng.usize(1..20);
        match self.rng.u32(0..24) {
            22 | 23 => self.read_destinations(limit).into(),
            20 | 21 => self.group_call(limit).into(),
            0 => self.wakes(limit).into(),
            17 => self.read_records(limit).into(),
            16 => {
                let (node, after) = (self.some_node(), self.rng.bool().then(|| self.some_id()));
                queue::Call::Held { node, after, limit }.into()
            }
            1 => waking::Call::Expiring { until: self.some_time(), limit }.into(),
            2 => {
                let after = self.rng.bool().then(|| self.bucket());
                waking::Call::Buckets { after, limit }.into()
            }
            3 => {
                let count = self.rng.usize(0..4);
                queue::Call::Flows { flows: (0..count).map(|_| self.bucket().flow).collect() }.into()
            }
            4 => {
                let (due_before, first_due_before) = (self.some_time(), self.some_time());
                let after = self.some_place();
                if self.rng.u32(0..4) == 0 {
                    return waking::Call::OwnAges { due_before, after, limit }.into();
                }
                waking::Call::Overdue { due_before, first_due_before, after, limit }.into()
            }
            5 => acts::Call::Facts { ids: self.some_ids(20) }.into(),
            6 if self.rng.bool() => {
                let dead_letters = (0..3).map(|_| self.some_grave_or_none()).collect();
                acts::Call::LetterFacts { dead_letters }.into()
            }
            6 => acts::Call::NotificationOf { dead_letter: self.some_grave_or_none() }.into(),
            18 => key_uses::Call::All {}.into(),
            19 => reads::Call::Tenants { from: self.some_tenant(), limit: self.rng.usize(0..4) }.into(),
            7 => settings::Call::Get { known: self.rng.bool().then(|| self.rng.i64(0..20)) }.into(),
            8 if self.rng.bool() => reads::Call::GetMany { ids: self.some_ids(20) }.into(),
            8 => reads::Call::Get { id: self.some_id() }.into(),
            9 => reads::Call::History { id: self.some_id() }.into(),
            other => self.list(other, limit).into(),
        }
    }

    fn wakes(&mut self, limit: usize) -> waking::Call {
        // Rows that came in at this moment are due at it, so a cursor may stand between them.
        let after = match self.rng.u32(0..3) {
            0 => DueCursor { due: self.now, id: self.some_id() },
            1 => DueCursor { due: self.some_time(), id: self.some_id() },
            _ => DueCursor::after_all_at(self.some_time()),
        };
        let until = match self.rng.u32(0..8) {
            0 => self.some_time(),
            _ => after.due.later(Duration::from_secs(self.rng.u64(0..90))),
        };
        waking::Call::Wakes { after, until, limit }
    }

    fn list(&mut self, which: u32, limit: usize) -> reads::Call {
        match which {
            10 | 11 => {
                let before = self.rng.bool().then(|| self.some_id());
                reads::Call::Page { filter: self.filter(), before, limit }
            }
            12 => reads::Call::RetryQueue { filter: self.filter(), after: self.some_place(), limit },
            13 => {
                let before = self.rng.bool().then(|| self.some_grave_or_none());
                let group = (self.rng.u32(0..3) == 0).then(|| self.some_group());
                reads::Call::DeadLetters { filter: Filter { group, ..self.filter() }, before, limit }
            }
            14 => {
                let before = self.rng.bool().then(|| self.rng.i64(0..200));
                reads::Call::Audit { filter: self.audit_filter(), before, limit }
            }
            _ if self.rng.bool() => reads::Call::DeadLetter { id: self.some_grave_or_none() },
            _ => reads::Call::Stats { tenant: self.some_tenant(), now: self.some_time() },
        }
    }

    fn audit_filter(&mut self) -> AuditFilter {
        let mut filter = AuditFilter::of(self.some_tenant());
        for _ in 0..self.rng.u32(0..3) {
            match self.rng.u32(0..5) {
                0 => filter.actions = self.some_of(&AUDITED).into_iter().map(str::to_owned).collect(),
                1 => filter.actor = Some(format!("actor {}", self.rng.u32(0..4))),
                2 => filter.target = Some(["random", "other"][self.rng.usize(0..2)].to_owned()),
                3 => filter.since = Some(self.some_time()),
                _ => filter.until = Some(self.some_time()),
            }
        }
        filter
    }

    /// A filter with up to three fields, each with up to three values.
    fn filter(&mut self) -> Filter {
        let mut filter = Filter { tenant: self.some_tenant(), ..Filter::default() };
        for _ in 0..self.rng.u32(0..4) {
            match self.rng.u32(0..11) {
                0 => filter.states = self.some_of(&State::ALL),
                1 => filter.statuses = self.some_of(&LetterStatus::ALL),
                2 => filter.channels = self.some_of(&[Channel::Webhook, Channel::Email]),
                3 => filter.templates = self.some_templates(),
                4 => filter.destinations = self.some_destinations(),
                5 => filter.failure_types = self.some_of(&FailureType::ALL),
                6 => filter.status_codes = self.some_of(&[200, 410, 429, 500, 503]),
                7 => filter.reasons = self.some_of(&Reason::ALL),
                8 => filter.since = Some(self.some_time()),
                9 => filter.until = Some(self.some_time()),
                _ => filter.text = Some(self.some_text()),
            }
        }
        filter
    }

    fn some_of<T: Copy>(&mut self, all: &[T]) -> Vec<T> {
        (0..self.rng.usize(1..4)).map(|_| all[self.rng.usize(..all.len())]).collect()
    }

    fn some_templates(&mut self) -> Vec<String> {
        let known = self.notifications.len();
        (0..self.rng.usize(1..4)).map(|_| format!("template {}", self.rng.usize(..=known))).collect()
    }

    /// One that nothing goes to, or those of notifications.
    fn some_destinations(&mut self) -> Vec<String> {
        let mut some = vec!["https://nowhere.example.org".to_owned()];
        for _ in 0..self.rng.usize(0..3) {
            some.extend(self.some_notification().map(|notification| notification.destination.to_string()));
        }
        some
    }

    fn some_text(&mut self) -> String {
        ["tO-1", "SUBJECT 2", "event", "correlation 3"][self.rng.usize(0..4)].to_owned()
    }

    pub(super) fn some_tenant(&mut self) -> Option<Tenant> {
        let name = TENANTS[self.rng.usize(..TENANTS.len())];
        self.rng.bool().then(|| tenant(name))
    }

    /// A time around now.
    pub(super) fn some_time(&mut self) -> Timestamp {
        let distance = Duration::from_micros(self.rng.u64(0..60_000_000));
        if self.rng.bool() { self.now.later(distance) } else { self.now.earlier(distance) }
    }

    fn some_place(&mut self) -> Option<DueCursor> {
        self.rng.bool().then(|| DueCursor { due: self.some_time(), id: self.some_id() })
    }

    fn some_id(&mut self) -> NotificationId {
        let known = self.some_notification().map(|notification| notification.id);
        known.unwrap_or_else(|| NotificationId::new(self.now, 1))
    }

    pub(super) fn some_grave(&mut self) -> Option<DeadLetterId> {
        let known = self.graves.len();
        (known > 0).then(|| self.graves[self.rng.usize(..known)])
    }

    fn some_grave_or_none(&mut self) -> DeadLetterId {
        let known = self.some_grave();
        known.unwrap_or_else(|| DeadLetterId::new(self.now, 1))
    }
}
