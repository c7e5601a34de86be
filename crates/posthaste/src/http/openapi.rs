//! `/openapi.json`: the description of the API, as it lies beside the code. A test holds it to the routes.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::bytes;

/// The description.
pub const DOCUMENT: &str = include_str!("../../openapi.json");

/// `GET /openapi.json`
pub(super) fn get() -> Response<Full<Bytes>> {
    bytes(StatusCode::OK, Bytes::from_static(DOCUMENT.as_bytes()))
}
