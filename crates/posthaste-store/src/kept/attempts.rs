//! Quick tries, and the attempts of a dead letter, as JSON.

use posthaste_core::attempt::{Attempt, QuickTry};
use posthaste_core::failure::FailureType;
use posthaste_core::time::{Timestamp, micros};

use super::damage::{Damaged, Result};
use super::{replies, values};

/// Stored form of a quick try: start in microseconds, duration in milliseconds, failure type, status code,
/// error. The last try of the attempt follows the quick ones in the same form, but without an error, which every
/// quick try has. Nodes of the version before show it as one more quick try.
type QuickTuple = (i64, u64, u8, Option<u16>, Option<String>);

/// Stored form of an attempt of a dead letter: generation, number, start and duration in microseconds,
/// failure type, status code, error, quick tries.
type AttemptTuple = (u32, u32, i64, i64, Option<u8>, Option<u16>, Option<String>, Vec<QuickTuple>);

/// Returns `None` for an attempt without quick tries.
pub(crate) fn tries_text(attempt: &Attempt) -> Result<Option<String>> {
    let has_tries = !attempt.quick_tries.is_empty();
    let text = has_tries.then(|| serde_json::to_string(&try_tuples(attempt))).transpose();
    text.map_err(|error| Damaged(format!("quick tries cannot be written: {error}")))
}

/// Reads the text of `tries_text`: the quick tries, and when the last try began.
pub(crate) fn tries_from(text: Option<&str>) -> Result<(Vec<QuickTry>, Option<Timestamp>)> {
    let tuples = text.map_or(Ok(vec![]), serde_json::from_str);
    tries(tuples.map_err(|error| Damaged(format!("the quick tries of an attempt: {error}")))?)
}

/// The replies are stored apart; see `replies`.
pub(crate) fn attempts_text(attempts: &[Attempt]) -> Result<String> {
    let tuple = |a: &Attempt| -> AttemptTuple {
        let (started, took) = (a.started_at.as_micros(), micros(a.duration));
        let tries = try_tuples(a);
        (a.generation, a.number, started, took, a.outcome.code(), a.status_code, a.error.clone(), tries)
    };
    let tuples: Vec<AttemptTuple> = attempts.iter().map(tuple).collect();
    serde_json::to_string(&tuples).map_err(|error| Damaged(format!("attempts cannot be written: {error}")))
}

pub(crate) fn attempts_from(text: &str, replies: Option<&str>) -> Result<Vec<Attempt>> {
    let tuples: Vec<AttemptTuple> = serde_json::from_str(text)
        .map_err(|error| Damaged(format!("the attempts of a dead letter: {error}")))?;
    let attempt = |(generation, number, started, took, code, status_code, error, tuples): AttemptTuple| {
        let (quick_tries, last_try_at) = tries(tuples)?;
        Ok(Attempt {
            generation,
            number,
            started_at: Timestamp::from_micros(started),
            duration: values::duration(took),
            outcome: values::outcome(code)?,
            status_code,
            error,
            quick_tries,
            last_try_at,
            provider: None,
            message_id: None,
            response: None,
        })
    };
    let mut attempts = tuples.into_iter().map(attempt).collect::<Result<Vec<_>>>()?;
    replies::add(&mut attempts, replies)?;
    Ok(attempts)
}

fn try_tuples(attempt: &Attempt) -> Vec<QuickTuple> {
    let tuple = |quick: &QuickTry| {
        let (code, error) = (quick.failure_type.code(), Some(quick.error.clone()));
        (quick.started_at.as_micros(), quick.duration_ms, code, quick.status_code, error)
    };
    let last = attempt.last_try_at.filter(|_| !attempt.quick_tries.is_empty()).map(|began| {
        let took = u64::try_from(attempt.ended_at().since(began).as_millis()).unwrap_or(u64::MAX);
        // A delivery has no failure type, but the form needs one.
        let code = attempt.outcome.failure_type().unwrap_or(FailureType::Unknown).code();
        (began.as_micros(), took, code, attempt.status_code, None)
    });
    attempt.quick_tries.iter().map(tuple).chain(last).collect()
}

fn tries(mut tuples: Vec<QuickTuple>) -> Result<(Vec<QuickTry>, Option<Timestamp>)> {
    let last = tuples.pop_if(|(.., error)| error.is_none());
    let last_try_at = last.map(|(began, ..)| Timestamp::from_micros(began));
    let quick = |(started, duration_ms, code, status_code, error): QuickTuple| {
        Ok(QuickTry {
            started_at: Timestamp::from_micros(started),
            duration_ms,
            failure_type: values::failure(code)?,
            status_code,
            error: error.unwrap_or_default(),
        })
    };
    let quick_tries = tuples.into_iter().map(quick).collect::<Result<Vec<_>>>()?;
    Ok((quick_tries, last_try_at))
}
