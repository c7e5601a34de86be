//! A notification: one message to one recipient over one channel. It is immutable.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::channel::Channel;
use crate::flow::FlowKey;
use crate::id::NotificationId;
use crate::policy::PolicyLayer;
use crate::sensitive::SealedHeaders;
use crate::time::Timestamp;

/// The owner of a notification. It comes from the credential; only with a key for all tenants may a request name it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tenant: `{given}` is not 1 to {} of the characters a-z, A-Z, 0-9, `.`, `_` and `-`",
    Tenant::MAX_LENGTH
)]
pub struct BadTenant {
    given: String,
}

/// Why no new tenant may have a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNewTenant {
    #[error("tenant: the name `{0}` is reserved")]
    Reserved(Tenant),
    #[error(
        "tenant: there is no tenant `{0}`, and a new one has only lower case letters, digits, `.`, `_` and `-`"
    )]
    Uppercase(Tenant),
}

impl Tenant {
    /// In characters.
    pub const MAX_LENGTH: usize = 64;

    /// Names that no new tenant may have: Posthaste uses them for itself.
    pub const RESERVED: [&str; 2] = ["posthaste", "system"];

    /// Whether a new tenant may have this name. Tenants from before keep theirs, capital letters included.
    pub fn check_new(&self) -> Result<(), BadNewTenant> {
        if Self::RESERVED.contains(&self.as_str()) {
            return Err(BadNewTenant::Reserved(self.clone()));
        }
        if self.0.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(BadNewTenant::Uppercase(self.clone()));
        }
        Ok(())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tenant {
    type Err = BadTenant;

    fn from_str(text: &str) -> Result<Self, BadTenant> {
        let fits = (1..=Self::MAX_LENGTH).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Ok(Self(text.into()));
        }
        Err(BadTenant { given: text.chars().take(80).collect() })
    }
}

crate::as_text::as_text!(Tenant);

impl fmt::Display for Tenant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Weighted 8:4:2:1 within a lane. The codes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Priority {
    /// Exempt from inbound limits.
    Critical = 0,
    High = 1,
    #[default]
    Normal = 2,
    Low = 3,
}

impl Priority {
    /// The most urgent first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// The share of a lane, relative to the other priorities.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Critical => 8,
            Self::High => 4,
            Self::Normal => 2,
            Self::Low => 1,
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The message itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    Text(String),
    /// JSON text, sent unchanged.
    Json(String),
}

/// The part of a notification that only its channel reads. It is stored apart from the hot rows.
///
/// It was checked when it was accepted, perhaps by a newer version. So unknown fields are ignored when it is
/// read back: refusing them would make the message undeliverable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    pub body: Body,
    /// For e-mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// For webhooks and e-mail.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The headers that hold secrets, where they are not among `headers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_headers: Option<SealedHeaders>,
    /// JSON text of the sender, returned unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The user to whose contacts `to` belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The part of the sender's program that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The notification's own policy. It overrides all scopes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "policy_if_valid")]
    pub policy: Option<PolicyLayer>,
    /// The notification in whose place it is sent, edited.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "id_if_valid")]
    pub edit_of: Option<NotificationId>,
}

impl Content {
    pub fn of(body: Body) -> Self {
        Self {
            body,
            html: None,
            headers: BTreeMap::new(),
            sealed_headers: None,
            metadata: None,
            user_id: None,
            module: None,
            policy: None,
            edit_of: None,
        }
    }
}

/// The stored policy of a message, or `None` if it cannot be parsed or would be refused today: the scopes
/// have a policy too, and a bad policy is no reason to lose the message.
fn policy_if_valid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PolicyLayer>, D::Error> {
    let stored = Option::<Value>::deserialize(deserializer)?;
    Ok(stored.and_then(|stored| PolicyLayer::from_json(&stored).ok()))
}

/// A stored id, or `None` if it cannot be parsed: it is only shown.
fn id_if_valid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NotificationId>, D::Error> {
    let stored = Option::<Value>::deserialize(deserializer)?;
    Ok(stored.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok()))
}

#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// Contains the time of acceptance.
    pub id: NotificationId,
    pub tenant: Tenant,
    pub channel: Channel,
    /// The key of flows and breakers: the origin of a webhook's URL, a subscription or a provider.
    pub destination: Arc<str>,
    /// An address, URL, phone number or token.
    pub to: String,
    pub priority: Priority,
    pub template: Option<String>,
    pub subject: Option<String>,
    /// The sender's name of the event type.
    pub event_key: Option<String>,
    /// The sender's id for related notifications.
    pub correlation_id: Option<String>,
    /// No attempt before this.
    pub not_before: Option<Timestamp>,
    /// No attempt at or after this.
    pub expires_at: Option<Timestamp>,
    pub content: Content,
}

/// Memory of a header in a map, without its texts.
const HEADER_SIZE: usize = 2 * size_of::<String>();

impl Notification {
    /// Creates a notification of normal priority without any of the optional fields.
    pub fn new(id: NotificationId, flow: FlowKey, to: String, content: Content) -> Self {
        let FlowKey { tenant, channel, destination } = flow;
        Self {
            id,
            tenant,
            channel,
            destination,
            to,
            priority: Priority::Normal,
            template: None,
            subject: None,
            event_key: None,
            correlation_id: None,
            not_before: None,
            expires_at: None,
            content,
        }
    }

    /// Whether its policy depends on more than its tenant and its channel.
    pub const fn has_own_policy(&self) -> bool {
        self.template.is_some() || self.content.policy.is_some()
    }

    /// Whether it says itself how old it may become.
    pub fn has_own_age(&self) -> bool {
        self.content.policy.as_ref().is_some_and(|policy| policy.max_age.is_some())
    }

    /// The time of acceptance, in whole milliseconds.
    pub fn created_at(&self) -> Timestamp {
        self.id.made_at()
    }

    /// Approximate size in memory. Includes every field that a sender can make long.
    pub fn bytes(&self) -> usize {
        let Content { body, html, headers, sealed_headers, metadata, user_id, module, policy, edit_of: _ } =
            &self.content;
        let (Body::Text(body) | Body::Json(body)) = body;
        let others = [&self.template, &self.subject, &self.event_key, &self.correlation_id];
        let others = others.into_iter().chain([html, metadata, user_id, module]);
        let others: usize = others.flatten().map(String::len).sum();
        let sealed = sealed_headers.as_ref().map_or(0, |sealed| sealed.text.len());
        let shown = sealed_headers.iter().flat_map(|sealed| &sealed.shown);
        let headers = headers.iter().chain(shown);
        let headers: usize = headers.map(|(name, value)| HEADER_SIZE + name.len() + value.len()).sum();
        let schedule = policy.as_ref().and_then(|policy| policy.schedule.as_deref()).map_or(0, size_of_val);
        let texts = self.to.len() + self.destination.len() + body.len();
        size_of::<Self>() + texts + others + headers + sealed + schedule
    }

    /// The due time of the first attempt if accepted at `now`.
    pub fn first_due(&self, now: Timestamp) -> Timestamp {
        self.not_before.map_or(now, |start| start.max(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tenant_has_a_plain_short_name() {
        for good in ["default", "a", "Acme_Corp-2.eu", &"x".repeat(64)] {
            assert_eq!(good.parse::<Tenant>().unwrap().as_str(), good);
        }
        for bad in ["", " ", "a b", "ü", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<Tenant>().unwrap_err().to_string().starts_with("tenant: "), "{bad}");
        }
    }

    #[test]
    fn a_new_tenant_has_a_name_in_lower_case_that_is_not_reserved() {
        let check = |name: &str| name.parse::<Tenant>().unwrap().check_new();
        for good in ["default", "acme_corp-2.eu", "systems", "7"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for reserved in Tenant::RESERVED {
            assert!(matches!(check(reserved), Err(BadNewTenant::Reserved(_))), "{reserved}");
        }
        for before in ["Acme", "System", "a.B"] {
            assert!(matches!(check(before), Err(BadNewTenant::Uppercase(_))), "{before}");
        }
    }

    fn plain() -> Notification {
        let id = NotificationId::new(Timestamp::from_millis(1_790_000_000_000), 7);
        let tenant = "default".parse().unwrap();
        let flow = FlowKey { tenant, channel: Channel::Webhook, destination: "http://127.0.0.1:9".into() };
        let content = Content::of(Body::Text("hello".to_owned()));
        Notification::new(id, flow, "http://127.0.0.1:9/".to_owned(), content)
    }

    #[test]
    fn whatever_a_sender_makes_long_is_counted_in_the_bytes() {
        type Lengthen = fn(&mut Notification, String);
        let fields: [(&str, Lengthen); 14] = [
            ("destination", |new, long| new.destination = long.into()),
            ("to", |new, long| new.to = long),
            ("template", |new, long| new.template = Some(long)),
            ("subject", |new, long| new.subject = Some(long)),
            ("eventKey", |new, long| new.event_key = Some(long)),
            ("correlationId", |new, long| new.correlation_id = Some(long)),
            ("text", |new, long| new.content.body = Body::Text(long)),
            ("json", |new, long| new.content.body = Body::Json(long)),
            ("html", |new, long| new.content.html = Some(long)),
            ("a header's name", |new, long| drop(new.content.headers.insert(long, String::new()))),
            ("a header's value", |new, long| drop(new.content.headers.insert(String::new(), long))),
            ("metadata", |new, long| new.content.metadata = Some(long)),
            ("userId", |new, long| new.content.user_id = Some(long)),
            ("module", |new, long| new.content.module = Some(long)),
        ];
        let long = "x".repeat(200 << 10);
        for (field, lengthen) in fields {
            let mut new = plain();
            lengthen(&mut new, long.clone());
            let grown = new.bytes() - plain().bytes();
            assert!((long.len() - 50..long.len() + 100).contains(&grown), "{field}: {grown} more bytes");
        }
        let mut new = plain();
        let schedule = Some(vec![Duration::from_secs(1); 100]);
        new.content.policy = Some(PolicyLayer { schedule, ..PolicyLayer::default() });
        assert!(new.bytes() >= plain().bytes() + 100 * size_of::<Duration>());
        let mut new = plain();
        new.content.headers = (0..1_000).map(|number| (number.to_string(), String::new())).collect();
        assert!(new.bytes() >= plain().bytes() + 1_000 * 2 * size_of::<String>());
        let mut new = plain();
        let shown = BTreeMap::from([(long.clone(), String::new())]);
        new.content.sealed_headers = Some(SealedHeaders { shown, text: long.clone() });
        assert!(new.bytes() >= plain().bytes() + 2 * long.len());
    }

    #[test]
    fn priorities_weigh_eight_four_two_one() {
        assert_eq!(Priority::ALL.map(Priority::weight), [8, 4, 2, 1]);
        for priority in Priority::ALL {
            assert_eq!(Priority::from_code(priority.code()), Some(priority));
        }
        assert_eq!(Priority::from_code(4), None);
    }

    #[test]
    fn content_is_read_back_as_it_was_kept() {
        let mut content = Content::of(Body::Json("{\"a\": 1.0}".to_owned()));
        content.headers.insert("x-a".to_owned(), "1".to_owned());
        content.edit_of = Some(plain().id);
        let stored = serde_json::to_string(&content).unwrap();
        assert_eq!(serde_json::from_str::<Content>(&stored).unwrap(), content);
    }

    #[test]
    fn a_field_of_a_newer_version_does_not_make_content_unreadable() {
        let content: Content =
            serde_json::from_str(r#"{"body":{"text":"hello"},"attachments":[1]}"#).unwrap();
        assert_eq!(content, Content::of(Body::Text("hello".to_owned())));
    }

    #[test]
    fn a_kept_policy_that_is_no_longer_sound_counts_as_none() {
        let read = |policy: &str| {
            let stored = format!(r#"{{"body":{{"text":"hello"}},"policy":{policy}}}"#);
            serde_json::from_str::<Content>(&stored).unwrap().policy
        };
        assert!(read(r#"{"maxAttempts":3}"#).is_some());
        for unsound in [r#"{"maxAttempts":0}"#, r#"{"phaseOfTheMoon":"full"}"#, "7", "null"] {
            assert_eq!(read(unsound), None, "{unsound}");
        }
    }
}
