//! Errors reported by the server.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::ClientResponse;

/// Characters that are shown of a response that is not a problem document.
const MAX_EXCERPT: usize = 200;

/// A problem document of the API (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ApiProblem {
    #[serde(skip)]
    pub status: u16,
    /// Stable name of the kind of problem.
    pub code: Option<String>,
    pub title: Option<String>,
    /// What is wrong in this request.
    pub detail: Option<String>,
    /// JSON pointer into the request's body.
    pub pointer: Option<String>,
    /// The parameter, header or part of the path.
    pub parameter: Option<String>,
    #[serde(rename = "notificationId")]
    pub notification_id: Option<String>,
    /// The whole document as it came; none if the response was not a problem document.
    #[serde(skip)]
    pub document: Option<Value>,
}

impl ApiProblem {
    /// Reads a problem document. Any other body is shown as text.
    pub(super) fn read(answer: &ClientResponse) -> Self {
        let status = answer.status.as_u16();
        if let Ok(problem) = answer.json::<Self>()
            && (problem.detail.is_some() || problem.title.is_some())
        {
            return Self { status, document: answer.json().ok(), ..problem };
        }
        let text = String::from_utf8_lossy(&answer.body);
        let text: String = text.trim().chars().take(MAX_EXCERPT).collect();
        let detail = if text.is_empty() { None } else { Some(text) };
        let title = answer.status.canonical_reason().map(str::to_owned);
        Self {
            status,
            code: None,
            title,
            detail,
            pointer: None,
            parameter: None,
            notification_id: None,
            document: None,
        }
    }
}

impl fmt::Display for ApiProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.detail.as_deref().or(self.title.as_deref());
        out.write_str(what.unwrap_or("the server refused without a reason"))?;
        match &self.code {
            Some(code) => write!(out, " ({code})")?,
            None => write!(out, " (HTTP {})", self.status)?,
        }
        if let Some(pointer) = self.pointer.as_deref().filter(|pointer| !pointer.is_empty()) {
            write!(out, "\n  at {pointer}")?;
        }
        if let Some(parameter) = self.parameter.as_deref().filter(|parameter| !parameter.is_empty()) {
            write!(out, "\n  in {parameter}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiProblem {}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    fn answer(status: StatusCode, body: &'static str) -> ClientResponse {
        ClientResponse { status, headers: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn a_problem_says_what_which_and_where() {
        let body = r#"{"type":"about:blank","title":"Unprocessable","status":422,"code":"UNKNOWN_FIELD",
            "detail":"`chanel` is not a field","pointer":"/chanel"}"#;
        let problem = answer(StatusCode::UNPROCESSABLE_ENTITY, body).ok().unwrap_err();
        assert_eq!(problem.to_string(), "`chanel` is not a field (UNKNOWN_FIELD)\n  at /chanel");
        assert_eq!(problem.status, 422);
    }

    #[test]
    fn an_answer_in_another_form_is_shown_as_it_is() {
        let problem = answer(StatusCode::BAD_GATEWAY, "<h1>nginx</h1>").ok().unwrap_err();
        assert_eq!(problem.to_string(), "<h1>nginx</h1> (HTTP 502)");
        let problem = answer(StatusCode::BAD_GATEWAY, "").ok().unwrap_err();
        assert_eq!(problem.to_string(), "Bad Gateway (HTTP 502)");
    }
}
