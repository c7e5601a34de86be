//! What is kept beside notifications, by its name: policies, API keys, secrets.

use std::collections::BTreeMap;
use std::fmt;

use super::acts::Audit;
use super::slice::slice;

slice! {
    /// Settings and their version. Each change makes every node read all of them again.
    pub trait StoredSettings {
        /// Every setting. `None` if the version is still `known`.
        read Get: fn settings(known: Option<i64>) -> Option<Settings>;

        /// Sets (or, without a value, removes) a setting, with its audit row. Returns the new version.
        write Put: fn put_setting(name: String, value: Option<String>, audit: Audit) -> i64;

        /// Replaces the value of a setting, with its audit row, if it is still `from` (`None`: if there is no such setting).
        /// Otherwise changes nothing and returns false.
        write Swap: fn swap_setting(name: String, from: Option<String>, to: String, audit: Audit) -> bool;
    }
}

/// Every setting of the store, as it was at one version.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Grows with each change.
    pub version: i64,
    /// The values by their names.
    pub values: BTreeMap<String, String>,
}

/// Names only: a value may be a secret, which belongs in no log.
impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.values.keys().collect();
        out.debug_struct("Settings").field("version", &self.version).field("names", &names).finish()
    }
}
