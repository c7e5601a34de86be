//! What a caller is told when something is wrong: RFC 9457 problems with a stable code.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;
use posthaste_core::fields::BadField;
use posthaste_core::state::State;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::acts::ActError;
use posthaste_engine::store::StoreError;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use posthaste_engine::log_throttle::LogThrottle;

/// The kinds of problems. Status and code of each are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The head of the request is not in order.
    BadRequest,
    /// The body is not JSON, or nested too deeply.
    BadJson,
    /// A field or parameter is missing, unknown or not in order.
    Invalid,
    /// The address is not sent to.
    DestinationForbidden,
    /// The user has no contact for the channel.
    RecipientUnknown,
    /// No provider of the channel is configured.
    ChannelUnavailable,
    /// The cursor is not one of ours, or belongs to another list.
    BadCursor,
    /// The body is too large.
    TooLarge,
    /// No key, or one that is not known.
    Unauthorized,
    /// The key may not do that.
    Forbidden,
    /// There is no such thing, or it is another tenant's.
    NotFound,
    /// The address exists, but not with this method.
    MethodNotAllowed,
    /// The body took too long.
    Timeout,
    /// The idempotency key was used with another body.
    IdempotencyConflict,
    /// A retry of what was delivered.
    AlreadyDelivered,
    /// A retry of what has not failed.
    NotFailed,
    /// Its state does not allow it.
    StateConflict,
    /// The dead letter was acted on before.
    DeadLetterResolved,
    /// It expired and would not be sent any more.
    Expired,
    /// The body is of another type than JSON.
    UnsupportedMediaType,
    /// The caller reads too much at a time.
    TooManyReads,
    /// The node is stopping.
    Stopping,
    /// There is no room for the body now.
    Overloaded,
    /// The store cannot serve now.
    StoreUnavailable,
    /// A bug.
    Internal,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 25] = [
        Self::BadRequest,
        Self::BadJson,
        Self::Invalid,
        Self::DestinationForbidden,
        Self::RecipientUnknown,
        Self::ChannelUnavailable,
        Self::BadCursor,
        Self::TooLarge,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Timeout,
        Self::IdempotencyConflict,
        Self::AlreadyDelivered,
        Self::NotFailed,
        Self::StateConflict,
        Self::DeadLetterResolved,
        Self::Expired,
        Self::UnsupportedMediaType,
        Self::TooManyReads,
        Self::Stopping,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::Internal,
    ];

    /// Status, code and title.
    pub const fn shown(self) -> (StatusCode, &'static str, &'static str) {
        const UNPROCESSABLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
        match self {
            Self::BadRequest => (StatusCode::BAD_REQUEST, "BAD_REQUEST", "The request is not valid HTTP"),
            Self::BadJson => (StatusCode::BAD_REQUEST, "BAD_JSON", "The body is not valid JSON"),
            Self::Invalid => (UNPROCESSABLE, "VALIDATION_FAILED", "Something in the request is not right"),
            Self::DestinationForbidden => {
                (UNPROCESSABLE, "DESTINATION_FORBIDDEN", "Nothing is sent to this address")
            }
            Self::RecipientUnknown => (UNPROCESSABLE, "RECIPIENT_UNKNOWN", "The recipient is not known"),
            Self::ChannelUnavailable => {
                (UNPROCESSABLE, "CHANNEL_UNAVAILABLE", "Nothing is configured to send over this channel")
            }
            Self::BadCursor => (UNPROCESSABLE, "BAD_CURSOR", "The cursor does not belong to this list"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "The body is too large"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "A valid API key is needed"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "FORBIDDEN", "This key may not do that"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "There is no such thing"),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                "This address does not have that method",
            ),
            Self::Timeout => {
                (StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "The request took too long to arrive")
            }
            Self::IdempotencyConflict => (
                StatusCode::CONFLICT,
                "IDEMPOTENCY_CONFLICT",
                "The idempotency key was used with another body",
            ),
            Self::AlreadyDelivered => (
                StatusCode::CONFLICT,
                "NOTIFICATION_ALREADY_DELIVERED",
                "The notification was delivered already",
            ),
            Self::NotFailed => {
                (StatusCode::CONFLICT, "NOTIFICATION_NOT_FAILED", "The notification has not failed")
            }
            Self::StateConflict => {
                (StatusCode::CONFLICT, "STATE_CONFLICT", "The state of the notification does not allow that")
            }
            Self::DeadLetterResolved => {
                (StatusCode::CONFLICT, "DEAD_LETTER_RESOLVED", "The dead letter is not in the needed status")
            }
            Self::Expired => (StatusCode::CONFLICT, "NOTIFICATION_EXPIRED", "The notification has expired"),
            Self::UnsupportedMediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UNSUPPORTED_MEDIA_TYPE",
                "The body must be application/json",
            ),
            Self::TooManyReads => (
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_READS",
                "Too many lists and figures are asked for at a time",
            ),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "STOPPING", "This node is stopping"),
            Self::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", "There are too many large requests now")
            }
            Self::StoreUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE", "The store cannot serve now")
            }
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "A bug in Posthaste"),
        }
    }
}

/// Something that is wrong, for the caller.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What kind.
    pub kind: Kind,
    /// What exactly, in words.
    pub detail: String,
    /// Where in the body, as a JSON pointer.
    pub pointer: Option<String>,
    /// Which query parameter, header or part of the path.
    pub parameter: Option<String>,
    /// The state that is in the way.
    pub state: Option<State>,
    /// The methods that the address has.
    pub allow: Option<HeaderValue>,
}

/// What a handler answers.
pub type Result<T = Response<Full<Bytes>>> = std::result::Result<T, Problem>;

impl Problem {
    /// A problem of that kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), pointer: None, parameter: None, state: None, allow: None }
    }

    /// A field of the body that is not in order.
    pub fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, detail).pointing(pointer)
    }

    /// A query parameter or header that is not in order.
    pub fn parameter(name: &str, detail: impl Into<String>) -> Self {
        Self { parameter: Some(name.to_owned()), ..Self::new(Kind::Invalid, detail) }
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// The address has other methods.
    pub fn wrong_method(allowed: &str) -> Self {
        let problem = Self::new(Kind::MethodNotAllowed, format!("the methods of this address are {allowed}"));
        Self { allow: HeaderValue::from_str(allowed).ok(), ..problem }
    }

    /// The same, with the place in the body.
    #[must_use]
    pub fn pointing(self, pointer: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into()), ..self }
    }

    /// The same, seen from the document that holds this one at `parent`.
    #[must_use]
    pub fn under(self, parent: &str) -> Self {
        let pointer = format!("{parent}{}", self.pointer.as_deref().unwrap_or(""));
        Self { pointer: Some(pointer), ..self }
    }

    /// The problem as JSON.
    pub fn json(&self) -> Value {
        let (status, code, title) = self.kind.shown();
        let mut shown = Map::new();
        shown.insert("type".into(), json!(format!("urn:posthaste:problem:{code}")));
        shown.insert("title".into(), json!(title));
        shown.insert("status".into(), json!(status.as_u16()));
        shown.insert("code".into(), json!(code));
        shown.insert("detail".into(), json!(self.detail));
        if let Some(pointer) = &self.pointer {
            shown.insert("pointer".into(), json!(pointer));
        }
        if let Some(parameter) = &self.parameter {
            shown.insert("parameter".into(), json!(parameter));
        }
        if let Some(state) = self.state {
            shown.insert("state".into(), json!(state.name()));
        }
        Value::Object(shown)
    }

    /// The answer.
    pub fn response(&self) -> Response<Full<Bytes>> {
        let (status, ..) = self.kind.shown();
        let mut response = Response::new(Full::from(self.json().to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = &self.allow {
            headers.insert(ALLOW, allow.clone());
        }
        response
    }
}

impl From<BadField> for Problem {
    fn from(bad: BadField) -> Self {
        Self::at(pointer(&bad.field), format!("{}: {}", bad.field, bad.reason))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error)
    }
}

impl Problem {
    fn of_store(error: &StoreError) -> Self {
        /// A store that fails refuses every request; what makes no sense must not drown in that.
        static UNAVAILABLE: LogThrottle = LogThrottle::new();
        static CORRUPT: LogThrottle = LogThrottle::new();
        let throttle = match error {
            StoreError::Unavailable { .. } => &UNAVAILABLE,
            StoreError::Corrupt { .. } => &CORRUPT,
        };
        if let Some(requests) = throttle.count(Instant::now()) {
            tracing::error!(error = %error.causes(), requests, "the store could not serve requests");
        }
        match error {
            StoreError::Unavailable { .. } => Self::new(
                Kind::StoreUnavailable,
                "the store cannot serve now; what was asked may or may not have happened: ask again, with the same \
                 Idempotency-Key if it was a send",
            ),
            StoreError::Corrupt { .. } => Self::new(
                Kind::Internal,
                "the store holds something that makes no sense; the log of the server says more",
            ),
        }
    }
}

impl From<AcceptError> for Problem {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Stopping => {
                Self::new(Kind::Stopping, "this node is stopping and takes nothing new; ask again")
            }
            AcceptError::Unclear => Self::new(
                Kind::StoreUnavailable,
                "this node stopped before the store answered; the notification may or may not have been stored: ask \
                 again, with the same Idempotency-Key",
            ),
            AcceptError::Policy(bad) => bad.under("policy").into(),
            AcceptError::Store(error) => Self::of_store(&error),
        }
    }
}

impl From<ActError> for Problem {
    fn from(error: ActError) -> Self {
        let detail = error.to_string();
        match error {
            ActError::NotFound { .. } => Self::not_found(detail),
            ActError::Refused { state, .. } => {
                Self { state: Some(state), ..Self::new(Kind::StateConflict, detail) }
            }
            ActError::Resolved { .. } => Self::new(Kind::DeadLetterResolved, detail),
            ActError::Expired { .. } => Self::new(Kind::Expired, detail),
            ActError::Busy { .. } => Self::new(Kind::StateConflict, detail),
            ActError::Policy(bad) => bad.into(),
            ActError::Store(error) => Self::of_store(&error),
        }
    }
}

/// A dotted path as a JSON pointer.
pub fn pointer(path: &str) -> String {
    if path == "(document)" {
        return String::new();
    }
    path.split('.').fold(String::new(), |mut pointer, part| {
        // `schedule[1]` is the entry 1 of the field `schedule`.
        let (name, entry) = part
            .strip_suffix(']')
            .and_then(|part| part.rsplit_once('['))
            .filter(|(_, entry)| entry.bytes().all(|byte| byte.is_ascii_digit()))
            .map_or((part, None), |(name, entry)| (name, Some(entry)));
        let _ = write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(entry) = entry {
            let _ = write!(pointer, "/{entry}");
        }
        pointer
    })
}
