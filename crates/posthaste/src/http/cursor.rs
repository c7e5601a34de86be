//! Where the next page begins, and what a cookie holds, sealed: nobody can make one up, change one, or read an id out of it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use posthaste_core::destination::{DestinationKey, DestinationKind};
use posthaste_core::id::{DeadLetterId, GroupId, NotificationId, OperationId};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{DueCursor, GroupCursor, Settings};

/// The setting that holds what cursors are sealed with.
pub(crate) const SECRET: &str = "secret:cursors";

/// What cursors are sealed with, if there is such a setting.
pub(crate) fn secret(settings: &Settings) -> Option<[u8; 32]> {
    settings.values.get(SECRET).and_then(|kept| unhex(kept))?.try_into().ok()
}

/// A place in a list.
pub(crate) trait Position: Sized {
    /// As bytes.
    fn write(&self) -> Vec<u8>;
    /// From bytes.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// Seals and opens cursors.
pub(crate) struct Cursors {
    key: RandomizedNonceKey,
}

const NONCE: usize = 12;

impl Cursors {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let key = RandomizedNonceKey::new(&AES_256_GCM, secret).expect("the secret has the length of a key");
        Self { key }
    }

    /// The cursor of a place in a list.
    pub(crate) fn seal<P: Position>(&self, list: &str, position: &P) -> String {
        let mut sealed = position.write();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(list.as_bytes()), &mut sealed)
            .expect("a few bytes can be sealed");
        hex(nonce.as_ref()) + &hex(&sealed)
    }

    /// The place in this very list, if the cursor was made for it.
    pub(crate) fn open<P: Position>(&self, list: &str, cursor: &str) -> Option<P> {
        let bytes = unhex(cursor)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(list.as_bytes()), &mut sealed).ok()?;
        P::read(opened)
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Bytes from hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Position for NotificationId {
    fn write(&self) -> Vec<u8> {
        self.to_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_bytes)
    }
}

impl Position for DeadLetterId {
    fn write(&self) -> Vec<u8> {
        self.to_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_bytes)
    }
}

impl Position for OperationId {
    fn write(&self) -> Vec<u8> {
        self.to_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_bytes)
    }
}

impl Position for i64 {
    fn write(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl Position for GroupCursor {
    fn write(&self) -> Vec<u8> {
        [self.count.to_be_bytes().as_slice(), self.id.to_bytes().as_slice()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (count, id) = bytes.split_at_checked(8)?;
        let count = u64::from_be_bytes(count.try_into().ok()?);
        Some(Self { count, id: GroupId::from_bytes(id.try_into().ok()?) })
    }
}

impl Position for DueCursor {
    fn write(&self) -> Vec<u8> {
        [self.due.as_micros().write(), self.id.write()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (due, id) = bytes.split_at_checked(8)?;
        Some(Self { due: Timestamp::from_micros(i64::read(due)?), id: NotificationId::read(id)? })
    }
}

impl Position for DestinationKey {
    fn write(&self) -> Vec<u8> {
        let tenant = self.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        // No tenant has a NUL in its name.
        [&[self.kind.code()], tenant.as_bytes(), &[0], self.name.as_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (tenant, name) = std::str::from_utf8(rest).ok()?.split_once('\0')?;
        let tenant = if tenant.is_empty() { None } else { Some(tenant.parse().ok()?) };
        Some(Self { tenant, kind: DestinationKind::from_code(*kind)?, name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_destination_is_read_as_it_was_written() {
        let tenant = Some("acme".parse().unwrap());
        let own = DestinationKey { tenant, kind: DestinationKind::Webhook, name: "https://a:443".into() };
        for key in [own, DestinationKey::provider("mail")] {
            assert_eq!(DestinationKey::read(&key.write()), Some(key));
        }
        assert_eq!(DestinationKey::read(&[]), None);
    }

    #[test]
    fn a_cursor_opens_only_unchanged_and_in_its_own_list() {
        let cursors = Cursors::new(&[7; 32]);
        let place = DueCursor { due: Timestamp::from_millis(5), id: NotificationId::from_bytes([9; 16]) };
        let sealed = cursors.seal("a /v1/retry-queue", &place);
        assert_eq!(cursors.open("a /v1/retry-queue", &sealed), Some(place));
        assert_eq!(cursors.open::<DueCursor>("b /v1/retry-queue", &sealed), None);
        assert_eq!(cursors.open::<NotificationId>("a /v1/retry-queue", &sealed), None);
        assert_eq!(Cursors::new(&[8; 32]).open::<DueCursor>("a /v1/retry-queue", &sealed), None);
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(cursors.open::<DueCursor>("a /v1/retry-queue", &forged), None, "{at}");
        }
        for nonsense in ["", "0", "zz", "00", "üü", &"0".repeat(2_000)] {
            assert_eq!(cursors.open::<NotificationId>("x", nonsense), None, "{nonsense}");
        }
    }
}
