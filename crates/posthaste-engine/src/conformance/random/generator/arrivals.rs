//! Requests, with and without keys, leases, expiry and times to wait for.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::lease::Lease;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::policy::PolicyLayer;

use super::Generator;
use crate::store::{Arrival, Idempotency, Request};

impl Generator {
    pub(super) fn requests(&mut self) -> Vec<Request> {
        let lease = self.new_lease();
        (0..self.rng.usize(1..4)).map(|_| self.request(lease)).collect()
    }

    fn request(&mut self, lease: Lease) -> Request {
        let idempotency = self.idempotency();
        let mut arrivals: Vec<Arrival> = (0..self.rng.usize(0..4)).map(|_| self.arrival(lease)).collect();
        if self.rng.u32(0..60) == 0
            && let Some(known) = self.some_notification()
        {
            let flow = self.flow_of(&known);
            arrivals.push(Arrival { notification: known, flow, due: self.now, lease: None });
        }
        Request { idempotency, arrivals }
    }

    /// A key now and then. There are few, so that they meet.
    pub(super) fn idempotency(&mut self) -> Option<Idempotency> {
        let keyed = self.rng.u32(0..3) == 0;
        keyed.then(|| Idempotency {
            tenant: self.flows[self.rng.usize(..self.flows.len())].0.tenant.clone(),
            key: format!("key {}", self.rng.u32(0..6)),
            hash: [self.rng.u8(0..2); 32],
            answer: self.rng.u64(..).to_be_bytes().to_vec(),
        })
    }

    pub(super) fn arrival(&mut self, lease: Lease) -> Arrival {
        let (key, flow) = self.flows[self.rng.usize(..self.flows.len())].clone();
        let number = self.notifications.len();
        let later = |generator: &mut Self, most: u64| {
            let micros = generator.rng.u64(0..most);
            generator.now.later(Duration::from_micros(micros))
        };
        let waits = self.rng.u32(0..4) == 0;
        let not_before = waits.then(|| later(self, 30_000_000));
        let expires = self.rng.u32(0..4) == 0;
        let named = |name: &str, is_named: bool| is_named.then(|| format!("{name} {number}"));
        let content = Content::of(Body::Json(format!("{{\"n\":{number}}}")));
        let content = Content { policy: self.own_policy(), ..content };
        let notification = Arc::new(Notification {
            id: NotificationId::new(self.now, self.rng.u128(..)),
            tenant: key.tenant,
            channel: key.channel,
            destination: key.destination,
            to: format!("To-{number}"),
            priority: self.priority(),
            template: named("template", self.rng.bool()),
            subject: named("Subject", self.rng.bool()),
            event_key: named("event", self.rng.bool()),
            correlation_id: named("correlation", self.rng.bool()),
            not_before,
            expires_at: expires.then(|| later(self, 90_000_000)),
            content,
        });
        self.notifications.push(notification.clone());
        let lease = self.rng.bool().then_some(lease);
        Arrival { due: notification.first_due(self.now), notification, flow, lease }
    }

    /// Now and then, and some with an age.
    fn own_policy(&mut self) -> Option<PolicyLayer> {
        let max_age = self.rng.bool().then(|| Duration::from_secs(60));
        (self.rng.u32(0..8) == 0).then(|| PolicyLayer {
            max_attempts: Some(2),
            max_age,
            ..PolicyLayer::default()
        })
    }

    fn flow_of(&self, notification: &Notification) -> posthaste_core::flow::FlowId {
        let key = posthaste_core::flow::FlowKey::of(notification);
        let known = self.flows.iter().find(|(flow, _)| *flow == key);
        known.expect("notifications are made for the flows of the run").1
    }
}
