//! What people do with the secret of a tenant: look at it, and rotate it. Each leaves an audit row, before the secret is shown.

use std::sync::Arc;

use posthaste_core::notification::Tenant;
use posthaste_core::record::{Expected, Record};
use posthaste_core::signature::{SigningSecret, SigningSecrets};
use posthaste_core::time::Timestamp;

use super::{MAX_TRIES, change};
use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::journal;
use crate::store::{Audit, Result, StoreError};
use crate::vault::VaultError;

/// What an audit row about a signing secret names.
const TARGET: &str = "signing-secret";

/// A secret that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningView {
    /// The newest one.
    pub secret: SigningSecret,
    /// How it stands.
    pub standing: SigningStanding,
}

/// How the secret of a tenant stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigningStanding {
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when the one before it signs, too; none if it does not.
    pub previous_until: Option<Timestamp>,
}

impl SigningStanding {
    fn of(secrets: &SigningSecrets, now: Timestamp) -> Self {
        Self { created_at: secrets.created_at(), previous_until: secrets.previous_until(now) }
    }
}

/// Why a secret is not shown or not rotated.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// Nothing can be encrypted.
    #[error("webhooks are not signed: there is no master key to encrypt their secrets with")]
    NoMasterKey,
    /// Not every live node can open what is encrypted.
    #[error("a live node is of an older version, or does not know the master key")]
    NotYet,
    /// It changed each time it was looked at.
    #[error("the secret keeps changing; ask again")]
    Busy,
    /// The store could not serve, or holds what makes no sense.
    #[error("the secret could not be read or stored")]
    Store(#[from] StoreError),
    /// What is kept cannot be opened here.
    #[error("the secret cannot be opened")]
    Vault(#[source] VaultError),
}

impl From<VaultError> for SigningError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::NoKey => Self::NoMasterKey,
            VaultError::Store(error) => Self::Store(error),
            error => Self::Vault(error),
        }
    }
}

type Answer<T> = std::result::Result<T, SigningError>;

/// What a person does with the secret of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Show,
    Rotate,
}

impl Deed {
    const fn action(self) -> &'static str {
        match self {
            Self::Show => "show-signing-secret",
            Self::Rotate => "rotate-signing-secret",
        }
    }
}

impl Engine {
    /// The secret of a tenant, which is made if there is none. The look is audited.
    pub async fn signing_secret(&self, tenant: Tenant, actor: &Actor) -> Answer<SigningView> {
        self.with_secrets(Deed::Show, tenant, actor).await
    }

    /// Gives a tenant a new secret. The one before it signs for a day more.
    pub async fn rotate_signing_secret(&self, tenant: Tenant, actor: &Actor) -> Answer<SigningView> {
        self.with_secrets(Deed::Rotate, tenant, actor).await
    }

    /// How the secret of a tenant stands, without it; none if it was not used yet.
    pub async fn signing_standing(&self, tenant: &Tenant) -> Answer<Option<SigningStanding>> {
        if !self.shared.vault().has_key() {
            return Err(SigningError::NoMasterKey);
        }
        let Some(record) = self.shared.kept_secret(tenant).await? else { return Ok(None) };
        let secrets = self.shared.opened(tenant, &record).await?;
        Ok(Some(SigningStanding::of(&secrets, self.now())))
    }

    async fn with_secrets(&self, deed: Deed, tenant: Tenant, actor: &Actor) -> Answer<SigningView> {
        let (shared, now) = (self.shared.clone(), self.now());
        let audit = Audit { tenant: Some(tenant.clone()), ..self.audit(actor, deed.action(), TARGET) };
        let secrets =
            self.to_its_end(async move { Ok(shared.done(deed, &tenant, audit, now).await) }).await??;
        journal::set(deed.action(), TARGET, actor);
        Ok(SigningView { secret: secrets.current().clone(), standing: SigningStanding::of(&secrets, now) })
    }
}

impl Shared {
    /// Shows or rotates the secret and writes the audit row, with another try if the record was changed meanwhile. A look
    /// increments the number of the record, because an audit row is only written together with a change.
    async fn done(
        &self,
        deed: Deed,
        tenant: &Tenant,
        audit: Audit,
        now: Timestamp,
    ) -> Answer<SigningSecrets> {
        for _ in 0..MAX_TRIES {
            let new = self.new_secret().ok_or(SigningError::NoMasterKey)?;
            let (secrets, expected, number) = match self.kept_secret(tenant).await? {
                None => (SigningSecrets::first(new, now), Expected::Absent, 0),
                Some(record) => {
                    let secrets = match (deed, self.opened(tenant, &record).await) {
                        (Deed::Show, kept) => kept?,
                        (Deed::Rotate, Ok(kept)) => kept.rotated(new, now),
                        (Deed::Rotate, Err(error)) if error.may_pass() => return Err(error.into()),
                        // What cannot be opened any more cannot sign, so nothing is lost with it.
                        (Deed::Rotate, Err(_)) => SigningSecrets::first(new, now),
                    };
                    (secrets, Expected::Version(record.version), record.number.saturating_add(1))
                }
            };
            let value = self.sealed(tenant, &secrets).await?.ok_or(SigningError::NotYet)?;
            let put = change(tenant, value, expected, number);
            let made = self.store.put_records(vec![put], Some(audit.clone()), now).await?;
            if made.iter().any(Option::is_some) {
                // What was read meanwhile is older.
                self.signing.cache().put(tenant, Some(Arc::new(secrets.clone())), self.node.instant());
                return Ok(secrets);
            }
        }
        Err(SigningError::Busy)
    }

    async fn kept_secret(&self, tenant: &Tenant) -> Result<Option<Record>> {
        Ok(self.store.records(vec![SigningSecrets::key(tenant)]).await?.pop())
    }
}
