//! Which rows of the audit are shown.

use std::time::Duration;

use crate::notification::Tenant;
use crate::time::Timestamp;

/// By how much the times of rows may be out of the order of their numbers. A row gets its time before its transaction and its
/// number in it, and no transaction takes so long.
const OUT_OF_ORDER: Duration = Duration::from_secs(3_600);

/// Which rows of the audit are shown. A field that is none or empty matches every row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Whose.
    pub tenant: Option<Tenant>,
    /// Who did it: the actor as the row has it, or the name or the id of its key.
    pub actor: Option<String>,
    /// What was done: one of these.
    pub actions: Vec<String>,
    /// To what it was done.
    pub target: Option<String>,
    /// At or after.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

/// What a filter asks of a row.
#[derive(Debug, Clone, Copy)]
pub struct Audited<'a> {
    pub tenant: Option<&'a Tenant>,
    pub actor: &'a str,
    pub action: &'a str,
    pub target: &'a str,
    pub at: Timestamp,
}

impl AuditFilter {
    /// The rows of a tenant, or all of them.
    pub fn of(tenant: Option<Tenant>) -> Self {
        Self { tenant, ..Self::default() }
    }

    /// Whether the list shows this row.
    pub fn matches(&self, row: &Audited<'_>) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| Some(tenant) == row.tenant)
            && self.actor.as_ref().is_none_or(|actor| is_actor(actor, row.actor))
            && (self.actions.is_empty() || self.actions.iter().any(|action| action == row.action))
            && self.target.as_ref().is_none_or(|target| target == row.target)
            && self.since.is_none_or(|since| since <= row.at)
            && self.until.is_none_or(|until| row.at < until)
    }

    /// Whether no row with a lower number than one of this time can match.
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.since.is_some_and(|since| at < since.earlier(OUT_OF_ORDER))
    }

    /// Whether no row with a higher number than one of this time can match.
    pub fn is_too_new(&self, at: Timestamp) -> bool {
        self.until.is_some_and(|until| until.later(OUT_OF_ORDER) < at)
    }
}

/// Whether an actor is the one that is wanted. Keys act as `name (key_..)`.
fn is_actor(wanted: &str, actor: &str) -> bool {
    if wanted == actor {
        return true;
    }
    let Some((name, id)) = actor.strip_suffix(')').and_then(|actor| actor.rsplit_once(" (key_")) else {
        return false;
    };
    name == wanted || wanted.strip_prefix("key_") == Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_to_match() {
        let at = Timestamp::from_millis(1_000);
        let acme: Tenant = "acme".parse().unwrap();
        let row = Audited { tenant: Some(&acme), actor: "ada", action: "retry", target: "ntf_1", at };
        let all = AuditFilter::default;
        let later = Timestamp::from_millis(1_001);
        let table = [
            (all(), true),
            (AuditFilter::of(Some(acme.clone())), true),
            (AuditFilter::of(Some("other".parse().unwrap())), false),
            (AuditFilter { actor: Some("ada".to_owned()), ..all() }, true),
            (AuditFilter { actor: Some("ad".to_owned()), ..all() }, false),
            (AuditFilter { actions: vec!["discard".to_owned(), "retry".to_owned()], ..all() }, true),
            (AuditFilter { actions: vec!["retry-now".to_owned()], ..all() }, false),
            (AuditFilter { target: Some("ntf_1".to_owned()), ..all() }, true),
            (AuditFilter { target: Some("ntf_2".to_owned()), ..all() }, false),
            (AuditFilter { since: Some(at), ..all() }, true),
            (AuditFilter { since: Some(later), ..all() }, false),
            (AuditFilter { until: Some(later), ..all() }, true),
            (AuditFilter { until: Some(at), ..all() }, false),
        ];
        for (filter, wanted) in table {
            assert_eq!(filter.matches(&row), wanted, "{filter:?}");
        }
        let none = Audited { tenant: None, ..row };
        assert!(all().matches(&none) && !AuditFilter::of(Some(acme.clone())).matches(&none));
    }

    #[test]
    fn an_actor_is_found_by_the_name_and_the_id_of_its_key() {
        for (wanted, actor, found) in [
            ("admin", "admin", true),
            ("shop", "shop (key_01)", true),
            ("key_01", "shop (key_01)", true),
            ("shop (key_01)", "shop (key_01)", true),
            ("a (b)", "a (b) (key_01)", true),
            ("sho", "shop (key_01)", false),
            ("01", "shop (key_01)", false),
            ("key_0", "shop (key_01)", false),
            ("shop", "shop (x)", false),
            ("", "shop", false),
        ] {
            assert_eq!(is_actor(wanted, actor), found, "{wanted} {actor}");
        }
    }

    #[test]
    fn a_walk_ends_well_before_the_time_that_is_asked_for() {
        let since = Timestamp::from_millis(10_000_000);
        let filter = AuditFilter { since: Some(since), ..AuditFilter::default() };
        assert!(!filter.is_over(since.earlier(OUT_OF_ORDER)));
        assert!(filter.is_over(since.earlier(OUT_OF_ORDER + Duration::from_millis(1))));
        assert!(!AuditFilter::default().is_over(Timestamp::MIN));
    }
}
