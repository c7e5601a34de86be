//! Encryption of secrets at rest.
//!
//! XChaCha20-Poly1305. Tenant, record and field are authenticated as associated data, so a sealed text that is copied to another
//! field, record or tenant cannot be opened.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use crate::notification::Tenant;

/// In bytes.
pub const NONCE: usize = 24;
const TAG: usize = 16;
/// The form of a sealed text, so that another one can follow.
const PREFIX: &str = "v1.";

/// A key of 32 bytes. It is never shown, and overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; Key::LENGTH]);

/// A text that is not a key. The error does not quote the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be {} bytes, written as {} hex digits or as base64; `openssl rand -hex 32` makes one",
    Key::LENGTH,
    2 * Key::LENGTH
)]
pub struct BadKey;

impl Key {
    /// In bytes.
    pub const LENGTH: usize = 32;

    pub const fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    pub const fn reveal(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// The key as hex digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&self.0))
    }

    /// Its public name, for records and error texts. The key cannot be derived from it.
    pub fn name(&self) -> KeyName {
        let hash = Sha256::new().chain_update(b"posthaste master key name\0").chain_update(self.0).finalize();
        let mut name = [0; KeyName::LENGTH];
        name.copy_from_slice(&hash[..KeyName::LENGTH]);
        KeyName(name)
    }

    /// The keys in a text, separated by commas or white space. The rest of a line after `#` is a comment.
    pub fn list(text: &str) -> Result<Vec<Self>, BadKey> {
        let lines = text.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before));
        let texts = lines.flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()));
        let mut keys: Vec<Self> = vec![];
        for key in texts.filter(|text| !text.is_empty()).map(str::parse) {
            let key = key?;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(keys)
    }
}

/// People write base64 in two alphabets, with and without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let bytes = if text.len() == 2 * Self::LENGTH {
            unhex(text)
        } else {
            let alphabets = [&alphabet::STANDARD, &alphabet::URL_SAFE];
            let decoded = |alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(text).ok();
            alphabets.into_iter().find_map(decoded).map(Zeroizing::new)
        };
        let bytes = bytes.and_then(|bytes| <[u8; Self::LENGTH]>::try_from(bytes.as_slice()).ok());
        bytes.map(Self).ok_or(BadKey)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "(key {})", self.name())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The public name of a key: a part of its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName([u8; KeyName::LENGTH]);

/// A text that is not the name of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a key has {} hex digits", 2 * KeyName::LENGTH)]
pub struct BadKeyName;

impl KeyName {
    /// In bytes.
    const LENGTH: usize = 8;
}

impl fmt::Display for KeyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex(&self.0))
    }
}

impl FromStr for KeyName {
    type Err = BadKeyName;

    fn from_str(text: &str) -> Result<Self, BadKeyName> {
        let bytes = unhex(text).and_then(|bytes| <[u8; Self::LENGTH]>::try_from(bytes.as_slice()).ok());
        bytes.map(Self).ok_or(BadKeyName)
    }
}

crate::as_text::as_text!(KeyName);

/// The tenant, record and field of a secret: the associated data of its encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    /// Empty for what belongs to no tenant, a name that no tenant has.
    tenant: &'a str,
    id: &'a str,
    field: &'a str,
}

impl<'a> About<'a> {
    /// A field of a notification or record of a tenant.
    pub fn of(tenant: &'a Tenant, id: &'a str, field: &'a str) -> Self {
        Self { tenant: tenant.as_str(), id, field }
    }

    /// A field of what belongs to no tenant.
    pub const fn of_none(id: &'a str, field: &'a str) -> Self {
        Self { tenant: "", id, field }
    }

    /// Each part has its length before it, so that `ab`, `c` and `a`, `bc` differ.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        for part in [self.tenant, self.id, self.field] {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

/// Why a sealed text was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    #[error("it is not in a form that this version knows")]
    Form,
    #[error("it was changed, sealed with another key, or belongs elsewhere")]
    Refused,
}

/// Seals a secret. The same nonce must never be used twice with one key.
pub fn seal(key: &Key, nonce: [u8; NONCE], about: &About<'_>, plain: &[u8]) -> String {
    let payload = Payload { msg: plain, aad: &about.bytes() };
    let sealed = XChaCha20Poly1305::new(key.reveal().into()).encrypt(&XNonce::from(nonce), payload);
    let mut bytes = nonce.to_vec();
    bytes.extend(sealed.expect("a secret is shorter than 256 GiB"));
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// Opens a sealed text.
pub fn open(key: &Key, about: &About<'_>, sealed: &str) -> Result<Zeroizing<Vec<u8>>, NotOpened> {
    let text = sealed.strip_prefix(PREFIX).ok_or(NotOpened::Form)?;
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotOpened::Form)?;
    if bytes.len() < NONCE + TAG {
        return Err(NotOpened::Form);
    }
    let (nonce, sealed) = bytes.split_at(NONCE);
    let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| NotOpened::Form)?;
    let payload = Payload { msg: sealed, aad: &about.bytes() };
    let opened = XChaCha20Poly1305::new(key.reveal().into()).decrypt(&XNonce::from(nonce), payload);
    opened.map(Zeroizing::new).map_err(|_| NotOpened::Refused)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; Key::LENGTH])
    }

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    #[test]
    fn a_key_is_read_as_hex_or_base64() {
        let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 8 + 7).unwrap());
        let wanted = Key::new(bytes);
        let hexed = wanted.to_hex();
        assert!(hexed.starts_with("070f17"));
        for text in [
            hexed.as_str(),
            &hexed.to_uppercase(),
            "Bw8XHycvNz9HT1dfZ293f4ePl5+nr7e/x8/X3+fv9/8=",
            "Bw8XHycvNz9HT1dfZ293f4ePl5+nr7e/x8/X3+fv9/8",
            "Bw8XHycvNz9HT1dfZ293f4ePl5-nr7e_x8_X3-fv9_8",
        ] {
            assert_eq!(text.parse::<Key>().as_ref(), Ok(&wanted), "{text}");
        }
        for bad in ["", "hunter2", &hexed[1..], &"zz".repeat(32), &"ab".repeat(33), &"é".repeat(32)] {
            assert_eq!(bad.parse::<Key>(), Err(BadKey), "{bad}");
        }
        assert!(!format!("{wanted:?}").contains("070f17"));
        assert!(!BadKey.to_string().contains("hunter2"));
    }

    #[test]
    fn a_list_of_keys_keeps_its_order_and_each_key_once() {
        let (one, two) = (key(1), key(2));
        let (first, second) = (one.to_hex(), two.to_hex());
        for text in [
            format!("{},{}", *first, *second),
            format!("{}\n{}\r\n", *first, *second),
            format!("# made by hand\n {} # now\n\t{}, {}", *first, *second, *first),
        ] {
            assert_eq!(Key::list(&text), Ok(vec![one.clone(), two.clone()]), "{text}");
        }
        assert_eq!(Key::list(" \n# nothing\n"), Ok(vec![]));
        assert_eq!(Key::list(&format!("{} hunter2", *first)), Err(BadKey));
    }

    #[test]
    fn a_name_is_short_stable_and_not_the_key() {
        let name = key(7).name();
        assert_eq!(name.to_string().len(), 16);
        assert_eq!(name.to_string().parse(), Ok(name));
        assert_ne!(name, key(8).name());
        assert_ne!(name.to_string(), key(7).to_hex()[..16]);
        for bad in ["", "07", "zzzzzzzzzzzzzzzz", "0000000000000000f"] {
            assert_eq!(bad.parse::<KeyName>(), Err(BadKeyName), "{bad}");
        }
    }

    /// What is kept in stores today opens tomorrow.
    #[test]
    fn what_was_sealed_once_still_opens() {
        let acme = tenant("acme");
        let about = About::of(&acme, "ntf_1", "headers");
        let sealed = seal(&key(3), [9; NONCE], &about, b"Bearer 123");
        assert_eq!(sealed, KNOWN);
        assert_eq!(open(&key(3), &about, KNOWN).unwrap().as_slice(), b"Bearer 123");
    }

    const KNOWN: &str = "v1.CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJOdyZTjH5JkarNOcvs_YJkeqdoFoypSoE0Is";

    #[test]
    fn a_secret_opens_only_where_it_belongs() {
        let (acme, other) = (tenant("acme"), tenant("acm"));
        let sealed = seal(&key(1), [2; NONCE], &About::of(&acme, "ntf_1", "headers"), b"secret");
        for (key_byte, about) in [
            (2, About::of(&acme, "ntf_1", "headers")),
            (1, About::of(&other, "ntf_1", "headers")),
            (1, About::of(&other, "entf_1", "headers")),
            (1, About::of(&acme, "ntf_2", "headers")),
            (1, About::of(&acme, "ntf_1h", "eaders")),
            (1, About::of(&acme, "ntf_1", "header")),
            (1, About::of_none("ntf_1", "headers")),
            (1, About::of_none("acmentf_1", "headers")),
        ] {
            assert_eq!(open(&key(key_byte), &about, &sealed), Err(NotOpened::Refused), "{about:?}");
        }
    }

    #[test]
    fn another_form_is_no_sealed_text() {
        let about = About::of_none("a", "b");
        for bad in ["", "v1.", "v2.AAAA", "v1.AAAA", "v1.=", "v1.ä", "plain"] {
            assert_eq!(open(&key(1), &about, bad), Err(NotOpened::Form), "{bad}");
        }
        let sealed = seal(&key(1), [0; NONCE], &about, b"");
        assert_eq!(open(&key(1), &about, &sealed).unwrap().as_slice(), b"");
        assert_eq!(open(&key(1), &about, &format!("{sealed}=")), Err(NotOpened::Form));
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_as_it_was(plain: Vec<u8>, bytes: [u8; 32], nonce: [u8; NONCE], id: String, field: String) {
            let (key, about) = (Key::new(bytes), About::of_none(&id, &field));
            let sealed = seal(&key, nonce, &about, &plain);
            let opened = open(&key, &about, &sealed).unwrap();
            prop_assert_eq!(opened.as_slice(), plain.as_slice());
        }

        #[test]
        fn whatever_is_changed_or_cut_is_refused(plain in prop::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, flip in 1_u8..) {
            let about = About::of_none("a", "b");
            let sealed = seal(&key(1), [5; NONCE], &about, &plain);
            let mut bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(PREFIX).unwrap()).unwrap();
            let cut = at.index(bytes.len());
            let short = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes[..cut]));
            prop_assert!(open(&key(1), &about, &short).is_err());
            bytes[cut] ^= flip;
            let changed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes));
            prop_assert_eq!(open(&key(1), &about, &changed), Err(NotOpened::Refused));
        }

        #[test]
        fn no_two_places_are_the_same(one: [String; 2], other: [String; 2]) {
            let about = |parts: &[String; 2]| About::of_none(&parts[0], &parts[1]).bytes();
            prop_assert_eq!(one == other, about(&one) == about(&other));
        }
    }
}
