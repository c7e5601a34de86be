//! Records: what people define, such as templates, contacts and subscriptions. A store keeps their values as text.

use std::collections::BTreeMap;

use crate::notification::Tenant;
use crate::time::Timestamp;

/// What a record is. The codes are kept in stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    Template = 1,
    Contact = 2,
    Suppression = 3,
    Subscription = 4,
    /// A saved view of a list.
    View = 5,
    /// A note on a failure group.
    Note = 6,
    /// A login at the dashboard.
    Session = 7,
    /// A tenant's data key, wrapped by a master key.
    DataKey = 8,
    /// Which master key is in force. There is one.
    MasterKey = 9,
    /// The master keys that a node knows, by their names.
    NodeKeys = 10,
    /// The secrets that sign the webhooks of a tenant, encrypted.
    SigningSecret = 11,
}

impl RecordKind {
    pub const ALL: [Self; 11] = [
        Self::Template,
        Self::Contact,
        Self::Suppression,
        Self::Subscription,
        Self::View,
        Self::Note,
        Self::Session,
        Self::DataKey,
        Self::MasterKey,
        Self::NodeKeys,
        Self::SigningSecret,
    ];

    /// The number in the store.
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The key of a record. Keys are ordered as stores list them: by kind, tenant and name, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    kind: RecordKind,
    tenant: Option<Tenant>,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name must have 1 to {} bytes and no control characters", RecordKey::MAX_NAME)]
pub struct BadRecordName;

impl RecordKey {
    /// The longest name, in bytes.
    pub const MAX_NAME: usize = 512;

    /// Without a tenant the record is not of one tenant but of the whole installation.
    pub fn new(
        kind: RecordKind,
        tenant: Option<Tenant>,
        name: impl Into<String>,
    ) -> Result<Self, BadRecordName> {
        let name = name.into();
        if name.is_empty() || name.len() > Self::MAX_NAME || name.chars().any(char::is_control) {
            return Err(BadRecordName);
        }
        Ok(Self { kind, tenant, name })
    }

    pub const fn kind(&self) -> RecordKind {
        self.kind
    }

    pub const fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A record as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: RecordKey,
    /// For the kind's own use, such as the version of a template.
    pub number: i64,
    /// None if it was removed: it is kept without a value, so that other nodes learn of the removal.
    pub value: Option<String>,
    /// Grows with each change of any record, so that a node can ask what changed since.
    pub version: i64,
    pub changed: Timestamp,
}

/// One change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    pub key: RecordKey,
    pub number: i64,
    /// None removes the record.
    pub value: Option<String>,
    pub expected: Expected,
}

/// How the record must be for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Anything,
    /// There is none, or it was removed.
    Absent,
    /// It has that version and was not removed.
    Version(i64),
}

impl Expected {
    fn fits(self, record: Option<&Record>) -> bool {
        let found = record.filter(|record| record.value.is_some()).map(|record| record.version);
        match self {
            Self::Anything => true,
            Self::Absent => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// Makes each change whose record is as expected, in their order. `records` holds those that exist of the records that are
/// named, `version` is the version of the last change. Returns the new version for each change that was made. The removal of
/// what is not there is no change.
pub fn change_records(
    records: &mut BTreeMap<RecordKey, Record>,
    version: &mut i64,
    changes: Vec<RecordChange>,
    now: Timestamp,
) -> Vec<Option<i64>> {
    let mut made = Vec::with_capacity(changes.len());
    for RecordChange { key, number, value, expected } in changes {
        let record = records.get(&key);
        let removes_nothing = value.is_none() && Expected::Absent.fits(record);
        if removes_nothing || !expected.fits(record) {
            made.push(None);
            continue;
        }
        *version += 1;
        let record = Record { key: key.clone(), number, value, version: *version, changed: now };
        records.insert(key, record);
        made.push(Some(*version));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RecordKey {
        RecordKey::new(RecordKind::Template, None, name).unwrap()
    }

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        for kind in RecordKind::ALL {
            assert_eq!(RecordKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!((RecordKind::from_code(0), RecordKind::from_code(12)), (None, None));
    }

    #[test]
    fn a_name_is_short_and_printable() {
        let longest = "n".repeat(RecordKey::MAX_NAME);
        for good in ["a", "übung 1/2", longest.as_str()] {
            assert!(RecordKey::new(RecordKind::Note, None, good).is_ok(), "{good}");
        }
        let too_long = format!("{longest}n");
        for bad in ["", "a\0b", "a\nb", "\u{7f}", too_long.as_str()] {
            assert_eq!(RecordKey::new(RecordKind::Note, None, bad), Err(BadRecordName), "{bad:?}");
        }
    }

    #[test]
    fn a_change_is_made_only_where_the_record_is_as_expected() {
        let now = Timestamp::from_millis(1);
        // What was kept before with version 1 to 3: nothing, a value, or a removal.
        let (none, kept, removed) = (None, Some(Some("old")), Some(None));
        let (put, remove) = (Some("new"), None);
        let cases = [
            (none, Expected::Anything, put, true),
            (none, Expected::Absent, put, true),
            (none, Expected::Version(3), put, false),
            (none, Expected::Anything, remove, false),
            (kept, Expected::Anything, put, true),
            (kept, Expected::Absent, put, false),
            (kept, Expected::Version(3), put, true),
            (kept, Expected::Version(2), put, false),
            (kept, Expected::Anything, remove, true),
            (kept, Expected::Version(2), remove, false),
            (kept, Expected::Version(3), remove, true),
            (removed, Expected::Anything, put, true),
            (removed, Expected::Absent, put, true),
            (removed, Expected::Version(3), put, false),
            (removed, Expected::Anything, remove, false),
            (removed, Expected::Absent, remove, false),
        ];
        for (before, expected, value, made) in cases {
            let old = |value: Option<&str>| Record {
                key: key("a"),
                number: 7,
                value: value.map(str::to_owned),
                version: 3,
                changed: Timestamp::EPOCH,
            };
            let mut records: BTreeMap<RecordKey, Record> =
                before.map(|value| (key("a"), old(value))).into_iter().collect();
            let (mut version, unchanged) = (5, records.clone());
            let change = RecordChange { key: key("a"), number: 8, value: value.map(str::to_owned), expected };
            let answer = change_records(&mut records, &mut version, vec![change], now);
            let case = (before, expected, value);
            assert_eq!(answer, [made.then_some(6)], "{case:?}");
            if made {
                let wanted = Record { number: 8, version: 6, changed: now, ..old(value) };
                assert_eq!((records.get(&key("a")), version), (Some(&wanted), 6), "{case:?}");
            } else {
                assert_eq!((records, version), (unchanged, 5), "{case:?}");
            }
        }
    }

    #[test]
    fn changes_of_one_record_are_made_one_after_the_other() {
        let change = |expected, value: Option<&str>| RecordChange {
            key: key("a"),
            number: 0,
            value: value.map(str::to_owned),
            expected,
        };
        let changes = vec![
            change(Expected::Absent, Some("1")),
            change(Expected::Absent, Some("2")),
            change(Expected::Version(1), Some("3")),
            change(Expected::Version(1), Some("4")),
            change(Expected::Anything, None),
        ];
        let (mut records, mut version) = (BTreeMap::new(), 0);
        let made = change_records(&mut records, &mut version, changes, Timestamp::EPOCH);
        assert_eq!(made, [Some(1), None, Some(2), None, Some(3)]);
        assert_eq!(records[&key("a")].value, None);
    }
}
