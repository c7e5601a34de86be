//! A bounded map that keeps what was used recently.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A map of at most `capacity` entries. When it is full, it drops entries that were not used for the longest time.
///
/// The order of use is approximate. Entries live in two generations of half the capacity each. A new entry, and an old
/// one that is used again, goes into the young generation. When that one is full it becomes the old one, and what the old
/// one still held is dropped. So an entry survives at least `capacity / 2 - 1` others after its last use, and no
/// operation forgets everything at once.
#[derive(Debug, Clone)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// An empty map for at most `capacity` entries; a capacity below 2 counts as 2.
    pub fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (capacity / 2).max(1) }
    }

    /// The value of a key. This counts as a use.
    pub fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // With few entries the old generation is empty, and nothing has to be hashed for it.
        if !self.old.is_empty()
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.insert(key, value);
        }
        // A generation of one entry is full at once, so the entry may be in the old one again.
        self.peek(key)
    }

    /// The value of a key, without a use.
    pub fn peek<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Sets the value of a key. This counts as a use.
    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        self.young.insert(key, value);
        if self.young.len() >= self.half {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
    }

    /// Drops every entry.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        for capacity in [0, 1, 2, 3, 10, 11] {
            let mut recent = Recent::new(capacity);
            for key in 0..100 {
                recent.insert(key, ());
                assert_eq!(recent.get(&key), Some(&()), "{key} of {capacity}");
                recent.get(&(key / 2));
                assert!(recent.len() <= capacity.max(2), "{} of {capacity}", recent.len());
            }
        }
    }

    #[test]
    fn what_is_used_again_and_again_survives_any_number_of_others() {
        let mut recent = Recent::new(100);
        recent.insert(-1, "kept");
        for key in 0..10_000 {
            recent.insert(key, "passing");
            if key % 49 == 0 {
                assert_eq!(recent.get(&-1), Some(&"kept"), "after {key}");
            }
        }
        assert_eq!(recent.get(&0), None);
    }

    #[test]
    fn at_least_the_last_half_is_there_at_any_time() {
        let mut recent = Recent::new(100);
        for key in 0i32..1_000 {
            recent.insert(key, key);
            for known in (key - 49).max(0)..=key {
                assert_eq!(recent.peek(&known), Some(&known), "after {key}");
            }
        }
    }

    #[test]
    fn a_key_has_the_value_that_was_set_last() {
        let mut recent = Recent::new(4);
        for value in 0..9 {
            recent.insert("a", value);
            recent.insert("b", -value);
            assert_eq!((recent.peek("a"), recent.peek("b"), recent.len()), (Some(&value), Some(&-value), 2));
        }
        recent.clear();
        assert!(recent.is_empty() && recent.peek("a").is_none());
    }
}
