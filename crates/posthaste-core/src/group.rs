//! Failure groups: dead letters that share a cause, a destination, a template, a channel or a tenant.
//!
//! A fingerprint is a hash of reason, failure type, status and the normalised error text. The id of a group is a hash of what
//! the group is by and of its key, so it is the same for every tenant and on every store.

mod note;
mod text;

use sha2::{Digest, Sha256};

pub use self::note::{BadNote, Note};
pub use self::text::pattern;
use crate::channel::Channel;
use crate::failure::FailureType;
pub use crate::id::GroupId;
use crate::notification::Notification;
use crate::reason::Reason;

/// The most groups of a tenant by one kind, and of all tenants together. Dead letters of further ones are counted in the group
/// `other`.
pub const MAX_GROUPS: usize = 10_000;

/// How many hours a group shows.
pub const HOURS: usize = 24;

/// The longest title, in characters.
const MAX_TITLE: usize = 80;

/// What dead letters are grouped by. The codes are stored, the names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum GroupBy {
    Fingerprint = 0,
    Destination = 1,
    Template = 2,
    Channel = 3,
    Tenant = 4,
}

impl GroupBy {
    /// In the order of their codes.
    pub const ALL: [Self; 5] =
        [Self::Fingerprint, Self::Destination, Self::Template, Self::Channel, Self::Tenant];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Fingerprint => "fingerprint",
            Self::Destination => "destination",
            Self::Template => "template",
            Self::Channel => "channel",
            Self::Tenant => "tenant",
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// What the groups of a dead letter follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouped<'l> {
    pub fingerprint: [u8; 16],
    pub tenant: &'l str,
    pub channel: Channel,
    pub destination: &'l str,
    pub template: Option<&'l str>,
}

impl<'l> Grouped<'l> {
    pub fn of(notification: &'l Notification, fingerprint: [u8; 16]) -> Self {
        Self {
            fingerprint,
            tenant: notification.tenant.as_str(),
            channel: notification.channel,
            destination: &notification.destination,
            template: notification.template.as_deref(),
        }
    }

    /// The group of that kind. Without a template there is none by template.
    pub fn group(&self, by: GroupBy) -> Option<GroupId> {
        Some(match by {
            GroupBy::Fingerprint => GroupId::of(by, &self.fingerprint),
            GroupBy::Destination => GroupId::of(by, self.destination.as_bytes()),
            GroupBy::Template => GroupId::of(by, self.template?.as_bytes()),
            GroupBy::Channel => GroupId::of(by, self.channel.code().to_string().as_bytes()),
            GroupBy::Tenant => GroupId::of(by, self.tenant.as_bytes()),
        })
    }

    /// The name that the group shows; none by fingerprint, whose title follows from the error text.
    pub fn name(&self, by: GroupBy) -> Option<&'l str> {
        match by {
            GroupBy::Fingerprint => None,
            GroupBy::Destination => Some(self.destination),
            GroupBy::Template => self.template,
            GroupBy::Channel => Some(self.channel.name()),
            GroupBy::Tenant => Some(self.tenant),
        }
    }

    /// Its groups of every kind.
    pub fn groups(&self) -> impl Iterator<Item = (GroupBy, GroupId)> {
        GroupBy::ALL.into_iter().filter_map(|by| Some((by, self.group(by)?)))
    }
}

impl GroupId {
    /// The group of that kind and key. PostgreSQL computes the same in a trigger.
    pub fn of(by: GroupBy, key: &[u8]) -> Self {
        Self::from_bytes(hash(&[&[by.code()], key]))
    }

    /// The group of everything beyond `MAX_GROUPS`. No key is empty, so no other group has its id.
    pub fn other(by: GroupBy) -> Self {
        Self::of(by, &[])
    }

    /// Whether it is the group `other` of some kind.
    pub fn is_other(self) -> bool {
        GroupBy::ALL.into_iter().any(|by| Self::other(by) == self)
    }
}

/// What groups a dead letter with others of the same cause. `pattern` is the normalised error text. PostgreSQL computes the
/// same when it buries.
pub fn fingerprint(
    reason: Reason,
    failure: Option<FailureType>,
    status: Option<u16>,
    pattern: &str,
) -> [u8; 16] {
    let failure = failure.map_or(String::new(), |failure| failure.code().to_string());
    let status = status.map_or(String::new(), |status| status.to_string());
    hash(&[format!("{}\n{failure}\n{status}\n", reason.code()).as_bytes(), pattern.as_bytes()])
}

fn hash(parts: &[&[u8]]) -> [u8; 16] {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    let whole: [u8; 32] = digest.finalize().into();
    let mut first = [0; 16];
    first.copy_from_slice(&whole[..16]);
    first
}

/// The title of a group by fingerprint, from any dead letter of it: `503: upstream connect error`.
pub fn title(reason: Reason, failure: Option<FailureType>, status: Option<u16>, text: &str) -> String {
    if text == reason.words() {
        return match status {
            Some(status) => format!("{text} (the last answer was {status})"),
            None => text.to_owned(),
        };
    }
    let message = text::readable(text, status);
    let message = if message.is_empty() { failure.map_or(reason.words(), words) } else { &message };
    let message = shortened(first_sentence(message));
    match status {
        Some(status) => format!("{status}: {message}"),
        None => message,
    }
}

/// A failure type in words, for an error without a text.
const fn words(failure: FailureType) -> &'static str {
    match failure {
        FailureType::Unknown => "failed without an explanation",
        FailureType::Temporary => "temporary failure",
        FailureType::Permanent => "permanent failure",
        FailureType::Timeout => "too slow",
        FailureType::RateLimit => "too many requests",
        FailureType::NetworkFailure => "network failure",
        FailureType::AuthenticationFailure => "credentials refused",
        FailureType::InvalidRecipient => "invalid recipient",
        FailureType::QuotaExceeded => "quota exceeded",
    }
}

/// A sentence of one word or two, such as `Sorry. `, is not enough.
fn first_sentence(text: &str) -> &str {
    const SHORTEST: usize = 15;
    let mut ends = text.match_indices(". ").map(|(end, _)| end);
    ends.find(|end| *end >= SHORTEST).map_or(text, |end| &text[..end])
}

/// Cut after a word.
fn shortened(text: &str) -> String {
    let trimmed = |text: &str| text.trim_end_matches([' ', ',', ':', ';', '.']).to_owned();
    let Some((end, _)) = text.char_indices().nth(MAX_TITLE) else { return trimmed(text) };
    let cut = &text[..end];
    let whole = cut.rfind(' ').map_or(cut, |space| &cut[..space]);
    format!("{} …", trimmed(whole))
}

#[cfg(test)]
mod tests;
