//! Ids: 16 bytes, shown as a prefix and 26 Crockford characters. Most are UUIDv7 made from a time and random bits.

use std::fmt;

use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// The prefix is missing or belongs to another kind of id.
    #[error("{field}: `{given}` does not start with `{wanted}`")]
    Prefix { field: &'static str, given: String, wanted: &'static str },
    /// The rest is not 26 Crockford characters.
    #[error("{field}: `{given}` is not `{wanted}` and 26 of the characters 0-9 and a-z without i, l, o, u")]
    Text { field: &'static str, given: String, wanted: &'static str },
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

fn show(prefix: &str, value: u128, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; LENGTH];
    for (index, letter) in text.iter_mut().enumerate() {
        let shift = 5 * (LENGTH - 1 - index);
        *letter = ALPHABET[(value >> shift) as usize & 31];
    }
    out.write_str(prefix)?;
    out.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
}

fn parse(field: &'static str, wanted: &'static str, text: &str) -> Result<u128, BadId> {
    let given = || text.chars().take(40).collect::<String>();
    let Some(rest) = text.strip_prefix(wanted) else {
        return Err(BadId::Prefix { field, given: given(), wanted });
    };
    read(rest).ok_or_else(|| BadId::Text { field, given: given(), wanted })
}

/// 26 characters hold 130 bits, two more than an id has, so the first may only be 0 to 7.
fn read(text: &str) -> Option<u128> {
    if text.len() != LENGTH || text.as_bytes()[0] > b'7' {
        return None;
    }
    text.bytes().try_fold(0u128, |value, byte| {
        let digit = ALPHABET.iter().position(|letter| *letter == byte)?;
        Some(value << 5 | digit as u128)
    })
}

/// UUIDv7: 48 bits of milliseconds, then random bits around the version and variant fields.
fn uuid_v7(now: Timestamp, random: u128) -> u128 {
    let millis =
        u128::try_from(now.as_millis().max(0)).expect("a time held at the epoch or later is not negative");
    let (version, variant) = (0x7 << 76, 0b10 << 62);
    let (high, low) = ((random >> 64 & 0xfff) << 64, random & 0x3fff_ffff_ffff_ffff);
    (millis & 0xffff_ffff_ffff) << 80 | version | high | variant | low
}

/// Rounds up to a whole millisecond.
fn millis_from(time: Timestamp) -> u128 {
    u128::try_from(time.as_micros()).unwrap_or(0).div_ceil(1_000)
}

/// What every id has: bytes, and a text with its prefix.
macro_rules! text_id {
    ($name:ident, $prefix:literal, $field:literal) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }

            /// The stored form. It sorts as the ids do.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                show($prefix, self.0, out)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                show($prefix, self.0, out)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                parse($field, $prefix, text).map(Self)
            }
        }

        crate::as_text::as_text!($name);
    };
}

macro_rules! id {
    ($name:ident, $prefix:literal, $field:literal) => {
        text_id!($name, $prefix, $field);

        impl $name {
            /// Sorts before every real id.
            pub const FIRST: Self = Self(0);

            /// Sorts after every real id.
            pub const LAST: Self = Self(u128::MAX);

            /// The same `now` and `random` give the same id.
            pub fn new(now: Timestamp, random: u128) -> Self {
                Self(uuid_v7(now, random))
            }

            /// The smallest id of this time: `id >= least_at(time)` exactly if `id.made_at() >= time`.
            pub fn least_at(time: Timestamp) -> Self {
                Self(millis_from(time) << 80)
            }

            /// The time in the id, in whole milliseconds.
            pub fn made_at(self) -> Timestamp {
                Timestamp::from_millis((self.0 >> 80) as i64)
            }
        }
    };
}

id!(NotificationId, "ntf_", "notificationId");
id!(DeadLetterId, "dl_", "deadLetterId");
id!(KeyId, "key_", "keyId");
// A hash of what the group is by and of its key, so it carries no time.
text_id!(GroupId, "grp_", "groupId");
// A hash of kind, tenant and name.
text_id!(DestinationId, "dst_", "destinationId");
id!(OperationId, "op_", "operationId");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_of_another_kind_is_an_error_that_names_the_field() {
        let dead = DeadLetterId::new(Timestamp::from_millis(1), 2).to_string();
        let error = dead.parse::<NotificationId>().unwrap_err().to_string();
        assert!(error.starts_with("notificationId: `dl_") && error.contains("`ntf_`"), "{error}");
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        let good = NotificationId::new(Timestamp::from_millis(1_776_249_930_000), 7).to_string();
        assert_eq!(good.len(), "ntf_".len() + 26);
        for bad in [
            "",
            "ntf_",
            &good[..29],
            &format!("{good}0"),
            &good.to_uppercase(),
            "ntf_8zzzzzzzzzzzzzzzzzzzzzzzzz",
            "ntf_ü1234567890123456789012345",
        ] {
            assert!(bad.parse::<NotificationId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_is_a_uuid_of_version_7() {
        let bytes = NotificationId::new(Timestamp::from_millis(1_776_249_930_123), u128::MAX).to_bytes();
        assert_eq!((bytes[6] >> 4, bytes[8] >> 6), (7, 0b10));
    }

    proptest! {
        #[test]
        fn every_id_is_read_back_as_shown_and_as_stored(millis in 0i64..1 << 47, random in any::<u128>()) {
            let id = NotificationId::new(Timestamp::from_millis(millis), random);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            prop_assert_eq!(NotificationId::from_bytes(id.to_bytes()), id);
            prop_assert_eq!(id.made_at(), Timestamp::from_millis(millis));
            prop_assert!(NotificationId::FIRST < id && id < NotificationId::LAST);
        }

        #[test]
        fn later_ids_sort_later_in_every_form(a in 0i64..1 << 47, b in 0i64..1 << 47, r in any::<u128>(), s in any::<u128>()) {
            prop_assume!(a < b);
            let (a, b) = (NotificationId::new(Timestamp::from_millis(a), r), NotificationId::new(Timestamp::from_millis(b), s));
            prop_assert!(a < b && a.to_string() < b.to_string() && a.to_bytes() < b.to_bytes());
        }

        #[test]
        fn the_least_id_at_a_time_parts_the_ids_by_when_they_were_made(
            micros in -5_000i64..5_000_000, millis in 0i64..5_000, random in any::<u128>(),
        ) {
            let (time, id) = (Timestamp::from_micros(micros), NotificationId::new(Timestamp::from_millis(millis), random));
            prop_assert_eq!(NotificationId::least_at(time) <= id, time <= id.made_at());
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,60}") {
            let _ = text.parse::<NotificationId>();
        }
    }
}
