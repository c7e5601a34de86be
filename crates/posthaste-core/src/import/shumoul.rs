//! S0: the policy JSON of one channel.
//!
//! `enabled: false` becomes the strategy `none`: the first failure is final. The other settings are kept for
//! when it is enabled again. S0 has no jitter. Failure types without a flag keep their default.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Imported, checked, flag, number, seconds, whole};
use crate::channel::Channel;
use crate::failure::FailureType;
use crate::fields::{BadField, Fields, excerpt};
use crate::jitter::Jitter;
use crate::policy::PolicyLayer;
use crate::strategy::Strategy;

/// Fields that only S0 has.
pub(super) const KEY_FIELDS: [&str; 5] =
    ["retryStrategy", "initialDelaySeconds", "maximumDelaySeconds", "backoffMultiplier", "deadLetterEnabled"];

const FLAGS: [(&str, FailureType); 9] = [
    ("retryOnUnknownFailure", FailureType::Unknown),
    ("retryOnTemporaryFailure", FailureType::Temporary),
    ("retryOnPermanentFailure", FailureType::Permanent),
    ("retryOnTimeout", FailureType::Timeout),
    ("retryOnRateLimit", FailureType::RateLimit),
    ("retryOnNetworkFailure", FailureType::NetworkFailure),
    ("retryOnAuthenticationFailure", FailureType::AuthenticationFailure),
    ("retryOnInvalidRecipient", FailureType::InvalidRecipient),
    ("retryOnQuotaExceeded", FailureType::QuotaExceeded),
];

pub(super) fn read(document: &Value) -> Result<Imported, BadField> {
    let mut fields = Fields::of("", document)?;
    let mut warnings = Vec::new();
    let channel = channel(&mut fields)?;
    let mut strategy = strategy(&mut fields)?;
    if flag(&mut fields, "enabled")? == Some(false) {
        strategy = Some(Strategy::None);
        warnings.push("enabled: false became the strategy none, so nothing is retried".to_owned());
    }
    let policy = PolicyLayer {
        strategy,
        initial_delay: seconds(&mut fields, "initialDelaySeconds")?,
        multiplier: number(&mut fields, "backoffMultiplier")?,
        maximum_delay: seconds(&mut fields, "maximumDelaySeconds")?,
        max_attempts: whole(&mut fields, "maxRetries")?.map(|retries| retries.saturating_add(1)),
        jitter: Some(Jitter::None),
        dead_letter: flag(&mut fields, "deadLetterEnabled")?,
        retry_on: retry_on(&mut fields)?,
        ..PolicyLayer::default()
    };
    if fields.take("priority")?.is_some() {
        warnings.push("priority: left out; each notification brings its own".to_owned());
    }
    fields.finish()?;
    let policy = checked(policy, &[("maxAttempts", "maxRetries"), ("multiplier", "backoffMultiplier")])?;
    Ok(Imported { policy, channel, warnings, ..Imported::default() })
}

fn retry_on(fields: &mut Fields<'_>) -> Result<BTreeMap<FailureType, bool>, BadField> {
    let mut retry_on = BTreeMap::new();
    for (name, failure_type) in FLAGS {
        if let Some(retried) = flag(fields, name)? {
            retry_on.insert(failure_type, retried);
        }
    }
    Ok(retry_on)
}

/// S0 reaches an open page by SignalR, which is our in-app channel.
fn channel(fields: &mut Fields<'_>) -> Result<Option<Channel>, BadField> {
    let Some(value) = fields.take("channel")? else { return Ok(None) };
    let name = value.as_str().map(str::to_ascii_lowercase);
    let found = match (value.as_u64(), name.as_deref()) {
        (Some(1), _) | (_, Some("email")) => Channel::Email,
        (Some(2), _) | (_, Some("sms")) => Channel::Sms,
        (Some(3), _) | (_, Some("push")) => Channel::Push,
        (Some(4 | 5), _) | (_, Some("inapp" | "signalr")) => Channel::Inapp,
        (Some(6), _) | (_, Some("whatsapp")) => Channel::Whatsapp,
        _ => {
            let all = "Email 1, Sms 2, Push 3, InApp 4, SignalR 5 or WhatsApp 6";
            return Err(fields.bad("channel", format!("must be {all}, not {}", excerpt(value))));
        }
    };
    Ok(Some(found))
}

fn strategy(fields: &mut Fields<'_>) -> Result<Option<Strategy>, BadField> {
    let Some(value) = fields.take("retryStrategy")? else { return Ok(None) };
    let name = value.as_str().map(str::to_ascii_lowercase);
    let found = match (value.as_u64(), name.as_deref()) {
        (Some(0), _) | (_, Some("none")) => Strategy::None,
        (Some(1), _) | (_, Some("fixed")) => Strategy::Fixed,
        (Some(2), _) | (_, Some("exponentialbackoff")) => Strategy::Exponential,
        (Some(3), _) | (_, Some("linear")) => Strategy::Linear,
        (Some(4), _) | (_, Some("immediate")) => Strategy::Immediate,
        _ => {
            let all = "None 0, Fixed 1, ExponentialBackoff 2, Linear 3 or Immediate 4";
            return Err(fields.bad("retryStrategy", format!("must be {all}, not {}", excerpt(value))));
        }
    };
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::import_json;
    use super::*;
    use crate::policy::{Preset, resolve};
    use serde_json::json;

    fn document() -> Value {
        json!({"channel": 1, "enabled": true, "maxRetries": 5, "retryStrategy": 2, "initialDelaySeconds": 60,
            "maximumDelaySeconds": 3600, "backoffMultiplier": 2.0, "retryOnTimeout": true, "retryOnRateLimit": true,
            "retryOnNetworkFailure": true, "retryOnTemporaryFailure": true, "retryOnPermanentFailure": false,
            "deadLetterEnabled": true, "priority": 5})
    }

    fn with(field: &str, value: Value) -> Value {
        let mut document = document();
        document[field] = value;
        document
    }

    #[test]
    fn the_policy_of_the_contract_is_said_in_our_form() {
        let imported = import_json(&document()).unwrap();
        let expected = json!({
            "policy": {"strategy": "exponential", "initialDelay": "1m", "multiplier": 2, "maximumDelay": "1h",
                "maxAttempts": 6, "jitter": "none", "deadLetter": true,
                "retryOn": {"temporary": true, "permanent": false, "timeout": true, "rateLimit": true,
                    "networkFailure": true}},
            "breaker": null,
            "jobs": null,
        });
        assert_eq!(serde_json::to_value(&imported).unwrap(), expected);
        assert_eq!(imported.channel, Some(Channel::Email));
        assert_eq!(imported.warnings.len(), 1);
        assert_eq!(resolve(Preset::ShumoulEmail, [&imported.policy]), Preset::ShumoulEmail.policy());
    }

    #[test]
    fn every_channel_and_strategy_is_known_by_number_and_name() {
        let channels = [
            (json!(2), Channel::Sms),
            (json!(3), Channel::Push),
            (json!(4), Channel::Inapp),
            (json!(5), Channel::Inapp),
            (json!("SignalR"), Channel::Inapp),
            (json!(6), Channel::Whatsapp),
        ];
        for (value, channel) in channels {
            assert_eq!(import_json(&with("channel", value)).unwrap().channel, Some(channel));
        }
        for (code, name) in (0u8..).zip(["None", "Fixed", "ExponentialBackoff", "Linear", "Immediate"]) {
            for value in [json!(code), json!(name)] {
                let imported = import_json(&with("retryStrategy", value)).unwrap();
                assert_eq!(imported.policy.strategy, Strategy::from_code(code));
            }
        }
    }

    #[test]
    fn a_policy_that_is_switched_off_never_retries() {
        let imported = import_json(&with("enabled", json!(false))).unwrap();
        assert_eq!(imported.policy.strategy, Some(Strategy::None));
        assert!(imported.warnings[0].starts_with("enabled: false"));
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_name() {
        for (field, value) in [
            ("channel", json!(7)),
            ("retryStrategy", json!(5)),
            ("initialDelaySeconds", json!(-1)),
            ("backoffMultiplier", json!(0.5)),
            ("maxRetries", json!(100_000)),
            ("retryOnTimeout", json!("maybe")),
            ("retryOnBoredom", json!(true)),
        ] {
            assert_eq!(import_json(&with(field, value)).unwrap_err().field, field);
        }
    }
}
