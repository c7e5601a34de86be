//! The body of a request: bounded in size, time and depth, then read by serde.

use std::ops::Deref;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::admission::RequestContext;
use super::budget::{Held, Size};
use super::mistake::in_plain_words;
use super::problem::{Kind, Problem, Result};
use super::{Api, Shared};
use crate::keys::Caller;

/// The most bytes of one notification.
pub(crate) const LARGEST_NOTIFICATION: usize = 256 * 1024;
/// The most bytes of a batch.
pub(crate) const LARGEST_BATCH: usize = 16 * 1024 * 1024;
/// The most bytes of any other body.
pub(crate) const LARGEST_OTHER: usize = 16 * 1024;
/// The most arrays and objects inside each other.
const DEEPEST: usize = 128;

/// A JSON body of at most so many bytes, not read yet. Its bytes count in the budget until it is dropped.
pub(crate) struct Text<const LARGEST: usize = LARGEST_OTHER> {
    bytes: Bytes,
    _held: Held,
}

impl<const LARGEST: usize> Deref for Text<LARGEST> {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl<const LARGEST: usize> Text<LARGEST> {
    /// A body that a page made of its form.
    pub(crate) fn of(api: &Api, caller: &Caller, value: &serde_json::Value) -> Result<Self> {
        let mut held = api.bodies.begin(caller.sends_for(), Size::Small);
        let bytes = Bytes::from(value.to_string());
        held.grow(bytes.len())?;
        Ok(Self { bytes, _held: held })
    }
}

impl<const LARGEST: usize> FromRequest<Shared> for Text<LARGEST> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Shared) -> Result<Self> {
        if let Some(given) = request.headers().get(CONTENT_TYPE) {
            let kind = given.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
            if !kind.eq_ignore_ascii_case("application/json") {
                let detail = format!("send `content-type: application/json`, not `{}`", kind.escape_debug());
                return Err(Problem::new(Kind::UnsupportedMediaType, detail));
            }
        }
        let size = if LARGEST > LARGEST_NOTIFICATION { Size::Large } else { Size::Small };
        let caller = request.extensions().get::<RequestContext>().and_then(|asked| asked.caller.as_ref());
        let caller =
            caller.ok_or_else(|| Problem::new(Kind::Internal, "this route was declared without a key"))?;
        let mut held = api.bodies.begin(caller.sends_for(), size);
        let mut body = request.into_body();
        let read = tokio::time::timeout(api.body_timeout, whole(&mut body, LARGEST, &mut held)).await;
        let bytes = read.unwrap_or_else(|_| {
            let detail = format!("the body was not complete after {} s", api.body_timeout.as_secs());
            Err(Problem::new(Kind::Timeout, detail))
        })?;
        if depth(&bytes) > DEEPEST {
            let detail = format!("the body nests more than {DEEPEST} arrays and objects inside each other");
            return Err(Problem::new(Kind::BadJson, detail));
        }
        Ok(Self { bytes, _held: held })
    }
}

/// Reads a JSON object as a type. A mistake is shown with its place; texts inside of the type may borrow from
/// the document.
pub(crate) fn read<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Result<T> {
    // serde would also read the fields of a struct from an array.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(no_object(text));
    }
    // The place of a mistake is looked for only if there is one.
    serde_json::from_slice(text).map_err(|_| mistake::<T>(text))
}

fn no_object(text: &[u8]) -> Problem {
    match serde_json::from_slice::<IgnoredAny>(text) {
        Ok(_) => Problem::at("", "the document must be a JSON object"),
        Err(error) => Problem::new(Kind::BadJson, format!("the body is not valid JSON: {error}")),
    }
}

fn mistake<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Problem {
    // Nothing is kept here: as values the body could take fifty times its size.
    let valid = serde_json::from_slice::<IgnoredAny>(text).map_err(|error| error.to_string());
    if let Err(error) = valid.and_then(|_| std::str::from_utf8(text).map_err(|error| error.to_string())) {
        return Problem::new(Kind::BadJson, format!("the body is not valid JSON: {error}"));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut reader) else {
        return Problem::new(Kind::BadJson, "the body is not one JSON document");
    };
    let detail = without_position(&error.inner().to_string());
    let mut pointer = pointer_of(error.path());
    // The path ends at the object that has a field twice or not at all.
    if let Some(name) = named_field(&detail)
        && !pointer.ends_with(&at(name))
    {
        pointer.push_str(&at(name));
    }
    let detail = match error.inner().is_syntax() {
        // serde calls a number where a name is expected a mistake of syntax.
        true if detail.starts_with("expected value") => "the value is of another type".to_owned(),
        true => return Problem::new(Kind::BadJson, format!("the body is not valid JSON: {detail}")),
        false => in_plain_words(&detail),
    };
    Problem::at(pointer, detail)
}

/// The pointer of a place that serde was at.
pub(crate) fn pointer_of(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path.iter() {
        match segment {
            serde_path_to_error::Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            serde_path_to_error::Segment::Map { key } => pointer.push_str(&at(key)),
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => {}
        }
    }
    pointer
}

/// The field that a message of serde names, if the path does not include it.
fn named_field(detail: &str) -> Option<&str> {
    let rest =
        ["duplicate field `", "missing field `"].iter().find_map(|start| detail.strip_prefix(start))?;
    rest.strip_suffix('`')
}

/// Without " at line 1 column 7": the pointer says it better.
pub(crate) fn without_position(text: &str) -> String {
    text.rsplit_once(" at line ").map_or(text, |(before, _)| before).to_owned()
}

/// The pointer of a field.
pub(crate) fn at(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    format!("/{}", short.replace('~', "~0").replace('/', "~1"))
}

async fn whole(body: &mut Body, largest: usize, held: &mut Held) -> Result<Bytes> {
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

/// How many arrays and objects lie inside each other. Counted before anything is parsed, because a parser
/// that keeps a value as it came does not count.
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

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Sample<'t> {
        #[serde(borrow, default)]
        raw: Option<&'t serde_json::value::RawValue>,
        count: Option<u32>,
        #[serde(default)]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(rename = "a/b")]
        name: String,
    }

    #[test]
    fn a_mistake_is_shown_at_its_place() {
        let problem = |text: &'static str| read::<Sample<'_>>(text.as_bytes()).unwrap_err();
        for (text, pointer) in [
            ("[]", ""),
            (r#"{"count": "x"}"#, "/count"),
            (r#"{"count": -1}"#, "/count"),
            (r#"{"conut": 1}"#, "/conut"),
            (r#"{"": 1}"#, "/"),
            (r#"{"a~b": 1}"#, "/a~0b"),
            (r#"{"x`, expected": 1}"#, "/x`, expected"),
            (r#"{"count": 1, "c\u006funt": 2}"#, "/count"),
            (r#"{"inner": [{"a/b": "x"}, {"a/b": 1}]}"#, "/inner/1/a~1b"),
            (r#"{"inner": [{"b": 1}]}"#, "/inner/0/b"),
            (r#"{"inner": [{}]}"#, "/inner/0/a~1b"),
        ] {
            let problem = problem(text);
            assert_eq!(
                (problem.kind, problem.pointer.as_deref()),
                (Kind::Invalid, Some(pointer)),
                "{text}: {problem:?}"
            );
            assert!(!problem.detail.contains("at line"), "{}", problem.detail);
        }
        for text in ["", "{", r#"{"conut": 1,}"#, r#"{"count": 1} x"#, "\u{feff}{}"] {
            let problem = problem(text);
            assert_eq!((problem.kind, problem.pointer), (Kind::BadJson, None), "{text}");
        }
        let good = br#"{"raw": [1.10], "inner": [{"a/b": "x"}]}"#;
        let sample: Sample<'_> = read(good).unwrap();
        assert_eq!((sample.raw.unwrap().get(), sample.count, sample.inner.len()), ("[1.10]", None, 1));
        assert_eq!(sample.inner[0].name, "x");
    }
}
