//! The counters of a tenant, or of all: read once a second, however many streams show them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use posthaste_core::notification::Tenant;
use tokio::time::Instant;

use super::super::Api;
use super::super::stats::StatsView;
use super::json;
use crate::keys::Caller;

/// Maximum age of counters. A little less than a tick, so that each tick of one stream has new ones.
const MAX_AGE: Duration = Duration::from_millis(900);
/// Limit on a read of the counters.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Those of each tenant that a stream shows.
#[derive(Debug, Default)]
pub(super) struct AllCounters(Mutex<HashMap<Option<Tenant>, Weak<Counters>>>);

impl AllCounters {
    /// The counters of a tenant, or of all. They are forgotten with the last stream that has them.
    pub(super) fn of(&self, tenant: Option<Tenant>) -> Arc<Counters> {
        let mut all = self.0.lock().expect("no code panics while it looks up counters");
        if let Some(known) = all.get(&tenant).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, counters| counters.strong_count() > 0);
        let counters = Arc::new(Counters { tenant: tenant.clone(), last: tokio::sync::Mutex::default() });
        all.insert(tenant, Arc::downgrade(&counters));
        counters
    }
}

/// The counters as they were read last.
#[derive(Debug)]
pub(super) struct Counters {
    tenant: Option<Tenant>,
    last: tokio::sync::Mutex<Option<(Instant, Option<Arc<str>>)>>,
}

impl Counters {
    /// As JSON; none if the store could not be read.
    pub(super) async fn read(&self, api: &Api, caller: &Caller) -> Option<Arc<str>> {
        self.share(async || {
            let tenant = self.tenant.clone();
            let read = api.read(caller, |reads| async move { reads.stats(tenant).await });
            let stats = tokio::time::timeout(STORE_TIMEOUT, read).await.ok().and_then(Result::ok);
            stats.map(|stats| json(&StatsView::of(&stats, api.engine.now())).into())
        })
        .await
    }

    /// What was read last, or what is read now if that was too long ago.
    async fn share(&self, read: impl AsyncFnOnce() -> Option<Arc<str>>) -> Option<Arc<str>> {
        // Held while the store is read: whoever asks meanwhile gets the same.
        let mut last = self.last.lock().await;
        if let Some((at, counted)) = &*last
            && at.elapsed() < MAX_AGE
        {
            return counted.clone();
        }
        let counted = read().await;
        *last = Some((Instant::now(), counted.clone()));
        counted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_the_store_is_read_once_a_second() {
        let all = AllCounters::default();
        let streams: Vec<_> = (0..500).map(|_| all.of(None)).collect();
        let reads = AtomicUsize::new(0);
        let read = async || {
            let number = reads.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            // The second one fails, which is shared too.
            (number != 2).then(|| number.to_string().into())
        };
        for wanted in [Some("1"), None, Some("3")] {
            let told = join_all(streams.iter().map(|counters| counters.share(read))).await;
            assert!(told.iter().all(|told| told.as_deref() == wanted), "{told:?}");
            tokio::time::sleep(MAX_AGE).await;
        }
        assert_eq!(reads.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn counters_are_forgotten_with_the_last_stream_that_shows_them() {
        let (all, tenant) = (AllCounters::default(), |name: &str| Some(name.parse().unwrap()));
        let (a, again) = (all.of(tenant("a")), all.of(tenant("a")));
        assert!(Arc::ptr_eq(&a, &again) && !Arc::ptr_eq(&a, &all.of(None)));
        drop((a, again));
        let _b = all.of(tenant("b"));
        assert_eq!(all.0.lock().unwrap().len(), 1);
    }
}
