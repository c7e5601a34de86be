//! Reads a scenario from JSON. API, command and page say it in the same form.

use std::time::Duration;

use serde_json::Value;

use super::{Scenario, Script};
use crate::breaker::BreakerSettings;
use crate::channel::Channel;
use crate::classify::Overrides;
use crate::destination::{MAX_CONCURRENCY, SendLimits};
use crate::duration;
use crate::fields::{BadField, Fields};
use crate::policy::{Policy, PolicyLayer};
use crate::rate::Rate;

/// What follows a script that does not end well.
const AFTERWARDS: Duration = Duration::from_secs(3_600);
/// The longest time that is simulated.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
const DEFAULT_RESPONSE_TIME: Duration = Duration::from_millis(100);
const LONGEST_RESPONSE_TIME: Duration = Duration::from_secs(600);
const MAX_THRESHOLD: u32 = 1_000_000;

/// What somebody asks to be simulated.
#[derive(Debug, Clone)]
pub struct Asked {
    /// None: the one in force.
    pub policy: Option<PolicyLayer>,
    rate: Rate,
    script: Script,
    duration: Duration,
    breaker: Breaker,
    limits: SendLimits,
    response_time: Duration,
    expires_after: Option<Duration>,
    seed: u64,
}

/// What is said of the breaker.
#[derive(Debug, Clone, Copy, Default)]
struct Breaker {
    failure_threshold: Option<u32>,
    first_break: Option<Duration>,
    break_duration: Option<Duration>,
    forget_after: Option<Duration>,
}

impl Asked {
    pub fn from_json(value: &Value) -> Result<Self, BadField> {
        let mut fields = Fields::of("", value)?;
        let policy = fields.take("policy")?.map(PolicyLayer::from_json).transpose();
        let rate = rate(&mut fields, "rate")?;
        let script = match fields.text("script")? {
            Some(text) => Script::parse(text).map_err(|error| fields.bad("script", error))?,
            None => return Err(fields.bad("script", "is missing; such as `503 for 20m, ok for 1h`")),
        };
        let asked = Self {
            policy: policy.map_err(|bad| bad.under("policy"))?,
            rate: rate.ok_or_else(|| fields.bad("rate", "is missing: new notifications a second"))?,
            duration: length(&mut fields, &script)?,
            script,
            breaker: fields.take("breaker")?.map(breaker).transpose()?.unwrap_or_default(),
            limits: fields.take("limits")?.map(limits).transpose()?.unwrap_or_default(),
            response_time: response_time(&mut fields)?,
            expires_after: positive(&mut fields, "expiresAfter")?,
            seed: u64::from(fields.whole("seed")?.unwrap_or(1)),
        };
        let arrivals = asked.rate.as_per_second() * asked.duration.as_secs_f64();
        if arrivals < 1.0 {
            return Err(fields.bad("rate", "is so low that nothing arrives in this time"));
        }
        fields.finish()?;
        Ok(asked)
    }

    /// With what does not stand in it.
    pub fn scenario(
        self,
        policy: Policy,
        (channel, overrides): (Channel, Overrides),
        breaker: BreakerSettings,
        concurrency: u32,
    ) -> Result<Scenario, BadField> {
        let said = self.breaker;
        let breaker = BreakerSettings {
            failure_threshold: said.failure_threshold.unwrap_or(breaker.failure_threshold),
            first_break: said.first_break.unwrap_or(breaker.first_break),
            break_duration: said.break_duration.unwrap_or(breaker.break_duration),
            forget_after: said.forget_after.unwrap_or(breaker.forget_after),
        };
        if said.forget_after.is_some() && breaker.forget_after < breaker.break_duration {
            return Err(BadField::new("breaker.forgetAfter", "must be at least breakDuration"));
        }
        Ok(Scenario {
            policy,
            channel,
            overrides,
            rate: self.rate,
            script: self.script,
            breaker,
            limits: self.limits,
            concurrency,
            response_time: self.response_time,
            expires_after: self.expires_after,
            duration: self.duration,
            seed: self.seed,
        })
    }
}

fn rate(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Rate>, BadField> {
    let number = fields.number(name)?;
    number.map(Rate::per_second).transpose().map_err(|error| fields.bad(name, error))
}

fn positive(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Duration>, BadField> {
    match fields.duration(name)? {
        Some(length) if length.is_zero() => Err(fields.bad(name, "must be more than 0s")),
        length => Ok(length),
    }
}

/// The length of the script, and an hour more if it does not end well.
fn length(fields: &mut Fields<'_>, script: &Script) -> Result<Duration, BadField> {
    let own =
        || if script.ends_well() { script.length() } else { script.length().saturating_add(AFTERWARDS) };
    let length = positive(fields, "duration")?.unwrap_or_else(own);
    if length > LONGEST {
        let name = if fields.duration("duration")?.is_some() { "duration" } else { "script" };
        return Err(fields.bad(name, format!("at most {} are simulated", duration::show(LONGEST))));
    }
    if length < Duration::from_secs(1) {
        return Err(fields.bad("duration", "must be at least 1s"));
    }
    Ok(length)
}

fn response_time(fields: &mut Fields<'_>) -> Result<Duration, BadField> {
    let time = fields.duration("responseTime")?.unwrap_or(DEFAULT_RESPONSE_TIME);
    if time > LONGEST_RESPONSE_TIME {
        let reason = format!("must be at most {}", duration::show(LONGEST_RESPONSE_TIME));
        return Err(fields.bad("responseTime", reason));
    }
    Ok(time)
}

fn breaker(value: &Value) -> Result<Breaker, BadField> {
    let mut fields = Fields::of("breaker", value)?;
    let breaker = Breaker {
        failure_threshold: fields.whole("failureThreshold")?,
        first_break: positive(&mut fields, "firstBreak")?,
        break_duration: positive(&mut fields, "breakDuration")?,
        forget_after: positive(&mut fields, "forgetAfter")?,
    };
    if breaker.failure_threshold.is_some_and(|most| !(1..=MAX_THRESHOLD).contains(&most)) {
        return Err(fields.bad("failureThreshold", format!("must be from 1 to {MAX_THRESHOLD}")));
    }
    fields.finish()?;
    Ok(breaker)
}

fn limits(value: &Value) -> Result<SendLimits, BadField> {
    let mut fields = Fields::of("limits", value)?;
    let limits = SendLimits { rate: rate(&mut fields, "rate")?, concurrency: fields.whole("concurrency")? };
    if limits.concurrency.is_some_and(|most| !(1..=MAX_CONCURRENCY).contains(&most)) {
        return Err(fields.bad("concurrency", format!("must be from 1 to {MAX_CONCURRENCY}")));
    }
    fields.finish()?;
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_has_a_default() {
        let asked = Asked::from_json(&json!({"rate": 10, "script": "503 for 20m"})).unwrap();
        assert_eq!((asked.duration, asked.seed), (Duration::from_secs(4_800), 1));
        assert_eq!(asked.response_time, DEFAULT_RESPONSE_TIME);
        for (script, secs) in [
            ("503 for 20m, ok for 1h", 4_800),
            ("10% timeouts", 3_600),
            ("ok", 3_600),
            ("ok in 1s for 9m", 540),
        ] {
            let asked = Asked::from_json(&json!({"rate": 10, "script": script})).unwrap();
            assert_eq!(asked.duration, Duration::from_secs(secs), "{script}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_field() {
        let good = json!({"rate": 10, "script": "503 for 20m"});
        let table = [
            (json!({"rate": null}), "rate"),
            (json!({"rate": 0}), "rate"),
            (json!({"rate": "ten"}), "rate"),
            (json!({"rate": 1e7}), "rate"),
            (json!({"rate": 0.001, "duration": "5m"}), "rate"),
            (json!({"script": null}), "script"),
            (json!({"script": 503}), "script"),
            (json!({"script": "503 for ever"}), "script"),
            (json!({"script": "503 for 400d"}), "script"),
            (json!({"duration": "400d"}), "duration"),
            (json!({"duration": "0s"}), "duration"),
            (json!({"duration": "10ms"}), "duration"),
            (json!({"policy": {"maxAttempts": 0}}), "policy.maxAttempts"),
            (json!({"policy": []}), "policy"),
            (json!({"breaker": {"failureThreshold": 0}}), "breaker.failureThreshold"),
            (json!({"breaker": {"firstBreak": "0s"}}), "breaker.firstBreak"),
            (json!({"breaker": {"first": 1}}), "breaker.first"),
            (json!({"limits": {"rate": 0}}), "limits.rate"),
            (json!({"limits": {"concurrency": 0}}), "limits.concurrency"),
            (json!({"responseTime": "11m"}), "responseTime"),
            (json!({"expiresAfter": "0s"}), "expiresAfter"),
            (json!({"seed": -1}), "seed"),
            (json!({"speed": 1}), "speed"),
        ];
        for (change, field) in table {
            let mut value = good.clone();
            value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            assert_eq!(Asked::from_json(&value).unwrap_err().field, field, "{value}");
        }
        let error = Asked::from_json(&json!({"rate": 1, "script": "ok for 1m, 50x for 1m"})).unwrap_err();
        assert!(error.to_string().starts_with("script: column 12: `50x` is no answer"), "{error}");
    }
}
