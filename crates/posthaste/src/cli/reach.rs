//! The connection of the commands to a server, and its errors.

use std::fmt;
use std::io;

use bytes::Bytes;
use clap::Args;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::WrongUse;
use super::failure::without_passwords;
use super::output::{self, Output, harmless};
use crate::client::{ApiProblem, Client, ClientError, ClientResponse, EventStream, Opened};
use crate::config::secret_text;

/// The default address of a server.
const DEFAULT_URL: &str = "http://127.0.0.1:7780";
/// The flags of every command stand apart in the help.
const HEADING: &str = "Server and output";

/// The flags of every command.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// The server
    #[arg(long, global = true, env = "POSTHASTE_URL", hide_env_values = true, default_value = DEFAULT_URL, value_name = "URL", help_heading = HEADING)]
    url: String,
    /// The API key; `file:PATH` and `env:NAME` say where it stands
    #[arg(long, global = true, env = "POSTHASTE_KEY", hide_env_values = true, value_name = "KEY", help_heading = HEADING)]
    key: Option<String>,
    /// What is printed: `table` for people, `json` for programs, errors included
    #[arg(long, global = true, value_enum, default_value_t = Output::Table, value_name = "FORM", hide_possible_values = true, help_heading = HEADING)]
    pub(crate) output: Output,
}

impl ServerArgs {
    /// Does not connect yet.
    pub(crate) fn open(&self) -> anyhow::Result<Session> {
        let key = self.key.as_deref().filter(|key| !key.is_empty()).map(secret_text).transpose();
        let key = key.map_err(|reason| anyhow::anyhow!("--key or POSTHASTE_KEY {reason}"))?;
        let client = Client::new(&self.url, key.as_deref())
            .map_err(|error| WrongUse(without_passwords(&error.to_string())))?;
        Ok(Session { client, output: self.output, has_key: key.is_some() })
    }
}

/// A server and an output format.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) has_key: bool,
}

/// Why a command failed, with a hint.
#[derive(Debug)]
pub(crate) struct CommandError {
    /// `None` if there was no response.
    pub(crate) status: Option<StatusCode>,
    text: String,
    hint: Option<String>,
    /// The problem document of the server.
    problem: Option<Value>,
}

impl CommandError {
    /// The error for programs: the server's problem document, or an object with the same names.
    pub(crate) fn json(&self) -> Value {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        let code = if self.status.is_some() { "UNEXPECTED_ANSWER" } else { "NO_ANSWER" };
        let mut error = json!({"code": code, "detail": self.text});
        if let Some(status) = self.status {
            error["status"] = json!(status.as_u16());
        }
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        error
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)?;
        match &self.hint {
            Some(hint) => write!(out, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CommandError {}

impl Session {
    /// Every status but a success is an error.
    pub(crate) async fn get(&self, path: &str) -> Result<ClientResponse, CommandError> {
        self.call(Method::GET, path, &[], None).await
    }

    /// An act that needs no body.
    pub(crate) async fn act(&self, path: &str) -> Result<ClientResponse, CommandError> {
        self.call(Method::POST, path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> Result<ClientResponse, CommandError> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    /// Every status but a success is an error.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<String>,
    ) -> Result<ClientResponse, CommandError> {
        let answer = self.try_call(method, path, headers, body).await?;
        answer.ok().map_err(|problem| self.refused(&problem))
    }

    /// The response may be an error.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<String>,
    ) -> Result<ClientResponse, CommandError> {
        let body = body.map_or_else(Bytes::new, Bytes::from);
        self.client.send(method, path, headers, body).await.map_err(|error| unanswered(&error))
    }

    /// Opens a stream of events, after the event with this id if there is one. Every status but a success is an error.
    pub(crate) async fn events(
        &self,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<EventStream<'_>, CommandError> {
        let last_id = last_id.and_then(|id| HeaderValue::from_str(id).ok());
        let last_id = last_id.map(|id| (HeaderName::from_static("last-event-id"), id));
        match self.client.open(path, last_id.as_slice()).await.map_err(|error| unanswered(&error))? {
            Opened::Events(events) => Ok(*events),
            Opened::Answer(answer) => {
                let answer = answer.ok().map_err(|problem| self.refused(&problem))?;
                Err(self.unexpected(answer.status, "it is no stream of events"))
            }
        }
    }

    /// The error for a problem document.
    pub(crate) fn refused(&self, problem: &ApiProblem) -> CommandError {
        let text = problem.to_string();
        let text = text.split('\n').map(harmless).collect::<Vec<_>>().join("\n");
        let hint = match problem.status {
            401 if self.has_key => Some("check the key in --key or POSTHASTE_KEY".to_owned()),
            401 => Some("pass a key with --key or POSTHASTE_KEY; `posthaste dev` prints one, the first start of `serve` writes one to posthaste-admin.key".to_owned()),
            // The problem names the role or the tenant that is needed.
            403 => None,
            503 => Some("the server asks to try again later".to_owned()),
            _ => None,
        };
        let status = StatusCode::from_u16(problem.status).ok();
        CommandError { status, text, hint, problem: problem.document.clone() }
    }

    pub(crate) fn value(&self, answer: &ClientResponse) -> anyhow::Result<Value> {
        self.read(answer)
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &ClientResponse) -> anyhow::Result<T> {
        Ok(answer.json().map_err(|error| self.unexpected(answer.status, error))?)
    }

    fn unexpected(&self, status: StatusCode, error: impl fmt::Display) -> CommandError {
        CommandError {
            status: Some(status),
            text: format!("{} sent an unexpected response: {error}", self.client.url()),
            hint: Some(
                "is that the address of a Posthaste server? Set it with --url or POSTHASTE_URL".to_owned(),
            ),
            problem: None,
        }
    }

    /// Prints the response as JSON, or as a table by `shown`.
    pub(crate) fn print(
        &self,
        answer: &ClientResponse,
        shown: impl FnOnce(&Value) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let value = self.value(answer)?;
        match self.output {
            Output::Json => output::json(&answer.body)?,
            Output::Table => shown(&value)?,
        }
        Ok(())
    }
}

/// The error for an exchange without a response.
fn unanswered(error: &ClientError) -> CommandError {
    let hint = match error {
        ClientError::Connect { .. } => {
            Some("start a server with `posthaste dev`, or name one with --url or POSTHASTE_URL")
        }
        ClientError::Exchange { .. } | ClientError::Timeout { .. } => {
            Some("the request may have arrived; `posthaste doctor` checks the server")
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
    let hint = hint.map(str::to_owned);
    CommandError { status: None, text: harmless(&text).into_owned(), hint, problem: None }
}
