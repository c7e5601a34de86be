//! Refuses harmful policies, with the field and the reason.
//!
//! Fields of other scopes are not known here. Harmful combinations are limited at the time of use: quick
//! waits stop at their limit, and every delay saturates.

use std::time::Duration;

use super::preset::attempts_of;
use super::quick::QuickBackoff;
use super::{Policy, PolicyLayer, QuickLayer, Scope};
use crate::duration::{MAXIMUM, show};
use crate::fields::BadField;
use crate::jitter::Jitter;
use crate::strategy::Strategy;

pub const MAX_ATTEMPTS: u32 = 1_000;
/// From S1.
pub const MAX_TEMPLATE_ATTEMPTS: u32 = 5;
pub const MAX_SCHEDULE_ENTRIES: usize = 100;
pub const MAX_QUICK_TRIES: u32 = 20;
pub const MAX_STATUS_CODES: usize = 100;
/// Upper bound on the sum of quick waits, for every scope.
pub const MAX_QUICK_LIMIT: Duration = Duration::from_secs(60);
/// Upper bound on the timeout of one try, for every scope.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(600);

impl PolicyLayer {
    /// Checks everything that does not depend on other scopes.
    pub fn check(&self) -> Result<(), BadField> {
        self.check_lengths()?;
        self.check_delays()?;
        self.check_budget()?;
        match &self.quick {
            Some(quick) => check_quick(quick, self.preset.map(|preset| preset.policy()).as_ref()),
            None => Ok(()),
        }
    }

    /// Checks the layer, with the rules of its scope.
    pub fn check_for(&self, scope: &Scope) -> Result<(), BadField> {
        self.check()?;
        match scope {
            Scope::Template { .. } => self.check_template(),
            Scope::Global | Scope::Channel(_) | Scope::Tenant(_) => Ok(()),
        }
    }

    /// Checks that the timeout of the layer or of its preset is at most `longest`.
    pub(super) fn check_timeout(&self, longest: Duration) -> Result<(), BadField> {
        match (self.timeout, self.own_timeout()) {
            (Some(timeout), _) if timeout > longest => {
                let reason = format!(
                    "must be at most {}, not {}; a longer one can be set for all tenants (global, channel:x) or in the \
                     configuration file, see engine.longest_timeout there",
                    show(longest),
                    show(timeout)
                );
                Err(BadField::new("timeout", reason))
            }
            (None, Some(timeout)) if timeout > longest => {
                let reason = format!(
                    "has a timeout of {}, and at most {} can be asked for here; give a shorter timeout with it",
                    show(timeout),
                    show(longest)
                );
                Err(BadField::new("preset", reason))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// A longer duration could not be read back.
    fn check_lengths(&self) -> Result<(), BadField> {
        let plus = match self.jitter {
            Some(Jitter::Plus(most)) => Some(most),
            Some(_) | None => None,
        };
        let quick = self.quick.as_ref();
        let longest_entry = self.schedule.as_ref().and_then(|schedule| schedule.iter().max().copied());
        let lengths = [
            ("initialDelay", self.initial_delay),
            ("maximumDelay", self.maximum_delay),
            ("schedule", longest_entry),
            ("jitter.plus", plus),
            ("timeout", self.timeout),
            ("maxAge", self.max_age),
            ("maximumRetryAfter", self.maximum_retry_after),
            ("quick.delay", quick.and_then(|quick| quick.delay)),
        ];
        match lengths.into_iter().find(|(_, length)| length.is_some_and(|length| length > MAXIMUM)) {
            Some((field, _)) => Err(BadField::new(field, format!("must be at most {}", show(MAXIMUM)))),
            None => Ok(()),
        }
    }

    fn check_delays(&self) -> Result<(), BadField> {
        if let Some(multiplier) = self.multiplier
            && !(multiplier.is_finite() && multiplier >= 1.0)
        {
            return Err(BadField::new("multiplier", format!("must be 1 or more, not {multiplier}")));
        }
        if let Some(Jitter::Percent(percent)) = self.jitter
            && !(0.0..=100.0).contains(&percent)
        {
            return Err(BadField::new("jitter.percent", format!("must be 0 to 100, not {percent}")));
        }
        match &self.schedule {
            Some(schedule) if schedule.is_empty() => {
                Err(BadField::new("schedule", "is empty; use the strategy none for no retries"))
            }
            Some(schedule) if schedule.len() > MAX_SCHEDULE_ENTRIES => {
                let reason = format!("has {} entries; the limit is {MAX_SCHEDULE_ENTRIES}", schedule.len());
                Err(BadField::new("schedule", reason))
            }
            None if self.strategy == Some(Strategy::Schedule) && !self.preset_has_schedule() => {
                Err(BadField::new("schedule", "is missing; the strategy schedule needs it in the same scope"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_budget(&self) -> Result<(), BadField> {
        if let Some(attempts) = self.max_attempts
            && !(1..=MAX_ATTEMPTS).contains(&attempts)
        {
            return Err(BadField::new("maxAttempts", format!("must be 1 to {MAX_ATTEMPTS}, not {attempts}")));
        }
        if let Some(timeout) = self.timeout
            && !(timeout > Duration::ZERO && timeout <= MAX_TIMEOUT)
        {
            let reason = format!("must be more than 0s and at most {}", show(MAX_TIMEOUT));
            return Err(BadField::new("timeout", format!("{reason}, not {}", show(timeout))));
        }
        if self.max_age == Some(Duration::ZERO) {
            return Err(BadField::new("maxAge", "must be more than 0s"));
        }
        Ok(())
    }

    /// A template can set its attempts by number, by schedule or by preset.
    fn check_template(&self) -> Result<(), BadField> {
        let scheduled = match self.own_strategy() {
            Some(Strategy::Schedule) => self.schedule.as_ref().map(|schedule| attempts_of(schedule)),
            Some(_) | None => None,
        };
        let preset = self.preset.map(|preset| preset.policy().max_attempts);
        let (field, attempts) = match (self.max_attempts, scheduled, preset) {
            (Some(attempts), _, _) => ("maxAttempts", attempts),
            (None, Some(attempts), _) => ("schedule", attempts),
            (None, None, Some(attempts)) => ("preset", attempts),
            (None, None, None) => return Ok(()),
        };
        if attempts > MAX_TEMPLATE_ATTEMPTS {
            let reason =
                format!("a template has at most {MAX_TEMPLATE_ATTEMPTS} attempts, this makes {attempts}");
            return Err(BadField::new(field, reason));
        }
        Ok(())
    }

    fn preset_has_schedule(&self) -> bool {
        self.preset.is_some_and(|preset| !preset.policy().backoff.schedule.is_empty())
    }
}

fn check_quick(quick: &QuickLayer, preset: Option<&Policy>) -> Result<(), BadField> {
    if let Some(tries) = quick.tries
        && tries > MAX_QUICK_TRIES
    {
        return Err(BadField::new("quick.tries", format!("must be at most {MAX_QUICK_TRIES}, not {tries}")));
    }
    if let Some(limit) = quick.limit
        && limit > MAX_QUICK_LIMIT
    {
        let reason = format!("must be at most {}, not {}", show(MAX_QUICK_LIMIT), show(limit));
        return Err(BadField::new("quick.limit", reason));
    }
    check_status_codes(quick.status_codes.as_deref().unwrap_or_default())?;
    check_quick_waits(quick, preset)
}

fn check_status_codes(codes: &[u16]) -> Result<(), BadField> {
    if codes.len() > MAX_STATUS_CODES {
        let reason = format!("has {} entries; the limit is {MAX_STATUS_CODES}", codes.len());
        return Err(BadField::new("quick.statusCodes", reason));
    }
    for (at, code) in codes.iter().enumerate() {
        if !(300..=599).contains(code) {
            let reason = format!("{code} is not a failure status (300 to 599)");
            return Err(BadField::new(format!("quick.statusCodes[{at}]"), reason));
        }
    }
    Ok(())
}

/// The sum of the waits is known if tries and delay are. The default backoff is exponential, as in every
/// preset.
fn check_quick_waits(quick: &QuickLayer, preset: Option<&Policy>) -> Result<(), BadField> {
    let preset = preset.map(|policy| &policy.quick);
    let tries = quick.tries.or(preset.map(|preset| preset.tries));
    let delay = quick.delay.or(preset.map(|preset| preset.delay));
    let (Some(tries), Some(delay)) = (tries, delay) else { return Ok(()) };
    let backoff = quick.backoff.unwrap_or(QuickBackoff::Exponential);
    let limit = quick.limit.unwrap_or(super::quick::DEFAULT_LIMIT);
    let waits = backoff.total_wait(delay, tries);
    if waits > limit {
        let reason = format!(
            "the waits add up to {}, more than {}; raise quick.limit or wait less",
            show(waits),
            show(limit)
        );
        return Err(BadField::new("quick", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn refused(value: Value) -> String {
        PolicyLayer::from_json(&value).expect_err("it should be refused").to_string()
    }

    #[test]
    fn a_harmful_policy_is_refused_with_field_and_reason() {
        let table = [
            (json!({"multiplier": 0.99}), "multiplier: must be 1 or more, not 0.99"),
            (json!({"schedule": []}), "schedule: is empty; use the strategy none for no retries"),
            (json!({"schedule": vec!["1s"; 101]}), "schedule: has 101 entries; the limit is 100"),
            (
                json!({"strategy": "schedule"}),
                "schedule: is missing; the strategy schedule needs it in the same scope",
            ),
            (json!({"strategy": "schedule", "preset": "notify"}), "schedule: is missing"),
            (json!({"maxAttempts": 0}), "maxAttempts: must be 1 to 1000, not 0"),
            (json!({"maxAttempts": 1_001}), "maxAttempts: must be 1 to 1000, not 1001"),
            (json!({"maxRetries": u32::MAX}), "maxAttempts: must be 1 to 1000"),
            (json!({"jitter": {"percent": 101}}), "jitter.percent: must be 0 to 100, not 101"),
            (json!({"jitter": {"percent": -1}}), "jitter.percent: must be 0 to 100, not -1"),
            (json!({"timeout": 0}), "timeout: must be more than 0s and at most 10m, not 0s"),
            (json!({"timeout": "1h"}), "timeout: must be more than 0s and at most 10m, not 1h"),
            (json!({"maxAge": "0s"}), "maxAge: must be more than 0s"),
            (json!({"quick": {"tries": 21}}), "quick.tries: must be at most 20, not 21"),
            (json!({"quick": {"limit": "61s"}}), "quick.limit: must be at most 1m, not 61s"),
            (json!({"quick": {"statusCodes": [204]}}), "quick.statusCodes[0]: 204 is not a failure status"),
            (
                json!({"quick": {"tries": 5, "delay": "500ms"}}),
                "quick: the waits add up to 15500ms, more than 8s",
            ),
            (
                json!({"preset": "zgw", "quick": {"tries": 5}}),
                "quick: the waits add up to 15500ms, more than 8s",
            ),
            (
                json!({"quick": {"tries": 3, "delay": "3s", "backoff": "constant"}}),
                "quick: the waits add up to 9s",
            ),
        ];
        for (value, expected) in table {
            let error = refused(value);
            assert!(error.starts_with(expected), "{error}");
        }
        for multiplier in [f64::NAN, f64::INFINITY, -1.0] {
            let layer = PolicyLayer { multiplier: Some(multiplier), ..PolicyLayer::default() };
            assert_eq!(layer.check().unwrap_err().field, "multiplier");
        }
        let layer = PolicyLayer { jitter: Some(Jitter::Percent(f64::NAN)), ..PolicyLayer::default() };
        assert_eq!(layer.check().unwrap_err().field, "jitter.percent");
    }

    #[test]
    fn what_is_within_the_bounds_is_taken() {
        for value in [
            json!({}),
            json!({"multiplier": 1}),
            json!({"preset": "zgw", "strategy": "schedule"}),
            json!({"quick": {"tries": 4, "delay": "500ms"}}),
            json!({"quick": {"tries": 5, "delay": "500ms", "limit": "16s"}}),
            json!({"quick": {"tries": 20, "delay": "400ms", "backoff": "constant"}}),
            json!({"quick": {"tries": 0}}),
            json!({"maxRetries": 0}),
            json!({"initialDelay": 0}),
        ] {
            assert!(PolicyLayer::from_json(&value).is_ok(), "{value}");
        }
    }

    #[test]
    fn a_timeout_beyond_the_longest_is_refused_however_it_is_set() {
        let check = |value: Value, longest: u64| {
            PolicyLayer::from_json(&value).unwrap().check_timeout(Duration::from_secs(longest))
        };
        for (value, longest) in [
            (json!({}), 1),
            (json!({"maxAttempts": 3}), 1),
            (json!({"timeout": "60s"}), 60),
            (json!({"timeout": "10m"}), 600),
            (json!({"preset": "zgw"}), 30),
            (json!({"preset": "zgw", "timeout": "5s"}), 5),
        ] {
            assert_eq!(check(value.clone(), longest), Ok(()), "{value}");
        }
        for (value, longest, told) in [
            (
                json!({"timeout": "60001ms"}),
                60,
                "timeout: must be at most 1m, not 60001ms; a longer one can be set",
            ),
            (json!({"timeout": "10m"}), 60, "timeout: must be at most 1m, not 10m; "),
            (
                json!({"preset": "zgw"}),
                29,
                "preset: has a timeout of 30s, and at most 29s can be asked for here",
            ),
            (json!({"preset": "notify", "timeout": "6s"}), 5, "timeout: must be at most 5s, not 6s"),
        ] {
            let error = check(value, longest).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn a_template_has_at_most_five_attempts_however_they_are_set() {
        let template = Scope::template("welcome");
        let check = |value: Value| PolicyLayer::from_json(&value).unwrap().check_for(&template);
        for (value, field) in [
            (json!({"maxAttempts": 6}), "maxAttempts"),
            (json!({"maxRetries": 5}), "maxAttempts"),
            (json!({"schedule": ["1m", "1m", "1m", "1m", "1m"]}), "schedule"),
            (json!({"preset": "webhook"}), "preset"),
        ] {
            assert_eq!(check(value).unwrap_err().field, field);
        }
        for value in [
            json!({"maxAttempts": 5}),
            json!({"schedule": ["1m", "1m", "1m", "1m"]}),
            json!({"preset": "webhook", "maxAttempts": 5}),
            json!({"preset": "story"}),
        ] {
            assert_eq!(check(value), Ok(()));
        }
        let six = PolicyLayer { max_attempts: Some(6), ..PolicyLayer::default() };
        assert_eq!(six.check_for(&Scope::Global), Ok(()));
    }
}
