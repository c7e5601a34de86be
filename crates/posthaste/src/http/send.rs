//! From the JSON of a send to a notification: every rule of the door in one place. What is refused is not stored.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::fields::excerpt;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification, Priority, Tenant};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::time::Timestamp;
use posthaste_engine::policies::Policies;
use posthaste_wire::guard::{Guard, RefusedUrl};
use posthaste_wire::webhook::check_headers;
use serde_json::Value;
use serde_json::value::RawValue;

use super::object::{Object, at};
use super::problem::{Kind, Problem, Result};
use super::unique::Unique;

/// The most bytes of a name that a sender gives.
const LONGEST_NAME: usize = 255;
/// The most bytes of a recipient's address.
const LONGEST_ADDRESS: usize = 8 * 1024;
/// The most bytes of a subject.
const LONGEST_SUBJECT: usize = 998;
/// The most bytes of `metadata`.
const LONGEST_METADATA: usize = 16 * 1024;

/// Whose notification it becomes, when, and by which rules.
pub(super) struct Door<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) guard: &'a Guard,
    pub(super) policies: &'a Policies,
    pub(super) now: Timestamp,
}

impl Door<'_> {
    /// Reads what is to be sent.
    pub(super) fn read(&self, id: NotificationId, text: &[u8]) -> Result<Notification> {
        let mut object = Object::read(text)?;
        let channel = object.text("channel", 64)?;
        let to = object.line("to", LONGEST_ADDRESS)?;
        let user_id = object.line("userId", LONGEST_NAME)?;
        let template = object.line("template", LONGEST_NAME)?;
        let (not_before, expires_at) = self.times(&mut object)?;
        let given_body = object.take_any("body");
        let html = object.text("html", usize::MAX)?;
        let headers = headers(&mut object)?;
        let metadata = metadata(&mut object)?;
        let module = object.line("module", LONGEST_NAME)?;
        let policy = self.policy(&mut object)?;
        let priority = object.typed::<Priority>("priority", "one of critical, high, normal, low")?;
        let subject = object.line("subject", LONGEST_SUBJECT)?;
        let event_key = object.line("eventKey", LONGEST_NAME)?;
        let correlation_id = object.line("correlationId", LONGEST_NAME)?;
        not_built_yet(&mut object)?;
        // Before anything is called missing: a name that is misspelt is told as such.
        object.finish()?;
        let channel = read_channel(channel)?;
        let body = read_body(given_body, channel, template.as_deref())?;
        let to = recipient(to, user_id.as_deref())?;
        let destination = self.destination(channel, &to)?;
        check_headers(&headers)
            .map_err(|bad| Problem::at(format!("/headers{}", at(&bad.name)), bad.to_string()))?;
        Ok(Notification {
            id,
            tenant: self.tenant.clone(),
            channel,
            destination: destination.into(),
            to,
            priority: priority.unwrap_or_default(),
            template,
            subject,
            event_key,
            correlation_id,
            not_before,
            expires_at,
            content: Content { body, html, headers, metadata, user_id, module, policy },
        })
    }

    fn times(&self, object: &mut Object<'_>) -> Result<(Option<Timestamp>, Option<Timestamp>)> {
        let not_before = object.time("notBefore")?;
        let expires_at = object.time("expiresAt")?;
        let ttl = object.typed::<u64>("ttlSeconds", "a whole number of seconds")?;
        let expires_at = match (expires_at, ttl) {
            (Some(_), Some(_)) => {
                return Err(Problem::at("/ttlSeconds", "give expiresAt or ttlSeconds, not both"));
            }
            (None, Some(0)) => return Err(Problem::at("/ttlSeconds", "ttlSeconds must be at least 1")),
            (None, Some(seconds)) => Some(self.now.later(Duration::from_secs(seconds))),
            (Some(at), None) if at <= self.now => {
                return Err(Problem::at(
                    "/expiresAt",
                    format!("expiresAt {at} has passed; it is {}", self.now),
                ));
            }
            (given, None) => given,
        };
        if let (Some(start), Some(end)) = (not_before, expires_at)
            && end <= start
        {
            let detail = format!("it would expire ({end}) before its first attempt (notBefore {start})");
            return Err(Problem::at("/notBefore", detail));
        }
        Ok((not_before, expires_at))
    }

    fn policy(&self, object: &mut Object<'_>) -> Result<Option<PolicyLayer>> {
        let Some(value) = once(object, "policy")? else { return Ok(None) };
        let layer = PolicyLayer::from_json(&value)
            .and_then(|layer| self.policies.check_message(&layer).map(|()| layer));
        layer.map(Some).map_err(|bad| bad.under("policy").into())
    }

    fn destination(&self, channel: Channel, to: &str) -> Result<String> {
        match channel {
            Channel::Webhook => match self.guard.check_url(to) {
                Ok(target) => Ok(target.destination),
                Err(RefusedUrl::Forbidden(forbidden)) => {
                    let detail = format!(
                        "{forbidden}; an operator can allow it with security.allow_subnets in the configuration"
                    );
                    Err(Problem::new(Kind::DestinationForbidden, detail).pointing("/to"))
                }
                Err(RefusedUrl::Bad(bad)) => Err(Problem::at("/to", bad.to_string())),
            },
            Channel::Email
            | Channel::Sms
            | Channel::Whatsapp
            | Channel::Telegram
            | Channel::Slack
            | Channel::Discord
            | Channel::Teams
            | Channel::Push
            | Channel::Inapp => {
                let detail = format!(
                    "no provider for the channel `{channel}` is built into this version yet; use `webhook`"
                );
                Err(Problem::new(Kind::ChannelUnavailable, detail).pointing("/channel"))
            }
        }
    }
}

fn read_channel(given: Option<String>) -> Result<Channel> {
    let given = given.ok_or_else(|| Problem::at("/channel", "channel is missing; `webhook` for example"))?;
    given.parse().map_err(|error| Problem::at("/channel", format!("{error}")))
}

fn recipient(to: Option<String>, user_id: Option<&str>) -> Result<String> {
    match (to, user_id) {
        (Some(to), _) => Ok(to),
        (None, Some(user)) => {
            let detail =
                format!("the user `{user}` has no known contact for this channel: give `to` as well");
            Err(Problem::new(Kind::RecipientUnknown, detail).pointing("/userId"))
        }
        (None, None) => Err(Problem::at("/to", "to is missing: the address, URL, phone number or token")),
    }
}

/// A text is sent as text; any other JSON value goes out just as it came in, which only a webhook can carry.
fn read_body(given: Option<&RawValue>, channel: Channel, template: Option<&str>) -> Result<Body> {
    // A webhook may send the value null.
    let given = given.filter(|value| channel == Channel::Webhook || value.get() != "null");
    let Some(value) = given else {
        let detail = match template {
            Some(_) => {
                "body is missing: templates are not built yet, `template` only names one for its policy"
            }
            None => "body is missing: a text, or for a webhook any JSON value",
        };
        return Err(Problem::at("/body", detail));
    };
    let is_text = value.get().starts_with('"');
    match (is_text, channel) {
        (true, _) => read_text(value).map(Body::Text),
        (false, Channel::Webhook) => Ok(Body::Json(value.get().to_owned())),
        (false, _) => Err(Problem::at("/body", format!("body must be a text for the channel `{channel}`"))),
    }
}

fn read_text(value: &RawValue) -> Result<String> {
    serde_json::from_str(value.get())
        .map_err(|error| Problem::new(Kind::BadJson, format!("body: {error}")).pointing("/body"))
}

fn metadata(object: &mut Object<'_>) -> Result<Option<String>> {
    let Some(value) = object.take("metadata") else { return Ok(None) };
    if !value.get().starts_with('{') {
        return Err(Problem::at("/metadata", "metadata must be an object"));
    }
    if value.get().len() > LONGEST_METADATA {
        return Err(Problem::at("/metadata", format!("metadata is longer than {LONGEST_METADATA} bytes")));
    }
    Ok(Some(value.get().to_owned()))
}

fn headers(object: &mut Object<'_>) -> Result<BTreeMap<String, String>> {
    let Some(value) = once(object, "headers")? else { return Ok(BTreeMap::new()) };
    let seen = excerpt(&value);
    serde_json::from_value(value)
        .map_err(|_| Problem::at("/headers", format!("headers must be an object of texts, not {seen}")))
}

/// Takes a value in which nothing may be said twice.
fn once(object: &mut Object<'_>, name: &'static str) -> Result<Option<Value>> {
    let Some(value) = object.take(name) else { return Ok(None) };
    let read: std::result::Result<Unique, _> = serde_json::from_str(value.get());
    read.map(|Unique(value)| Some(value)).map_err(|error| Problem::at(at(name), format!("{name}: {error}")))
}

/// Fields of the contract whose feature is still to come are told so, not called unknown.
fn not_built_yet(object: &mut Object<'_>) -> Result<()> {
    for name in ["data", "attachments", "provider"] {
        if object.take(name).is_some() {
            return Err(Problem::at(at(name), format!("{name} is not built yet")));
        }
    }
    Ok(())
}
