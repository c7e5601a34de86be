//! Merges the layers of all scopes into one policy.

use std::sync::Arc;
use std::time::Duration;

use super::preset::attempts_of;
use super::{Policy, PolicyLayer, Preset, Quick, QuickLayer};
use crate::strategy::Strategy;

/// Applies layers to a preset, from the widest scope to the narrowest.
pub fn resolve<'a>(base: Preset, layers: impl IntoIterator<Item = &'a PolicyLayer>) -> Policy {
    let mut draft = Draft { policy: base.policy(), scope_maximum: None };
    for layer in layers {
        draft.apply(layer);
    }
    draft.finish()
}

/// A policy under construction. It remembers whether a scope set the cap, because the cap of a preset only
/// belongs to the delays of that preset.
struct Draft {
    policy: Policy,
    scope_maximum: Option<Duration>,
}

impl Draft {
    fn apply(&mut self, layer: &PolicyLayer) {
        if let Some(preset) = layer.preset {
            *self = Self { policy: preset.policy(), scope_maximum: None };
        }
        self.apply_backoff(layer);
        self.scope_maximum = layer.maximum_delay.or(self.scope_maximum);
        let policy = &mut self.policy;
        set_if_some(&mut policy.jitter, layer.jitter);
        set_if_some(&mut policy.timeout, layer.timeout);
        set_if_some(&mut policy.dead_letter, layer.dead_letter);
        set_if_some(&mut policy.honour_retry_after, layer.honour_retry_after);
        set_if_some(&mut policy.maximum_retry_after, layer.maximum_retry_after);
        policy.named_max_age = layer.max_age.or(policy.named_max_age);
        for (failure_type, retried) in &layer.retry_on {
            policy.retry_on.set(*failure_type, *retried);
        }
        if let Some(quick) = &layer.quick {
            apply_quick(&mut policy.quick, quick);
        }
    }

    fn apply_backoff(&mut self, layer: &PolicyLayer) {
        let backoff = &mut self.policy.backoff;
        set_if_some(&mut backoff.strategy, layer.own_strategy());
        set_if_some(&mut backoff.initial_delay, layer.initial_delay);
        set_if_some(&mut backoff.multiplier, layer.multiplier);
        if let Some(schedule) = &layer.schedule {
            backoff.schedule = Arc::from(schedule.as_slice());
            // A schedule also sets the number of attempts.
            if layer.own_strategy() == Some(Strategy::Schedule) {
                self.policy.max_attempts = attempts_of(schedule);
            }
        }
        set_if_some(&mut self.policy.max_attempts, layer.max_attempts);
    }

    /// Decides the cap. A cap set by a scope always counts. The cap of a preset does not apply to linear
    /// delays, and does not cut an initial delay that a scope has set.
    fn finish(mut self) -> Policy {
        let backoff = &mut self.policy.backoff;
        backoff.maximum_delay = match (self.scope_maximum, backoff.strategy) {
            (Some(named), _) => Some(named),
            (None, Strategy::Linear) => None,
            (
                None,
                Strategy::None
                | Strategy::Fixed
                | Strategy::Exponential
                | Strategy::Immediate
                | Strategy::Schedule,
            ) => backoff.maximum_delay.map(|preset| preset.max(backoff.initial_delay)),
        };
        self.policy
    }
}

fn apply_quick(quick: &mut Quick, layer: &QuickLayer) {
    set_if_some(&mut quick.tries, layer.tries);
    set_if_some(&mut quick.delay, layer.delay);
    set_if_some(&mut quick.backoff, layer.backoff);
    set_if_some(&mut quick.jitter, layer.jitter);
    set_if_some(&mut quick.retry_after, layer.retry_after);
    set_if_some(&mut quick.when, layer.when);
    set_if_some(&mut quick.limit, layer.limit);
    if let Some(codes) = &layer.status_codes {
        quick.status_codes = Arc::from(codes.as_slice());
    }
}

fn set_if_some<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureType;
    use serde_json::{Value, json};

    fn resolved(layers: &[Value]) -> Policy {
        let layers: Vec<PolicyLayer> =
            layers.iter().map(|layer| PolicyLayer::from_json(layer).unwrap()).collect();
        resolve(Preset::Standard, &layers)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn fields_that_are_missing_come_from_the_scope_below() {
        let policy = resolved(&[
            json!({"initialDelay": "1m", "timeout": "5s", "quick": {"tries": 3, "delay": "100ms"}}),
            json!({"initialDelay": "2m", "quick": {"delay": "200ms"}, "retryOn": {"permanent": true}}),
            json!({"retryOn": {"timeout": false}}),
        ]);
        assert_eq!(policy.backoff.initial_delay, secs(120));
        assert_eq!(policy.timeout, secs(5));
        assert_eq!((policy.quick.tries, policy.quick.delay), (3, Duration::from_millis(200)));
        assert!(policy.retry_on.allows(FailureType::Permanent));
        assert!(!policy.retry_on.allows(FailureType::Timeout));
        assert_eq!(policy.max_attempts, 5);
    }

    #[test]
    fn a_preset_fills_every_field_before_its_own_scope_speaks() {
        let below = json!({"maxAttempts": 9, "maxAge": "2d", "maximumDelay": "1m", "timeout": "1s",
            "retryOn": {"permanent": true}, "deadLetter": false, "quick": {"tries": 5}});
        assert_eq!(resolved(&[below.clone(), json!({"preset": "zgw"})]), Preset::Zgw.policy());
        let policy = resolved(&[below, json!({"preset": "notify", "maxAttempts": 2})]);
        assert_eq!(policy, Policy { max_attempts: 2, ..Preset::Notify.policy() });
    }

    #[test]
    fn a_schedule_brings_its_attempts_unless_its_own_scope_says_otherwise() {
        let low = json!({"maxAttempts": 9});
        let policy = resolved(&[low.clone(), json!({"schedule": ["1m", "5m"]})]);
        assert_eq!((policy.backoff.strategy, policy.max_attempts), (Strategy::Schedule, 3));
        let policy = resolved(&[low.clone(), json!({"schedule": ["1m", "5m"], "maxAttempts": 7})]);
        assert_eq!(policy.max_attempts, 7);
        let policy = resolved(&[low.clone(), json!({"preset": "notify", "schedule": ["1m"]})]);
        assert_eq!((policy.backoff.strategy, policy.max_attempts), (Strategy::Schedule, 2));
        let policy = resolved(&[json!({"schedule": ["1m", "5m"]}), low]);
        assert_eq!(policy.max_attempts, 9);
    }

    #[test]
    fn a_schedule_beside_another_strategy_lies_idle() {
        let policy = resolved(&[json!({"strategy": "fixed", "schedule": ["1m", "5m"]})]);
        assert_eq!((policy.backoff.strategy, policy.max_attempts), (Strategy::Fixed, 5));
    }

    #[test]
    fn the_cap_of_a_preset_does_not_reach_delays_that_a_scope_named() {
        let linear = resolved(&[json!({"strategy": "linear", "initialDelay": "2m"})]);
        assert_eq!(linear.backoff.nominal(10), Some(secs(1_200)));
        let capped =
            resolved(&[json!({"maximumDelay": "5m"}), json!({"strategy": "linear", "initialDelay": "2m"})]);
        assert_eq!(capped.backoff.nominal(10), Some(secs(300)));
        let large = resolved(&[json!({"initialDelay": "1h"})]);
        assert_eq!(large.backoff.nominal(1), Some(secs(3_600)));
        let kept = resolved(&[json!({"initialDelay": "1m"})]);
        assert_eq!(kept.backoff.nominal(10), Some(secs(480)));
    }
}
