//! What a token says: who it is for, from when until when, whose it is and what it may do.

use std::time::Duration;

use posthaste_core::notification::Tenant;
use posthaste_core::role::Role;
use posthaste_core::time::Timestamp;
use serde_json::{Map, Number, Value};

use super::Refusal;

/// How far the clock of the issuer may be from ours.
pub(super) const LEEWAY: Duration = Duration::from_secs(30);
/// The most bytes of a subject or of the name of a module.
const MAX_NAME: usize = 255;

/// What a token must say, and where it says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub issuer: String,
    pub audience: String,
    /// The names of claims.
    pub tenant: String,
    pub role: String,
    pub module: String,
}

/// What a token grants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) tenant: Tenant,
    pub(super) role: Role,
    pub(super) module: Option<String>,
    /// From then on it is refused.
    pub(super) end: Timestamp,
}

impl Rules {
    /// Checks the claims of a token whose signature is right.
    pub(super) fn check(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<Claims, Refusal> {
        let end = time(claims, "exp")?.ok_or(Refusal::Claims)?.later(LEEWAY);
        if now >= end {
            return Err(Refusal::Expired);
        }
        // A token that was issued in the future is one of a clock that is wrong, or is made up.
        for name in ["nbf", "iat"] {
            if time(claims, name)?.is_some_and(|start| now < start.earlier(LEEWAY)) {
                return Err(Refusal::NotYetValid);
            }
        }
        if text(claims, "iss")? != self.issuer {
            return Err(Refusal::Issuer);
        }
        if !self.is_audience(claims.get("aud").ok_or(Refusal::Claims)?)? {
            return Err(Refusal::Audience);
        }
        let subject = name(text(claims, "sub")?)?;
        // The audit calls Posthaste's own acts so.
        if Tenant::RESERVED.contains(&subject.as_str()) {
            return Err(Refusal::Claims);
        }
        // `*` is no name of a tenant, so no token is for all tenants.
        let tenant = text(claims, &self.tenant)?.parse().map_err(|_| Refusal::Tenant)?;
        let role = Role::from_name(text(claims, &self.role)?).filter(|role| Role::NAMED.contains(role));
        let module = claims.get(&self.module).map(|_| name(text(claims, &self.module)?)).transpose()?;
        Ok(Claims { subject, tenant, role: role.ok_or(Refusal::Role)?, module, end })
    }

    /// `aud` is a text or a list of texts.
    fn is_audience(&self, given: &Value) -> Result<bool, Refusal> {
        match given {
            Value::String(one) => Ok(*one == self.audience),
            Value::Array(all) if all.iter().all(Value::is_string) => {
                Ok(all.iter().any(|one| one.as_str() == Some(&self.audience)))
            }
            _ => Err(Refusal::Claims),
        }
    }
}

fn text<'c>(claims: &'c Map<String, Value>, name: &str) -> Result<&'c str, Refusal> {
    claims.get(name).and_then(Value::as_str).ok_or(Refusal::Claims)
}

/// A text that fits on one line of the audit and shows as what it is.
fn name(text: &str) -> Result<String, Refusal> {
    let fits = (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(is_hidden);
    if fits { Ok(text.to_owned()) } else { Err(Refusal::Claims) }
}

/// Control characters, and those that change the order of what stands around them or take no place.
fn is_hidden(one: char) -> bool {
    let hidden = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'];
    one.is_control()
        || hidden.contains(&one)
        || matches!(one, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// Seconds since 1970. Of a fraction the microseconds count.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, Refusal> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(seconds)) => seconds_since_1970(seconds).map(Some).ok_or(Refusal::Claims),
        Some(_) => Err(Refusal::Claims),
    }
}

fn seconds_since_1970(seconds: &Number) -> Option<Timestamp> {
    const LAST: i64 = Timestamp::MAX.as_micros() / 1_000_000;
    if let Some(whole) = seconds.as_i64() {
        return (0..=LAST).contains(&whole).then(|| Timestamp::from_millis(whole * 1_000));
    }
    let seconds = Duration::try_from_secs_f64(seconds.as_f64()?).ok()?;
    let in_range = i64::try_from(seconds.as_secs()).is_ok_and(|whole| whole <= LAST);
    in_range.then(|| Timestamp::EPOCH.later(seconds))
}
