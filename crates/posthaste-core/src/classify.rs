//! Classifies replies: one table for the codes of each kind of provider, one for HTTP by the kind of receiver, one for
//! SMTP, one for exchanges without a response. docs/failures.md shows the tables.
//!
//! Invariant: the tables know no policy. The policy decides which failure types are retried.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::channel::Channel;
use crate::failure::FailureType;
use crate::fields::{BadField, excerpt};
use crate::provider::{ProviderKind, Route};
use crate::reply::{Answer, Fault, Reply, RetryAfter};
use crate::time::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    Failed(Failure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub failure_type: FailureType,
    /// The earliest retry that the receiver asked for.
    pub retry_after: Option<RetryAfter>,
}

/// The meaning that the configuration gives to one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    Delivered,
    Failed(FailureType),
}

/// Rules of the configuration for single HTTP or SMTP codes. In JSON: `{"404": "temporary", "409":
/// "delivered"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides(BTreeMap<u16, Ruling>);

impl Overrides {
    pub const fn new(rules: BTreeMap<u16, Ruling>) -> Self {
        Self(rules)
    }

    pub fn from_json(value: &Value) -> Result<Self, BadField> {
        let Value::Object(map) = value else {
            return Err(BadField::new("overrides", format!("must be an object, not {}", excerpt(value))));
        };
        let mut rules = BTreeMap::new();
        for (key, value) in map {
            let short: String = key.chars().take(64).collect();
            let code = number(key).filter(|code| key.len() == 3 && (100..=599).contains(code));
            let code: u16 = code.ok_or_else(|| BadField::new(&*short, "is not a code from 100 to 599"))?;
            rules.insert(code, ruling(value).map_err(|reason| BadField::new(short, reason))?);
        }
        Ok(Self(rules))
    }

    fn of(&self, code: u16) -> Option<Ruling> {
        self.0.get(&code).copied()
    }
}

impl Serialize for Overrides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = |ruling: &Ruling| match ruling {
            Ruling::Delivered => "delivered",
            Ruling::Failed(failure_type) => failure_type.name(),
        };
        serializer.collect_map(self.0.iter().map(|(code, ruling)| (code.to_string(), name(ruling))))
    }
}

impl<'de> Deserialize<'de> for Overrides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_json(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Classifies a reply on a channel. The channel's `overrides` win over the tables; the code of a provider, where its kind has
/// it in its table, wins over the status.
pub fn classify(channel: Channel, route: &Route, reply: &Reply, overrides: &Overrides) -> Verdict {
    let by_code = by_provider_code(route, reply).map(Ruling::Failed);
    let ruling = match reply.answer {
        Answer::Http { status, .. } => {
            overrides.of(status).or(by_code).unwrap_or_else(|| http(receiver(channel), status))
        }
        Answer::Smtp { code, enhanced } => {
            overrides.of(code).or(by_code).unwrap_or_else(|| smtp(code, enhanced))
        }
        Answer::Taken => by_code.unwrap_or(Ruling::Delivered),
        Answer::Refused => by_code.unwrap_or(Ruling::Failed(FailureType::Unknown)),
        Answer::Fault(fault) => Ruling::Failed(no_response(fault)),
    };
    match ruling {
        Ruling::Delivered => Verdict::Delivered,
        Ruling::Failed(failure_type) => {
            Verdict::Failed(Failure { failure_type, retry_after: reply.retry_after() })
        }
    }
}

/// The codes of a provider of the kind `log` that is configured to fail.
pub const LOG_CODES: [(&str, FailureType); 7] = [
    ("bad-credentials", FailureType::AuthenticationFailure),
    ("blocked", FailureType::Permanent),
    ("busy", FailureType::Temporary),
    ("no-credit", FailureType::QuotaExceeded),
    ("slow", FailureType::Timeout),
    ("throttled", FailureType::RateLimit),
    ("unknown-recipient", FailureType::InvalidRecipient),
];

/// What the provider's own code means; none if it gave none, or one that its kind does not know.
fn by_provider_code(route: &Route, reply: &Reply) -> Option<FailureType> {
    let (kind, code) = (route.provider()?.kind, reply.provider_code.as_deref()?);
    match kind {
        ProviderKind::Log => {
            LOG_CODES.iter().find(|(known, _)| *known == code).map(|(_, failure_type)| *failure_type)
        }
    }
}

/// Whether the receiver reports the address as gone for good, which disables a subscription.
pub fn is_gone(reply: &Reply) -> bool {
    matches!(reply.answer, Answer::Http { status: 410, .. })
}

/// Who answers over HTTP. The same code means different things from each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiver {
    /// The recipient's own server, which may be in the middle of a deploy.
    Webhook,
    /// A provider that looks up the address of the recipient.
    AddressProvider,
    /// Any other provider.
    Provider,
}

fn receiver(channel: Channel) -> Receiver {
    match channel {
        Channel::Webhook => Receiver::Webhook,
        Channel::Email | Channel::Sms => Receiver::AddressProvider,
        Channel::Whatsapp
        | Channel::Telegram
        | Channel::Slack
        | Channel::Discord
        | Channel::Teams
        | Channel::Push
        | Channel::Inapp => Receiver::Provider,
    }
}

fn http(receiver: Receiver, status: u16) -> Ruling {
    let failure_type = match (status, receiver) {
        (200..=299, _) => return Ruling::Delivered,
        // Answers of a webhook whose routes, locks or addresses are just changing.
        (300..=399 | 404 | 409 | 421 | 423, Receiver::Webhook) => FailureType::Unknown,
        (404, Receiver::AddressProvider) => FailureType::InvalidRecipient,
        (401 | 403, _) => FailureType::AuthenticationFailure,
        (402, _) => FailureType::QuotaExceeded,
        (408, _) => FailureType::Timeout,
        (425, _) => FailureType::Temporary,
        (429, _) => FailureType::RateLimit,
        (300..=499, _) => FailureType::Permanent,
        (500..=599, _) => FailureType::Temporary,
        (0..=199 | 600.., _) => FailureType::Unknown,
    };
    Ruling::Failed(failure_type)
}

/// The reply code decides. An enhanced code that contradicts it is ignored.
fn smtp(code: u16, enhanced: Option<(u8, u16, u16)>) -> Ruling {
    let failure_type = match (code, enhanced) {
        (200..=299, _) => return Ruling::Delivered,
        (400..=499, Some((4, 2, 2))) => FailureType::QuotaExceeded,
        (400..=499, Some((4, 7, _))) => FailureType::RateLimit,
        (400..=499, _) => FailureType::Temporary,
        (500..=599, Some((5, 1, _))) => FailureType::InvalidRecipient,
        (500..=599, Some((5, 2, 2))) => FailureType::QuotaExceeded,
        (500..=599, Some((5, 7, 8))) => FailureType::AuthenticationFailure,
        (500..=599, _) => FailureType::Permanent,
        (0..=199 | 300..=399 | 600.., _) => FailureType::Unknown,
    };
    Ruling::Failed(failure_type)
}

fn no_response(fault: Fault) -> FailureType {
    match fault {
        Fault::Refused | Fault::NoRoute | Fault::Dns | Fault::Tls | Fault::Reset => {
            FailureType::NetworkFailure
        }
        Fault::Timeout => FailureType::Timeout,
        Fault::NoProvider => FailureType::Temporary,
        Fault::Forbidden | Fault::Unsendable => FailureType::Permanent,
        Fault::Broken => FailureType::Unknown,
    }
}

fn ruling(value: &Value) -> Result<Ruling, String> {
    let bad = || format!("must be `delivered` or a failure type such as `temporary`, not {}", excerpt(value));
    match value.as_str() {
        Some("delivered") => Ok(Ruling::Delivered),
        Some(name) => FailureType::from_name(name).map(Ruling::Failed).ok_or_else(bad),
        None => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Provider;
    use serde_json::json;
    use std::time::Duration;

    fn http_reply(status: u16) -> Reply {
        Reply::http(status)
    }

    fn judge(reply: &Reply) -> Option<FailureType> {
        judge_on(Channel::Webhook, reply)
    }

    fn judge_on(channel: Channel, reply: &Reply) -> Option<FailureType> {
        match classify(channel, &Route::Direct, reply, &Overrides::default()) {
            Verdict::Delivered => None,
            Verdict::Failed(failure) => Some(failure.failure_type),
        }
    }

    #[test]
    fn every_http_status_has_its_type_on_every_channel() {
        use FailureType::*;
        let everywhere = BTreeMap::from([
            (401, AuthenticationFailure),
            (402, QuotaExceeded),
            (403, AuthenticationFailure),
            (408, Timeout),
            (425, Temporary),
            (429, RateLimit),
        ]);
        let (may_heal, gone) = ([404, 409, 421, 423], [404]);
        for channel in Channel::ALL {
            let special = |status: u16| match channel {
                Channel::Webhook if status / 100 == 3 || may_heal.contains(&status) => Some(Unknown),
                Channel::Email | Channel::Sms if gone.contains(&status) => Some(InvalidRecipient),
                _ => None,
            };
            for status in 0..=u16::MAX {
                let class = match status / 100 {
                    2 => None,
                    3 | 4 => Some(Permanent),
                    5 => Some(Temporary),
                    _ => Some(Unknown),
                };
                let expected = everywhere.get(&status).copied().or(special(status)).or(class);
                assert_eq!(judge_on(channel, &http_reply(status)), expected, "{channel} {status}");
            }
        }
    }

    #[test]
    fn what_a_webhook_says_during_a_deploy_is_retried_and_gone_is_gone() {
        for status in [301, 302, 304, 307, 308, 404, 409, 421, 423, 425] {
            assert!(judge(&http_reply(status)).unwrap().is_retried_by_default(), "{status}");
        }
        for status in [400, 405, 406, 410, 411, 413, 415, 418, 422, 451] {
            assert_eq!(judge(&http_reply(status)), Some(FailureType::Permanent), "{status}");
        }
    }

    #[test]
    fn smtp_replies_are_judged_by_class_and_enhanced_code() {
        use FailureType::*;
        let table = [
            (250, None, None),
            (251, Some((2, 1, 5)), None),
            (354, None, Some(Unknown)),
            (421, None, Some(Temporary)),
            (450, Some((4, 2, 1)), Some(Temporary)),
            (452, Some((4, 2, 2)), Some(QuotaExceeded)),
            (421, Some((4, 7, 0)), Some(RateLimit)),
            (450, Some((4, 7, 28)), Some(RateLimit)),
            (550, None, Some(Permanent)),
            (550, Some((5, 1, 1)), Some(InvalidRecipient)),
            (553, Some((5, 1, 8)), Some(InvalidRecipient)),
            (552, Some((5, 2, 2)), Some(QuotaExceeded)),
            (535, Some((5, 7, 8)), Some(AuthenticationFailure)),
            (550, Some((5, 7, 1)), Some(Permanent)),
            (550, Some((4, 7, 1)), Some(Permanent)),
            (450, Some((5, 1, 1)), Some(Temporary)),
            (0, None, Some(Unknown)),
            (999, None, Some(Unknown)),
        ];
        for (code, enhanced, expected) in table {
            let reply = Reply::smtp(code, enhanced, "");
            assert_eq!(judge(&reply), expected, "{code} {enhanced:?}");
        }
    }

    #[test]
    fn an_answer_that_never_came_has_its_type() {
        use FailureType::*;
        let table = [
            (Fault::Refused, NetworkFailure),
            (Fault::NoRoute, NetworkFailure),
            (Fault::Dns, NetworkFailure),
            (Fault::Tls, NetworkFailure),
            (Fault::Reset, NetworkFailure),
            (Fault::Timeout, Timeout),
            (Fault::Forbidden, Permanent),
            (Fault::Unsendable, Permanent),
            (Fault::NoProvider, Temporary),
            (Fault::Broken, Unknown),
        ];
        for (fault, expected) in table {
            assert_eq!(judge(&Reply::fault(fault, "")), Some(expected));
        }
    }

    #[test]
    fn a_rule_of_the_configuration_wins_for_its_code_only() {
        let rules =
            Overrides::from_json(&json!({"404": "temporary", "409": "delivered", "500": "permanent"}))
                .unwrap();
        let judge = |status| classify(Channel::Webhook, &Route::Direct, &http_reply(status), &rules);
        let failed = |failure_type| Verdict::Failed(Failure { failure_type, retry_after: None });
        assert_eq!(judge(404), failed(FailureType::Temporary));
        assert_eq!(judge(409), Verdict::Delivered);
        assert_eq!(judge(500), failed(FailureType::Permanent));
        assert_eq!(judge(405), failed(FailureType::Permanent));
        let again = serde_json::to_value(&rules).unwrap();
        assert_eq!(serde_json::from_value::<Overrides>(again).unwrap(), rules);
        for key in ["99", "600", "+404", "0404", " 404", "404.0", "-404", "4O4", ""] {
            let refused = Overrides::from_json(&json!({key: "temporary"})).unwrap_err();
            assert_eq!((refused.field.as_str(), &*refused.reason), (key, "is not a code from 100 to 599"));
        }
        assert_eq!(Overrides::from_json(&json!({"404": "later"})).unwrap_err().field, "404");
        assert!(Overrides::from_json(&json!([404])).is_err());
    }

    #[test]
    fn the_failure_carries_what_the_receiver_asked_for() {
        let retry_after = Some(RetryAfter::In(Duration::from_secs(7)));
        let reply = Reply::http_after(503, retry_after);
        let expected = Failure { failure_type: FailureType::Temporary, retry_after };
        let verdict = classify(Channel::Webhook, &Route::Direct, &reply, &Overrides::default());
        assert_eq!(verdict, Verdict::Failed(expected));
    }

    fn by_log(reply: &Reply, overrides: &Overrides) -> Option<FailureType> {
        let (name, channel) = ("texts".into(), Channel::Sms);
        let provider = Provider { name, channel, kind: ProviderKind::Log, priority: 1 };
        match classify(channel, &Route::Provider(provider.into()), reply, overrides) {
            Verdict::Delivered => None,
            Verdict::Failed(failure) => Some(failure.failure_type),
        }
    }

    #[test]
    fn a_code_of_a_provider_means_what_the_table_of_its_kind_says() {
        let none = Overrides::default();
        for (code, failure_type) in LOG_CODES {
            assert_eq!(by_log(&Reply::refused(code, ""), &none), Some(failure_type), "{code}");
            let inside = Reply { provider_code: Some(code.to_owned()), ..Reply::http(200) };
            assert_eq!(by_log(&inside, &none), Some(failure_type), "{code} inside of a 200");
            assert_eq!(judge_on(Channel::Sms, &inside), None, "another receiver has no such table");
        }
        assert_eq!(by_log(&Reply::taken("1"), &none), None);
        assert_eq!(by_log(&Reply::refused("new", ""), &none), Some(FailureType::Unknown));
    }

    #[test]
    fn a_code_that_the_table_lacks_leaves_the_status_to_decide_and_a_rule_wins_over_both() {
        let coded = |code: &str| Reply { provider_code: Some(code.to_owned()), ..Reply::http(404) };
        let none = Overrides::default();
        assert_eq!(by_log(&coded("new"), &none), Some(FailureType::InvalidRecipient));
        assert_eq!(by_log(&coded("busy"), &none), Some(FailureType::Temporary));
        let rules = Overrides::from_json(&json!({"404": "delivered"})).unwrap();
        assert_eq!(by_log(&coded("busy"), &rules), None);
    }

    #[test]
    fn only_410_says_that_the_address_is_gone() {
        assert!(is_gone(&http_reply(410)));
        assert!(!is_gone(&http_reply(404)));
    }
}
