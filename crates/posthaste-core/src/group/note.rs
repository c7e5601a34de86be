//! A note that people write at a failure group.

use serde::{Deserialize, Serialize};

use super::GroupId;
use crate::notification::Tenant;
use crate::record::{RecordKey, RecordKind};

/// The note as it is kept: a record of its group. When it was written is part of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub text: String,
    /// Who wrote it.
    pub by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNote {
    #[error("a note has at most {} characters", Note::MAX_TEXT)]
    Long,
    #[error("a note has no control characters but line breaks and tabs")]
    Control,
}

impl Note {
    /// In characters.
    pub const MAX_TEXT: usize = 2_000;

    /// The text without the spaces around it. None if nothing is left: that removes the note of the group.
    pub fn new(text: &str, by: &str) -> Result<Option<Self>, BadNote> {
        let text = text.trim();
        if text.chars().count() > Self::MAX_TEXT {
            return Err(BadNote::Long);
        }
        if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            return Err(BadNote::Control);
        }
        Ok((!text.is_empty()).then(|| Self { text: text.to_owned(), by: by.to_owned() }))
    }

    /// The note of a group as a tenant sees it, or as those see it who see all tenants.
    pub fn key(group: GroupId, tenant: Option<Tenant>) -> RecordKey {
        RecordKey::new(RecordKind::Note, tenant, group.to_string())
            .expect("the text of an id is a short name without control characters")
    }

    /// The value of the record.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("two texts are always written")
    }

    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_short_printable_and_kept_as_it_was_written() {
        let note = Note::new("  the provider is down,\n ticket \"7\"  ", "ada").unwrap().unwrap();
        assert_eq!(note.text, "the provider is down,\n ticket \"7\"");
        assert_eq!(Note::from_json(&note.to_json()), Some(note));
        assert_eq!(Note::new(" \n", "ada"), Ok(None));
        assert!(Note::new(&"ü".repeat(Note::MAX_TEXT), "ada").is_ok());
        assert_eq!(Note::new(&"ü".repeat(Note::MAX_TEXT + 1), "ada"), Err(BadNote::Long));
        assert_eq!(Note::new("a\0b", "ada"), Err(BadNote::Control));
        assert_eq!(Note::from_json("{}"), None);
    }
}
