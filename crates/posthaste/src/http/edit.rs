//! `POST /v1/dead-letters/{id}/edit-and-retry`: from the JSON of an edit to the copy that is sent in place of
//! a dead letter.
//!
//! What is left out stays, what is null is removed, and what is given is checked by the rules of a send.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Content, Notification, Priority};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::provider::pinned;
use posthaste_core::schema::TimeFromAcceptance;
use posthaste_core::time::Timestamp;
use posthaste_engine::vault::VaultError;
use posthaste_wire::webhook::check_headers;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{LARGEST_NOTIFICATION, Text, at, read};
use super::extract::{ActorOf, Authenticated, Id, IdempotencyKey, NoQuery};
use super::problem::{Kind, Problem, Result};
use super::send::{Mistakes, NewNotification, SendContext, read_body};
use super::sends::{Send, json};
use super::unique::{Unique, UniqueMaybeTexts};
use super::views::{Metadata, Status, WebhookHeaders};
use super::{Api, Shared};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(edit_and_retry))
}

/// A field of an edit.
#[derive(Default)]
enum Edit<T> {
    /// It is left out: what was sent before stays.
    #[default]
    Keep,
    /// It is null.
    Remove,
    Put(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Edit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Remove, Self::Put))
    }
}

impl<T> Edit<T> {
    /// What it makes of a field.
    fn of(&self, before: Option<&T>) -> Option<T>
    where
        T: Clone,
    {
        match self {
            Self::Keep => before.cloned(),
            Self::Remove => None,
            Self::Put(value) => Some(value.clone()),
        }
    }

    fn given(&self) -> Option<&T> {
        match self {
            Self::Keep | Self::Remove => None,
            Self::Put(value) => Some(value),
        }
    }

    const fn is_kept(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

/// What is changed before a dead letter is sent again. What is left out stays, null removes.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EditedNotification)]
struct EditedNotification<'t> {
    /// The address, URL, phone number or token.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 8192)]
    to: Edit<String>,
    /// Only together with `to`.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    user_id: Edit<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 998)]
    subject: Edit<String>,
    /// A text; for a webhook any JSON value, null included, which is sent as it is.
    #[serde(borrow, default, deserialize_with = "super::send::given")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<&'t RawValue>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    html: Edit<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    template: Edit<String>,
    #[serde(default)]
    #[schema(value_type = Option<Priority>)]
    priority: Edit<Priority>,
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    module: Edit<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    event_key: Edit<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    correlation_id: Edit<String>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<Metadata>)]
    metadata: Edit<&'t RawValue>,
    /// Each header by itself: what is left out stays, null removes one.
    #[serde(default)]
    #[schema(value_type = Option<WebhookHeaders>)]
    headers: Edit<UniqueMaybeTexts>,
    /// No attempt is made before this time.
    #[serde(default)]
    #[schema(value_type = Option<TimeFromAcceptance>)]
    not_before: Edit<Unique>,
    /// No attempt is made after this time. One that has expired needs a new one.
    #[serde(default)]
    #[schema(value_type = Option<TimeFromAcceptance>)]
    expires_at: Edit<Unique>,
    /// Instead of `expiresAt`: how long from now it expires.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1)]
    ttl_seconds: Edit<u64>,
    #[serde(default)]
    #[schema(value_type = Option<PolicyLayer>)]
    policy: Edit<Unique>,
    #[serde(default, deserialize_with = "super::send::given")]
    #[schema(ignore)]
    data: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "super::send::given")]
    #[schema(ignore)]
    attachments: Option<IgnoredAny>,
    /// null: the first one of the channel, at each attempt.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 64)]
    provider: Edit<String>,
}

/// An edited copy that was accepted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Replaced {
    /// The copy.
    notification_id: NotificationId,
    /// The original.
    edit_of: NotificationId,
    status: Status,
}

/// Sends an edited copy in place of a pending dead letter; its notification has failed then, `REPLACED`.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/edit-and-retry", operation_id = "editAndRetry", tag = "dead letters",
    params(("id" = DeadLetterId, Path),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "A repeat with the same body within 24 hours gets the same answer")),
    request_body = EditedNotification, security(("key" = ["operator"])),
    responses((status = 202, description = "The copy is accepted", body = Replaced,
        headers(("idempotency-replayed", description = "`true` if it is the answer to an earlier request"))),
        (status = 404, description = ""), (status = 409, description = "It is resolved already or has expired, or the key was used with another body")))]
pub(crate) async fn edit_and_retry(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    IdempotencyKey(key): IdempotencyKey,
    Id(id): Id<DeadLetterId>,
    text: Text<LARGEST_NOTIFICATION>,
) -> Result<Response> {
    let dead = api.reads(&caller).dead_letter(id).await?;
    let dead = dead.ok_or_else(|| Id::<DeadLetterId>::missing(id))?;
    let send = Send::of(&api, &caller, &format!("/v1/dead-letters/{id}/edit-and-retry"), key, &text);
    let original = Original::of(&api, &dead.notification).await?;
    let copy = match send.context().edit(api.engine.notification_id(), &text, &original) {
        Ok(copy) => copy,
        Err(problem) => return send.repeated().await?.ok_or(problem),
    };
    let replaced =
        Replaced { notification_id: copy.id, edit_of: dead.notification.id, status: Status::Queued };
    let answer = json(&replaced);
    let result = api.engine.edit_and_retry(id, copy, send.idempotency(&answer), &actor).await;
    match result.map_err(Problem::from) {
        Ok(accepted) => send.answered(accepted, answer),
        // A repeat finds the dead letter resolved by the first request.
        Err(problem) if !problem.kind.shown().0.is_server_error() => send.repeated().await?.ok_or(problem),
        Err(problem) => Err(problem),
    }
}

/// What is edited.
struct Original {
    /// With the values of its sensitive headers.
    notification: Notification,
    /// Its headers as the caller saw them.
    shown: BTreeMap<String, String>,
    /// Why its sealed headers can never be opened again, if so.
    lost: Option<VaultError>,
}

impl Original {
    async fn of(api: &Api, one: &Notification) -> Result<Self> {
        let shown = api.engine.shown_headers(&one.content);
        match api.engine.with_open_headers(one).await {
            Ok(notification) => Ok(Self { notification, shown, lost: None }),
            Err(error) if error.may_pass() => Err(error.into()),
            Err(error) => {
                let content = Content { sealed_headers: None, ..one.content.clone() };
                let notification = Notification { content, ..one.clone() };
                Ok(Self { notification, shown, lost: Some(error) })
            }
        }
    }

    /// The first header that would stay as it was and cannot be opened, and why.
    fn lost_header(&self, edit: &Edit<UniqueMaybeTexts>) -> Option<(&str, &VaultError)> {
        let lost = self.lost.as_ref()?;
        let is_given = |name: &str| match edit {
            Edit::Keep => false,
            Edit::Remove => true,
            Edit::Put(UniqueMaybeTexts(given)) => {
                let text = given.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
                text.is_some_and(|(_, text)| text.as_ref() != self.shown.get(name))
            }
        };
        let mut sealed =
            self.shown.keys().filter(|name| !self.notification.content.headers.contains_key(*name));
        sealed.find(|name| !is_given(name)).map(|name| (name.as_str(), lost))
    }
}

impl SendContext<'_> {
    /// Reads an edit, and makes the copy.
    fn edit(&self, id: NotificationId, text: &[u8], original: &Original) -> Result<Notification> {
        let lost = original;
        let Original { notification: original, shown, .. } = original;
        let edit: EditedNotification<'_> = read(text)?;
        let mut mistakes = Mistakes::default();
        let new = edit.as_send(original);
        // A module that is kept is the one of whoever sent it.
        let module = match &edit.module {
            Edit::Keep => original.content.module.clone(),
            Edit::Remove => self.module(None)?,
            Edit::Put(named) => self.module(Some(named))?,
        };
        new.check_lines(&mut mistakes);
        let (not_before, expires_at) = mistakes.take(self.edited_times(&edit, original)).unwrap_or_default();
        let body = match edit.body {
            Some(_) => mistakes.take(read_body(&new)),
            None => Some(original.content.body.clone()),
        };
        let policy = match &edit.policy {
            Edit::Keep => original.content.policy.clone(),
            Edit::Remove => None,
            Edit::Put(Unique(value)) => mistakes.take(self.policy(value)),
        };
        let destination = match (&edit.to, &edit.user_id, &edit.provider) {
            (Edit::Keep, Edit::Keep | Edit::Remove, Edit::Keep) => Some(original.destination.clone()),
            _ => mistakes.take(self.recipient(&new)).map(Into::into),
        };
        let headers = edited_headers(&edit.headers, &original.content.headers, shown);
        if let Some((name, why)) = lost.lost_header(&edit.headers) {
            let detail = format!(
                "the value of `{name}` cannot be opened ({why}): give a new one, or null to remove it"
            );
            mistakes.add("/headers", detail);
        }
        // Given and kept ones together: both are sent.
        if edit.headers.given().is_some()
            && let Err(bad) = check_headers(&headers)
        {
            mistakes.add(&format!("/headers{}", at(&bad.name)), bad.to_string());
        }
        let (Some(destination), Some(body), true) = (destination, body, mistakes.is_empty()) else {
            return Err(mistakes.problem());
        };
        let copy = Notification {
            id,
            tenant: original.tenant.clone(),
            channel: original.channel,
            destination,
            to: new.to.unwrap_or_else(|| original.to.clone()),
            priority: new.priority.unwrap_or_default(),
            template: new.template,
            subject: new.subject,
            event_key: new.event_key,
            correlation_id: new.correlation_id,
            not_before,
            expires_at,
            content: Content {
                body,
                html: new.html,
                headers,
                sealed_headers: None,
                metadata: edited_metadata(&edit.metadata, original),
                user_id: new.user_id,
                module,
                policy,
                edit_of: Some(original.id),
            },
        };
        fits(&copy, original)?;
        Ok(copy)
    }

    /// When the copy may be sent. A time that is left out stays, even if it has passed: whether that is too
    /// late is decided where the copy is stored.
    fn edited_times(
        &self,
        edit: &EditedNotification<'_>,
        original: &Notification,
    ) -> Result<(Option<Timestamp>, Option<Timestamp>)> {
        let given = NewNotification {
            not_before: edit.not_before.given().cloned(),
            expires_at: edit.expires_at.given().cloned(),
            ttl_seconds: edit.ttl_seconds.given().copied(),
            ..NewNotification::default()
        };
        let (not_before, expires_at) = self.times(&given)?;
        let not_before = if edit.not_before.is_kept() { original.not_before } else { not_before };
        let expires_at = match (&edit.expires_at, &edit.ttl_seconds) {
            (Edit::Keep, Edit::Keep | Edit::Remove) => original.expires_at,
            _ => expires_at,
        };
        match (not_before, expires_at) {
            (Some(start), Some(end)) if end <= start && start > self.now => {
                let detail = format!("it would expire ({end}) before its first attempt (notBefore {start})");
                Err(Problem::at("/notBefore", detail))
            }
            times => Ok(times),
        }
    }
}

impl<'t> EditedNotification<'t> {
    /// The send that the edited fields make, with what stays of the original where the rules look at both.
    fn as_send(&self, original: &Notification) -> NewNotification<'t> {
        // A new user without an address means the contact of the user, not the address of the one before.
        let stays = matches!(self.user_id, Edit::Keep | Edit::Remove);
        NewNotification {
            channel: Some(original.channel),
            to: self.to.of(stays.then_some(&original.to)),
            user_id: self.user_id.of(original.content.user_id.as_ref()),
            subject: self.subject.of(original.subject.as_ref()),
            body: self.body,
            html: self.html.of(original.content.html.as_ref()),
            template: self.template.of(original.template.as_ref()),
            priority: self.priority.of(Some(&original.priority)),
            module: self.module.of(original.content.module.as_ref()),
            event_key: self.event_key.of(original.event_key.as_ref()),
            correlation_id: self.correlation_id.of(original.correlation_id.as_ref()),
            metadata: self.metadata.given().copied(),
            data: self.data,
            attachments: self.attachments,
            provider: self.provider.of(pinned(&original.destination).map(str::to_owned).as_ref()),
            ..NewNotification::default()
        }
    }
}

/// A masked value that comes back as it was shown stays what it stands for.
fn edited_headers(
    edit: &Edit<UniqueMaybeTexts>,
    before: &BTreeMap<String, String>,
    shown: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let UniqueMaybeTexts(given) = match edit {
        Edit::Keep => return before.clone(),
        Edit::Remove => return BTreeMap::new(),
        Edit::Put(given) => given,
    };
    // The names of headers do not differ by case.
    let given_of = |name: &str| given.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    let is_mask = |name: &str| {
        let text = given_of(name).and_then(|(_, text)| text.as_ref());
        text.is_some() && text == shown.get(name) && text != before.get(name)
    };
    let is_given = |name: &str| given_of(name).is_some() && !is_mask(name);
    let kept =
        before.iter().filter(|(name, _)| !is_given(name)).map(|(name, text)| (name.clone(), text.clone()));
    let stays = |name: &str| before.keys().any(|kept| kept.eq_ignore_ascii_case(name) && is_mask(kept));
    let new = given.iter().filter(|(name, _)| !stays(name));
    kept.chain(new.filter_map(|(name, text)| Some((name.clone(), text.clone()?)))).collect()
}

fn edited_metadata(edit: &Edit<&RawValue>, original: &Notification) -> Option<String> {
    match edit {
        Edit::Keep => original.content.metadata.clone(),
        Edit::Remove => None,
        Edit::Put(value) => Some(value.get().to_owned()),
    }
}

/// What stays and what is given may together be more than a send may have.
fn fits(copy: &Notification, original: &Notification) -> Result<()> {
    if copy.bytes() > LARGEST_NOTIFICATION && copy.bytes() > original.bytes() {
        let detail = format!("the edited notification is larger than {} KiB", LARGEST_NOTIFICATION / 1024);
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    Ok(())
}
