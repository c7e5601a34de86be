//! Every way to be refused: RFC 9457 problems with a stable code.

mod causes;

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::request_id::RequestId;

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
    /// The API key cannot be rotated now.
    KeyConflict,
    /// There is no master key.
    MasterKeyMissing,
    /// The master key cannot be changed now.
    MasterKeyConflict,
    /// The job is running.
    JobRunning,
    /// The operation is finished.
    OperationFinished,
    /// Too many operations are not finished.
    TooManyOperations,
    /// The destination cannot be changed so now.
    DestinationConflict,
    /// The dead letter was acted on before.
    DeadLetterResolved,
    /// It expired and would not be sent any more.
    Expired,
    /// The body is of another type than JSON.
    UnsupportedMediaType,
    /// The notification is accepted, and waits for a rate limit.
    RateLimited,
    /// The caller reads too much at a time.
    TooManyReads,
    /// The caller has too many streams.
    TooManyStreams,
    /// The main lane has as many notifications as it may have.
    QueueFull,
    /// The node is stopping.
    Stopping,
    /// There is no room for the request now.
    Overloaded,
    /// The store cannot serve now.
    StoreUnavailable,
    /// A bug.
    Internal,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 35] = [
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
        Self::KeyConflict,
        Self::MasterKeyMissing,
        Self::MasterKeyConflict,
        Self::JobRunning,
        Self::OperationFinished,
        Self::TooManyOperations,
        Self::DestinationConflict,
        Self::DeadLetterResolved,
        Self::Expired,
        Self::UnsupportedMediaType,
        Self::RateLimited,
        Self::TooManyReads,
        Self::TooManyStreams,
        Self::QueueFull,
        Self::Stopping,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::Internal,
    ];

    /// Status, code and title.
    pub const fn shown(self) -> (StatusCode, &'static str, &'static str) {
        const UNPROCESSABLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
        const CONFLICT: StatusCode = StatusCode::CONFLICT;
        const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
        const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
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
            Self::IdempotencyConflict => {
                (CONFLICT, "IDEMPOTENCY_CONFLICT", "The idempotency key was used with another body")
            }
            Self::AlreadyDelivered => {
                (CONFLICT, "NOTIFICATION_ALREADY_DELIVERED", "The notification was delivered already")
            }
            Self::NotFailed => (CONFLICT, "NOTIFICATION_NOT_FAILED", "The notification has not failed"),
            Self::StateConflict => {
                (CONFLICT, "STATE_CONFLICT", "The state of the notification does not allow that")
            }
            Self::JobRunning => (CONFLICT, "JOB_RUNNING", "The job is running already"),
            Self::OperationFinished => (CONFLICT, "OPERATION_FINISHED", "The operation is finished"),
            Self::TooManyOperations => {
                (CONFLICT, "TOO_MANY_OPERATIONS", "Too many operations are not finished")
            }
            Self::DestinationConflict => {
                (CONFLICT, "DESTINATION_CONFLICT", "The destination cannot be changed so now")
            }
            Self::KeyConflict => (CONFLICT, "KEY_CONFLICT", "The API key cannot be changed now"),
            Self::MasterKeyMissing => (CONFLICT, "MASTER_KEY_MISSING", "The server has no master key"),
            Self::MasterKeyConflict => (CONFLICT, "MASTER_KEY_CONFLICT", "The master key cannot change now"),
            Self::DeadLetterResolved => {
                (CONFLICT, "DEAD_LETTER_RESOLVED", "The dead letter is not in the needed status")
            }
            Self::Expired => (CONFLICT, "NOTIFICATION_EXPIRED", "The notification has expired"),
            Self::UnsupportedMediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UNSUPPORTED_MEDIA_TYPE",
                "The body must be application/json",
            ),
            Self::RateLimited => (TOO_MANY, "RATE_LIMITED", "The notification is accepted and sent later"),
            Self::TooManyReads => {
                (TOO_MANY, "TOO_MANY_READS", "Too many lists and figures are asked for at a time")
            }
            Self::TooManyStreams => (TOO_MANY, "TOO_MANY_STREAMS", "Too many streams are open"),
            Self::QueueFull => (UNAVAILABLE, "QUEUE_FULL", "The queue is full"),
            Self::Stopping => (UNAVAILABLE, "STOPPING", "This node is stopping"),
            Self::Overloaded => (UNAVAILABLE, "OVERLOADED", "There is no room for the request now"),
            Self::StoreUnavailable => (UNAVAILABLE, "STORE_UNAVAILABLE", "The store cannot serve now"),
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
    pub pointer: Option<Box<str>>,
    /// Which query parameter, header or part of the path.
    pub parameter: Option<Box<str>>,
    /// The state that is in the way.
    pub state: Option<State>,
    /// All mistakes of a body whose form is right.
    pub errors: Box<[Mistake]>,
    /// The notifications of a batch, if none was accepted.
    pub rejected: Option<Box<[Rejected]>>,
    /// The methods that the address has.
    pub allow: Option<Box<HeaderValue>>,
    /// The notification that was accepted all the same.
    pub deferred: Option<Box<Deferred>>,
}

/// A notification that waits for a rate limit.
#[derive(Debug, Clone, Copy)]
pub struct Deferred {
    pub notification_id: NotificationId,
    pub until: Timestamp,
    /// From the moment of the answer.
    pub seconds: u64,
}

pub type Result<T, E = Problem> = std::result::Result<T, E>;

/// A problem as it is shown (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub struct ProblemView<'p> {
    r#type: String,
    title: &'static str,
    status: u16,
    /// Stable: programs can rely on it.
    code: Code,
    detail: &'p str,
    /// Where in the body, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<&'p str>,
    /// Which query parameter, header or part of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'p str>,
    /// The state that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// All mistakes, if the form is right and the values are not.
    #[serde(skip_serializing_if = "<[Mistake]>::is_empty")]
    #[schema(value_type = Vec<Mistake>)]
    errors: &'p [Mistake],
    /// The notifications of a batch, if none was accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<RejectedItem>, no_recursion)]
    rejected: Vec<RejectedItem<'p>>,
    /// The notification that was accepted all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    notification_id: Option<NotificationId>,
    /// When the notification is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred_until: Option<Timestamp>,
    /// The `x-request-id` of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'p str>,
}

/// One of several mistakes in a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Mistake {
    /// Where in the body, as a JSON pointer.
    pub pointer: String,
    pub detail: String,
}

/// A notification of a batch that was not accepted.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// Its place in the batch, from 0.
    pub index: usize,
    pub problem: Problem,
}

impl Rejected {
    pub fn view(&self) -> RejectedItem<'_> {
        RejectedItem { index: self.index, problem: self.problem.view(None) }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RejectedItem<'p> {
    /// Its place in the batch, from 0.
    index: usize,
    #[schema(value_type = ProblemView)]
    problem: ProblemView<'p>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Code(&'static str);

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let codes = Kind::ALL.map(|kind| kind.shown().1);
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes)).into()
    }
}

impl ToSchema for Code {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ProblemCode")
    }
}

impl Problem {
    /// A problem of that kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            pointer: None,
            parameter: None,
            state: None,
            errors: Box::default(),
            rejected: None,
            allow: None,
            deferred: None,
        }
    }

    /// A field of the body that is not in order.
    pub fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, detail).pointing(pointer)
    }

    /// A query parameter or header that is not in order.
    pub fn parameter(name: &str, detail: impl Into<String>) -> Self {
        Self { parameter: Some(name.into()), ..Self::new(Kind::Invalid, detail) }
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// The address has other methods.
    pub fn wrong_method(allowed: &str) -> Self {
        let problem = Self::new(Kind::MethodNotAllowed, format!("the methods of this address are {allowed}"));
        Self { allow: HeaderValue::from_str(allowed).ok().map(Box::new), ..problem }
    }

    /// The same, with the place in the body.
    #[must_use]
    pub fn pointing(self, pointer: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into().into()), ..self }
    }

    /// The same, seen from the document that holds this one at `parent`.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Self {
        for mistake in &mut self.errors {
            mistake.pointer.insert_str(0, parent);
        }
        let pointer = format!("{parent}{}", self.pointer.as_deref().unwrap_or(""));
        Self { pointer: Some(pointer.into()), ..self }
    }

    /// Several mistakes of a body as one problem: that of the first, with all of them listed.
    pub fn all(mut mistakes: Vec<Self>) -> Option<Self> {
        let errors: Vec<Mistake> = mistakes.iter().map(Self::mistake).collect();
        let detail = errors.iter().map(|one| one.detail.as_str()).collect::<Vec<_>>().join("; ");
        let first = if mistakes.is_empty() { return None } else { mistakes.swap_remove(0) };
        Some(Self { detail, errors: errors.into(), ..first })
    }

    fn mistake(&self) -> Mistake {
        Mistake {
            pointer: self.pointer.as_deref().unwrap_or_default().to_owned(),
            detail: self.detail.clone(),
        }
    }

    /// The problem as it is shown.
    pub fn view<'p>(&'p self, request_id: Option<&'p str>) -> ProblemView<'p> {
        let (status, code, title) = self.kind.shown();
        ProblemView {
            r#type: format!("urn:posthaste:problem:{code}"),
            title,
            status: status.as_u16(),
            code: Code(code),
            detail: &self.detail,
            pointer: self.pointer.as_deref(),
            parameter: self.parameter.as_deref(),
            state: self.state,
            errors: &self.errors,
            rejected: self.rejected.iter().flatten().map(Rejected::view).collect(),
            notification_id: self.deferred.as_ref().map(|one| one.notification_id),
            deferred_until: self.deferred.as_ref().map(|one| one.until),
            request_id,
        }
    }

    /// The answer.
    pub(super) fn response(&self, id: &RequestId) -> Response {
        let (status, ..) = self.kind.shown();
        let text = serde_json::to_vec(&self.view(Some(id.as_str()))).expect("a problem is made of texts");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(RETRY_AFTER, self.deferred.as_ref().map_or(1, |one| one.seconds).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow.as_deref() {
            headers.insert(ALLOW, allow.clone());
        }
        response
    }
}

/// The problem travels with the answer to `admission`, which knows the id of the request and shows it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, ..) = self.kind.shown();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        response.extensions_mut().insert(self);
        response
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
