//! Files that are part of the program, so that its pages work without a network.
//!
//! A file is sent in compressed form to those who accept gzip: as it was embedded, or packed when it is first
//! asked for.

use std::borrow::Cow;
use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, StatusCode};

use super::hex;

pub const SCRIPT: &str = "text/javascript; charset=utf-8";
pub const STYLE: &str = "text/css; charset=utf-8";

/// A file as it is embedded.
pub struct File {
    pub name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    form: Form,
    /// The start of the SHA-256 of what is embedded.
    sum: OnceLock<String>,
    /// In compressed form, if it was not embedded so.
    packed: OnceLock<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is, and always sent so.
    Plain,
    /// As it is, and packed for those who accept gzip.
    ToPack,
    /// By `gzip -n`.
    Packed,
}

impl File {
    /// A file that is sent as it is.
    pub const fn plain(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self::new(name, kind, bytes, Form::Plain)
    }

    /// A file that is packed when it is first asked for.
    pub const fn to_pack(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self::new(name, kind, bytes, Form::ToPack)
    }

    /// A file that `gzip -n` has packed.
    pub const fn packed(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self::new(name, kind, bytes, Form::Packed)
    }

    const fn new(name: &'static str, kind: &'static str, bytes: &'static [u8], form: Form) -> Self {
        Self { name, kind, bytes, form, sum: OnceLock::new(), packed: OnceLock::new() }
    }

    /// The answer to a request for the file.
    pub(crate) fn answer(&self, asked: &HeaderMap, csp: &str, cache: &str) -> Response {
        let packed = self.form != Form::Plain && accepts_gzip(asked);
        let etag = self.etag(packed);
        let always: [(HeaderName, &str); 6] = [
            (CACHE_CONTROL, cache),
            (CONTENT_SECURITY_POLICY, csp),
            (REFERRER_POLICY, "no-referrer"),
            (VARY, "accept-encoding"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (ETAG, &etag),
        ];
        if matches_etag(asked, &etag) {
            return (StatusCode::NOT_MODIFIED, always).into_response();
        }
        let kind = [(CONTENT_TYPE, self.kind)];
        if packed {
            return (always, kind, [(CONTENT_ENCODING, "gzip")], self.in_gzip()).into_response();
        }
        (always, kind, self.content().into_owned()).into_response()
    }

    /// The file as it is for whoever uses it.
    pub fn content(&self) -> Cow<'static, [u8]> {
        match self.form {
            Form::Packed => Cow::Owned(unpack(self.bytes).expect("a test unpacks every embedded file")),
            Form::Plain | Form::ToPack => Cow::Borrowed(self.bytes),
        }
    }

    /// The file in compressed form.
    pub fn in_gzip(&self) -> Vec<u8> {
        if self.form == Form::Packed {
            self.bytes.to_vec()
        } else {
            self.packed.get_or_init(|| pack(self.bytes)).clone()
        }
    }

    /// What tells one version of the file from another.
    pub fn sum(&self) -> &str {
        self.sum.get_or_init(|| hex(&digest(&SHA256, self.bytes).as_ref()[..16]))
    }

    /// Two forms of one file are two things to a cache.
    fn etag(&self, packed: bool) -> String {
        let sum = self.sum();
        if packed { format!("\"{sum}-gzip\"") } else { format!("\"{sum}\"") }
    }
}

/// The length of the head that `gzip -n` writes, and of the sum at the end.
const HEAD: usize = 10;
const TAIL: usize = 8;
/// The most that a file may unpack to.
const LARGEST: usize = 8 * 1024 * 1024;

fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let stream = bytes.get(HEAD..bytes.len().checked_sub(TAIL)?)?;
    miniz_oxide::inflate::decompress_to_vec_with_limit(stream, LARGEST).ok()
}

/// As `gzip -n` does.
fn pack(bytes: &[u8]) -> Vec<u8> {
    const BEST: u8 = 9;
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(miniz_oxide::deflate::compress_to_vec(bytes, BEST));
    packed.extend(crc(bytes).to_le_bytes());
    packed.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    packed
}

/// CRC-32 as RFC 1952 has it.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(sum & 1)))
    })
}

/// RFC 9110, 12.5.3: without the header anything may be sent, but what knows no encodings does not send it
/// either.
fn accepts_gzip(asked: &HeaderMap) -> bool {
    let (mut named, mut any) = (None, None);
    let values = asked.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    for coding in values.flat_map(|value| value.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        let accepted = weight.is_ok_and(|weight| weight > 0.0);
        match name.trim() {
            "*" => any = Some(accepted),
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                named = Some(accepted);
            }
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

fn matches_etag(asked: &HeaderMap, etag: &str) -> bool {
    let values = asked.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        for (value, wanted) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("gzip; q=0.0", false),
            ("identity", false),
            ("", false),
            ("br;q=1", false),
            ("gzip;q=much", false),
        ] {
            assert_eq!(accepts_gzip(&asked(ACCEPT_ENCODING, value)), wanted, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_tag_is_found_in_a_list() {
        for (value, wanted) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
        ] {
            assert_eq!(matches_etag(&asked(IF_NONE_MATCH, value), "\"a\""), wanted, "{value}");
        }
    }

    #[test]
    fn what_was_packed_is_what_it_was() {
        let text = "posthaste ".repeat(1_000).into_bytes();
        let packed = pack(&text);
        assert!(packed.len() < 200, "{}", packed.len());
        assert_eq!(unpack(&packed), Some(text));
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_damaged_file_is_not_unpacked() {
        assert_eq!(unpack(b""), None);
        assert_eq!(unpack(&[0; 40]), None);
    }
}
