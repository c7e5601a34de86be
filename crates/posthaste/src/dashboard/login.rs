//! `/login`: an API key is exchanged for a session. Also the end of sessions, and the theme.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use askama::Template;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{LOCATION, REFERER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use posthaste_core::role::Role;
use posthaste_engine::acts::Actor;
use posthaste_wire::sink::Inbox;
use url::form_urlencoded;

use super::cookie;
use super::going::Running;
use super::sessions::{LENGTH, form_token};
use super::shell;
use super::visitor::{Fields, Form, check_origin, is_secure, theme};
use crate::http::admission::RequestContext;
use crate::http::client_address::client_address;
use crate::http::open_connections::OpenConnection;
use crate::http::problem::{Problem, Result};
use crate::http::{Api, Shared, hex};
use crate::keys::{self, Hash};

/// How long the form to log in is good for.
const FORM_SECONDS: u64 = 3_600;
/// The longest path to come back to.
const LONGEST_PATH: usize = 2_000;

/// What the dashboard remembers on this node.
#[derive(Default)]
pub(crate) struct Dashboard {
    /// The hash of a token that logs in once, and the key that it stands for.
    once: Mutex<Option<(Hash, Hash)>>,
    /// The test receiver of `posthaste dev`.
    sink: OnceLock<Inbox>,
    /// The operations that every page shows in its navigation.
    pub(super) running: Running,
}

impl Dashboard {
    /// A path that logs in with this key, once.
    pub(crate) fn login_once(&self, key: &str) -> String {
        let token = hex(&keys::random::<16>());
        *self.once() = Some((keys::hash(&token), keys::hash(key)));
        format!("/login?once={token}")
    }

    /// Gives the sink a page.
    pub(crate) fn show_sink(&self, inbox: Inbox) {
        // A second one would be another process.
        let _ = self.sink.set(inbox);
    }

    pub(super) fn inbox(&self) -> Option<&Inbox> {
        self.sink.get()
    }

    fn once(&self) -> MutexGuard<'_, Option<(Hash, Hash)>> {
        self.once.lock().expect("no code panics while it holds the token")
    }

    /// The key that the token stands for; the token is used up.
    fn take(&self, token: &str) -> Option<Hash> {
        let mut once = self.once();
        let (_, key) = once.take_if(|(wanted, _)| *wanted == keys::hash(token))?;
        Some(key)
    }
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    theme: Option<&'static str>,
    token: String,
    to: String,
    /// What was wrong with the last try.
    problem: Option<String>,
    /// Whether a browser would keep the session.
    secure: bool,
    version: &'static str,
}

/// Whether a path leads to a page of this site.
pub(super) fn is_local(path: &str) -> bool {
    let mut characters = path.chars();
    characters.next() == Some('/')
        && !matches!(characters.next(), Some('/' | '\\'))
        && path.len() <= LONGEST_PATH
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

fn to_or_start(path: Option<&str>) -> String {
    path.filter(|path| is_local(path)).unwrap_or("/").to_owned()
}

fn show(api: &Api, head: &Head, to: String, problem: Option<(StatusCode, String)>) -> Response {
    let secret = hex(&keys::random::<16>());
    let (status, problem) = problem.unzip();
    let page = LoginPage {
        theme: theme(&head.headers),
        token: form_token(&secret),
        to,
        problem,
        secure: is_secure(api, &head.headers, Some(head.peer)),
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut response = shell::html(status.unwrap_or(StatusCode::OK), &page);
    response.headers_mut().append(SET_COOKIE, cookie::set(cookie::LOGIN, &secret, FORM_SECONDS));
    response
}

/// The head of a request, and where it came from.
struct Head {
    headers: HeaderMap,
    peer: IpAddr,
    address: IpAddr,
    open: Option<Arc<OpenConnection>>,
}

impl Head {
    fn of(api: &Api, request: &Request<Body>) -> Self {
        let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let asked = request.extensions().get::<RequestContext>();
        let (peer, open) = asked.map_or((unknown, None), |asked| (asked.peer, Some(asked.open.clone())));
        let address = client_address(peer, request.headers(), &api.trusted_proxies);
        Self { headers: request.headers().clone(), peer, address, open }
    }
}

/// The form. With a token of `dev` it logs in by itself, once.
pub(super) async fn page(
    State(api): State<Shared>,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Response> {
    let head = Head::of(&api, &request);
    let query = query.unwrap_or_default();
    let given = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(given, _)| given == name).map(|(_, value)| value.into_owned())
    };
    let to = to_or_start(given("to").as_deref());
    let Some(token) = given("once") else { return Ok(show(&api, &head, to, None)) };
    match api.dashboard.take(&token) {
        Some(key) => begin(&api, &head, key, &to).await,
        None => {
            let words = "This address has logged in once already. Give the key that was printed below it.";
            Ok(show(&api, &head, to, Some((StatusCode::FORBIDDEN, words.to_owned()))))
        }
    }
}

/// Checks the key and begins a session.
pub(super) async fn log_in(State(api): State<Shared>, request: Request<Body>) -> Result<Response> {
    let head = Head::of(&api, &request);
    check_origin(&head.headers, api.public_url.as_ref())?;
    let fields = Fields::read(request.into_body(), &api).await?;
    let to = to_or_start(fields.get("to"));
    let refuse = |status, words: &str| Ok(show(&api, &head, to.clone(), Some((status, words.to_owned()))));
    if !is_secure(&api, &head.headers, Some(head.peer)) {
        return refuse(
            StatusCode::FORBIDDEN,
            "The key was not checked, because this connection is not secure.",
        );
    }
    let token = cookie::read(&head.headers, cookie::LOGIN).map(form_token).unwrap_or_default();
    if fields.check_token(&token).is_err() {
        return refuse(
            StatusCode::FORBIDDEN,
            "The form was too old, or the browser keeps no cookies. Try again.",
        );
    }
    let Some(key) = fields.get("key") else {
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, "Give an API key.");
    };
    if api.keys.find(&api.engine, key).is_none() {
        if let Some(open) = &head.open
            && api.hold_back(head.address, open).await.is_err()
        {
            let words =
                "Too many wrong keys came from your address. Check the key, and try again in a few minutes.";
            return refuse(StatusCode::TOO_MANY_REQUESTS, words);
        }
        return refuse(StatusCode::FORBIDDEN, "This key is not known, was revoked or has expired.");
    }
    begin(&api, &head, keys::hash(key), &to).await
}

/// Begins a session of a key, unless there is no page that it may see.
async fn begin(api: &Api, head: &Head, key: Hash, to: &str) -> Result<Response> {
    let Some(caller) = api.keys.find_hash(&api.engine, key) else {
        return Ok(show(
            api,
            head,
            to.to_owned(),
            Some((StatusCode::FORBIDDEN, "The key has ended.".to_owned())),
        ));
    };
    if !caller.role.includes(Role::Reader) {
        let words =
            "This key may only send. The dashboard needs a key with the role reader, operator or admin.";
        return Ok(show(api, head, to.to_owned(), Some((StatusCode::FORBIDDEN, words.to_owned()))));
    }
    let actor = Actor { address: Some(head.address.to_string()), ..caller.actor() };
    let value = api.begin_session(&caller, key, &actor).await?;
    let mut response = see(to);
    response.headers_mut().append(SET_COOKIE, cookie::set(cookie::SESSION, &value, LENGTH.as_secs()));
    response.headers_mut().append(SET_COOKIE, cookie::set(cookie::LOGIN, "", 0));
    Ok(response)
}

/// Sends the browser to a page of this site.
pub(super) fn see(path: &str) -> Response {
    let path = HeaderValue::from_str(path).unwrap_or_else(|_| HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, path)]).into_response()
}

/// Ends the session.
pub(super) async fn log_out(State(api): State<Shared>, form: Form) -> Result<Response> {
    api.end_session(&form.visitor.place, &form.visitor.actor).await?;
    Ok(logged_out())
}

/// Ends every session of the visitor's key.
pub(super) async fn log_out_everywhere(State(api): State<Shared>, form: Form) -> Result<Response> {
    api.end_sessions(&form.visitor.caller, &form.visitor.actor).await?;
    Ok(logged_out())
}

fn logged_out() -> Response {
    let mut response = see("/login");
    response.headers_mut().append(SET_COOKIE, cookie::set(cookie::SESSION, "", 0));
    response
}

/// Remembers the theme that somebody chose: light, dark, or that of the system.
pub(super) async fn choose_theme(form: Form) -> Result<Response> {
    let (theme, seconds) = match form.fields.get("theme") {
        Some("light") => ("light", cookie::REMEMBERED),
        Some("dark") => ("dark", cookie::REMEMBERED),
        Some("system") => ("", 0),
        _ => return Err(Problem::at("/theme", "the theme is light, dark or system")),
    };
    let mut response = see(&back(&form.headers, "/"));
    response.headers_mut().append(SET_COOKIE, cookie::set(cookie::THEME, theme, seconds));
    Ok(response)
}

/// The page that a form was on, else another.
pub(super) fn back(headers: &HeaderMap, otherwise: &str) -> String {
    let from = headers
        .get(REFERER)
        .and_then(|from| from.to_str().ok())
        .and_then(|from| from.parse::<url::Url>().ok());
    let path = from.map(|from| match from.query() {
        Some(query) => format!("{}?{query}", from.path()),
        None => from.path().to_owned(),
    });
    path.filter(|path| is_local(path)).unwrap_or_else(|| otherwise.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_only_to_pages_of_this_site() {
        for good in ["/", "/notifications?status=failed&q=a%20b", "/dead-letters/dl_1"] {
            assert!(is_local(good), "{good}");
        }
        for bad in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "notifications",
            "/a\r\nb",
            "/ü",
        ] {
            assert!(!is_local(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_token_logs_in_once() {
        let dashboard = Dashboard::default();
        let path = dashboard.login_once("the key");
        let token = path.strip_prefix("/login?once=").unwrap();
        assert_eq!(dashboard.take("wrong"), None);
        assert_eq!(dashboard.take(token), Some(keys::hash("the key")));
        assert_eq!(dashboard.take(token), None);
    }
}
