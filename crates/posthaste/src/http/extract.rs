//! What handlers take from a request, beside its body.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use posthaste_core::id::{DeadLetterId, DestinationId, GroupId, KeyId, NotificationId, OperationId};
use posthaste_engine::acts::Actor;

use super::Shared;
use super::admission::RequestContext;
use super::client_address::client_address;
use super::problem::{Kind, Problem, Result};
use super::query::Query;
use crate::keys::Caller;

/// The most characters of an idempotency key.
const LONGEST_KEY: usize = 255;

/// The caller, whose key has a role that the route needs.
pub(crate) struct Authenticated(pub(crate) Arc<Caller>);

impl FromRequestParts<Shared> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _: &Shared) -> Result<Self> {
        let caller = head.extensions.get::<RequestContext>().and_then(|asked| asked.caller.clone());
        caller.map(Self).ok_or_else(|| Problem::new(Kind::Internal, "this route was declared without a key"))
    }
}

/// Who acts, for the audit: the caller, its key and its address.
pub(crate) struct ActorOf(pub(crate) Actor);

impl FromRequestParts<Shared> for ActorOf {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, api: &Shared) -> Result<Self> {
        let Authenticated(caller) = Authenticated::from_request_parts(head, api).await?;
        let peer = head.extensions.get::<RequestContext>().map(|asked| asked.peer);
        let address = peer.map(|peer| client_address(peer, &head.headers, &api.trusted_proxies).to_string());
        Ok(Self(Actor { address, ..caller.actor() }))
    }
}

/// A route without parameters: a parameter that is given is refused, because it would have no effect.
pub(crate) struct NoQuery;

impl FromRequestParts<Shared> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, api: &Shared) -> Result<Self> {
        if head.uri.query().is_some() {
            Query::from_request_parts(head, api).await?.finish()?;
        }
        Ok(Self)
    }
}

/// What stands in the path in place of the braces.
pub(crate) struct InPath(pub(crate) String);

impl FromRequestParts<Shared> for InPath {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, api: &Shared) -> Result<Self> {
        let unreadable = |_| Problem::not_found("the address is not valid UTF-8");
        let all = RawPathParams::from_request_parts(head, api).await.map_err(unreadable)?;
        let first = all.iter().next().map(|(_, value)| value.to_owned());
        first.map(Self).ok_or_else(|| Problem::new(Kind::Internal, "this route was declared without an id"))
    }
}

/// An id whose kind has a name for people.
pub(crate) trait NamedId: FromStr {
    const NAME: &str;
}

impl NamedId for NotificationId {
    const NAME: &str = "notification";
}

impl NamedId for DeadLetterId {
    const NAME: &str = "dead letter";
}

impl NamedId for GroupId {
    const NAME: &str = "failure group";
}

impl NamedId for OperationId {
    const NAME: &str = "operation";
}

impl NamedId for DestinationId {
    const NAME: &str = "destination";
}

impl NamedId for KeyId {
    const NAME: &str = "key";
}

/// The id in the path. An invalid one is reported as not found.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: NamedId> Id<T> {
    /// There is nothing with that id, as far as the caller can see.
    pub(crate) fn missing(id: impl std::fmt::Display) -> Problem {
        Problem::not_found(format!("there is no {} {id}", T::NAME))
    }
}

impl<T: NamedId + Send> FromRequestParts<Shared> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, api: &Shared) -> Result<Self> {
        let InPath(text) = InPath::from_request_parts(head, api).await?;
        text.parse().map(Self).map_err(|_| Self::missing(text))
    }
}

/// The header `Idempotency-Key`, if there is one. Two of them are refused, because either could be meant.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl FromRequestParts<Shared> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _: &Shared) -> Result<Self> {
        let bad = |detail: String| Problem::parameter("Idempotency-Key", detail);
        let mut given = head.headers.get_all("idempotency-key").iter();
        let Some(first) = given.next() else { return Ok(Self(None)) };
        if given.next().is_some() {
            return Err(bad("the header Idempotency-Key is given twice".to_owned()));
        }
        let key = first.to_str().ok().map(str::trim).filter(|key| (1..=LONGEST_KEY).contains(&key.len()));
        key.map(|key| Self(Some(key.to_owned()))).ok_or_else(|| {
            bad(format!("the header Idempotency-Key must have 1 to {LONGEST_KEY} visible ASCII characters"))
        })
    }
}
