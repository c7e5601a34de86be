//! Cookies: how they are read and how they are set.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// The session. The prefix makes browsers refuse it without `Secure`, from another host or for another path.
pub(super) const SESSION: &str = "__Host-posthaste";
/// What the form to log in is compared with.
pub(super) const LOGIN: &str = "__Host-posthaste-login";
/// What the next page says about the act before it.
pub(super) const FLASH: &str = "__Host-posthaste-flash";
/// `light` or `dark`, if somebody chose.
pub(super) const THEME: &str = "__Host-posthaste-theme";
/// `off`, if somebody switched the keys of pages off.
pub(super) const SHORTCUTS: &str = "__Host-posthaste-shortcuts";
/// How long a choice is remembered: a year.
pub(super) const REMEMBERED: u64 = 365 * 86_400;

/// The value of a cookie of a request.
pub(super) fn read<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| {
        let (given, value) = pair.trim().split_once('=')?;
        (given == name).then_some(value)
    })
}

/// Sets a cookie for so many seconds; 0 removes it. Values are hexadecimal, percent-encoded or plain words.
pub(super) fn set(name: &str, value: &str, seconds: u64) -> HeaderValue {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    HeaderValue::from_str(&text).expect("a cookie is plain ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = HeaderMap::from_iter([
            (COOKIE, HeaderValue::from_static("a=1; __Host-posthaste=x.1.y; b")),
            (COOKIE, HeaderValue::from_static("c=3")),
        ]);
        assert_eq!(read(&headers, SESSION), Some("x.1.y"));
        assert_eq!(read(&headers, "c"), Some("3"));
        assert_eq!(read(&headers, "b"), None);
        assert_eq!(read(&headers, "__Host-posthast"), None);
    }

    #[test]
    fn no_script_and_no_other_site_gets_a_cookie() {
        let cookie = set(SESSION, "v", 5);
        let cookie = cookie.to_str().unwrap();
        for part in ["Secure", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=5"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Domain"));
    }
}
