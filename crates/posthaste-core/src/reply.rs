//! What a channel saw when it tried to deliver: facts, not judgements.

use std::time::Duration;

use crate::attempt::Response;
use crate::time::Timestamp;

/// The outcome of one try as the channel saw it. A refusal is a reply, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub answer: Answer,
    /// The start of the answer, or the error in words, for people.
    pub text: String,
    /// The media type of the answer, if it named one.
    pub content_type: Option<String>,
    /// The provider's own code, if it gave one. Its meaning depends on the kind of provider.
    pub provider_code: Option<String>,
    /// The provider's own id of the message.
    pub message_id: Option<String>,
}

/// Who answered what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Http {
        status: u16,
        /// The `Retry-After` header, if one could be read.
        retry_after: Option<RetryAfter>,
    },
    Smtp {
        /// The three-digit reply code.
        code: u16,
        /// The enhanced status code (class, subject, detail), if one was given.
        enhanced: Option<(u8, u16, u16)>,
    },
    /// A provider without a protocol of status codes took the message.
    Taken,
    /// It did not take it; `provider_code` says why.
    Refused,
    /// No answer came.
    Fault(Fault),
}

impl Reply {
    fn new(answer: Answer, text: impl Into<String>) -> Self {
        Self { answer, text: text.into(), content_type: None, provider_code: None, message_id: None }
    }

    /// An HTTP answer without `Retry-After` and without a body.
    pub fn http(status: u16) -> Self {
        Self::new(Answer::Http { status, retry_after: None }, "")
    }

    pub fn http_after(status: u16, retry_after: Option<RetryAfter>) -> Self {
        Self::new(Answer::Http { status, retry_after }, "")
    }

    pub fn smtp(code: u16, enhanced: Option<(u8, u16, u16)>, text: impl Into<String>) -> Self {
        Self::new(Answer::Smtp { code, enhanced }, text)
    }

    pub fn fault(fault: Fault, text: impl Into<String>) -> Self {
        Self::new(Answer::Fault(fault), text)
    }

    /// A provider took the message and calls it `message_id`.
    pub fn taken(message_id: impl Into<String>) -> Self {
        Self { message_id: Some(message_id.into()), ..Self::new(Answer::Taken, "") }
    }

    /// A provider refused the message with a code of its own.
    pub fn refused(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { provider_code: Some(code.into()), ..Self::new(Answer::Refused, text) }
    }

    /// The status code, where there was an answer that has one.
    pub const fn status_code(&self) -> Option<u16> {
        match self.answer {
            Answer::Http { status, .. } => Some(status),
            Answer::Smtp { code, .. } => Some(code),
            Answer::Taken | Answer::Refused | Answer::Fault(_) => None,
        }
    }

    pub const fn retry_after(&self) -> Option<RetryAfter> {
        match self.answer {
            Answer::Http { retry_after, .. } => retry_after,
            Answer::Smtp { .. } | Answer::Taken | Answer::Refused | Answer::Fault(_) => None,
        }
    }

    /// The reply in words, for people.
    pub fn words(&self) -> String {
        let mut words = match self.answer {
            Answer::Http { status: code, .. } | Answer::Smtp { code, .. } => format!("answered {code}"),
            Answer::Taken => "taken".to_owned(),
            Answer::Refused => "refused".to_owned(),
            Answer::Fault(_) => return self.text.clone(),
        };
        if let Some(code) = &self.provider_code {
            words = format!("{words} ({code})");
        }
        if self.text.is_empty() { words } else { format!("{words}: {}", self.text) }
    }

    /// The start of the answer; none if there was no answer, or nothing in it.
    pub fn response(&self) -> Option<Response> {
        match self.answer {
            Answer::Fault(_) => None,
            Answer::Http { .. } | Answer::Smtp { .. } | Answer::Taken | Answer::Refused => {
                let is_empty = self.text.is_empty();
                (!is_empty).then(|| Response::new(self.content_type.as_deref(), &self.text))
            }
        }
    }
}

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection was refused.
    Refused,
    /// There is no route to the address.
    NoRoute,
    /// The name could not be resolved.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke while the exchange was under way.
    Reset,
    /// Our own deadline passed.
    Timeout,
    /// The address is one that we never send to.
    Forbidden,
    /// The channel cannot send this notification as it is.
    Unsendable,
    /// This node has no provider for it. Another node may have one, or the configuration is corrected.
    NoProvider,
    /// The channel itself broke down, which is a bug of ours.
    Broken,
}

/// A `Retry-After` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// A number of seconds.
    In(Duration),
    /// A date.
    At(Timestamp),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_told_with_its_status_its_code_and_its_text() {
        let busy = Reply { text: "busy".to_owned(), ..Reply::http(503) };
        let coded =
            Reply { provider_code: Some("21211".to_owned()), text: "no".to_owned(), ..Reply::http(400) };
        for (reply, words) in [
            (Reply::http(503), "answered 503"),
            (busy, "answered 503: busy"),
            (coded, "answered 400 (21211): no"),
            (Reply::smtp(550, None, "no such user"), "answered 550: no such user"),
            (Reply::refused("blocked", ""), "refused (blocked)"),
            (Reply::fault(Fault::Dns, "cannot resolve"), "cannot resolve"),
        ] {
            assert_eq!(reply.words(), words);
        }
    }

    #[test]
    fn only_an_answer_with_a_body_has_a_response() {
        let html = Some("text/html".to_owned());
        let page = Reply { text: "<p>".to_owned(), content_type: html.clone(), ..Reply::http(502) };
        assert_eq!(page.response(), Some(Response { content_type: html.clone(), excerpt: "<p>".to_owned() }));
        assert_eq!(Reply { content_type: html, ..Reply::http(502) }.response(), None);
        assert_eq!(Reply::fault(Fault::Refused, "refused").response(), None);
    }
}
