//! One act on one or more notifications, dead letters or jobs: each by its own request, or several by a retry operation.

use posthaste_core::operation::Action;
use serde_json::{Value, json};

use super::output::{Output, harmless, json as print_json, line, note, note_json};
use super::reach::{CommandError, Session};
use super::{Exit, retry_operations};
use crate::client::encode;

/// Acts on one id by a single request, and on several by one operation.
pub(crate) async fn some(
    session: &Session,
    resource: &str,
    action: Action,
    ids: &[String],
) -> anyhow::Result<Exit> {
    let word = match action {
        Action::RetryNow => "retry-now",
        Action::Requeue | Action::Discard | Action::Restore | Action::Cancel => action.name(),
    };
    match ids {
        [_] => each(session, resource, word, ids).await,
        _ => retry_operations::on_ids(session, action, ids).await,
    }
}

/// Does `act` to each of `ids`. A refusal does not stop the others, but the command has failed then.
pub(crate) async fn each(
    session: &Session,
    resource: &str,
    act: &str,
    ids: &[String],
) -> anyhow::Result<Exit> {
    let mut outcome = Exit::Done;
    let mut answers = Vec::new();
    for id in ids {
        let answer = match session.act(&format!("/v1/{resource}/{}/{act}", encode(id))).await {
            Ok(answer) => answer,
            // Without a server all others would fail too.
            Err(error) if error.status.is_none() => return Err(error.into()),
            Err(error) => {
                if session.output == Output::Json {
                    answers.push(json!({"id": id, "problem": error.json()}));
                }
                report(id, &error, session.output);
                outcome = Exit::Failed;
                continue;
            }
        };
        let answer: Value = if answer.body.is_empty() { json!({}) } else { session.value(&answer)? };
        match session.output {
            Output::Table => line(&harmless(&done(id, act, &answer)))?,
            Output::Json => answers.push(json!({"id": id, "answer": answer})),
        }
    }
    if session.output == Output::Json {
        print_json(json!({"data": answers}).to_string().as_bytes())?;
    }
    Ok(outcome)
}

fn report(id: &str, error: &CommandError, output: Output) {
    if output == Output::Json {
        return note_json(&error.json());
    }
    // Most errors contain the id already.
    let error = error.to_string();
    let of = if error.contains(id) { String::new() } else { format!("{}: ", harmless(id)) };
    note(&format!("error: {of}{error}"));
}

fn done(id: &str, act: &str, answer: &Value) -> String {
    let word = match act {
        "retry" => "is retried",
        "retry-now" => "is retried now",
        "cancel" => "is being cancelled",
        "requeue" => "is requeued",
        "discard" => "is discarded",
        "restore" => "is restored",
        "run" => "has started",
        "pause" => "is paused",
        "resume" => "runs by itself again",
        other => other,
    };
    let attempt = answer["attempt"].as_u64().filter(|_| matches!(act, "retry" | "requeue"));
    let attempt = attempt.map(|attempt| format!(", next is attempt {attempt}"));
    format!("{id} {word}{}", attempt.unwrap_or_default())
}
