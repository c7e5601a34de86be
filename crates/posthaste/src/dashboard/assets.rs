//! `/assets`: style sheets and scripts. Their addresses name their content, so a browser asks for each version once.

use axum::extract::Path;
use axum::response::Response;
use http::HeaderMap;

use super::shell::CSP;
use crate::http::embedded::{File, SCRIPT, STYLE};
use crate::http::problem::{Problem, Result};

/// A year: another version has another address.
const CACHE: &str = "public, max-age=31536000, immutable";

pub static FILES: [File; 9] = [
    File::to_pack("icon.svg", "image/svg+xml", include_bytes!("../../assets/dashboard/icon.svg")),
    File::to_pack("tokens.css", STYLE, include_bytes!("../../assets/dashboard/tokens.css")),
    File::to_pack("app.css", STYLE, include_bytes!("../../assets/dashboard/app.css")),
    File::to_pack("app.js", SCRIPT, include_bytes!("../../assets/dashboard/app.js")),
    File::to_pack("tail.js", SCRIPT, include_bytes!("../../assets/dashboard/tail.js")),
    File::to_pack("chart.css", STYLE, include_bytes!("../../assets/dashboard/chart.css")),
    File::to_pack("chart.js", SCRIPT, include_bytes!("../../assets/dashboard/chart.js")),
    File::packed("uplot.min.js", SCRIPT, include_bytes!("../../assets/dashboard/uplot.min.js.gz")),
    File::packed("htmx.min.js", SCRIPT, include_bytes!("../../assets/dashboard/htmx.min.js.gz")),
];

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::not_found("the dashboard has no such file"))?;
    Ok(file.answer(&headers, CSP, CACHE))
}

/// The address of a file.
pub(super) fn address(name: &str) -> String {
    let sum = FILES.iter().find(|file| file.name == name).map_or("", |file| &file.sum()[..12]);
    format!("/assets/{name}?v={sum}")
}
