//! What a node knows to sign with: those of the tenants that sent last, in two halves, of which the older one is forgotten.

use std::collections::HashMap;
use std::time::Duration;

use posthaste_core::notification::Tenant;
use tokio::time::Instant;

use super::Signer;

/// The most tenants in one half.
const HALF: usize = 5_000;
/// How old secrets may be that sign without being read again.
const FRESH: Duration = Duration::from_secs(10);
/// The same where nothing signed, because nothing could be encrypted yet.
const FRESH_NOTHING: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Cache {
    young: HashMap<Tenant, Known>,
    old: HashMap<Tenant, Known>,
}

struct Known {
    signer: Signer,
    read_at: Instant,
    /// Whether they signed something since they were read.
    is_used: bool,
}

impl Cache {
    /// What signs for a tenant, if it is known, and whether that is fresh.
    pub(super) fn take(&mut self, tenant: &Tenant, now: Instant) -> Option<(Signer, bool)> {
        if !self.young.contains_key(tenant) {
            let (tenant, known) = self.old.remove_entry(tenant)?;
            self.insert(tenant, known);
        }
        let known = self.young.get_mut(tenant)?;
        known.is_used = true;
        let fresh = if known.signer.is_some() { FRESH } else { FRESH_NOTHING };
        Some((known.signer.clone(), now.saturating_duration_since(known.read_at) < fresh))
    }

    /// Remembers what was read by a question of that time. An older answer does not replace a newer one.
    pub(super) fn put(&mut self, tenant: &Tenant, signer: Signer, read_at: Instant) {
        let last = self.young.get(tenant).or_else(|| self.old.get(tenant));
        if last.is_some_and(|last| read_at < last.read_at) {
            return;
        }
        self.old.remove(tenant);
        self.insert(tenant.clone(), Known { signer, read_at, is_used: false });
    }

    fn insert(&mut self, tenant: Tenant, known: Known) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tenant, known);
    }

    /// The tenants whose secrets signed something since they were read.
    pub(super) fn used(&self) -> Vec<Tenant> {
        let all = self.young.iter().chain(&self.old);
        all.filter(|(_, known)| known.is_used).map(|(tenant, _)| tenant.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posthaste_core::signature::{SigningSecret, SigningSecrets};
    use posthaste_core::time::Timestamp;

    use super::*;

    fn secrets(byte: u8) -> Signer {
        let secret = SigningSecret::new(&[byte; 32]).unwrap();
        Some(Arc::new(SigningSecrets::first(secret, Timestamp::EPOCH)))
    }

    fn tenant(number: usize) -> Tenant {
        format!("t{number}").parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_told_so_and_an_older_answer_is_no_news() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        assert!(cache.take(&tenant(1), now).is_none());
        cache.put(&tenant(1), secrets(1), now);
        assert_eq!(cache.used(), []);
        assert_eq!(cache.take(&tenant(1), now + FRESH / 2), Some((secrets(1), true)));
        assert_eq!(cache.used(), [tenant(1)]);
        assert_eq!(cache.take(&tenant(1), now + FRESH), Some((secrets(1), false)));
        cache.put(&tenant(1), secrets(2), now + FRESH);
        cache.put(&tenant(1), secrets(3), now + FRESH / 2);
        assert_eq!(cache.used(), []);
        assert_eq!(cache.take(&tenant(1), now + FRESH), Some((secrets(2), true)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_tenants_that_sent_last_are_kept_and_the_others_forgotten() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for number in 0..3 * HALF {
            cache.put(&tenant(number), secrets(1), now);
            assert!(cache.take(&tenant(0), now).is_some(), "{number}");
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * HALF);
        assert!(cache.take(&tenant(3 * HALF - 1), now).is_some());
        assert!(cache.take(&tenant(1), now).is_none());
    }
}
