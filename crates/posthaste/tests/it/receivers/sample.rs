//! A receiver of webhooks.

use std::collections::HashSet;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const TOLERANCE: u64 = 5 * 60; // seconds
const HEADERS: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

/// Whether these bytes were sent a moment ago by somebody with the secret. `now` is in seconds since 1970.
pub fn is_genuine(secret: &str, headers: [&str; 3], body: &[u8], now: i64) -> bool {
    let [id, sent_at, signatures] = headers;
    let is_near = sent_at.parse().is_ok_and(|sent_at: i64| now.abs_diff(sent_at) <= TOLERANCE);
    let key = secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
    let Some(key) = key.filter(|_| is_near) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = [id.as_bytes(), b".", sent_at.as_bytes(), b".", body].concat();
    // `verify` takes the same time wherever the first difference is.
    let fits = |signature: &str| {
        let given = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
        given.is_some_and(|given| hmac::verify(&key, &signed, &given).is_ok())
    };
    signatures.split(' ').any(fits)
}

/// Returns the status to answer with. `seen` is a unique column of your database, in the transaction of
/// `work`.
pub fn receive<'h>(
    secret: &str,
    header: impl Fn(&str) -> Option<&'h str>,
    body: &[u8],
    now: i64,
    seen: &mut HashSet<String>,
    work: impl FnOnce(&[u8]),
) -> u16 {
    let headers = HEADERS.map(|name| header(name).unwrap_or(""));
    if !is_genuine(secret, headers, body, now) {
        return 401;
    }
    if !seen.contains(headers[0]) {
        work(body);
        seen.insert(headers[0].to_owned());
    }
    204
}
