//! Bodies that may be left out.

use axum::extract::{FromRequest, Request};
use http_body::Body as _;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Shared;
use super::body::{LARGEST_OTHER, Text, read};
use super::problem::{Problem, Result};

/// The body of an act: it has no fields. A field that is given is refused, because it would have no effect.
pub(crate) type NoBody = Optional<Nothing>;

/// An object without fields.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

impl NoBody {
    /// An act that a page asks for.
    pub(crate) const NONE: Self = Self(Nothing {});
}

/// An object, or nothing, which stands for one without fields.
pub(crate) struct Optional<T>(pub(crate) T);

impl<T: Default + for<'t> Deserialize<'t>> FromRequest<Shared> for Optional<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Shared) -> Result<Self> {
        // Programs that send no body may still name a type for it.
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        let text = Text::<LARGEST_OTHER>::from_request(request, api).await?;
        if text.trim_ascii().is_empty() {
            return Ok(Self(T::default()));
        }
        read(&text).map(Self)
    }
}
