//! The stored form of figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use posthaste_core::notification::Tenant;
use posthaste_core::series::Figures;
use posthaste_engine::store::{DestinationHour, SeriesRow};

use super::counters::ALL;

/// Tenant, span, start, channel and node of a row.
pub(crate) type RowKey<'r> = (&'r str, u8, i64, u8, i64);

/// The rows that say something, in key order. Of two with one key, the one that has more.
pub(crate) fn sorted(rows: &[SeriesRow]) -> BTreeMap<RowKey<'_>, &Figures> {
    let mut sorted: BTreeMap<RowKey<'_>, &Figures> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.figures.weight() > 0) {
        let tenant = row.tenant.as_ref().map_or(ALL, Tenant::as_str);
        let key = (tenant, row.span.code(), row.at.as_micros(), row.channel.code(), row.node.0);
        let kept = sorted.entry(key).or_insert(&row.figures);
        if row.figures.weight() > kept.weight() {
            *kept = &row.figures;
        }
    }
    sorted
}

/// Start, tenant, node and place of an hour of a destination.
pub(crate) type HourKey<'r> = (i64, &'r str, i64, u16);

/// The hours that say something, in key order. Of two with one key, the one whose count is greater.
pub(crate) fn sorted_hours(rows: &[DestinationHour]) -> BTreeMap<HourKey<'_>, &DestinationHour> {
    let mut sorted: BTreeMap<HourKey<'_>, &DestinationHour> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.count > 0) {
        let tenant = row.tenant.as_ref().map_or(ALL, Tenant::as_str);
        let kept = sorted.entry((row.at.as_micros(), tenant, row.node.0, row.place)).or_insert(row);
        if row.count > kept.count {
            *kept = row;
        }
    }
    sorted
}

/// A code and a number of everything that is not zero: `0:12 1:9`.
pub(crate) fn text(figures: &Figures) -> String {
    let mut text = String::new();
    for (code, count) in figures.to_pairs() {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{code}:{count}").expect("a text can be written to");
    }
    text
}

/// What cannot be read is passed over: figures promise nothing, and a newer version may write more.
pub(crate) fn read(text: &str) -> Figures {
    let pair = |pair: &str| {
        let (code, count) = pair.split_once(':')?;
        Some((code.parse().ok()?, count.parse().ok()?))
    };
    Figures::from_pairs(text.split(' ').filter_map(pair))
}

/// The weight as it is stored.
pub(crate) fn weight(figures: &Figures) -> i64 {
    count(figures.weight())
}

/// A count as it is stored.
pub(crate) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_a_text_of_pairs() {
        let figures = Figures { accepted: 12, cancelled: 3, ..Figures::default() };
        assert_eq!(text(&figures), "0:12 7:3");
        assert_eq!(read(&text(&figures)), figures);
        assert_eq!(read("0:12 7:3 9:1 x:2 7 31:"), figures);
        assert_eq!(read(""), Figures::default());
    }
}
