//! The dashboard: pages for people, made on the server and served beside the API.
//!
//! One page is one file here, one template and one route. A page's address is the API's without `/v1`. A page calls the handler
//! of the API for what it shows and does, with the visitor's tenant and role, so it has no rule and no query of its own.
//!
//! Invariant: who may see a page or press a button is what the API says of the operation that is behind it ([`PAGES`]).

use std::sync::OnceLock;

use axum::Router;
use axum::routing::{get, post};
use http::Method;

use crate::http::Shared;

mod acts;
mod assets;
mod audit;
mod chart;
mod cookie;
mod dead_letter;
mod dead_letters;
mod destination;
mod destinations;
mod downtime;
mod drawing;
mod due;
mod edit;
mod failure_groups;
mod filter_bar;
mod flash;
mod going;
mod jobs;
mod keys;
mod login;
mod new_operation;
mod news;
mod nodes;
mod notification;
mod notifications;
mod operation;
mod operations;
mod overview;
mod picks;
mod policies;
mod policy;
mod policy_form;
mod problem;
mod retry_queue;
mod saved_views;
mod session;
mod sessions;
mod settings;
mod shell;
mod show;
mod signing_secret;
mod simulation;
mod sink;
mod story;
mod stream;
mod tenants;
mod throughput;
mod timeline;
mod visitor;

pub use self::assets::FILES;
pub(crate) use self::login::Dashboard;
pub(crate) use self::problem::Visit;
pub use self::shell::CSP;
pub(crate) use self::visitor::may_stand_in;

/// One address of the dashboard with one method.
#[derive(Debug)]
pub struct PageRoute {
    pub method: Method,
    /// With `{..}` for what a request fills in.
    pub path: &'static str,
    pub needs: Needs,
}

/// Who may ask for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Anyone.
    Nothing,
    /// Whoever is logged in.
    Session,
    /// Whoever is logged in with an admin's key for all tenants.
    Admin,
    /// Whoever is logged in with a key that may call this operation of the API.
    Operation(&'static str),
}

const fn page(path: &'static str, operation: &'static str) -> PageRoute {
    PageRoute { method: Method::GET, path, needs: Needs::Operation(operation) }
}

const fn act(path: &'static str, operation: &'static str) -> PageRoute {
    PageRoute { method: Method::POST, path, needs: Needs::Operation(operation) }
}

/// Every route of the dashboard. They are not part of openapi.json.
pub static PAGES: &[PageRoute] = &[
    PageRoute { method: Method::GET, path: "/assets/{file}", needs: Needs::Nothing },
    PageRoute { method: Method::GET, path: "/login", needs: Needs::Nothing },
    PageRoute { method: Method::POST, path: "/login", needs: Needs::Nothing },
    PageRoute { method: Method::POST, path: "/logout", needs: Needs::Session },
    PageRoute { method: Method::POST, path: "/logout-everywhere", needs: Needs::Session },
    PageRoute { method: Method::POST, path: "/theme", needs: Needs::Session },
    PageRoute { method: Method::POST, path: "/shortcuts", needs: Needs::Session },
    page("/", "stats"),
    PageRoute { method: Method::GET, path: "/session", needs: Needs::Session },
    page("/stream", "stream"),
    page("/notifications", "listNotifications"),
    page("/notifications/{id}", "getNotification"),
    act("/notifications/{id}/retry", "retry"),
    act("/notifications/{id}/retry-now", "retryNow"),
    act("/notifications/{id}/cancel", "cancel"),
    page("/retry-queue", "listRetryQueue"),
    page("/dead-letters", "listDeadLetters"),
    page("/dead-letters/{id}", "getDeadLetter"),
    act("/dead-letters/{id}/requeue", "requeue"),
    act("/dead-letters/{id}/discard", "discard"),
    act("/dead-letters/{id}/restore", "restore"),
    page("/dead-letters/{id}/edit-and-retry", "editAndRetry"),
    act("/dead-letters/{id}/edit-and-retry", "editAndRetry"),
    page("/failure-groups", "listFailureGroups"),
    page("/failure-groups/{id}", "getFailureGroup"),
    act("/failure-groups/{id}/note", "putFailureGroupNote"),
    page("/destinations", "listDestinations"),
    page("/destinations/{id}", "getDestination"),
    act("/destinations/{id}", "putDestination"),
    act("/destinations/{id}/block", "blockDestination"),
    act("/destinations/{id}/unblock", "unblockDestination"),
    act("/destinations/{id}/reset", "resetDestination"),
    act("/views", "putView"),
    act("/views/{name}/delete", "deleteView"),
    page("/retry-operations", "listRetryOperations"),
    act("/retry-operations", "startRetryOperation"),
    page("/retry-operations/new", "startRetryOperation"),
    act("/retry-operations/new", "startRetryOperation"),
    page("/retry-operations/{id}", "getRetryOperation"),
    act("/retry-operations/{id}/pause", "pauseRetryOperation"),
    act("/retry-operations/{id}/resume", "resumeRetryOperation"),
    act("/retry-operations/{id}/cancel", "cancelRetryOperation"),
    page("/policies", "listPolicies"),
    page("/policies/{scope}", "getPolicy"),
    act("/policies/{scope}", "putPolicy"),
    act("/policies/{scope}/preview", "previewPolicy"),
    page("/policies/{scope}/simulate", "simulatePolicy"),
    act("/policies/{scope}/delete", "deletePolicy"),
    page("/jobs", "listJobs"),
    page("/jobs/{id}/runs", "listJobRuns"),
    act("/jobs/{id}/run", "runJob"),
    act("/jobs/{id}/pause", "pauseJob"),
    act("/jobs/{id}/resume", "resumeJob"),
    page("/audit", "listAudit"),
    page("/nodes", "listNodes"),
    page("/tenants", "listTenants"),
    page("/settings", "listSettings"),
    page("/keys", "listKeys"),
    act("/keys", "createKey"),
    act("/keys/{id}/rotate", "rotateKey"),
    act("/keys/{id}/revoke", "revokeKey"),
    page("/signing-secret", "getSigningSecret"),
    act("/signing-secret/show", "getSigningSecret"),
    act("/signing-secret/rotate", "rotateSigningSecret"),
    PageRoute { method: Method::GET, path: "/sink", needs: Needs::Admin },
    PageRoute { method: Method::POST, path: "/sink/dial", needs: Needs::Admin },
    PageRoute { method: Method::POST, path: "/sink/reset", needs: Needs::Admin },
    PageRoute { method: Method::POST, path: "/sink/clear", needs: Needs::Admin },
];

pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/assets/{file}", get(assets::file))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/logout-everywhere", post(login::log_out_everywhere))
        .route("/theme", post(login::choose_theme))
        .route("/shortcuts", post(session::choose_shortcuts))
        .route("/", get(overview::page))
        .route("/session", get(session::page))
        .route("/stream", get(stream::page))
        .route("/notifications", get(notifications::page))
        .route("/notifications/{id}", get(notification::page))
        .route("/notifications/{id}/retry", post(acts::retry))
        .route("/notifications/{id}/retry-now", post(acts::retry_now))
        .route("/notifications/{id}/cancel", post(acts::cancel))
        .route("/retry-queue", get(retry_queue::page))
        .route("/dead-letters", get(dead_letters::page))
        .route("/dead-letters/{id}", get(dead_letter::page))
        .route("/dead-letters/{id}/requeue", post(acts::requeue))
        .route("/dead-letters/{id}/discard", post(acts::discard))
        .route("/dead-letters/{id}/restore", post(acts::restore))
        .route("/dead-letters/{id}/edit-and-retry", get(edit::page).post(edit::send))
        .route("/failure-groups", get(failure_groups::page))
        .route("/failure-groups/{id}", get(failure_groups::one))
        .route("/failure-groups/{id}/note", post(failure_groups::put_note))
        .route("/destinations", get(destinations::page))
        .route("/destinations/{id}", get(destination::page).post(destination::put))
        .route("/destinations/{id}/block", post(destination::block))
        .route("/destinations/{id}/unblock", post(destination::unblock))
        .route("/destinations/{id}/reset", post(destination::reset))
        .route("/views", post(saved_views::save))
        .route("/views/{name}/delete", post(saved_views::delete))
        .route("/retry-operations", get(operations::page).post(new_operation::start))
        .route("/retry-operations/new", get(new_operation::page).post(new_operation::count_again))
        .route("/retry-operations/{id}", get(operation::page))
        .route("/retry-operations/{id}/pause", post(operation::pause))
        .route("/retry-operations/{id}/resume", post(operation::resume))
        .route("/retry-operations/{id}/cancel", post(operation::cancel))
        .route("/policies", get(policies::page))
        .route("/policies/{scope}", get(policy::page).post(policy::put))
        .route("/policies/{scope}/preview", post(policy::preview))
        .route("/policies/{scope}/simulate", get(simulation::page))
        .route("/policies/{scope}/delete", post(policy::delete))
        .route("/jobs", get(jobs::page))
        .route("/jobs/{id}/runs", get(jobs::runs))
        .route("/jobs/{id}/run", post(jobs::run))
        .route("/jobs/{id}/pause", post(jobs::pause))
        .route("/jobs/{id}/resume", post(jobs::resume))
        .route("/audit", get(audit::page))
        .route("/nodes", get(nodes::page))
        .route("/tenants", get(tenants::page))
        .route("/settings", get(settings::page))
        .route("/keys", get(keys::page).post(keys::create))
        .route("/keys/{id}/rotate", post(keys::rotate))
        .route("/keys/{id}/revoke", post(keys::revoke))
        .route("/signing-secret", get(signing_secret::page))
        .route("/signing-secret/show", post(signing_secret::show))
        .route("/signing-secret/rotate", post(signing_secret::rotate))
        .route("/sink", get(sink::page))
        .route("/sink/dial", post(sink::turn))
        .route("/sink/reset", post(sink::reset))
        .route("/sink/clear", post(sink::clear))
}

fn by_path() -> &'static matchit::Router<Vec<&'static PageRoute>> {
    static PATHS: OnceLock<matchit::Router<Vec<&'static PageRoute>>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let mut paths = matchit::Router::new();
        let mut names: Vec<&str> = PAGES.iter().map(|page| page.path).collect();
        names.dedup();
        for name in names {
            let here = PAGES.iter().filter(|page| page.path == name).collect();
            paths.insert(name, here).expect("axum would refuse it too");
        }
        paths
    })
}

fn at(path: &str) -> &'static [&'static PageRoute] {
    by_path().at(path).map_or(&[][..], |found| found.value.as_slice())
}

/// The page of a request. HEAD is answered as GET.
fn find(method: &Method, path: &str) -> Option<&'static PageRoute> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    at(path).iter().copied().find(|page| page.method == method)
}

/// The methods of a page's address, for people and for `Allow`.
pub(crate) fn methods(path: &str) -> String {
    let mut names: Vec<&str> = at(path).iter().map(|page| page.method.as_str()).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.join(", ")
}
