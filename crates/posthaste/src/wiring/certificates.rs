//! Client certificates are read again while the server runs, so that a new one needs no restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::http::ClientCertificate;
use posthaste_wire::webhook::WebhookChannel;
use tokio::sync::watch;

use crate::clock::SystemClock;
use crate::config::ClientCertificates;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_mins(1);
/// How often the end of a certificate is told.
const TELL_EVERY: Duration = Duration::from_hours(24);

/// Shows what has changed, until the node stops.
pub(super) async fn keep_current(
    sources: ClientCertificates,
    webhooks: Arc<WebhookChannel>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut known = Known::new(sources);
    loop {
        known.tell_ends(SystemClock.now());
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        // A file may stand on a network that does not answer.
        let read = tokio::task::spawn_blocking(move || {
            let changed = known.read();
            (known, changed)
        });
        let Ok((read, changed)) = read.await else { return };
        known = read;
        for (origin, certificate) in changed {
            match webhooks.show_certificate(origin.clone(), &certificate) {
                Ok(()) => tracing::info!(%origin, "the client certificate was replaced"),
                Err(error) => tracing::warn!(%origin, %error, "the client certificate cannot be replaced"),
            }
        }
    }
}

/// What is shown, and what was told of it.
struct Known {
    sources: ClientCertificates,
    /// Why the last read of an origin failed.
    troubles: BTreeMap<String, String>,
    told: BTreeMap<String, Timestamp>,
}

impl Known {
    fn new(sources: ClientCertificates) -> Self {
        Self { sources, troubles: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// Reads all of them, and returns those that have changed. One that cannot be read stays as it was, and that is told once.
    fn read(&mut self) -> Vec<(String, ClientCertificate)> {
        let mut changed = vec![];
        for (origin, source) in &mut self.sources {
            match source.reload() {
                Ok(certificate) => {
                    self.troubles.remove(origin);
                    if source.read != certificate {
                        source.read = certificate.clone();
                        self.told.remove(origin);
                        changed.push((origin.clone(), certificate));
                    }
                }
                Err(reason) => {
                    if self.troubles.insert(origin.clone(), reason.clone()).as_ref() != Some(&reason) {
                        tracing::warn!(%origin, reason, "the client certificate cannot be read again and stays as it was");
                    }
                }
            }
        }
        changed
    }

    /// Tells which certificates have ended or will soon, once a day.
    fn tell_ends(&mut self, now: Timestamp) {
        for (origin, source) in &self.sources {
            let was_told = self.told.get(origin).is_some_and(|told| now.since(*told) < TELL_EVERY);
            if let (Some(trouble), false) = (source.end_is_near(now), was_told) {
                tracing::warn!(%origin, "the client certificate {trouble}");
                self.told.insert(origin.clone(), now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::config::CertificateSource;

    fn pem(name: &str) -> String {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        certificate.pem() + &key.serialize_pem()
    }

    #[test]
    fn a_file_that_changed_is_shown_once_and_one_that_is_damaged_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("client.pem");
        fs::write(&path, pem("a.test")).unwrap();
        let source = CertificateSource::load(path.display().to_string(), None).unwrap();
        let mut known = Known::new([("https://a.test:443".to_owned(), source)].into());
        assert_eq!(known.read(), []);
        fs::write(&path, "half of a file").unwrap();
        assert_eq!(known.read(), []);
        assert_eq!(known.troubles.len(), 1);
        let second = pem("b.test");
        fs::write(&path, &second).unwrap();
        let wanted = ClientCertificate::read(second.as_bytes(), second.as_bytes()).unwrap();
        assert_eq!(known.read(), [("https://a.test:443".to_owned(), wanted)]);
        assert_eq!(known.read(), []);
        assert!(known.troubles.is_empty());
    }
}
