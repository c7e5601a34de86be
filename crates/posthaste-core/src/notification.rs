//! One message to one recipient over one channel, as it was accepted. It never changes afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::channel::Channel;
use crate::id::NotificationId;
use crate::policy::PolicyLayer;
use crate::time::Timestamp;

/// Whose notification it is. It comes from the credential, never from a request's body.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Tenant(Arc<str>);

/// A text that cannot name a tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tenant: `{given}` is not 1 to {} of the characters a-z, A-Z, 0-9, `.`, `_` and `-`",
    Tenant::LONGEST
)]
pub struct BadTenant {
    given: String,
}

impl Tenant {
    /// The most characters in a name.
    pub const LONGEST: usize = 64;

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tenant {
    type Err = BadTenant;

    fn from_str(text: &str) -> Result<Self, BadTenant> {
        let fits = (1..=Self::LONGEST).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Ok(Self(text.into()));
        }
        Err(BadTenant { given: text.chars().take(80).collect() })
    }
}

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

/// How urgent a notification is, weighed 8:4:2:1 inside a lane. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Priority {
    /// Before everything else, and exempt from inbound limits.
    Critical = 0,
    /// Sooner than most.
    High = 1,
    /// What is not said otherwise.
    #[default]
    Normal = 2,
    /// When there is room.
    Low = 3,
}

impl Priority {
    /// Every priority, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// Its share of a lane against the others.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Critical => 8,
            Self::High => 4,
            Self::Normal => 2,
            Self::Low => 1,
        }
    }

    /// The number in the store.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The priority with that number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// What is sent as the message itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// Text, sent as it is.
    Text(String),
    /// A JSON text, sent as it was given.
    Json(String),
}

/// The part of a notification that only its channel reads; kept as one piece beside the hot rows.
///
/// What is read back was checked when it was accepted, perhaps by another version. So a field that is not known here is
/// passed over: to refuse it would keep the message from ever being sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// The message.
    pub body: Body,
    /// The message as HTML, for e-mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Extra headers of a webhook or an e-mail.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The sender's own notes, handed back as they came: a JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The user whose contact `to` was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The part of the sending program that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The notification's own policy, over those of every scope.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "policy_if_sound")]
    pub policy: Option<PolicyLayer>,
}

impl Content {
    /// A message and nothing else.
    pub fn of(body: Body) -> Self {
        Self {
            body,
            html: None,
            headers: BTreeMap::new(),
            metadata: None,
            user_id: None,
            module: None,
            policy: None,
        }
    }
}

/// The policy that is kept with a message, or none where it cannot be read or would be refused today: how to retry can
/// be taken from the scopes above, and is no reason to lose the message.
fn policy_if_sound<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PolicyLayer>, D::Error> {
    let kept = Option::<Value>::deserialize(deserializer)?;
    Ok(kept.and_then(|kept| PolicyLayer::from_json(&kept).ok()))
}

/// One message to one recipient over one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// Its name; the time of acceptance is part of it.
    pub id: NotificationId,
    /// Whose it is.
    pub tenant: Tenant,
    /// How it leaves.
    pub channel: Channel,
    /// What a breaker guards: the origin of a webhook's URL, a subscription or a provider.
    pub destination: Arc<str>,
    /// The address, URL, phone number or token.
    pub to: String,
    /// How urgent it is.
    pub priority: Priority,
    /// The template that it was made from.
    pub template: Option<String>,
    /// The subject line.
    pub subject: Option<String>,
    /// The sender's name for the kind of event.
    pub event_key: Option<String>,
    /// The sender's name for what it belongs to.
    pub correlation_id: Option<String>,
    /// No attempt before this.
    pub not_before: Option<Timestamp>,
    /// No attempt from this on.
    pub expires_at: Option<Timestamp>,
    /// What the channel reads.
    pub content: Content,
}

/// What a header takes besides its texts, in a map.
const HEADER: usize = 2 * size_of::<String>();

impl Notification {
    /// When it was accepted, to the millisecond.
    pub fn created_at(&self) -> Timestamp {
        self.id.made_at()
    }

    /// About how many bytes it takes in memory. Nothing that a sender may make long is left out.
    pub fn bytes(&self) -> usize {
        let Content { body, html, headers, metadata, user_id, module, policy } = &self.content;
        let (Body::Text(body) | Body::Json(body)) = body;
        let others = [&self.template, &self.subject, &self.event_key, &self.correlation_id];
        let others = others.into_iter().chain([html, metadata, user_id, module]);
        let others: usize = others.flatten().map(String::len).sum();
        let headers: usize = headers.iter().map(|(name, value)| HEADER + name.len() + value.len()).sum();
        let schedule = policy.as_ref().and_then(|policy| policy.schedule.as_deref()).map_or(0, size_of_val);
        let texts = self.to.len() + self.destination.len() + body.len();
        size_of::<Self>() + texts + others + headers + schedule
    }

    /// When its first attempt is due if it is accepted at `now`.
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

    fn plain() -> Notification {
        Notification {
            id: NotificationId::new(Timestamp::from_millis(1_790_000_000_000), 7),
            tenant: "default".parse().unwrap(),
            channel: Channel::Webhook,
            destination: "http://127.0.0.1:9".into(),
            to: "http://127.0.0.1:9/".to_owned(),
            priority: Priority::Normal,
            template: None,
            subject: None,
            event_key: None,
            correlation_id: None,
            not_before: None,
            expires_at: None,
            content: Content::of(Body::Text("hello".to_owned())),
        }
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
        let kept = serde_json::to_string(&content).unwrap();
        assert_eq!(serde_json::from_str::<Content>(&kept).unwrap(), content);
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
            let kept = format!(r#"{{"body":{{"text":"hello"}},"policy":{policy}}}"#);
            serde_json::from_str::<Content>(&kept).unwrap().policy
        };
        assert!(read(r#"{"maxAttempts":3}"#).is_some());
        for unsound in [r#"{"maxAttempts":0}"#, r#"{"phaseOfTheMoon":"full"}"#, "7", "null"] {
            assert_eq!(read(unsound), None, "{unsound}");
        }
    }
}
