//! What a promise is shown with: notifications, nodes and outcomes that are easily made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome, QuickTry, Response};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Body, Content, Notification, Priority, Tenant};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::reason::Reason;
use posthaste_core::sensitive::SealedHeaders;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::{Broken, Kept, same};
use crate::store::{
    Accepted, Act, Arrival, Audit, Change, Claimed, Ending, Facts, History, Next, Request, Settled,
    Settlement, Stats, Store, View,
};

/// A whole hour (2026-04-15T10:00:00Z) and a few microseconds, which a store that keeps milliseconds would lose.
const START: i64 = 1_776_247_200_000_123;

/// So many seconds after the start.
pub(super) const fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(START + seconds * 1_000_000)
}

/// A microsecond.
pub(super) const TICK: Duration = Duration::from_micros(1);
/// How long nodes of a scene live if nothing else is said.
pub(super) const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// A tenant of that name.
pub(super) fn tenant(name: &str) -> Tenant {
    name.parse().expect("the suite names its tenants in plain letters")
}

/// The rows of a flow in that lane with normal priority.
pub(super) const fn bucket(flow: FlowId, lane: Lane) -> Bucket {
    Bucket { flow, lane, priority: Priority::Normal }
}

/// A failed attempt with everything that an attempt can hold.
pub(super) fn failed_attempt(generation: u32, number: u32) -> Attempt {
    Attempt {
        generation,
        number,
        started_at: at(5),
        duration: Duration::from_micros(1_234_567),
        outcome: Outcome::Failed(FailureType::Temporary),
        status_code: Some(503),
        error: Some("503: später".to_owned()),
        quick_tries: vec![QuickTry {
            started_at: Timestamp::from_millis(at(4).as_millis()),
            duration_ms: 250,
            failure_type: FailureType::Timeout,
            status_code: None,
            error: "no answer".to_owned(),
        }],
        last_try_at: Some(at(5).later(Duration::from_micros(1_000_003))),
        provider: Some("smtp-a".to_owned()),
        message_id: Some("<1@smtp-a>".to_owned()),
        response: Some(Response::new(Some("text/plain"), "später: \"5 Minuten\"")),
    }
}

/// An attempt that delivered.
pub(super) fn good_attempt(generation: u32, number: u32) -> Attempt {
    Attempt {
        outcome: Outcome::Delivered,
        status_code: Some(200),
        error: None,
        quick_tries: vec![],
        last_try_at: None,
        response: None,
        ..failed_attempt(generation, number)
    }
}

/// A retry that is due then.
pub(super) fn retry_at(due: Timestamp) -> Next {
    Next::Retry { due, delay: Duration::from_secs(55) }
}

/// The end as a dead letter of that name.
pub(super) fn burial(dead_letter: DeadLetterId) -> Next {
    let (reason, text) = (Reason::MaxAttemptsExceeded, "gave up after 1".to_owned());
    Next::End(Ending::Buried { dead_letter, reason, text })
}

/// Who does what in the acts of the suite.
pub(super) fn audit(action: &str) -> Audit {
    Audit {
        tenant: Some(tenant("acme")),
        actor: "ada".to_owned(),
        action: action.to_owned(),
        target: "one".to_owned(),
        at: at(50),
        key_id: Some("key_1".to_owned()),
        address: Some("2001:db8::7".to_owned()),
    }
}

/// An empty store and what was made for it so far.
pub(super) struct Scene {
    /// The store.
    pub(super) store: Arc<dyn Store>,
    made: u32,
    node: Option<NodeId>,
    fence: i64,
}

impl Scene {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, made: 0, node: None, fence: 0 }
    }

    /// A notification of acme to a destination of its own, with nothing that can be left out.
    pub(super) fn draft(&mut self) -> Notification {
        self.made += 1;
        let made = self.made;
        let id = NotificationId::new(Timestamp::from_millis(at(0).as_millis() + i64::from(made)), 7);
        let destination = format!("https://d{made}.example");
        let to = format!("{destination}/hook");
        let flow =
            FlowKey { tenant: tenant("acme"), channel: Channel::Webhook, destination: destination.into() };
        Notification::new(id, flow, to, Content::of(Body::Text("hello".to_owned())))
    }

    /// A notification with everything that it can have.
    pub(super) fn full_draft(&mut self) -> Notification {
        let content = Content {
            body: Body::Json("{\"n\": 1.50, \"s\": \"ä\\u0000\"}".to_owned()),
            html: Some("<b>hello</b>".to_owned()),
            headers: BTreeMap::from([("x-one".to_owned(), "1".to_owned())]),
            sealed_headers: Some(SealedHeaders {
                shown: BTreeMap::from([("authorization".to_owned(), "Bearer ***".to_owned())]),
                text: "v1.AAAA".to_owned(),
            }),
            metadata: Some("[1, 2]".to_owned()),
            user_id: Some("u1".to_owned()),
            module: Some("billing".to_owned()),
            policy: Some(PolicyLayer {
                max_attempts: Some(7),
                initial_delay: Some(Duration::from_secs(90)),
                ..PolicyLayer::default()
            }),
            edit_of: Some(NotificationId::new(at(0), 3)),
        };
        Notification {
            tenant: tenant("other"),
            channel: Channel::Email,
            priority: Priority::Critical,
            template: Some("welcome".to_owned()),
            subject: Some("Hällo".to_owned()),
            event_key: Some("user.created".to_owned()),
            correlation_id: Some("c-1".to_owned()),
            not_before: Some(at(3)),
            expires_at: Some(at(7_200)),
            content,
            ..self.draft()
        }
    }

    /// The name of a new dead letter.
    pub(super) fn grave(&mut self) -> DeadLetterId {
        self.made += 1;
        DeadLetterId::new(Timestamp::from_millis(at(0).as_millis() + i64::from(self.made)), 9)
    }

    /// A new grant of the scene's one node.
    pub(super) async fn lease(&mut self) -> Result<Lease, Broken> {
        self.fence += 1;
        let node = match self.node {
            Some(node) => node,
            None => self.store.join("scene".to_owned(), MONTH, at(0)).await?.node,
        };
        self.node = Some(node);
        Ok(Lease { node, fence: Fence(self.fence) })
    }

    /// The number of the notification's flow.
    pub(super) async fn flow_of(&self, notification: &Notification) -> Result<FlowId, Broken> {
        let flows = self.store.intern(vec![FlowKey::of(notification)]).await?;
        flows.first().copied().ok_or_else(|| Broken::at_caller("a flow was given no number"))
    }

    /// The notification on its way in.
    pub(super) async fn arrival(
        &self,
        notification: &Notification,
        due: Timestamp,
        lease: Option<Lease>,
    ) -> Result<Arrival, Broken> {
        let flow = self.flow_of(notification).await?;
        Ok(Arrival { notification: Arc::new(notification.clone()), flow, due, lease })
    }

    /// Takes the notification in.
    pub(super) async fn accept(
        &self,
        notification: &Notification,
        due: Timestamp,
        lease: Option<Lease>,
    ) -> Kept {
        let arrival = self.arrival(notification, due, lease).await?;
        let request = Request { idempotency: None, arrivals: vec![arrival] };
        same("accept", self.store.accept(vec![request], at(0)).await?.answers, [Accepted::New])
    }

    /// A notification that waits for its first attempt and is due at the start.
    pub(super) async fn waiting(&mut self) -> Result<Notification, Broken> {
        let notification = self.draft();
        self.accept(&notification, at(0), None).await?;
        Ok(notification)
    }

    /// A notification that a node holds for its first attempt.
    pub(super) async fn held(&mut self) -> Result<(Notification, Lease), Broken> {
        let (notification, lease) = (self.draft(), self.lease().await?);
        self.accept(&notification, at(0), Some(lease)).await?;
        Ok((notification, lease))
    }

    /// Leases what is due of the notification's flow in that lane.
    pub(super) async fn claim(
        &self,
        notification: &Notification,
        lane: Lane,
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Claimed>, Broken> {
        let flow = self.flow_of(notification).await?;
        let bucket = Bucket { flow, lane, priority: notification.priority };
        Ok(self.store.claim(vec![Quota { bucket, limit: 100 }], lease, now).await?.claimed)
    }

    /// Settles one notification.
    pub(super) async fn settle(
        &self,
        id: NotificationId,
        lease: Lease,
        attempt: Option<Attempt>,
        next: Next,
    ) -> Result<Settled, Broken> {
        let item = Settlement { id, lease, cancel_seen: false, attempt, next };
        let settled = self.store.settle(vec![item], at(10)).await?;
        same("how many were settled", settled.len(), 1)?;
        Ok(settled[0])
    }

    /// Fails the first attempt of a held notification, with that to follow.
    pub(super) async fn fail(&self, notification: &Notification, lease: Lease, next: Next) -> Kept {
        let settled = self.settle(notification.id, lease, Some(failed_attempt(1, 1)), next).await?;
        same("settle", settled, Settled::Applied)
    }

    /// A notification that was brought into that state, at second 10 where an attempt was needed.
    pub(super) async fn in_state(&mut self, state: State) -> Result<Notification, Broken> {
        if state == State::Pending {
            return self.waiting().await;
        }
        let (notification, lease) = self.held().await?;
        let failure = || (Reason::PermanentFailure, "refused".to_owned());
        let next = match state {
            State::Pending | State::Processing => return Ok(notification),
            State::RetryScheduled | State::Retrying => retry_at(at(60)),
            State::Succeeded => {
                let attempt = Some(good_attempt(1, 1));
                let next = Next::End(Ending::Delivered);
                same("settle", self.settle(notification.id, lease, attempt, next).await?, Settled::Applied)?;
                return Ok(notification);
            }
            State::Failed => {
                let (reason, text) = failure();
                Next::End(Ending::Failed { reason, text })
            }
            State::DeadLetter => burial(self.grave()),
            State::Cancelled => Next::End(Ending::Cancelled),
            State::Expired => Next::End(Ending::Expired),
        };
        self.fail(&notification, lease, next).await?;
        if state == State::Retrying {
            let again = self.lease().await?;
            same("claimed", self.claim(&notification, Lane::Retry, again, at(60)).await?.len(), 1)?;
        }
        Ok(notification)
    }

    /// A dead letter that was discarded.
    pub(super) async fn discarded(&mut self) -> Result<Notification, Broken> {
        let notification = self.in_state(State::DeadLetter).await?;
        self.does(&notification, Act::Discard, None, at(20)).await?;
        Ok(notification)
    }

    /// How the notification stands.
    pub(super) async fn facts(&self, id: NotificationId) -> Result<Facts, Broken> {
        let mut facts = self.store.facts(vec![id]).await?;
        facts.pop().ok_or_else(|| Broken::at_caller(format!("{id} has no facts")))
    }

    /// Acts on the notification as it stands and returns whether that was done.
    pub(super) async fn act(
        &self,
        notification: &Notification,
        act: Act,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<bool, Broken> {
        let seen = self.facts(notification.id).await?.standing.seen();
        let change = Change { id: notification.id, seen, act };
        let made = self
            .store
            .transition(vec![change], audit.as_ref().map(|audit| audit.actor.clone()), audit, now)
            .await?;
        same("how many changes were answered", made.len(), 1)?;
        Ok(made[0])
    }

    /// Acts on the notification as it stands, which must succeed.
    pub(super) async fn does(
        &self,
        notification: &Notification,
        act: Act,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Kept {
        let what = format!("{act:?} was made");
        same(&what, self.act(notification, act, audit, now).await?, true)
    }

    /// The notification as it is shown.
    pub(super) async fn view(&self, id: NotificationId) -> Result<View, Broken> {
        let view = self.store.get(id).await?;
        view.ok_or_else(|| Broken::at_caller(format!("{id} is not there")))
    }

    /// The state that the notification is shown in.
    pub(super) async fn state(&self, notification: &Notification) -> Result<State, Broken> {
        Ok(self.view(notification.id).await?.state)
    }

    /// Everything that is shown of one notification, and the counters: what an act that is not made leaves alone.
    pub(super) async fn all_of(&self, id: NotificationId) -> Result<(View, History, Facts, Stats), Broken> {
        let history = self.store.history(id).await?;
        let stats = self.store.stats(None, at(100)).await?;
        Ok((self.view(id).await?, history, self.facts(id).await?, stats))
    }
}
