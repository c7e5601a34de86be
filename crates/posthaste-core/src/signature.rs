//! Signatures of webhooks by Standard Webhooks: the secrets of a tenant, which of them sign, and what is signed. The HMAC itself
//! is made where a webhook leaves.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::notification::Tenant;
use crate::record::{RecordKey, RecordKind};
use crate::time::Timestamp;

/// How long the secret before a rotation signs, too.
pub const OVERLAP: Duration = Duration::from_hours(24);
/// The most secrets that sign at a time, so that the header stays short: the newest, and those of the last rotations.
pub const MOST_SIGNING: usize = 3;
/// How many bytes a new secret has.
pub const NEW_SECRET_BYTES: usize = 32;

const PREFIX: &str = "whsec_";
/// The name of the record with the secrets of a tenant.
const RECORD: &str = "webhooks";
/// What stands before a signature: HMAC-SHA256.
const VERSION: &str = "v1,";

/// A key of HMAC-SHA256. Nothing shows it by accident: its text has to be asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Box<[u8]>);

/// Why a text is no secret. It never quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is `whsec_` and 24 to 64 bytes in base64")]
pub struct BadSecret;

impl SigningSecret {
    /// From 24 to 64 random bytes, as Standard Webhooks asks for.
    pub fn new(bytes: &[u8]) -> Result<Self, BadSecret> {
        if (24..=64).contains(&bytes.len()) { Ok(Self(bytes.into())) } else { Err(BadSecret) }
    }

    /// From the text that receivers are given.
    pub fn parse(text: &str) -> Result<Self, BadSecret> {
        let bytes = text.strip_prefix(PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
        Self::new(&bytes.ok_or(BadSecret)?)
    }

    /// The text that receivers are given.
    pub fn text(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(***)")
    }
}

/// What is signed ahead of the body: `{webhook-id}.{webhook-timestamp}.`
pub fn signed_head(id: &str, seconds: i64) -> String {
    format!("{id}.{seconds}.")
}

/// The value of `webhook-signature`: one signature for each secret that signs.
pub fn header_value(signatures: impl IntoIterator<Item: AsRef<[u8]>>) -> String {
    let mut value = String::new();
    for signature in signatures {
        if !value.is_empty() {
            value.push(' ');
        }
        value.push_str(VERSION);
        STANDARD.encode_string(signature, &mut value);
    }
    value
}

/// The secrets of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningSecrets {
    current: SigningSecret,
    created_at: Timestamp,
    /// Those before it, the newest first.
    previous: Vec<PreviousSecret>,
}

/// A secret that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PreviousSecret {
    secret: SigningSecret,
    expires_at: Timestamp,
}

impl SigningSecrets {
    /// The first secret of a tenant.
    pub const fn first(secret: SigningSecret, now: Timestamp) -> Self {
        Self { current: secret, created_at: now, previous: vec![] }
    }

    /// The same after a rotation. The secret before it signs for `OVERLAP` more; of the older ones as many as may sign.
    #[must_use]
    pub fn rotated(&self, secret: SigningSecret, now: Timestamp) -> Self {
        let replaced = PreviousSecret { secret: self.current.clone(), expires_at: now.later(OVERLAP) };
        let older = self.previous.iter().filter(|older| now < older.expires_at).cloned();
        let previous = std::iter::once(replaced).chain(older).take(MOST_SIGNING - 1).collect();
        Self { current: secret, created_at: now, previous }
    }

    /// The newest one.
    pub const fn current(&self) -> &SigningSecret {
        &self.current
    }

    /// When the newest one was made.
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// Until when the one before the newest signs, if it still does.
    pub fn previous_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.previous.first().map(|one| one.expires_at).filter(|until| now < *until)
    }

    /// Those that sign now, the newest first.
    pub fn signing(&self, now: Timestamp) -> impl Iterator<Item = &SigningSecret> {
        let previous = self.previous.iter().filter(move |one| now < one.expires_at).map(|one| &one.secret);
        std::iter::once(&self.current).chain(previous)
    }

    /// Where the secrets of a tenant are kept.
    pub fn key(tenant: &Tenant) -> RecordKey {
        RecordKey::new(RecordKind::SigningSecret, Some(tenant.clone()), RECORD)
            .expect("the name is short and plain")
    }

    /// The text that is kept. It is to be encrypted.
    pub fn to_json(&self) -> String {
        let previous = self.previous.iter();
        let kept = Kept {
            secret: self.current.text(),
            created_at: self.created_at,
            previous: previous
                .map(|one| KeptPrevious { secret: one.secret.text(), expires_at: one.expires_at })
                .collect(),
        };
        serde_json::to_string(&kept).expect("texts and times can be written as JSON")
    }

    pub fn from_json(text: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(text).ok()?;
        let read = |one: KeptPrevious| {
            let secret = SigningSecret::parse(&one.secret).ok()?;
            Some(PreviousSecret { secret, expires_at: one.expires_at })
        };
        Some(Self {
            current: SigningSecret::parse(&kept.secret).ok()?,
            created_at: kept.created_at,
            previous: kept.previous.into_iter().map(read).collect::<Option<_>>()?,
        })
    }
}

/// The form that is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    secret: String,
    created_at: Timestamp,
    previous: Vec<KeptPrevious>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptPrevious {
    secret: String,
    expires_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SigningSecret {
        SigningSecret::new(&[byte; NEW_SECRET_BYTES]).unwrap()
    }

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_millis(hour * 3_600_000)
    }

    fn signing(secrets: &SigningSecrets, now: Timestamp) -> Vec<u8> {
        secrets.signing(now).map(|secret| secret.bytes()[0]).collect()
    }

    #[test]
    fn a_secret_reads_its_own_text_and_nothing_else() {
        for length in [24, 32, 64] {
            let bytes: Vec<u8> = (0..length).map(|number| number * 3 + 1).collect();
            let secret = SigningSecret::new(&bytes).unwrap();
            assert_eq!(SigningSecret::parse(&secret.text()), Ok(secret));
        }
        assert_eq!(secret(7).text(), "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
        for bad in [
            "",
            "whsec_",
            "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
            "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
            "whsec_BwcH?",
            "WHSEC_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
        ] {
            assert_eq!(SigningSecret::parse(bad), Err(BadSecret), "{bad}");
        }
        assert_eq!(SigningSecret::new(&[1; 65]), Err(BadSecret));
    }

    #[test]
    fn nothing_shows_a_secret_by_accident() {
        let secrets = SigningSecrets::first(secret(1), at(0)).rotated(secret(2), at(1));
        let shown = format!("{secrets:?} {:#?}", secret(1));
        assert!(shown.contains("***"), "{shown}");
        for hidden in ["whsec_", "AQEB", "AgIC", "[1, 1", "[2, 2"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }

    #[test]
    fn after_a_rotation_both_sign_for_a_day() {
        let secrets = SigningSecrets::first(secret(1), at(0));
        assert_eq!((signing(&secrets, at(900)), secrets.previous_until(at(0))), (vec![1], None));
        let rotated = secrets.rotated(secret(2), at(10));
        assert_eq!(rotated.created_at(), at(10));
        for (hour, sign, until) in
            [(10, vec![2, 1], Some(at(34))), (33, vec![2, 1], Some(at(34))), (34, vec![2], None)]
        {
            assert_eq!(
                (signing(&rotated, at(hour)), rotated.previous_until(at(hour))),
                (sign, until),
                "{hour}"
            );
        }
    }

    #[test]
    fn however_often_it_is_rotated_at_most_three_sign() {
        let mut secrets = SigningSecrets::first(secret(0), at(0));
        for (number, sign) in [(1, vec![1, 0]), (2, vec![2, 1, 0]), (3, vec![3, 2, 1]), (4, vec![4, 3, 2])] {
            secrets = secrets.rotated(secret(number), at(number.into()));
            assert_eq!(signing(&secrets, at(number.into())), sign);
        }
        // Each ends a day after it was replaced.
        assert_eq!(signing(&secrets, at(27)), [4, 3]);
        // What has ended is not kept.
        assert_eq!(secrets.rotated(secret(5), at(27)).previous.len(), 2);
        assert_eq!(secrets.rotated(secret(5), at(99)).previous.len(), 1);
    }

    #[test]
    fn what_is_kept_reads_the_same() {
        let secrets =
            SigningSecrets::first(secret(1), at(0)).rotated(secret(2), at(1)).rotated(secret(3), at(2));
        assert_eq!(SigningSecrets::from_json(secrets.to_json().as_bytes()), Some(secrets.clone()));
        for bad in ["", "{}", &secrets.to_json().replace("whsec_", "x")] {
            assert_eq!(SigningSecrets::from_json(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_header_has_one_signature_for_each_secret() {
        assert_eq!(signed_head("ntf_1", 1_790_000_000), "ntf_1.1790000000.");
        assert_eq!(header_value([[1_u8; 3]]), "v1,AQEB");
        assert_eq!(header_value([[1_u8; 3], [2; 3]]), "v1,AQEB v1,AgIC");
    }
}
