//! The headers that a notification may set itself.

use std::collections::BTreeMap;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that are ours or the connection's.
const KEPT: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// How such names start, besides.
const KEPT_PREFIXES: &[&str] = &["webhook-", "posthaste-"];
/// The most headers of one notification.
const MOST: usize = 64;
/// The most bytes of their names and values.
const MOST_BYTES: usize = 16 * 1024;

/// A header that a notification must not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header `{name}` {reason}")]
pub struct BadHeader {
    /// The start of its name, as it was given, without what would not print.
    pub name: String,
    reason: &'static str,
}

/// Refuses headers that are ours or the connection's, and those that HTTP cannot carry (CR, LF and NUL among them).
pub fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), BadHeader> {
    read_headers(headers).map(drop)
}

/// The headers, checked.
pub(super) fn read_headers(headers: &BTreeMap<String, String>) -> Result<HeaderMap, BadHeader> {
    // A map for more than 24,576 headers cannot be made.
    let mut read = HeaderMap::with_capacity(headers.len().min(MOST) + 8);
    let mut bytes = 0;
    for (name, value) in headers {
        let bad =
            |reason| BadHeader { name: name.chars().take(64).flat_map(char::escape_debug).collect(), reason };
        bytes += name.len() + value.len();
        if read.len() == MOST || bytes > MOST_BYTES {
            return Err(bad("is one too many: 64 headers of 16 KiB together are the limit"));
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("is not a header name"))?;
        if KEPT.contains(&name.as_str()) || KEPT_PREFIXES.iter().any(|kept| name.as_str().starts_with(kept)) {
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
        for name in KEPT.iter().copied().chain(["webhook-id", "posthaste-attempt", "webhook-x"]) {
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
