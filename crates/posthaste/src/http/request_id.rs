//! The id of a request: in its answer, in its problem and in the log, so that the three can be brought
//! together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The most characters of an id that a caller gives.
const LONGEST: usize = 64;

/// The caller's own id, or one of ours.
#[derive(Debug, Clone)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    /// The id that the caller or a proxy gave, if it is plain, else a new one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(Self::HEADER).filter(|given| is_plain(given.as_bytes()));
        Self(given.cloned().unwrap_or_else(fresh))
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.to_str().expect("an id is plain ASCII")
    }

    pub(super) fn into_header(self) -> HeaderValue {
        self.0
    }
}

fn is_plain(text: &[u8]) -> bool {
    let fits = (1..=LONGEST).contains(&text.len());
    fits && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
}

/// Unique on this node by a counter, and between nodes and starts by a random part.
fn fresh() -> HeaderValue {
    static START: OnceLock<u32> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| u32::from_be_bytes(crate::keys::random()));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from_str(&format!("{start:08x}-{count:x}")).expect("hexadecimal digits are plain")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(given: Option<&str>) -> String {
        let pair = given.map(|given| (RequestId::HEADER, given.parse().unwrap()));
        RequestId::of(&pair.into_iter().collect()).as_str().to_owned()
    }

    #[test]
    fn a_plain_id_is_taken_and_anything_else_is_replaced() {
        for plain in ["x", "9f8a-1", "a.b_c:d", &"k".repeat(64)] {
            assert_eq!(id(Some(plain)), plain);
        }
        for odd in ["", "a b", "a\"b", "<x>", &"k".repeat(65)] {
            assert_ne!(id(Some(odd)), odd);
        }
        assert_ne!(id(None), id(None));
    }
}
