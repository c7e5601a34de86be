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

impl Notification {
    /// When it was accepted, to the millisecond.
    pub fn created_at(&self) -> Timestamp {
        self.id.made_at()
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let (Body::Text(body) | Body::Json(body)) = &self.content.body;
        let others = [&self.content.html, &self.content.metadata, &self.subject];
        let others: usize = others.into_iter().flatten().map(String::len).sum();
        size_of::<Self>() + self.to.len() + body.len() + others
    }

    /// When its first attempt is due if it is accepted at `now`.
    pub fn first_due(&self, now: Timestamp) -> Timestamp {
        self.not_before.map_or(now, |start| start.max(now))
    }
}

#[cfg(test)]
mod tests {
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
