//! The dashboard, asked as a browser would without script: pages, forms, cookies.

mod acts;
mod charts;
mod content;
mod destinations;
mod incident;
mod live;
mod picks;
mod policy;
mod roles;
mod session;
mod settings;
mod simulation;
mod sink;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::header::{HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use http::{Method, StatusCode};
use posthaste::client::{Client, ClientResponse};
use posthaste::dashboard::{CSP, PageRoute};
use url::form_urlencoded;

use super::running::Running;

/// The cookie of a session.
const SESSION: &str = "__Host-posthaste";

/// A browser without script.
pub(super) struct Browser {
    client: Client,
    origin: String,
    cookies: BTreeMap<String, String>,
    /// Where it is, by the word of its proxy.
    pub(super) forwarded_for: String,
}

/// A page that came.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) status: StatusCode,
    headers: http::HeaderMap,
    pub(super) text: String,
}

impl Shown {
    /// Where the browser is sent to.
    fn to(&self) -> &str {
        self.headers.get(LOCATION).map_or("", |to| to.to_str().unwrap())
    }

    /// The page, if it came.
    pub(super) fn page(self) -> String {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.text
    }

    pub(super) fn is(&self, status: u16) {
        assert_eq!(self.status, status, "{} {}", self.to(), self.text);
    }
}

impl Browser {
    fn new(address: SocketAddr) -> Self {
        let origin = format!("http://{address}");
        Self {
            client: Client::new(&origin, None).unwrap(),
            origin,
            cookies: BTreeMap::new(),
            forwarded_for: String::new(),
        }
    }

    /// One that is logged in with a key.
    pub(super) async fn with(running: &Running, key: &str) -> Self {
        let mut browser = Self::new(running.address());
        let shown = browser.log_in(key).await;
        shown.is(303);
        assert!(browser.cookies.contains_key(SESSION), "{shown:?}");
        browser
    }

    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: String,
    ) -> Shown {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut headers = vec![("cookie".to_owned(), cookies.join("; "))];
        headers.push(("x-forwarded-for".to_owned(), self.forwarded_for.clone()));
        headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let headers: Vec<(HeaderName, HeaderValue)> = headers
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let answer = self.client.send(method, path, &headers, body.into()).await.unwrap();
        self.keep(&answer);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Shown { status: answer.status, headers: answer.headers, text }
    }

    fn keep(&mut self, answer: &ClientResponse) {
        for cookie in answer.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let (pair, rest) = cookie.split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            for part in ["Secure", "HttpOnly", "SameSite=Lax", "Path=/"] {
                assert!(rest.contains(part) && name.starts_with("__Host-"), "{cookie}");
            }
            if rest.contains("Max-Age=0;") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    pub(super) async fn get(&mut self, path: &str) -> Shown {
        self.ask(Method::GET, path, &[], String::new()).await
    }

    /// Sends a form as the page `from` would.
    async fn send(&mut self, from: &str, path: &str, fields: &[(&str, &str)]) -> Shown {
        let (origin, referer) = (self.origin.clone(), format!("{}{from}", self.origin));
        let headers = [
            ("origin", origin.as_str()),
            ("referer", referer.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.ask(Method::POST, path, &headers, form(fields)).await
    }

    /// Presses a button of a page: the token is that of the page.
    pub(super) async fn press(&mut self, from: &str, path: &str, fields: &[(&str, &str)]) -> Shown {
        // Not every page has a form, but the token is the same on all of them.
        let with_form = if from == "/login" { from } else { "/session" };
        let token = token_of(&self.get(with_form).await.page());
        let mut all = vec![("token", token.as_str())];
        all.extend(fields);
        self.send(from, path, &all).await
    }

    async fn log_in(&mut self, key: &str) -> Shown {
        self.press("/login", "/login", &[("key", key), ("to", "/")]).await
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// The token in the forms of a page.
fn token_of(page: &str) -> String {
    let start = "name=\"token\" value=\"";
    let from = page.find(start).unwrap_or_else(|| panic!("no form: {page}")) + start.len();
    page[from..].split('"').next().unwrap().to_owned()
}

/// The path of a page with something for its braces.
fn filled(page: &PageRoute, id: impl Fn(&PageRoute) -> String) -> String {
    match page.path.split_once('{') {
        None => page.path.to_owned(),
        Some((before, rest)) => format!("{before}{}{}", id(page), rest.split_once('}').unwrap().1),
    }
}

/// Holds a page to what every page promises: its headers, and nothing inline.
pub(super) fn is_safe(shown: &Shown) {
    assert_eq!(shown.headers["content-security-policy"], CSP);
    assert_eq!(shown.headers["x-content-type-options"], "nosniff");
    assert_eq!(shown.headers["cache-control"], "no-store");
    assert_eq!(shown.headers["referrer-policy"], "same-origin");
    let text = &shown.text;
    for tag in text.split("<script").skip(1) {
        assert!(tag.starts_with(" src=\"/assets/") && tag.contains("></script>"), "an inline script: {tag}");
    }
    for inline in ["<style", " style=", " onclick=", " onload=", " onerror=", "javascript:", "hx-on"] {
        assert!(!text.contains(inline), "{inline} in {text}");
    }
    for named in text.split(" src=\"").skip(1).chain(text.split("<link rel=\"stylesheet\" href=\"").skip(1)) {
        assert!(named.starts_with("/assets/"), "{named}");
    }
}
