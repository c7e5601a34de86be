//! Reading the body of a request: bounded in size, time and depth.

use std::ops::Deref;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::budget::{Held, Size};
use super::problem::{Kind, Problem, Result};
use super::{Api, Ask};

/// The most bytes of one notification.
pub(super) const LARGEST_NOTIFICATION: usize = 256 * 1024;
/// The most bytes of a batch.
pub(super) const LARGEST_BATCH: usize = 16 * 1024 * 1024;
/// The most arrays and objects inside each other.
const DEEPEST: usize = 128;

/// A body that was read. Its bytes count until it is dropped.
pub(super) struct Text<'a> {
    bytes: Bytes,
    _held: Held<'a>,
}

impl Deref for Text<'_> {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// The body of a request that must be JSON.
pub(super) async fn json_body<'a>(api: &'a Api, ask: &mut Ask, largest: usize) -> Result<Text<'a>> {
    if let Some(given) = ask.head.headers.get(CONTENT_TYPE) {
        let kind = given.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Problem::new(
                Kind::UnsupportedMediaType,
                format!("send `content-type: application/json`, not `{}`", kind.escape_debug()),
            ));
        }
    }
    let size = if largest > LARGEST_NOTIFICATION { Size::Large } else { Size::Small };
    let mut held = api.bodies.begin(size);
    let read = tokio::time::timeout(api.body_within, whole(&mut ask.body, largest, &mut held)).await;
    let bytes = read.unwrap_or_else(|_| {
        let detail = format!("the body was not complete after {} s", api.body_within.as_secs());
        Err(Problem::new(Kind::Timeout, detail))
    })?;
    if depth(&bytes) > DEEPEST {
        let detail = format!("the body nests more than {DEEPEST} arrays and objects inside each other");
        return Err(Problem::new(Kind::BadJson, detail));
    }
    Ok(Text { bytes, _held: held })
}

async fn whole(body: &mut Incoming, largest: usize, held: &mut Held<'_>) -> Result<Bytes> {
    let too_large =
        || Problem::new(Kind::TooLarge, format!("the body is larger than {} KiB", largest / 1024));
    if body.size_hint().lower() > largest as u64 {
        return Err(too_large());
    }
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(Kind::BadJson, "the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > largest {
            return Err(too_large());
        }
        held.grow(data.len())?;
        // Most bodies come in one piece, which then need not be copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// How many arrays and objects lie inside each other. Asked before anything is parsed, because a parser that keeps a
/// value as it came does not count.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0usize, 0, false, false);
    for byte in text {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_text = false,
            (false, b'"') => in_text = true,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_texts_only() {
        for (text, wanted) in [
            ("", 0),
            ("1", 0),
            ("{}", 1),
            (r#"{"a": [1, [2]], "b": [3]}"#, 3),
            (r#"{"a": "[[[[", "b": "\"[[["}"#, 1),
            ("]]]][[", 2),
        ] {
            assert_eq!(depth(text.as_bytes()), wanted, "{text}");
        }
        assert_eq!(depth("[".repeat(50_000).as_bytes()), 50_000);
    }
}
