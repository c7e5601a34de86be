//! Named policies: those of S0 to S3, and our own.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::quick::{DEFAULT_LIMIT, Quick, QuickBackoff, When};
use super::{Policy, RetryOn};
use crate::channel::Channel;
use crate::jitter::Jitter;
use crate::strategy::{Backoff, Strategy};

/// A named policy with every field set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// S1: three attempts, 1 and 5 minutes apart.
    Story,
    /// S3: five attempts, 30 s doubling.
    Notify,
    /// S2: four quick tries, then a schedule of over a day; everything is retried.
    Zgw,
    /// S0's seed for e-mail.
    ShumoulEmail,
    /// The default for webhooks: ten attempts over three days.
    Webhook,
    /// The default for all other channels.
    Standard,
}

/// The default upper bound on `Retry-After`.
const MAXIMUM_RETRY_AFTER: Duration = hours(1);

impl Preset {
    pub const ALL: [Self; 6] =
        [Self::Story, Self::Notify, Self::Zgw, Self::ShumoulEmail, Self::Webhook, Self::Standard];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Story => "story",
            Self::Notify => "notify",
            Self::Zgw => "zgw",
            Self::ShumoulEmail => "shumoul-email",
            Self::Webhook => "webhook",
            Self::Standard => "standard",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// The default preset of a channel.
    pub const fn built_in(channel: Channel) -> Self {
        match channel {
            Channel::Webhook => Self::Webhook,
            Channel::Email
            | Channel::Sms
            | Channel::Whatsapp
            | Channel::Telegram
            | Channel::Slack
            | Channel::Discord
            | Channel::Teams
            | Channel::Push
            | Channel::Inapp => Self::Standard,
        }
    }

    pub fn policy(self) -> Policy {
        match self {
            Self::Story => story(),
            Self::Notify => notify(),
            Self::Zgw => zgw(),
            Self::ShumoulEmail => shumoul_email(),
            Self::Webhook => webhook(),
            Self::Standard => standard(),
        }
    }
}

fn story() -> Policy {
    let schedule = [minutes(1), minutes(5), minutes(15)];
    // The third delay is used only if a scope raises the attempts to four or more.
    Policy { max_attempts: 3, jitter: Jitter::Plus(secs(30)), ..plain(scheduled(&schedule)) }
}

fn notify() -> Policy {
    let backoff = exponential(secs(30), secs(480));
    Policy { max_attempts: 5, jitter: Jitter::Percent(10.0), ..plain(backoff) }
}

fn zgw() -> Policy {
    let schedule = [minutes(15), minutes(30), hours(1), hours(4), hours(24)];
    Policy {
        timeout: secs(30),
        quick: Quick { tries: 4, delay: Duration::from_millis(500), ..no_quick_tries() },
        retry_on: RetryOn::ALL,
        ..plain(scheduled(&schedule))
    }
}

fn shumoul_email() -> Policy {
    Policy { max_attempts: 6, ..plain(exponential(secs(60), secs(3_600))) }
}

fn webhook() -> Policy {
    let schedule =
        [secs(5), minutes(5), minutes(30), hours(2), hours(5), hours(10), hours(14), hours(20), hours(24)];
    Policy {
        jitter: Jitter::Percent(10.0),
        timeout: secs(10),
        quick: Quick { tries: 2, jitter: true, ..no_quick_tries() },
        ..plain(scheduled(&schedule))
    }
}

fn standard() -> Policy {
    Policy { quick: Quick { tries: 1, jitter: true, when: When::Unsent, ..no_quick_tries() }, ..notify() }
}

/// The common part of the presets. The attempts follow from the schedule.
fn plain(backoff: Backoff) -> Policy {
    Policy {
        max_attempts: attempts_of(&backoff.schedule),
        backoff,
        jitter: Jitter::None,
        timeout: secs(10),
        named_max_age: None,
        dead_letter: true,
        honour_retry_after: true,
        maximum_retry_after: MAXIMUM_RETRY_AFTER,
        quick: no_quick_tries(),
        retry_on: RetryOn::default(),
    }
}

/// The attempts that a schedule implies: one before its first delay, and one after each delay.
pub(super) fn attempts_of(schedule: &[Duration]) -> u32 {
    u32::try_from(schedule.len()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Its first and last delay serve a scope that changes only the strategy.
fn scheduled(schedule: &[Duration]) -> Backoff {
    Backoff {
        strategy: Strategy::Schedule,
        initial_delay: schedule.first().copied().unwrap_or_default(),
        multiplier: 2.0,
        maximum_delay: schedule.last().copied(),
        schedule: Arc::from(schedule),
    }
}

fn exponential(initial_delay: Duration, maximum_delay: Duration) -> Backoff {
    Backoff {
        strategy: Strategy::Exponential,
        initial_delay,
        multiplier: 2.0,
        maximum_delay: Some(maximum_delay),
        schedule: Arc::from([]),
    }
}

fn no_quick_tries() -> Quick {
    Quick {
        tries: 0,
        delay: Duration::from_millis(250),
        backoff: QuickBackoff::Exponential,
        jitter: false,
        retry_after: true,
        status_codes: Arc::from([]),
        when: When::Any,
        limit: DEFAULT_LIMIT,
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3_600)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::duration::show;
    use crate::failure::FailureType;
    use crate::policy::{PolicyLayer, preview};

    /// The nominal delays that are waited, as text.
    fn delays(policy: &Policy) -> Vec<String> {
        (1..policy.max_attempts).map(|n| show(policy.backoff.nominal(n).unwrap())).collect()
    }

    #[test]
    fn every_preset_waits_as_its_table_says() {
        let table: [(Preset, &[&str]); 6] = [
            (Preset::Story, &["1m", "5m"]),
            (Preset::Notify, &["30s", "1m", "2m", "4m"]),
            (Preset::Zgw, &["15m", "30m", "1h", "4h", "1d"]),
            (Preset::ShumoulEmail, &["1m", "2m", "4m", "8m", "16m"]),
            (Preset::Webhook, &["5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "1d"]),
            (Preset::Standard, &["30s", "1m", "2m", "4m"]),
        ];
        for (preset, expected) in table {
            assert_eq!(delays(&preset.policy()), expected, "{preset:?}");
        }
    }

    #[test]
    fn the_third_delay_of_the_story_is_waited_when_four_attempts_are_set() {
        let layer =
            PolicyLayer { preset: Some(Preset::Story), max_attempts: Some(4), ..PolicyLayer::default() };
        let policy = crate::policy::resolve(Preset::Standard, [&layer]);
        assert_eq!(delays(&policy), ["1m", "5m", "15m"]);
        assert_eq!(policy.jitter, Jitter::Plus(secs(30)));
    }

    #[test]
    fn the_cap_of_shumoul_email_is_an_hour() {
        assert_eq!(Preset::ShumoulEmail.policy().backoff.nominal(7), Some(hours(1)));
    }

    #[test]
    fn zgw_retries_every_failure_and_the_others_what_may_pass() {
        for failure_type in FailureType::ALL {
            assert!(Preset::Zgw.policy().retry_on.allows(failure_type));
            let by_default = failure_type.is_retried_by_default();
            assert_eq!(Preset::ShumoulEmail.policy().retry_on.allows(failure_type), by_default);
        }
    }

    #[test]
    fn webhooks_are_retried_for_over_75_hours() {
        let policy = Preset::Webhook.policy();
        let nominal: Duration = (1..10).map(|n| policy.backoff.nominal(n).unwrap()).sum();
        assert!(nominal > hours(75));
        assert_eq!(policy.window(), nominal + nominal / 10);
        assert_eq!(policy.max_age(), policy.window() * 2);
        assert_eq!(preview(&policy).attempts.len(), 10);
    }

    #[test]
    fn short_windows_still_live_for_a_day() {
        assert_eq!(Preset::Notify.policy().window(), secs(33 + 66 + 132 + 264));
        assert_eq!(Preset::Notify.policy().max_age(), hours(24));
    }

    #[test]
    fn a_policy_is_outlived_past_its_max_age() {
        let named = Policy { named_max_age: Some(secs(60)), ..Preset::Webhook.policy() };
        for policy in [Preset::Webhook.policy(), Preset::Notify.policy(), named] {
            assert!(!policy.is_exceeded_by(policy.max_age()));
            assert!(policy.is_exceeded_by(policy.max_age() + Duration::from_nanos(1)));
        }
    }

    /// What the presets of the specification say (section 3), every field of each.
    const SAID: [(Preset, &str); 6] = [
        (
            Preset::Story,
            r#"{"strategy": "schedule", "schedule": ["1m", "5m", "15m"], "initialDelay": "1m", "multiplier": 2,
                "maximumDelay": "15m", "maxAttempts": 3, "jitter": {"plus": "30s"}, "timeout": "10s", "maxAge": "1d",
                "quick": {"tries": 0, "delay": "250ms", "jitter": false, "when": "any"}}"#,
        ),
        (
            Preset::Notify,
            r#"{"strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "8m",
                "maxAttempts": 5, "jitter": {"percent": 10}, "timeout": "10s", "maxAge": "1d",
                "quick": {"tries": 0, "delay": "250ms", "jitter": false, "when": "any"}}"#,
        ),
        (
            Preset::Zgw,
            r#"{"strategy": "schedule", "schedule": ["15m", "30m", "1h", "4h", "1d"], "initialDelay": "15m",
                "multiplier": 2, "maximumDelay": "1d", "maxAttempts": 6, "jitter": "none", "timeout": "30s",
                "maxAge": "3570m",
                "quick": {"tries": 4, "delay": "500ms", "jitter": false, "when": "any"},
                "retryOn": {"permanent": true, "authenticationFailure": true, "invalidRecipient": true}}"#,
        ),
        (
            Preset::ShumoulEmail,
            r#"{"strategy": "exponential", "initialDelay": "1m", "multiplier": 2, "maximumDelay": "1h",
                "maxAttempts": 6, "jitter": "none", "timeout": "10s", "maxAge": "1d",
                "quick": {"tries": 0, "delay": "250ms", "jitter": false, "when": "any"}}"#,
        ),
        (
            Preset::Webhook,
            r#"{"strategy": "schedule",
                "schedule": ["5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "1d"], "initialDelay": "5s",
                "multiplier": 2, "maximumDelay": "1d", "maxAttempts": 10, "jitter": {"percent": 10},
                "timeout": "10s", "maxAge": "598631s",
                "quick": {"tries": 2, "delay": "250ms", "jitter": true, "when": "any"}}"#,
        ),
        (
            Preset::Standard,
            r#"{"strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "8m",
                "maxAttempts": 5, "jitter": {"percent": 10}, "timeout": "10s", "maxAge": "1d",
                "quick": {"tries": 1, "delay": "250ms", "jitter": true, "when": "unsent"}}"#,
        ),
    ];

    /// What they all say, unless they say otherwise.
    const SAID_BY_ALL: &str = r#"{"deadLetter": true, "honourRetryAfter": true, "maximumRetryAfter": "1h",
        "quick": {"backoff": "exponential", "retryAfter": true, "statusCodes": [], "limit": "8s"},
        "retryOn": {"unknown": true, "temporary": true, "permanent": false, "timeout": true, "rateLimit": true,
            "networkFailure": true, "authenticationFailure": false, "invalidRecipient": false, "quotaExceeded": true}}"#;

    /// Puts the fields of one object over those of another.
    fn over(below: &mut Value, above: Value) {
        match (below, above) {
            (Value::Object(below), Value::Object(above)) => {
                for (name, value) in above {
                    over(below.entry(name).or_insert(Value::Null), value);
                }
            }
            (below, above) => *below = above,
        }
    }

    #[test]
    fn every_field_of_every_preset_is_as_specified() {
        assert_eq!(SAID.map(|(preset, _)| preset), Preset::ALL);
        for (preset, said) in SAID {
            let mut all: Value = serde_json::from_str(SAID_BY_ALL).unwrap();
            over(&mut all, serde_json::from_str(said).unwrap());
            assert_eq!(serde_json::to_value(preset.policy()).unwrap(), all, "{preset:?}");
        }
    }

    #[test]
    fn every_preset_is_a_policy_that_would_be_accepted() {
        for preset in Preset::ALL {
            assert_eq!(Preset::from_name(preset.name()), Some(preset));
            assert_eq!(serde_json::to_value(preset).unwrap(), preset.name());
            let shown = serde_json::to_value(preset.policy()).unwrap();
            let read = PolicyLayer::from_json(&shown).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), shown);
        }
    }
}
