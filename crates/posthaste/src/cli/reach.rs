//! How the commands reach a server, and what they say when they do not.

use std::fmt;
use std::io;

use bytes::Bytes;
use clap::Args;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::WrongUse;
use super::output::{Output, harmless, json};
use crate::client::{Answer, Client, ClientError, Problem};

/// Where a server listens unless it is told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:7780";

/// The flags of every command.
#[derive(Args)]
pub(crate) struct Reach {
    /// The server to speak to
    #[arg(long, global = true, env = "POSTHASTE_URL", default_value = DEFAULT_URL, value_name = "URL")]
    url: String,
    /// The API key
    #[arg(long, global = true, env = "POSTHASTE_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// What is printed: tables for people, JSON for programs
    #[arg(long, global = true, value_enum, default_value_t = Output::Table, value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Output,
}

impl Reach {
    /// Gets ready to speak to the server. Nothing is sent yet.
    pub(crate) fn open(&self) -> anyhow::Result<Session> {
        let key = self.key.as_deref().filter(|key| !key.is_empty());
        let client = Client::new(&self.url, key).map_err(|error| WrongUse(error.to_string()))?;
        Ok(Session { client, output: self.output, has_key: key.is_some() })
    }
}

/// A server and the form to print in.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) has_key: bool,
}

/// What hindered a command, with what can be done about it.
#[derive(Debug)]
pub(crate) struct Hindered {
    /// What the server said, if it said something.
    pub(crate) status: Option<StatusCode>,
    text: String,
    hint: Option<String>,
}

impl fmt::Display for Hindered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)?;
        match &self.hint {
            Some(hint) => write!(out, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Hindered {}

impl Session {
    /// Asks for a path; anything but a success is an error.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Hindered> {
        self.call(Method::GET, path, &[], None).await
    }

    /// An act without more to say than its path.
    pub(crate) async fn act(&self, path: &str) -> Result<Answer, Hindered> {
        self.call(Method::POST, path, &[], None).await
    }

    /// Hands in JSON.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<Answer, Hindered> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    /// One exchange; anything but a success is an error.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<String>,
    ) -> Result<Answer, Hindered> {
        let answer = self.try_call(method, path, headers, body).await?;
        answer.ok().map_err(|problem| self.refused(&problem))
    }

    /// One exchange; the answer may be a refusal.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<String>,
    ) -> Result<Answer, Hindered> {
        let body = body.map_or_else(Bytes::new, Bytes::from);
        self.client.send(method, path, headers, body).await.map_err(|error| unanswered(&error))
    }

    /// A refusal in words.
    pub(crate) fn refused(&self, problem: &Problem) -> Hindered {
        let text = problem.to_string();
        let text = text.split('\n').map(harmless).collect::<Vec<_>>().join("\n");
        let hint = match problem.status {
            401 if self.has_key => Some("check the key in --key or POSTHASTE_KEY".to_owned()),
            401 => Some("pass a key with --key or POSTHASTE_KEY; `posthaste dev` prints one".to_owned()),
            403 => Some("this needs another key, perhaps an admin key".to_owned()),
            503 => Some("the server asks to try again later".to_owned()),
            _ => None,
        };
        Hindered { status: StatusCode::from_u16(problem.status).ok(), text, hint }
    }

    /// The body of an answer, which must be JSON.
    pub(crate) fn value(&self, answer: &Answer) -> anyhow::Result<Value> {
        self.read(answer)
    }

    /// The body of an answer, which must be JSON of that form.
    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &Answer) -> anyhow::Result<T> {
        let unreadable = |error| Hindered {
            status: Some(answer.status),
            text: format!("{} answered with something that was not expected: {error}", self.client.url()),
            hint: Some(
                "is that the address of a Posthaste server? Set it with --url or POSTHASTE_URL".to_owned(),
            ),
        };
        Ok(answer.json().map_err(unreadable)?)
    }

    /// Prints the answer for programs, or what `shown` makes of it for people.
    pub(crate) fn print(
        &self,
        answer: &Answer,
        shown: impl FnOnce(&Value) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let value = self.value(answer)?;
        match self.output {
            Output::Json => json(&answer.body)?,
            Output::Table => shown(&value)?,
        }
        Ok(())
    }
}

/// An exchange without an answer, in words.
fn unanswered(error: &ClientError) -> Hindered {
    let hint = match error {
        ClientError::Connect { .. } => {
            Some("start a server with `posthaste dev`, or name one with --url or POSTHASTE_URL")
        }
        ClientError::Exchange { .. } | ClientError::Timeout { .. } => {
            Some("`posthaste doctor` looks at the server; what was sent may have arrived")
        }
        ClientError::Url { .. }
        | ClientError::Key
        | ClientError::Path { .. }
        | ClientError::TooLarge { .. } => None,
    };
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Hindered { status: None, text: harmless(&text).into_owned(), hint: hint.map(str::to_owned) }
}
