//! What every page has: navigation, counts, who is logged in, and the headers of its answer.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, StatusCode};
use posthaste_core::role::Role;
use posthaste_core::time::Timestamp;
use posthaste_wire::sink::Inbox;

use super::assets;
use super::flash::Flash;
use super::going::{Going, going};
use super::show::{Markup, count, time};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::query::Query;
use crate::http::stats::{self, StatsView};

/// Nothing comes from another host, and nothing is inline, neither script nor style.
pub const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                       form-action 'self'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What every page shows around its content.
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) nav: Vec<NavGroup>,
    /// The operations that are running.
    pub(super) going: Vec<Going>,
    /// Who is logged in, for people.
    pub(super) who: String,
    pub(super) tenant: String,
    pub(super) token: String,
    pub(super) theme: Option<&'static str>,
    /// Whether keys act on pages.
    pub(super) has_shortcuts: bool,
    pub(super) flash: Option<Flash>,
    pub(super) now: Timestamp,
}

/// Links under one heading.
pub(super) struct NavGroup {
    pub(super) heading: &'static str,
    pub(super) links: Vec<NavLink>,
}

pub(super) struct NavLink {
    pub(super) name: &'static str,
    pub(super) href: &'static str,
    pub(super) current: bool,
    pub(super) count: Option<String>,
    pub(super) class: &'static str,
    /// The counter of the stream that keeps it current.
    pub(super) live: &'static str,
}

/// A link, and the operation of the API that is behind its page.
type Entry = (&'static str, &'static str, &'static str);

/// The navigation. What a role may not see is left out.
const NAV: [(&str, &[Entry]); 5] = [
    ("", &[("Overview", "/", "stats"), ("Live tail", "/stream", "stream")]),
    (
        "Deliver",
        &[
            ("Notifications", "/notifications", "listNotifications"),
            ("Retry queue", "/retry-queue", "listRetryQueue"),
        ],
    ),
    (
        "Repair",
        &[
            ("Failure groups", "/failure-groups", "listFailureGroups"),
            ("Dead letters", "/dead-letters", "listDeadLetters"),
            ("Operations", "/retry-operations", "listRetryOperations"),
        ],
    ),
    ("Receivers", &[("Destinations", "/destinations", "listDestinations")]),
    (
        "Set up",
        &[
            ("Policies", "/policies", "listPolicies"),
            ("Jobs", "/jobs", "listJobs"),
            ("Audit", "/audit", "listAudit"),
            ("Nodes", "/nodes", "listNodes"),
            ("Tenants", "/tenants", "listTenants"),
            ("Settings", "/settings", "listSettings"),
            ("Keys", "/keys", "listKeys"),
            ("Signing secret", "/signing-secret", "getSigningSecret"),
            ("Session", "/session", "stats"),
        ],
    ),
];

impl Shell {
    /// The shell of a page below `section`, which is the address of a link in the navigation.
    pub(super) async fn of(api: &Shared, visitor: &Visitor, title: &str, section: &str) -> Self {
        // The page is worth showing without its counts.
        let stats = figures(api, visitor).await;
        let counts = |href: &str| match (href, &stats) {
            ("/retry-queue", Some(stats)) => (stats.total.in_retry, "", "inRetry"),
            ("/dead-letters", Some(stats)) => (stats.total.in_dead_letter, "bad", "inDeadLetter"),
            _ => (0, "", ""),
        };
        let link = |(name, href, _): &Entry| {
            let (number, class, live) = counts(href);
            NavLink {
                name,
                href,
                current: *href == section,
                count: (number > 0).then(|| count(&number)),
                class,
                live,
            }
        };
        let mut groups: Vec<NavGroup> = NAV
            .iter()
            .map(|(heading, links)| NavGroup {
                heading,
                links: links.iter().filter(|(_, _, operation)| visitor.may(operation)).map(link).collect(),
            })
            .collect();
        if sink_of(api, visitor).is_some() {
            groups.push(NavGroup { heading: "Try out", links: vec![link(&("Sink", "/sink", ""))] });
        }
        let caller = &visitor.caller;
        let role = if caller.role == Role::Tenant { "sender and operator" } else { caller.role.name() };
        Self {
            title: title.to_owned(),
            going: going(api, visitor).await,
            nav: groups.into_iter().filter(|group| !group.links.is_empty()).collect(),
            who: format!("{}, {role}", short_name(&caller.name)),
            tenant: caller.tenant.as_ref().map_or_else(|| "All tenants".to_owned(), ToString::to_string),
            token: visitor.token.clone(),
            theme: visitor.theme,
            has_shortcuts: visitor.has_shortcuts,
            flash: visitor.flash.clone(),
            now: api.engine.now(),
        }
    }

    pub(super) fn time(&self, at: &Timestamp) -> Markup {
        time(*at, self.now)
    }

    /// The page as an answer.
    pub(super) fn answer(&self, page: &impl Template) -> Response {
        self.answer_with(StatusCode::OK, page)
    }

    pub(super) fn answer_with(&self, status: StatusCode, page: &impl Template) -> Response {
        let mut response = html(status, page);
        if self.flash.is_some() {
            response.headers_mut().append(SET_COOKIE, Flash::clear());
        }
        response
    }
}

/// `dana (key_01..)` is shown as `dana`.
fn short_name(name: &str) -> &str {
    name.rsplit_once(" (key_").map_or(name, |(name, _)| name)
}

/// The test receiver, if there is one and the visitor may see its page.
pub(super) fn sink_of<'a>(api: &'a Shared, visitor: &Visitor) -> Option<&'a Inbox> {
    api.dashboard.inbox().filter(|_| visitor.is_admin())
}

/// The kept counters, if the visitor may see them and the store answers.
pub(super) async fn figures(api: &Shared, visitor: &Visitor) -> Option<StatsView> {
    if !visitor.may("stats") {
        return None;
    }
    let query = Query::parse("/v1/stats", "").ok()?;
    let stats = stats::get(State(api.clone()), Authenticated(visitor.caller.clone()), query).await;
    stats.ok().map(|stats| stats.0)
}

/// A page with the headers that every page has.
pub(super) fn html(status: StatusCode, page: &impl Template) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, CSP),
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        // Without a referrer browsers send no origin with a form either.
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match page.render() {
        Ok(text) => (status, headers, text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be made");
            (StatusCode::INTERNAL_SERVER_ERROR, headers, "The page could not be made.").into_response()
        }
    }
}

/// The address of a style sheet or script.
pub(super) fn asset(name: &str) -> String {
    assets::address(name)
}
