//! Destinations as a store keeps them: rows with versions, changed by compare-and-swap.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Destination, DestinationEvent, DestinationKey};
use crate::time::Timestamp;

/// For how long the row of a removed destination stays without a value, so that every node learns of the removal. A node that has
/// not asked for so long what has changed must forget all that it knows, and read it again from version 0.
pub const REMOVED_KEPT: Duration = Duration::from_secs(86_400);
/// The most of them that one put removes after that, the oldest first.
pub const REMOVED_AT_ONCE: usize = 100;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDestination {
    pub key: DestinationKey,
    /// Grows with each change of any row, so that a node can ask what changed since. 0 if there is no row.
    pub version: i64,
    /// None if it was removed.
    pub value: Option<Destination>,
    pub changed: Timestamp,
}

impl StoredDestination {
    /// A destination that has no row.
    pub const fn absent(key: DestinationKey) -> Self {
        Self { key, version: 0, value: None, changed: Timestamp::MIN }
    }

    /// The version that a change has to expect: that of the row, or 0 if nothing is kept.
    pub const fn expected(&self) -> i64 {
        if self.value.is_some() { self.version } else { 0 }
    }
}

/// One change of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationChange {
    pub key: DestinationKey,
    /// The version of the row; 0: there is none, or it was removed.
    pub expected: i64,
    /// None if nothing of it has to be kept.
    pub value: Option<Destination>,
    /// What is added to its history.
    pub events: Vec<DestinationEvent>,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationPut {
    /// It was made, and the row has this version.
    Made(i64),
    /// The row was not as expected, but like this. If it is what the change wanted, a repeat of the change met itself.
    Conflict(Box<StoredDestination>),
}

impl DestinationPut {
    pub const fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }
}

/// Makes each change whose row is as expected, in their order. `rows` holds those that exist of the rows that are named, `version`
/// is the version of the last change. A removal leaves a row without a value, even where there was none.
pub fn change_destinations(
    rows: &mut BTreeMap<DestinationKey, StoredDestination>,
    version: &mut i64,
    changes: &[DestinationChange],
    now: Timestamp,
) -> Vec<DestinationPut> {
    let mut put = |change: &DestinationChange| {
        let key = &change.key;
        if rows.get(key).map_or(0, StoredDestination::expected) != change.expected {
            let found = rows.get(key).cloned();
            return DestinationPut::Conflict(Box::new(
                found.unwrap_or_else(|| StoredDestination::absent(key.clone())),
            ));
        }
        *version += 1;
        let row = StoredDestination {
            key: key.clone(),
            version: *version,
            value: change.value.clone(),
            changed: now,
        };
        rows.insert(key.clone(), row);
        DestinationPut::Made(*version)
    };
    changes.iter().map(&mut put).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(5);

    fn change(name: &str, expected: i64, value: Option<Destination>) -> DestinationChange {
        DestinationChange { key: DestinationKey::provider(name), expected, value, events: vec![] }
    }

    #[test]
    fn a_change_is_made_only_where_the_row_has_the_version_that_was_expected() {
        let kept = || Some(Destination::default());
        let (mut rows, mut version) = (BTreeMap::new(), 4);
        let mut put = |change: DestinationChange| {
            let mut put = change_destinations(&mut rows, &mut version, &[change], NOW);
            match put.remove(0) {
                DestinationPut::Made(version) => (true, version),
                DestinationPut::Conflict(found) => (false, found.version),
            }
        };
        for (expected, value, wanted) in [
            (1, kept(), (false, 0)),
            (0, kept(), (true, 5)),
            (0, kept(), (false, 5)),
            (4, kept(), (false, 5)),
            (5, kept(), (true, 6)),
            (6, None, (true, 7)),
            (7, kept(), (false, 7)),
            (0, None, (true, 8)),
            (0, kept(), (true, 9)),
        ] {
            assert_eq!(put(change("a", expected, value)), wanted, "version {expected} was expected");
        }
        assert_eq!(put(change("b", 0, kept())), (true, 10), "versions count over all rows");
    }

    #[test]
    fn what_is_named_twice_is_changed_in_order() {
        let (mut rows, mut version) = (BTreeMap::new(), 0);
        let changes =
            [change("a", 0, None), change("a", 0, Some(Destination::default())), change("a", 0, None)];
        let put = change_destinations(&mut rows, &mut version, &changes, NOW);
        let row = rows.remove(&changes[0].key).unwrap();
        assert_eq!(row.expected(), 2);
        let conflict = DestinationPut::Conflict(Box::new(row));
        assert_eq!(put, [DestinationPut::Made(1), DestinationPut::Made(2), conflict]);
    }
}
