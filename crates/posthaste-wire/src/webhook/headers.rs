//! The headers that a notification may set.

use std::collections::BTreeMap;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that Posthaste or the HTTP connection sets.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Further reserved headers, by the start of their names.
const RESERVED_PREFIXES: &[&str] = &["webhook-", "posthaste-", "proxy-"];
/// Limit on the headers of one notification.
const MAX_HEADERS: usize = 64;
/// Limit on the bytes of all names and values.
const MAX_BYTES: usize = 16 * 1024;

/// A header that a notification must not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header `{name}` {reason}")]
pub struct BadHeader {
    /// The start of its name as given, with unprintable characters escaped.
    pub name: String,
    reason: &'static str,
}

/// Refuses reserved headers, and those that HTTP cannot carry (CR, LF and NUL among them).
pub fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), BadHeader> {
    read_headers(headers.iter()).map(drop)
}

/// Checks and converts the headers.
pub(super) fn read_headers<'h>(
    headers: impl Iterator<Item = (&'h String, &'h String)>,
) -> Result<HeaderMap, BadHeader> {
    // `HeaderMap` panics above 24,576 headers.
    let mut read = HeaderMap::with_capacity(headers.size_hint().0.min(MAX_HEADERS) + 8);
    let mut bytes = 0;
    for (name, value) in headers {
        let bad =
            |reason| BadHeader { name: name.chars().take(64).flat_map(char::escape_debug).collect(), reason };
        bytes += name.len() + value.len();
        if read.len() == MAX_HEADERS || bytes > MAX_BYTES {
            return Err(bad("is one too many: 64 headers of 16 KiB together are the limit"));
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("is not a header name"))?;
        if RESERVED.contains(&name.as_str())
            || RESERVED_PREFIXES.iter().any(|reserved| name.as_str().starts_with(reserved))
        {
            return Err(bad("cannot be set by a notification"));
        }
        let value =
            HeaderValue::from_str(value).map_err(|_| bad("has a value that a header cannot carry"))?;
        if read.insert(name, value).is_some() {
            return Err(bad("is given twice"));
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn plain_headers_pass() {
        for (name, value) in
            [("x-a", "1"), ("Content-Type", "text/csv"), ("authorization", "Bearer x"), ("x", "")]
        {
            assert_eq!(check_headers(&one(name, value)), Ok(()), "{name}");
        }
    }

    #[test]
    fn headers_of_ours_and_of_the_connection_are_refused_in_any_case() {
        for name in RESERVED.iter().copied().chain(["webhook-id", "posthaste-attempt", "webhook-x"]) {
            for name in [name.to_owned(), name.to_uppercase()] {
                let error = check_headers(&one(&name, "1")).unwrap_err().to_string();
                assert_eq!(error, format!("header `{name}` cannot be set by a notification"));
            }
        }
    }

    #[test]
    fn nothing_that_ends_a_line_gets_into_a_header() {
        for bad in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\u{7f}b"] {
            assert!(check_headers(&one("x-a", bad)).is_err(), "{bad:?}");
            assert!(check_headers(&one(bad, "1")).is_err(), "{bad:?}");
        }
        let error = check_headers(&one("x\r\ny", "1")).unwrap_err().to_string();
        assert_eq!(error, "header `x\\r\\ny` is not a header name");
        for bad in ["", "a b", "a:b", "ä"] {
            assert!(check_headers(&one(bad, "1")).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_header_given_twice_and_a_flood_are_refused() {
        let twice = BTreeMap::from([("X-A".to_owned(), "1".to_owned()), ("x-a".to_owned(), "2".to_owned())]);
        assert!(check_headers(&twice).unwrap_err().to_string().ends_with("is given twice"));
        let flood: BTreeMap<_, _> = (0..65).map(|i| (format!("x-{i}"), String::new())).collect();
        assert!(check_headers(&flood).is_err());
        assert!(check_headers(&one("x-a", &"a".repeat(16 * 1024))).is_err());
    }
}
