//! `/docs`: the API explorer. Its files are part of the program, so that it works without a network.
//!
//! The large files are embedded in compressed form and sent as they are. A client that does not accept gzip
//! gets them unpacked.
//!
//! Invariant: the page loads nothing from another host and runs no inline script; the `CSP` sees to both.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::embedded::{File, SCRIPT, STYLE};
use super::problem::{Problem, Result};

/// Images of the style sheet are `data:` URLs. Nothing is inline, neither script nor style.
pub const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                       base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A new version of the program is seen at once.
const CACHE: &str = "no-cache";

static PAGE: File =
    File::plain("", "text/html; charset=utf-8", include_bytes!("../../assets/docs/index.html"));

/// What the page asks for.
pub static FILES: [File; 4] = [
    File::plain("explorer.js", SCRIPT, include_bytes!("../../assets/docs/explorer.js")),
    File::plain("explorer.css", STYLE, include_bytes!("../../assets/docs/explorer.css")),
    File::packed("swagger-ui-bundle.js", SCRIPT, include_bytes!("../../assets/docs/swagger-ui-bundle.js.gz")),
    File::packed("swagger-ui.css", STYLE, include_bytes!("../../assets/docs/swagger-ui.css.gz")),
];

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(page)).routes(routes!(file))
}

/// The API explorer, for a browser.
#[utoipa::path(get, path = "/docs", operation_id = "docs", tag = "server", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"), (status = 304, description = "The page has not changed")))]
async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers, CSP, CACHE)
}

/// A file that the explorer needs.
#[utoipa::path(get, path = "/docs/{file}", operation_id = "docsFile", tag = "server", security(()),
    params(("file" = String, Path, description = "The name of the file")),
    responses((status = 200, description = "The file", content((String = "text/javascript"), (String = "text/css"))),
        (status = 304, description = "The file has not changed"), (status = 404, description = "There is no such file")))]
async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::not_found("the explorer has no such file; it is at /docs"))?;
    Ok(file.answer(&headers, CSP, CACHE))
}

/// The page names its files relative to `/docs`, so that it also works below a path of a proxy.
pub(super) fn without_slash() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "../docs")]).into_response()
}
