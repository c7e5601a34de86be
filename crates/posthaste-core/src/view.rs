//! Saved views: filters of lists that the people of a tenant gave names.
//!
//! All views of a tenant are one record. So their number is exact, whoever saves at the same time, and a page finds
//! them with one read.

use serde::{Deserialize, Serialize};

use crate::notification::Tenant;
use crate::record::{RecordKey, RecordKind};
use crate::time::Timestamp;

/// A list that views are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewList {
    Notifications,
    RetryQueue,
    DeadLetters,
    FailureGroups,
}

impl ViewList {
    pub const ALL: [Self; 4] =
        [Self::Notifications, Self::RetryQueue, Self::DeadLetters, Self::FailureGroups];

    /// What stands in the address of the list.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notifications => "notifications",
            Self::RetryQueue => "retry-queue",
            Self::DeadLetters => "dead-letters",
            Self::FailureGroups => "failure-groups",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.name() == name)
    }
}

/// The name of a view, which is a part of its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ViewName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadViewName {
    #[error("a name has 1 to {} characters", ViewName::MAX)]
    Length,
    #[error("a name has no control characters")]
    Control,
    #[error("a name neither begins nor ends with a space")]
    Space,
    #[error("a name has no `/` and no `\\`, and is neither `.` nor `..`, because it is a part of an address")]
    Path,
}

impl ViewName {
    /// In characters.
    pub const MAX: usize = 60;

    pub fn new(text: &str) -> Result<Self, BadViewName> {
        if text.is_empty() || text.chars().count() > Self::MAX {
            return Err(BadViewName::Length);
        }
        if text.chars().any(char::is_control) {
            return Err(BadViewName::Control);
        }
        if text.trim() != text {
            return Err(BadViewName::Space);
        }
        if text.contains(['/', '\\']) || matches!(text, "." | "..") {
            return Err(BadViewName::Path);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A filter with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedView {
    pub name: ViewName,
    pub list: ViewList,
    /// The query of the list, without `?`. A duration in it counts from when the view is used.
    pub query: String,
    /// Whether everyone of the tenant sees it. One that is not shared is seen with the key that saved it, and by admins.
    pub shared: bool,
    /// The key that saved it.
    pub owner: String,
    /// Who saved it, for people.
    pub by: String,
    pub at: Timestamp,
}

impl SavedView {
    /// The longest query, in bytes.
    pub const MAX_QUERY: usize = 2_000;
}

/// Who looks at views or changes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// Its key.
    pub key: String,
    /// Whether it sees what others did not share. Otherwise nobody could delete the views of a revoked key.
    pub is_admin: bool,
}

impl Viewer {
    fn sees(&self, view: &SavedView) -> bool {
        view.shared || self.is_admin || view.owner == self.key
    }
}

/// The views of a tenant, or of those who see all tenants, ordered by list and name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Views(Vec<SavedView>);

/// Why a view was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSaved {
    #[error("there is a view with this name that somebody else has not shared: choose another name")]
    Taken,
    #[error("there are {} views, the most there can be: delete some of them", Views::MAX)]
    Full,
}

impl Views {
    /// The most views of a tenant.
    pub const MAX: usize = 100;

    /// The record of the views of a tenant, or of those who see all tenants.
    pub fn key(tenant: Option<Tenant>) -> RecordKey {
        RecordKey::new(RecordKind::View, tenant, "all").expect("the name is short and plain")
    }

    /// The value of the record; none if there is no view.
    pub fn to_json(&self) -> Option<String> {
        let written = || serde_json::to_string(&self.0).expect("texts, numbers and words are always written");
        (!self.0.is_empty()).then(written)
    }

    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Those that somebody sees.
    pub fn seen_by(&self, viewer: &Viewer) -> impl Iterator<Item = &SavedView> {
        self.0.iter().filter(move |view| viewer.sees(view))
    }

    /// Saves a view in place of the one of its name.
    pub fn put(&mut self, view: SavedView, viewer: &Viewer) -> Result<(), NotSaved> {
        match self.0.iter().position(|known| known.name == view.name) {
            Some(place) if viewer.sees(&self.0[place]) => self.0[place] = view,
            Some(_) => return Err(NotSaved::Taken),
            None if self.0.len() >= Self::MAX => return Err(NotSaved::Full),
            None => self.0.push(view),
        }
        self.0.sort_by(|a, b| (a.list, &a.name).cmp(&(b.list, &b.name)));
        Ok(())
    }

    /// Removes a view. Returns whether there was one that the viewer sees.
    pub fn remove(&mut self, name: &ViewName, viewer: &Viewer) -> bool {
        let before = self.0.len();
        self.0.retain(|view| view.name != *name || !viewer.sees(view));
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests;
