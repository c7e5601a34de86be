//! Reads a policy layer from JSON (or TOML converted to JSON). Errors name the path of the field.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::quick::{QuickBackoff, When};
use super::{PolicyLayer, Preset, QuickLayer};
use crate::duration;
use crate::failure::FailureType;
use crate::fields::{BadField, Fields, excerpt};
use crate::jitter::Jitter;
use crate::strategy::Strategy;

const PRESETS: &str = "story, notify, zgw, shumoul-email, webhook, standard";
const STRATEGIES: &str = "none, fixed, exponential, linear, immediate, schedule";

impl PolicyLayer {
    /// Reads and checks a layer. Unknown fields are refused; snake_case is accepted.
    pub fn from_json(value: &Value) -> Result<Self, BadField> {
        let layer = read(value)?;
        layer.check()?;
        Ok(layer)
    }
}

fn read(value: &Value) -> Result<PolicyLayer, BadField> {
    let mut fields = Fields::of("", value)?;
    let layer = PolicyLayer {
        preset: fields.name("preset", Preset::from_name, PRESETS)?,
        strategy: fields.name("strategy", Strategy::from_name, STRATEGIES)?,
        initial_delay: fields.duration("initialDelay")?,
        multiplier: fields.number("multiplier")?,
        maximum_delay: fields.duration("maximumDelay")?,
        schedule: fields.list("schedule")?.map(|list| schedule(list)).transpose()?,
        max_attempts: max_attempts(&mut fields)?,
        jitter: fields.take("jitter")?.map(|value| Jitter::from_json("jitter", value)).transpose()?,
        timeout: fields.duration("timeout")?,
        max_age: fields.duration("maxAge")?,
        dead_letter: fields.flag("deadLetter")?,
        honour_retry_after: fields.flag("honourRetryAfter")?,
        maximum_retry_after: fields.duration("maximumRetryAfter")?,
        quick: fields.take("quick")?.map(quick).transpose()?,
        retry_on: fields.take("retryOn")?.map(retry_on).transpose()?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(layer)
}

/// `maxRetries` is one less than `maxAttempts`. Giving both is refused, since they could contradict each
/// other.
fn max_attempts(fields: &mut Fields<'_>) -> Result<Option<u32>, BadField> {
    match (fields.whole("maxAttempts")?, fields.whole("maxRetries")?) {
        (Some(_), Some(_)) => {
            Err(fields.bad("maxRetries", "is another name for maxAttempts - 1; give only one"))
        }
        (attempts, None) => Ok(attempts),
        (None, Some(retries)) => Ok(Some(retries.saturating_add(1))),
    }
}

fn schedule(list: &[Value]) -> Result<Vec<Duration>, BadField> {
    let entry = |(at, value)| {
        duration::from_json(value).map_err(|error| BadField::new(format!("schedule[{at}]"), error))
    };
    list.iter().enumerate().map(entry).collect()
}

fn quick(value: &Value) -> Result<QuickLayer, BadField> {
    let mut fields = Fields::of("quick", value)?;
    let layer = QuickLayer {
        tries: fields.whole("tries")?,
        delay: fields.duration("delay")?,
        backoff: fields.name("backoff", QuickBackoff::from_name, "constant, linear, exponential")?,
        jitter: fields.flag("jitter")?,
        retry_after: fields.flag("retryAfter")?,
        status_codes: fields.list("statusCodes")?.map(|list| status_codes(list)).transpose()?,
        when: fields.name("when", When::from_name, "any, unsent")?,
        limit: fields.duration("limit")?,
    };
    fields.finish()?;
    Ok(layer)
}

fn status_codes(list: &[Value]) -> Result<Vec<u16>, BadField> {
    let code = |(at, value): (usize, &Value)| {
        let code = value.as_u64().and_then(|code| u16::try_from(code).ok());
        let reason = || format!("must be a status code, not {}", excerpt(value));
        code.ok_or_else(|| BadField::new(format!("quick.statusCodes[{at}]"), reason()))
    };
    list.iter().enumerate().map(code).collect()
}

fn retry_on(value: &Value) -> Result<BTreeMap<FailureType, bool>, BadField> {
    let mut fields = Fields::of("retryOn", value)?;
    let mut retry_on = BTreeMap::new();
    for failure_type in FailureType::ALL {
        if let Some(retried) = fields.flag(failure_type.name())? {
            retry_on.insert(failure_type, retried);
        }
    }
    fields.finish()?;
    Ok(retry_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::Strategy;
    use serde_json::json;

    fn example() -> Value {
        json!({
            "preset": "notify", "strategy": "exponential", "initialDelay": "30s", "multiplier": 2,
            "maximumDelay": "480s", "schedule": ["1m", "5m"], "maxAttempts": 5, "jitter": {"percent": 10},
            "timeout": "10s", "maxAge": "3d", "deadLetter": true, "honourRetryAfter": true,
            "maximumRetryAfter": "1h",
            "quick": {"tries": 4, "delay": "500ms", "backoff": "exponential", "jitter": false,
                "retryAfter": true, "statusCodes": [404], "when": "any"},
            "retryOn": {"permanent": false, "authenticationFailure": false, "invalidRecipient": false,
                "timeout": true}
        })
    }

    #[test]
    fn the_shape_of_the_contract_is_read_and_written_back() {
        let layer = PolicyLayer::from_json(&example()).unwrap();
        let mut expected = example();
        expected["maximumDelay"] = json!("8m");
        assert_eq!(serde_json::to_value(&layer).unwrap(), expected);
        assert_eq!(serde_json::from_value::<PolicyLayer>(expected).unwrap(), layer);
        assert_eq!(serde_json::to_string(&PolicyLayer::default()).unwrap(), "{}");
    }

    #[test]
    fn snake_case_says_the_same() {
        let camel = json!({"initialDelay": 1, "maxRetries": 4, "quick": {"statusCodes": [404], "retryAfter": true},
            "retryOn": {"rateLimit": false}});
        let snake = json!({"initial_delay": 1, "max_retries": 4,
            "quick": {"status_codes": [404], "retry_after": true}, "retry_on": {"rate_limit": false}});
        assert_eq!(PolicyLayer::from_json(&snake), PolicyLayer::from_json(&camel));
        assert_eq!(PolicyLayer::from_json(&snake).unwrap().max_attempts, Some(5));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let table = [
            (json!({"maxAttempts": 5, "maxRetries": 4}), "maxRetries"),
            (json!({"maxAttempt": 5}), "maxAttempt"),
            (json!({"preset": "zwg"}), "preset"),
            (json!({"strategy": 2}), "strategy"),
            (json!({"initialDelay": "-1s"}), "initialDelay"),
            (json!({"initialDelay": -1}), "initialDelay"),
            (json!({"maxAttempts": -1}), "maxAttempts"),
            (json!({"schedule": "1m"}), "schedule"),
            (json!({"schedule": ["1m", "x"]}), "schedule[1]"),
            (json!({"jitter": {"percent": "ten"}}), "jitter.percent"),
            (json!({"quick": {"tires": 1}}), "quick.tires"),
            (json!({"quick": {"tries": 1.5}}), "quick.tries"),
            (json!({"quick": {"backoff": "slow"}}), "quick.backoff"),
            (json!({"quick": {"when": "never"}}), "quick.when"),
            (json!({"quick": {"statusCodes": [404, "x"]}}), "quick.statusCodes[1]"),
            (json!({"quick": {"statusCodes": [70_000]}}), "quick.statusCodes[0]"),
            (json!({"retryOn": {"boredom": true}}), "retryOn.boredom"),
            (json!({"retryOn": {"timeout": "yes"}}), "retryOn.timeout"),
            (json!({"retryOn": []}), "retryOn"),
            (json!([]), "(document)"),
        ];
        for (value, field) in table {
            assert_eq!(PolicyLayer::from_json(&value).unwrap_err().field, field, "{value}");
        }
        let error = serde_json::from_value::<PolicyLayer>(json!({"quick": {"tires": 1}})).unwrap_err();
        assert!(error.to_string().starts_with("quick.tires: is unknown; the fields are tries, delay"));
    }

    /// JSON values that look a little like policies.
    fn values() -> impl Strategy<Value = Value> {
        let names = [
            "strategy",
            "schedule",
            "quick",
            "maxAttempts",
            "multiplier",
            "jitter",
            "tries",
            "delay",
            "percent",
        ];
        let texts = ["schedule", "exponential", "1m", "-1s", "zgw", "full", ""];
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| json!(number)),
            any::<f64>().prop_map(|number| json!(number)),
            (0..30u32).prop_map(|number| json!(number)),
            proptest::sample::select(texts.to_vec()).prop_map(|text| json!(text)),
            any::<bool>().prop_map(|flag| json!(flag)),
        ];
        leaf.prop_recursive(3, 24, 6, move |inner| {
            let name = proptest::sample::select(names.to_vec()).prop_map(str::to_owned);
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(name, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_accepted_can_be_written_and_read_again_and_never_panics(value in values()) {
            if let Ok(layer) = PolicyLayer::from_json(&value) {
                let written = serde_json::to_value(&layer).unwrap();
                prop_assert_eq!(PolicyLayer::from_json(&written), Ok(layer.clone()));
                let policy = crate::policy::resolve(Preset::Standard, [&layer]);
                let _ = (policy.window(), policy.max_age(), crate::policy::preview(&policy));
            }
        }
    }
}
