//! What an act came to, said once by the page after it.

use http::{HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::cookie;

/// How long it waits for the next page.
const SECONDS: u64 = 60;
/// The most characters of a text.
const LONGEST: usize = 400;

/// One sentence about an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flash {
    pub(super) words: String,
    /// Whether the act was refused.
    pub(super) refused: bool,
    /// Where a form undoes it.
    pub(super) undo: Option<String>,
    /// A page that shows more.
    pub(super) see: Option<String>,
}

impl Flash {
    pub(super) fn done(words: impl Into<String>) -> Self {
        Self { words: words.into(), refused: false, undo: None, see: None }
    }

    pub(super) fn refused(words: &str) -> Self {
        let words = words.chars().take(LONGEST).collect();
        Self { words, refused: true, undo: None, see: None }
    }

    /// The same, with a button that undoes the act.
    pub(super) fn with_undo(self, path: String) -> Self {
        Self { undo: Some(path), ..self }
    }

    /// The same, with a link to what came of it.
    pub(super) fn with_link(self, path: String) -> Self {
        Self { see: Some(path), ..self }
    }

    /// From the cookie of a request. Paths are of our own site.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = percent_decode_str(cookie::read(headers, cookie::FLASH)?).decode_utf8().ok()?;
        let flash: Self = serde_json::from_str(&text).ok()?;
        let paths = [&flash.undo, &flash.see];
        paths.iter().copied().flatten().all(|path| super::login::is_local(path)).then_some(flash)
    }

    pub(super) fn cookie(&self) -> HeaderValue {
        let text = serde_json::to_string(self).expect("a flash is made of texts");
        cookie::set(cookie::FLASH, &utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string(), SECONDS)
    }

    pub(super) fn clear() -> HeaderValue {
        cookie::set(cookie::FLASH, "", 0)
    }
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    #[test]
    fn what_was_set_is_read_back_and_leads_nowhere_else() {
        let read = |flash: &Flash| {
            let cookie = flash.cookie();
            let pair = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
            Flash::of(&HeaderMap::from_iter([(COOKIE, pair.parse().unwrap())]))
        };
        let flash = Flash::done("Discarded <b>; \"x\"").with_undo("/dead-letters/dl_1/restore".to_owned());
        assert_eq!(read(&flash), Some(flash));
        assert_eq!(read(&Flash::done("x").with_undo("//evil.example/".to_owned())), None);
        assert_eq!(Flash::refused(&"x".repeat(1_000)).words.len(), LONGEST);
    }
}
