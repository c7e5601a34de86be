//! The request of an act: what it is done to stands in the path, and there is nothing else to say.

use std::str::FromStr;

use hyper::body::Body as _;

use super::intake::json_body;
use super::object::Object;
use super::problem::{Problem, Result};
use super::query::Query;
use super::{Api, Ask};

/// The most bytes of a body that says nothing.
const LARGEST: usize = 1024;

/// The id of what is acted on; whatever is no id names nothing. A field that is given is refused: whoever gave it expects
/// something of it.
pub(super) async fn wanted<T: FromStr>(api: &Api, ask: &mut Ask, missing: fn(&Ask) -> Problem) -> Result<T> {
    Query::of(ask)?.finish()?;
    // Programs that send no body may still name a type for it.
    if !ask.body.is_end_stream() {
        let text = json_body(api, ask, LARGEST).await?;
        if !text.trim_ascii().is_empty() {
            Object::read(&text)?.finish()?;
        }
    }
    ask.inner.parse().map_err(|_| missing(ask))
}
