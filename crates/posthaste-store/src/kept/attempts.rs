//! Quick tries, and the attempts of a dead letter, as JSON.

use posthaste_core::attempt::{Attempt, QuickTry};
use posthaste_core::time::{Timestamp, micros};

use super::damage::{Damaged, Result};
use super::{replies, values};

/// Stored form of a quick try: start in microseconds, duration in milliseconds, failure type, status code,
/// error.
type QuickTuple = (i64, u64, u8, Option<u16>, Option<String>);

/// Stored form of an attempt of a dead letter: generation, number, start and duration in microseconds,
/// failure type, status code, error, quick tries.
type AttemptTuple = (u32, u32, i64, i64, Option<u8>, Option<u16>, Option<String>, Vec<QuickTuple>);

/// Returns `None` for an attempt without quick tries.
pub(crate) fn quick_text(tries: &[QuickTry]) -> Result<Option<String>> {
    let text = (!tries.is_empty()).then(|| serde_json::to_string(&quick_tuples(tries))).transpose();
    text.map_err(|error| Damaged(format!("quick tries cannot be written: {error}")))
}

/// Reads the text of `quick_text`.
pub(crate) fn quick_from(text: Option<&str>) -> Result<Vec<QuickTry>> {
    let tuples = text.map_or(Ok(vec![]), serde_json::from_str);
    quick_tries(tuples.map_err(|error| Damaged(format!("the quick tries of an attempt: {error}")))?)
}

/// The replies are stored apart; see `replies`.
pub(crate) fn attempts_text(attempts: &[Attempt]) -> Result<String> {
    let tuple = |a: &Attempt| -> AttemptTuple {
        let (started, took) = (a.started_at.as_micros(), micros(a.duration));
        let quick = quick_tuples(&a.quick_tries);
        (a.generation, a.number, started, took, a.outcome.code(), a.status_code, a.error.clone(), quick)
    };
    let tuples: Vec<AttemptTuple> = attempts.iter().map(tuple).collect();
    serde_json::to_string(&tuples).map_err(|error| Damaged(format!("attempts cannot be written: {error}")))
}

pub(crate) fn attempts_from(text: &str, replies: Option<&str>) -> Result<Vec<Attempt>> {
    let tuples: Vec<AttemptTuple> = serde_json::from_str(text)
        .map_err(|error| Damaged(format!("the attempts of a dead letter: {error}")))?;
    let attempt = |(generation, number, started, took, code, status_code, error, quick): AttemptTuple| {
        Ok(Attempt {
            generation,
            number,
            started_at: Timestamp::from_micros(started),
            duration: values::duration(took),
            outcome: values::outcome(code)?,
            status_code,
            error,
            quick_tries: quick_tries(quick)?,
            provider: None,
            message_id: None,
            response: None,
        })
    };
    let mut attempts = tuples.into_iter().map(attempt).collect::<Result<Vec<_>>>()?;
    replies::add(&mut attempts, replies)?;
    Ok(attempts)
}

fn quick_tuples(tries: &[QuickTry]) -> Vec<QuickTuple> {
    let tuple = |quick: &QuickTry| {
        let (code, error) = (quick.failure_type.code(), quick.error.clone());
        (quick.started_at.as_micros(), quick.duration_ms, code, quick.status_code, error)
    };
    tries.iter().map(tuple).collect()
}

fn quick_tries(tuples: Vec<QuickTuple>) -> Result<Vec<QuickTry>> {
    let quick = |(started, duration_ms, code, status_code, error): QuickTuple| {
        Ok(QuickTry {
            started_at: Timestamp::from_micros(started),
            duration_ms,
            failure_type: values::failure(code)?,
            status_code,
            error,
        })
    };
    tuples.into_iter().map(quick).collect()
}
