//! The form of a token: three parts in base64url, of which the first says how it is signed (RFC 7515, 7519).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::Refusal;
use super::key::Algorithm;
use crate::http::unique::Unique;

/// The most bytes of a token.
const MAX_TOKEN: usize = 8 * 1024;
/// The most bytes of the name of a key.
const MAX_KEY_NAME: usize = 256;

/// Fields of a header that bring a key along, ask for something that is not done here, or change what is signed.
const REFUSED_FIELDS: [&str; 9] = ["jku", "jwk", "x5u", "x5c", "crit", "b64", "cty", "zip", "enc"];
/// Tokens of another kind, such as those that end a session, are not access tokens.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// A token whose form is right. Nothing of it is verified.
pub(super) struct Form<'t> {
    /// The name of the key.
    pub(super) key: Option<String>,
    /// What the signature is over: the first two parts as they came.
    pub(super) signed: &'t [u8],
    pub(super) claims: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

impl<'t> Form<'t> {
    pub(super) fn read(token: &'t str, algorithm: Algorithm) -> Result<Self, Refusal> {
        if token.len() > MAX_TOKEN {
            return Err(Refusal::Size);
        }
        let mut parts = token.split('.');
        let (Some(head), Some(body), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::Form);
        };
        let part = |text: &str| base64(text).filter(|bytes| !bytes.is_empty()).ok_or(Refusal::Form);
        let header = object(&part(head)?)?;
        let key = check_header(&header, algorithm)?;
        let signed = &token.as_bytes()[..head.len() + 1 + body.len()];
        Ok(Self { key, signed, claims: part(body)?, signature: part(signature)? })
    }
}

/// base64url without padding. Each text has one spelling, so bits that mean nothing are refused.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// A JSON object in which no field is given twice.
pub(super) fn object(json: &[u8]) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(json) {
        Ok(Unique(Value::Object(fields))) => Ok(fields),
        _ => Err(Refusal::Form),
    }
}

/// Returns the name of the key. The algorithm is compared with the configured one and used for nothing else.
fn check_header(header: &Map<String, Value>, algorithm: Algorithm) -> Result<Option<String>, Refusal> {
    if header.get("alg").and_then(Value::as_str) != Some(algorithm.name()) {
        return Err(Refusal::Algorithm);
    }
    if REFUSED_FIELDS.iter().any(|field| header.contains_key(*field)) {
        return Err(Refusal::Header);
    }
    let known = |kind: &str| TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind));
    if header.get("typ").is_some_and(|kind| !kind.as_str().is_some_and(known)) {
        return Err(Refusal::Header);
    }
    match header.get("kid") {
        None => Ok(None),
        Some(Value::String(name)) if name.len() <= MAX_KEY_NAME => Ok(Some(name.clone())),
        Some(_) => Err(Refusal::Header),
    }
}
