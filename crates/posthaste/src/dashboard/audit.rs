//! `/audit`: who did what.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::filter_bar::FilterBar;
use super::login::see;
use super::notifications::at_its_place;
use super::shell::Shell;
use super::show;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::audit::{self, AuditView};
use crate::http::extract::Authenticated;
use crate::http::problem::Result;
use crate::http::query::Query;

/// The parameters of the list.
pub(super) const PARAMETERS: [&str; 6] = ["tenant", "actor", "action", "target", "since", "until"];

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    shell: Shell,
    bar: FilterBar,
    rows: Vec<AuditView>,
    next: Option<String>,
    all_tenants: bool,
}

/// The page of what an act was done to, if there is one.
fn page_of(target: &str) -> Option<String> {
    let list = match target.split_once('_')?.0 {
        "ntf" => "notifications",
        "dl" => "dead-letters",
        _ => return None,
    };
    let plain = target.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then(|| format!("/{list}/{target}"))
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "audit", PARAMETERS.into_iter());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let listed = match Query::parse("/v1/audit", &visitor.query) {
        Ok(query) => audit::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await,
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let shell = Shell::of(&api, &visitor, "Audit", "/audit").await;
    let next = bar.next(listed.next_cursor.as_ref());
    let all_tenants = visitor.caller.tenant.is_none();
    let page = AuditPage { shell, bar, rows: listed.data, next, all_tenants };
    Ok(page.shell.answer_with(status, &page))
}

#[cfg(test)]
mod tests {
    use super::page_of;

    #[test]
    fn only_ids_lead_to_a_page() {
        assert_eq!(page_of("ntf_01m").as_deref(), Some("/notifications/ntf_01m"));
        assert_eq!(page_of("dl_01m").as_deref(), Some("/dead-letters/dl_01m"));
        for other in ["key_01", "tenant:a", "ntf_../x", "", "ntf"] {
            assert_eq!(page_of(other), None, "{other}");
        }
    }
}
