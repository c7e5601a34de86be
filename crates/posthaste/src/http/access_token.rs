//! Who asks by an access token of the identity provider in place of an API key.

use std::sync::Arc;

use super::Api;
use super::problem::Result;
use crate::keys::{self, Caller};
use crate::tokens::{Refusal, Tokens, Verified};

impl Api {
    /// The caller of an access token; `None` if it is refused, whatever for, or if none is accepted here.
    pub(super) async fn find_by_token(&self, token: &str) -> Result<Option<Arc<Caller>>> {
        let Some(tokens) = self.tokens.as_deref().filter(|_| !keys::is_key(token)) else { return Ok(None) };
        let hash = keys::hash(token);
        if let Some(caller) = tokens.find(&hash, self.engine.now()) {
            return Ok(Some(caller));
        }
        match self.verify(tokens, token).await? {
            Ok(verified) => Ok(Some(tokens.remember(hash, &verified))),
            Err(refusal) => {
                tokens.refuse(refusal);
                Ok(None)
            }
        }
    }

    /// Verifies a token that was not seen before, or was refused.
    async fn verify(&self, tokens: &Tokens, token: &str) -> Result<Result<Verified, Refusal>> {
        let mut verified = tokens.verify(token, self.engine.now());
        if matches!(verified, Err(Refusal::Key)) {
            tokens.reread().await;
            verified = tokens.verify(token, self.engine.now());
        }
        // A token cannot bring a tenant about that a new key could not be for.
        if let Ok(good) = &verified
            && self.bad_tenant(good.tenant()).await?.is_some()
        {
            return Ok(Err(Refusal::Tenant));
        }
        Ok(verified)
    }
}
