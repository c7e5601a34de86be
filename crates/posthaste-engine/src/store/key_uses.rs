//! When each API key was last used.

use posthaste_core::id::KeyId;
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// Last uses of API keys. They are not settings: each change of a setting makes every node read all of them again.
    pub trait KeyUses {
        /// Notes uses of keys, of two times of one key the later one, and then forgets the keys that are `gone`.
        write Note: fn note_key_uses(uses: Vec<KeyUse>, gone: Vec<KeyId>) -> ();

        /// Every last use that is known, in the order of the keys.
        read All: fn key_uses() -> Vec<KeyUse>;
    }
}

/// The last use of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    /// Which key.
    pub key: KeyId,
    /// When.
    pub at: Timestamp,
}
