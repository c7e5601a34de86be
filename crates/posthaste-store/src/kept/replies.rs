//! Provider and response of attempts, as JSON. A dead letter stores the providers beside its attempts, because
//! nodes of older versions read the JSON of the attempts too. The responses stay with the attempts alone: they
//! may be large, and there may be a thousand.

use posthaste_core::attempt::{Attempt, Response};

use super::damage::{Damaged, Result};

/// Provider, message id, content type and excerpt.
type Reply = (Option<String>, Option<String>, Option<String>, Option<String>);

fn reply(provider: Option<String>, message_id: Option<String>, response: Option<Response>) -> Option<Reply> {
    let is_empty = provider.is_none() && message_id.is_none() && response.is_none();
    let (content_type, excerpt) = response.map(|response| (response.content_type, response.excerpt)).unzip();
    (!is_empty).then(|| (provider, message_id, content_type.flatten(), excerpt))
}

/// Returns `None` for an attempt without provider, message id and response.
#[cfg(feature = "postgres")]
pub(crate) fn one(
    provider: Option<String>,
    message_id: Option<String>,
    response: Option<Response>,
) -> Result<Option<String>> {
    let text = reply(provider, message_id, response).map(|reply| serde_json::to_string(&reply));
    text.transpose().map_err(|error| Damaged(format!("a reply cannot be written: {error}")))
}

/// Those of a dead letter, without responses, in the order of the attempts. Returns `None` if no attempt has
/// a reply.
pub(crate) fn all(attempts: &[Attempt]) -> Result<Option<String>> {
    let of = |one: &Attempt| reply(one.provider.clone(), one.message_id.clone(), None);
    let replies: Vec<Option<Reply>> = attempts.iter().map(of).collect();
    let says = replies.iter().any(Option::is_some);
    let text = says.then(|| serde_json::to_string(&replies)).transpose();
    text.map_err(|error| Damaged(format!("replies cannot be written: {error}")))
}

/// Sets the replies of the attempts of a dead letter.
pub(crate) fn add(attempts: &mut [Attempt], text: Option<&str>) -> Result<()> {
    let replies: Vec<Option<Reply>> = text
        .map_or(Ok(vec![]), serde_json::from_str)
        .map_err(|error| Damaged(format!("the replies of a dead letter: {error}")))?;
    for (attempt, reply) in attempts.iter_mut().zip(replies) {
        let (provider, message_id, content_type, excerpt) = reply.unwrap_or_default();
        (attempt.provider, attempt.message_id) = (provider, message_id);
        attempt.response = excerpt.map(|excerpt| Response { content_type, excerpt });
    }
    Ok(())
}
