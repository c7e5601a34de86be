//! The headers of notifications that hold secrets: sealed when a notification is taken in, opened when it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::notification::{Content, Notification};
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::sealed::NotOpened;
use posthaste_core::sensitive::{Redactor, SealedHeaders, SecretHeaders};

use super::{Vault, VaultError};
use crate::engine::Engine;
use crate::store::StoreError;

/// How often a store that does not serve is asked for the key of one attempt, and the pause between. What is given back then is
/// claimed again.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// The secrets that go with one notification.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The headers that were sealed. None if none were.
    pub headers: Option<Arc<SecretHeaders>>,
}

impl Vault<'_> {
    /// Whether a notification has headers that are to be sealed.
    pub(crate) fn has_to_seal(&self, one: &Notification) -> bool {
        let headers = &one.content.headers;
        !headers.is_empty() && self.shared.settings.vault.sensitive.any_of(headers) && self.is_on()
    }

    /// Takes the headers that hold secrets out of a new notification and seals them. While the vault is off they stay.
    pub(crate) async fn seal_headers(&self, one: &mut Notification) -> Result<(), VaultError> {
        if !self.has_to_seal(one) {
            return Ok(());
        }
        let sensitive = &self.shared.settings.vault.sensitive;
        let mut headers = one.content.headers.clone();
        let secret = sensitive.split(&mut headers);
        let id = one.id.to_string();
        let place = (id.as_str(), SealedHeaders::FIELD);
        if let Some(text) = self.seal(&one.tenant, place, secret.to_json().as_bytes()).await? {
            one.content.headers = headers;
            one.content.sealed_headers = Some(SealedHeaders { shown: secret.shown(), text });
        }
        Ok(())
    }

    /// Opens the headers of a notification that were sealed.
    pub async fn open_headers(&self, one: &Notification) -> Result<Opened, VaultError> {
        let Some(sealed) = &one.content.sealed_headers else { return Ok(Opened::default()) };
        let id = one.id.to_string();
        let opened = self.open(&one.tenant, (&id, SealedHeaders::FIELD), &sealed.text).await?;
        let headers = SecretHeaders::from_json(&opened);
        let headers =
            headers.ok_or(VaultError::NotOpened { what: "what is sealed", why: NotOpened::Form })?;
        Ok(Opened { headers: Some(Arc::new(headers)) })
    }

    /// What an attempt needs to be sent. None if the store does not serve, or the node stops: then it is not sent now. The reply is
    /// the outcome of an attempt that can never be made.
    pub(crate) async fn for_attempt(&self, one: &Notification) -> Result<Option<Opened>, Reply> {
        if one.content.sealed_headers.is_none() {
            return Ok(Some(Opened::default()));
        }
        for _ in 0..LOOKS {
            match self.open_headers(one).await {
                Ok(opened) => return Ok(Some(opened)),
                Err(VaultError::Store(error @ StoreError::Unavailable { .. })) => {
                    self.shared.store_failed("open sealed headers", &error);
                }
                Err(never) => return Err(Reply::fault(Fault::Unsendable, unsendable(&never))),
            }
            tokio::select! {
                biased;
                () = self.shared.draining() => return Ok(None),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        Ok(None)
    }

    /// What must not be told of what a receiver sends back. None if the notification has no secrets.
    pub(crate) fn redactor(&self, one: &Notification, opened: &Opened) -> Option<Redactor> {
        let sensitive = &self.shared.settings.vault.sensitive;
        let headers = &one.content.headers;
        if opened.headers.is_none() && (headers.is_empty() || !sensitive.any_of(headers)) {
            return None;
        }
        let plain = headers.iter().filter(|(name, _)| sensitive.contains(name));
        let sealed = opened.headers.iter().flat_map(|headers| headers.reveal());
        Some(Redactor::of(plain.chain(sealed).map(|(_, value)| value.as_str())))
    }
}

/// The error with its cause, in one line.
fn unsendable(error: &VaultError) -> String {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(" ({cause})"));
    format!(
        "its sealed headers cannot be opened: {error}{cause}; once that is mended, requeue it, or use edit and retry with \
         the headers given anew"
    )
}

impl Engine {
    /// A notification with its sealed headers among the others, as it was sent to us. It must not be shown or stored.
    pub async fn with_open_headers(&self, one: &Notification) -> Result<Notification, VaultError> {
        let opened = self.vault().open_headers(one).await?;
        let mut one = one.clone();
        one.content.sealed_headers = None;
        one.content.headers.extend(opened.headers.iter().flat_map(|headers| headers.reveal().clone()));
        Ok(one)
    }

    /// The headers of a notification as everybody may see them.
    pub fn shown_headers(&self, content: &Content) -> BTreeMap<String, String> {
        self.shared.settings.vault.sensitive.shown(content)
    }
}
