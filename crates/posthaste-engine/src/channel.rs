//! The seam to what leaves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::notification::Notification;
use posthaste_core::provider::Route;
use posthaste_core::reply::Reply;
use posthaste_core::signature::SigningSecrets;
use posthaste_core::time::Timestamp;

use crate::vault::Opened;

/// One try, as a channel is asked to make it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What to send.
    pub notification: Arc<Notification>,
    /// Its secrets, which the notification itself does not show.
    pub opened: Opened,
    /// Which provider of the channel is to carry it.
    pub route: Route,
    /// The number of the attempt, for the receiver.
    pub attempt: u32,
    /// When the try is made, by the clock of the cluster, for the receiver.
    pub at: Timestamp,
    /// How long the try may take. When it is over the engine ends the try, whatever the channel has seen by then, so a
    /// reply that is known is returned a moment before.
    pub timeout: Duration,
    /// The secrets of the tenant that sign a webhook at `at`; none if nothing is signed.
    pub signer: Option<Arc<SigningSecrets>>,
}

/// A way out. It reports what it saw: it does not classify, retry or remember.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Waits for what a try would have to wait for on this side, such as a place that other tries hold. It is asked
    /// before each try, and its time is no part of the try's. The wait is bounded; where it was in vain, the reply is the
    /// outcome of a try that was not made. Dropping the future ends the wait.
    async fn ready(&self, notification: &Notification) -> Result<(), Reply> {
        let _ = notification;
        Ok(())
    }

    /// Makes one try. Dropping the future ends it.
    async fn send(&self, delivery: Delivery) -> Reply;
}
