//! From the JSON of a send to a notification. What is refused is not stored.
//!
//! The form is read by serde: the first mistake is shown. Then all rules are checked, and all mistakes are
//! shown together.

use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::duration;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification, Priority, Tenant};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::provider::{NoProvider, Pools};
use posthaste_core::recipient;
use posthaste_core::schema::TimeFromAcceptance;
use posthaste_core::time::{BadTimestamp, Timestamp};
use posthaste_engine::policies::Policies;
use posthaste_wire::guard::{Guard, RefusedUrl};
use posthaste_wire::webhook::check_headers;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::body::{at, read};
use super::problem::{Kind, Problem, Result};
use super::raw_json;
use super::unique::{Unique, UniqueTexts};
use super::views::{Metadata, WebhookHeaders};

/// The most bytes of a name that a sender gives.
const LONGEST_NAME: usize = 255;
/// The most bytes of a recipient's address.
const LONGEST_ADDRESS: usize = 8 * 1024;
/// The most bytes of a subject.
const LONGEST_SUBJECT: usize = 998;
/// The longest duration that a plain number may mean. A larger number is the seconds since 1970 by mistake.
const LONGEST_SECONDS: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
/// The most bytes of `metadata`.
const LONGEST_METADATA: usize = 16 * 1024;

/// What is to be sent.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewNotification)]
pub(super) struct NewNotification<'t> {
    /// Whose notification it is. Only a key for all tenants may name another tenant than its own; without it such a key sends
    /// for `default`.
    #[schema(max_length = 64)]
    pub(super) tenant: Option<String>,
    #[schema(required)]
    pub(super) channel: Option<Channel>,
    /// The address, URL, phone number or token.
    #[schema(min_length = 1, max_length = 8192)]
    pub(super) to: Option<String>,
    /// Whose contact it is sent to, if `to` is not given.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) user_id: Option<String>,
    #[schema(min_length = 1, max_length = 998)]
    pub(super) subject: Option<String>,
    /// A text; for a webhook any JSON value, which is sent as it is.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(super) body: Option<&'t RawValue>,
    pub(super) html: Option<String>,
    /// The name of a template, for its policy.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) template: Option<String>,
    pub(super) priority: Option<Priority>,
    /// The part of the tenant's software that sends it. An access token with a module sends for no other one.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) module: Option<String>,
    #[schema(min_length = 1, max_length = 255)]
    pub(super) event_key: Option<String>,
    #[schema(min_length = 1, max_length = 255)]
    pub(super) correlation_id: Option<String>,
    /// Kept with the notification, and not sent.
    #[serde(borrow)]
    #[schema(value_type = Option<Metadata>)]
    pub(super) metadata: Option<&'t RawValue>,
    /// Headers of a webhook.
    #[schema(value_type = Option<WebhookHeaders>)]
    pub(super) headers: Option<UniqueTexts>,
    /// No attempt is made before this time.
    #[schema(value_type = Option<TimeFromAcceptance>)]
    pub(super) not_before: Option<Unique>,
    /// No attempt is made after this time.
    #[schema(value_type = Option<TimeFromAcceptance>)]
    pub(super) expires_at: Option<Unique>,
    /// Instead of `expiresAt`: how long after its acceptance it expires.
    #[schema(minimum = 1)]
    pub(super) ttl_seconds: Option<u64>,
    /// The notification's own policy, over those of all scopes.
    #[schema(value_type = Option<PolicyLayer>)]
    pub(super) policy: Option<Unique>,
    #[serde(default, deserialize_with = "given")]
    #[schema(ignore)]
    pub(super) data: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "given")]
    #[schema(ignore)]
    pub(super) attachments: Option<IgnoredAny>,
    /// The provider that is to carry it, by its name in the configuration. Without it, the first one of the channel does.
    #[schema(min_length = 1, max_length = 64)]
    pub(super) provider: Option<String>,
}

/// A value that is given, null included: a webhook can send null.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// What decides beside its body what a send becomes: the tenant, the time of acceptance, and the limits.
pub(super) struct SendContext<'a> {
    /// Whose it is unless the send names a tenant.
    pub(super) tenant: &'a Tenant,
    /// The one module that the caller sends for, if it is bound to one.
    pub(super) module: Option<&'a str>,
    /// Whether the send may name any tenant.
    pub(super) is_for_all: bool,
    pub(super) guard: &'a Guard,
    pub(super) policies: &'a Policies,
    pub(super) pools: &'a Pools,
    /// Whether a node of an older version is alive, which has no providers and would bury what it claims.
    pub(super) has_older_nodes: bool,
    pub(super) now: Timestamp,
}

/// The mistakes that were found so far.
#[derive(Default)]
pub(super) struct Mistakes(Vec<Problem>);

impl Mistakes {
    /// The value, or none and its mistake noted.
    pub(super) fn take<T>(&mut self, checked: Result<T>) -> Option<T> {
        checked.map_err(|problem| self.0.push(problem)).ok()
    }

    pub(super) fn add(&mut self, pointer: &str, detail: impl Into<String>) {
        self.0.push(Problem::at(pointer, detail));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them together.
    pub(super) fn problem(self) -> Problem {
        Problem::all(self.0).expect("what is missing is a mistake")
    }

    /// A text that fits on one line: it may end up in a header, a list or a log.
    fn line(&mut self, name: &str, text: Option<&String>, longest: usize) {
        let Some(text) = text else { return };
        if text.len() > longest {
            self.add(&at(name), format!("{name} is longer than {longest} bytes"));
        } else if text.is_empty() || text.chars().any(char::is_control) {
            self.add(&at(name), format!("{name} must not be empty nor contain control characters"));
        }
    }
}

impl SendContext<'_> {
    /// Reads what is to be sent.
    pub(super) fn read(&self, id: NotificationId, text: &[u8]) -> Result<Notification> {
        let new: NewNotification<'_> = read(text)?;
        let mut mistakes = Mistakes::default();
        let tenant = match new.tenant.as_deref().map(|name| self.named(name)) {
            None => Some(self.tenant.clone()),
            Some(Err(forbidden)) if forbidden.kind == Kind::Forbidden => return Err(forbidden),
            Some(named) => mistakes.take(named),
        };
        let module = self.module(new.module.as_deref())?;
        new.check_lines(&mut mistakes);
        let (not_before, expires_at) = mistakes.take(self.times(&new)).unwrap_or_default();
        let body = mistakes.take(read_body(&new));
        let policy = new.policy.as_ref().and_then(|Unique(value)| mistakes.take(self.policy(value)));
        let destination = mistakes.take(self.recipient(&new));
        let headers = new.headers.unwrap_or_default().0;
        if let Err(bad) = check_headers(&headers) {
            mistakes.add(&format!("/headers{}", at(&bad.name)), bad.to_string());
        }
        match (tenant, new.channel, new.to, body, destination, mistakes.is_empty()) {
            (Some(tenant), Some(channel), Some(to), Some(body), Some(destination), true) => {
                Ok(Notification {
                    id,
                    tenant,
                    channel,
                    destination: destination.into(),
                    to,
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
                        metadata: new.metadata.map(|value| value.get().to_owned()),
                        user_id: new.user_id,
                        module,
                        policy,
                        edit_of: None,
                    },
                })
            }
            _ => Err(mistakes.problem()),
        }
    }

    /// The tenant that a send names. Whether a new one may be called so is checked later: that may need the
    /// store.
    fn named(&self, name: &str) -> Result<Tenant> {
        let tenant: Tenant = name.parse().map_err(|error| Problem::at("/tenant", format!("{error}")))?;
        if self.is_for_all || tenant == *self.tenant {
            return Ok(tenant);
        }
        let detail = format!("this key sends only for its own tenant `{}`", self.tenant);
        Err(Problem::new(Kind::Forbidden, detail).pointing("/tenant"))
    }

    /// The module of a send: the one that it names, or that of the access token, which is for no other one.
    pub(super) fn module(&self, named: Option<&str>) -> Result<Option<String>> {
        if let (Some(named), Some(own)) = (named, self.module)
            && named != own
        {
            let detail = format!("this access token sends only for its own module `{own}`");
            return Err(Problem::new(Kind::Forbidden, detail).pointing("/module"));
        }
        Ok(named.or(self.module).map(str::to_owned))
    }

    pub(super) fn times(&self, new: &NewNotification<'_>) -> Result<(Option<Timestamp>, Option<Timestamp>)> {
        let not_before = self.time("notBefore", new.not_before.as_ref())?;
        let expires_at = match (self.time("expiresAt", new.expires_at.as_ref())?, new.ttl_seconds) {
            (Some(_), Some(_)) => {
                return Err(Problem::at("/ttlSeconds", "give expiresAt or ttlSeconds, not both"));
            }
            (None, Some(0)) => return Err(Problem::at("/ttlSeconds", "ttlSeconds must be at least 1")),
            (None, Some(seconds)) => Some(self.now.later(Duration::from_secs(seconds))),
            (Some(at), None) if at <= self.now => {
                let detail = format!("expiresAt {at} has passed; it is {}", self.now);
                return Err(Problem::at("/expiresAt", detail));
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

    /// A time, or a duration from acceptance: a text with a unit, or a number of seconds.
    fn time(&self, name: &str, given: Option<&Unique>) -> Result<Option<Timestamp>> {
        let refused = |detail: String| Problem::at(at(name), format!("{name}: {detail}"));
        let text = match given {
            None => return Ok(None),
            Some(Unique(Value::String(text))) => text,
            Some(Unique(number @ Value::Number(_))) => {
                let duration = duration::from_json(number).map_err(|error| refused(error.to_string()))?;
                if duration > LONGEST_SECONDS {
                    let detail = format!(
                        "{number} seconds from acceptance are more than ten years; a time is written as 2027-01-31T12:00:00Z"
                    );
                    return Err(refused(detail));
                }
                return Ok(Some(self.now.later(duration)));
            }
            Some(Unique(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_))) => {
                let detail =
                    "give a time such as 2027-01-31T12:00:00Z, a duration such as 15m or a number of seconds";
                return Err(refused(detail.to_owned()));
            }
        };
        let read = text.parse().or_else(|error: BadTimestamp| match duration::with_unit(text) {
            Ok(duration) => Ok(self.now.later(duration)),
            Err(_) => Err(error),
        });
        read.map(Some)
            .map_err(|error| refused(format!("{error}, nor a duration from acceptance such as 15m")))
    }

    pub(super) fn policy(&self, value: &serde_json::Value) -> Result<PolicyLayer> {
        let layer = PolicyLayer::from_json(value)
            .and_then(|layer| self.policies.check_message(&layer).map(|()| layer));
        layer.map_err(|bad| bad.under("policy").into())
    }

    /// The destination of the recipient.
    pub(super) fn recipient(&self, new: &NewNotification<'_>) -> Result<String> {
        let channel = new
            .channel
            .ok_or_else(|| Problem::at("/channel", "channel is missing; `webhook` for example"))?;
        let to = match (new.to.as_deref(), new.user_id.as_deref()) {
            (Some(to), _) => to,
            (None, Some(user)) => {
                let detail =
                    format!("the user `{user}` has no known contact for this channel: give `to` as well");
                return Err(Problem::new(Kind::RecipientUnknown, detail).pointing("/userId"));
            }
            (None, None) => {
                return Err(Problem::at("/to", "to is missing: the address, URL, phone number or token"));
            }
        };
        let provider = new.provider.as_deref();
        if channel.has_providers() || provider.is_some() {
            let destination = self.pool(channel, provider)?;
            recipient::check(channel, to).map_err(|bad| Problem::at("/to", format!("to {bad}")))?;
            return Ok(destination);
        }
        match channel {
            Channel::Webhook => self.origin(to),
            _ => {
                let detail = format!("the channel `{channel}` is not built into this version yet");
                Err(Problem::new(Kind::ChannelUnavailable, detail).pointing("/channel"))
            }
        }
    }

    fn pool(&self, channel: Channel, provider: Option<&str>) -> Result<String> {
        let unavailable =
            |detail: String| Problem::new(Kind::ChannelUnavailable, detail).pointing("/channel");
        let destination = self.pools.destination(channel, provider).map_err(|none| match none {
            NoProvider::Empty(_) => unavailable(format!(
                "no provider is configured for the channel `{channel}`: an operator adds a section such as \
                 [providers.NAME] with channel = \"{channel}\" to the configuration"
            )),
            NoProvider::Unknown(_) | NoProvider::OtherChannel { .. } | NoProvider::Direct(_) => {
                Problem::at("/provider", none.to_string())
            }
        })?;
        if self.has_older_nodes {
            let detail = format!(
                "a node of an older version is alive, which cannot send over `{channel}`: send it again once all \
                 nodes are upgraded"
            );
            return Err(unavailable(detail));
        }
        Ok(destination)
    }

    fn origin(&self, url: &str) -> Result<String> {
        // A text that is no line was found already.
        if url.is_empty() || url.len() > LONGEST_ADDRESS || url.chars().any(char::is_control) {
            return Ok(String::new());
        }
        self.guard.check_url(url).map(|target| target.destination).map_err(|refused| match refused {
            RefusedUrl::Forbidden(forbidden) => {
                let detail = format!(
                    "{forbidden}; an operator can allow it with security.allow_subnets in the configuration"
                );
                Problem::new(Kind::DestinationForbidden, detail).pointing("/to")
            }
            RefusedUrl::Bad(bad) => Problem::at("/to", bad.to_string()),
        })
    }
}

impl NewNotification<'_> {
    pub(super) fn check_lines(&self, mistakes: &mut Mistakes) {
        mistakes.line("to", self.to.as_ref(), LONGEST_ADDRESS);
        mistakes.line("subject", self.subject.as_ref(), LONGEST_SUBJECT);
        for (name, text) in [
            ("userId", &self.user_id),
            ("template", &self.template),
            ("module", &self.module),
            ("eventKey", &self.event_key),
            ("correlationId", &self.correlation_id),
            ("provider", &self.provider),
        ] {
            mistakes.line(name, text.as_ref(), LONGEST_NAME);
        }
        if let Some(metadata) = self.metadata {
            if !metadata.get().starts_with('{') {
                mistakes.add("/metadata", "metadata must be an object");
            } else if metadata.get().len() > LONGEST_METADATA {
                mistakes.add("/metadata", format!("metadata is longer than {LONGEST_METADATA} bytes"));
            } else {
                mistakes.take(raw_json::check("/metadata", metadata.get()));
            }
        }
        // Fields of the contract whose feature is still to come are not called unknown.
        for (name, given) in [("data", &self.data), ("attachments", &self.attachments)] {
            if given.is_some() {
                mistakes.add(&at(name), format!("{name} is not built yet"));
            }
        }
    }
}

/// A text is sent as text; any other JSON value goes out just as it came in, which only a webhook can carry.
pub(super) fn read_body(new: &NewNotification<'_>) -> Result<Body> {
    let is_webhook = new.channel.is_none_or(|channel| channel == Channel::Webhook);
    let Some(value) = new.body.filter(|value| is_webhook || value.get() != "null") else {
        let detail = match new.template {
            Some(_) => {
                "body is missing: templates are not built yet, `template` only names one for its policy"
            }
            None => "body is missing: a text, or for a webhook any JSON value",
        };
        return Err(Problem::at("/body", detail));
    };
    raw_json::check("/body", value.get())?;
    let is_text = value.get().starts_with('"');
    match (is_text, is_webhook) {
        (true, _) => serde_json::from_str(value.get())
            .map(Body::Text)
            .map_err(|error| Problem::new(Kind::BadJson, format!("body: {error}")).pointing("/body")),
        (false, true) => Ok(Body::Json(value.get().to_owned())),
        (false, false) => Err(Problem::at("/body", "body must be a text for this channel")),
    }
}
