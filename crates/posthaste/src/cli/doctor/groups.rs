//! Failure groups: whether all dead letters are counted in them, and whether there are more than are kept apart.

use posthaste_core::group::{GroupBy, GroupId};
use serde_json::Value;

use super::super::reach::Session;
use super::Finding;

const CHECK: &str = "failure groups";
/// What there may be so many of that the rest is in a group of all others.
const MANY: [GroupBy; 3] = [GroupBy::Fingerprint, GroupBy::Destination, GroupBy::Template];

/// Nothing if the server cannot say it.
pub(super) async fn check(session: &Session) -> Option<Finding> {
    let mut found = vec![];
    for by in MANY {
        let id = GroupId::of(by, &[]);
        // A group that was never needed is not found.
        if let Some(others) = read(session, &format!("/v1/failure-groups/{id}")).await
            && others["count"].as_u64() > Some(0)
        {
            found.push((by, others["count"].to_string()));
        }
    }
    // Something may have been resolved between the two figures, but hardly twice.
    let missing = missing(session).await?;
    let missing = if missing > 0 { missing.min(self::missing(session).await?) } else { 0 };
    Some(finding(missing, &found))
}

/// How many pending dead letters are in no group.
async fn missing(session: &Session) -> Option<u64> {
    let stats = read(session, "/v1/stats").await?;
    let groups = read(session, "/v1/failure-groups?by=channel&limit=100").await?;
    let counted: u64 = groups["data"].as_array()?.iter().filter_map(|group| group["count"].as_u64()).sum();
    Some(stats["inDeadLetter"].as_u64()?.saturating_sub(counted))
}

async fn read(session: &Session, path: &str) -> Option<Value> {
    session.get(path).await.ok()?.json().ok()
}

fn finding(missing: u64, others: &[(GroupBy, String)]) -> Finding {
    let mut lines = vec![];
    if missing > 0 {
        lines.push(format!(
            "{missing} dead letters are in no group yet: the job failure-groups fills them in, see `posthaste jobs list`"
        ));
    }
    for (by, count) in others {
        let by = by.name();
        lines.push(format!(
            "there are more groups by {by} than are kept apart: {count} dead letters are in the group `other`\n\
             resolve what is old, so that new groups find room: `posthaste retry-operations start --action discard --filter until=30d`"
        ));
    }
    if lines.is_empty() {
        return Finding::ok(CHECK, "every dead letter is in its groups");
    }
    Finding::warn(CHECK, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn what_is_missing_and_what_is_beyond_the_bound_is_told() {
        let found = finding(0, &[]);
        assert_eq!((found.mark, found.text.lines().count()), (Mark::Ok, 1));
        let found = finding(7, &[(GroupBy::Destination, "12".to_owned())]);
        assert_eq!(found.mark, Mark::Warn);
        for part in ["7 dead letters", "by destination", "12 dead letters"] {
            assert!(found.text.contains(part), "{part}: {}", found.text);
        }
    }
}
