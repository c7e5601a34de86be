//! Single values of a filter: how each is written and read.

use crate::dead_letter::DeadLetterStatus;
use crate::duration;
use crate::time::{Timestamp, civil, number};

/// How a dead letter stands, in the words of the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LetterStatus {
    /// Nobody has acted on it.
    Pending,
    /// Sent again.
    Requeued,
    /// Given up for good, or replaced.
    Discarded,
    /// Removed from the lists, and not yet for good.
    Deleted,
}

impl LetterStatus {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Requeued, Self::Discarded, Self::Deleted];
    /// What `all` means.
    pub const NOT_DELETED: [Self; 3] = [Self::Pending, Self::Requeued, Self::Discarded];

    /// The word in a query.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Requeued => "requeued",
            Self::Discarded => "discarded",
            Self::Deleted => "deleted",
        }
    }

    /// The status that is kept; none for deleted ones, which keep the status that they had.
    pub const fn kept(self) -> Option<DeadLetterStatus> {
        match self {
            Self::Pending => Some(DeadLetterStatus::Pending),
            Self::Requeued => Some(DeadLetterStatus::Requeued),
            Self::Discarded => Some(DeadLetterStatus::Cancelled),
            Self::Deleted => None,
        }
    }
}

/// A time, a date (its first moment in UTC), or how long ago with its unit.
pub fn time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_lowercase());
    let ago = || duration::parse(text).ok().filter(|_| has_unit).map(|ago| now.earlier(ago));
    text.parse().ok().or_else(|| date(text)).or_else(ago)
}

fn date(text: &str) -> Option<Timestamp> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    civil((number(year)?, number(month)?, number(day)?), 0, 0, 0)
}

/// A time with all its digits, where milliseconds do not say it.
pub(super) fn show_time(time: Timestamp) -> String {
    let shown = time.to_string();
    match time.as_micros().rem_euclid(1_000) {
        0 => shown,
        rest => format!("{}{rest:03}Z", shown.trim_end_matches('Z')),
    }
}

/// The destinations in a text with commas. A URL stands for its origin, so what follows a comma in the path of a pasted URL is
/// dropped with the path.
pub fn destinations(text: &str) -> Vec<String> {
    let (mut found, mut in_path) = (vec![], false);
    for part in text.split(',').map(str::trim) {
        match origin(part) {
            Some((origin, has_path)) => {
                found.push(origin);
                in_path = has_path;
            }
            None if in_path => {}
            None => found.push(part.to_owned()),
        }
    }
    found
}

/// The origin of a URL as destinations are named, and whether more than the origin was given.
pub(crate) fn origin(text: &str) -> Option<(String, bool)> {
    let (scheme, rest) = text.split_once("://")?;
    let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => ("http", "80"),
        "https" => ("https", "443"),
        _ => return None,
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let authority = rest[..end].rsplit('@').next()?;
    let behind_address = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[behind_address..].rsplit_once(':') {
        Some((host, given)) if given.trim().is_empty() => (host, port),
        Some((host, given)) => (host, given.trim()),
        None => (&authority[behind_address..], port),
    };
    let host = format!("{}{}", &authority[..behind_address], host).to_lowercase();
    let host = host.trim_end_matches('.');
    Some((format!("{scheme}://{host}:{port}"), end < rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_a_date_or_a_distance() {
        let now: Timestamp = "2026-04-15T10:45:30Z".parse().unwrap();
        let table = [
            ("2026-04-15T12:45:30+02:00", Some("2026-04-15T10:45:30.000Z")),
            ("2026-04-15", Some("2026-04-15T00:00:00.000Z")),
            ("1d", Some("2026-04-14T10:45:30.000Z")),
            ("90s", Some("2026-04-15T10:44:00.000Z")),
            ("90", None),
            ("0.00:15", None),
            ("2026-02-29", None),
            ("2026-4-15", None),
            ("2026-04-15T", None),
            ("-1d", None),
            ("yesterday", None),
            ("", None),
        ];
        for (text, shown) in table {
            assert_eq!(time(text, now).map(|time| time.to_string()).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn a_pasted_url_is_its_origin() {
        let table = [
            ("https://hooks.example.com:443", "https://hooks.example.com:443"),
            ("https://Hooks.Example.com/in?x=1", "https://hooks.example.com:443"),
            ("HTTP://a.example:8080/", "http://a.example:8080"),
            ("http://a.example", "http://a.example:80"),
            ("http://a.example:/x", "http://a.example:80"),
            ("http://a.example:\t?", "http://a.example:80"),
            ("https://user:secret@a.example./x", "https://a.example:443"),
            ("https://[2001:DB8::1]/x", "https://[2001:db8::1]:443"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("https://a.example?x=http://b.example", "https://a.example:443"),
            ("pool:email", "pool:email"),
            ("sub_01abc", "sub_01abc"),
            ("ftp://a.example", "ftp://a.example"),
        ];
        for (text, destination) in table {
            assert_eq!(destinations(text), [destination], "{text}");
        }
    }

    #[test]
    fn several_destinations_are_parted_by_commas_but_not_inside_of_a_path() {
        let two = ["https://a.example:443".to_owned(), "https://b.example:443".to_owned()];
        assert_eq!(destinations("https://a.example,https://b.example"), two);
        assert_eq!(destinations("https://a.example/x,y,z, https://b.example/"), two);
        assert_eq!(destinations("https://a.example:443,pool:email"), ["https://a.example:443", "pool:email"]);
    }
}
