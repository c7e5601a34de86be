//! Who looks at a page: the session of a request, what it may do, and whether a form is its own.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Limited};
use posthaste_core::role::Role;
use posthaste_engine::acts::Actor;
use url::{Url, form_urlencoded};

use super::flash::Flash;
use super::sessions::{Place, Session};
use super::{Needs, cookie, find};
use crate::http::admission::RequestContext;
use crate::http::client_address::client_address;
use crate::http::openapi::document;
use crate::http::problem::{Kind, Problem, Result};
use crate::http::route::Access;
use crate::http::{Api, Shared};
use crate::keys::Caller;

/// The most bytes of a form. The largest holds a policy.
const LARGEST_FORM: usize = 64 * 1024;
/// The field with the token.
pub(super) const TOKEN: &str = "token";

/// Whether a session may stand in for a key: only for what reads, because a browser sends its cookie along with whatever another
/// site makes it ask for.
pub(crate) fn may_stand_in(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && !request.headers().contains_key(AUTHORIZATION)
}

/// Somebody who is logged in and may see the page that was asked for.
pub(super) struct Visitor {
    pub(super) caller: Arc<Caller>,
    pub(super) actor: Actor,
    pub(super) place: Place,
    /// What every form holds.
    pub(super) token: String,
    pub(super) theme: Option<&'static str>,
    /// Whether keys act on pages.
    pub(super) has_shortcuts: bool,
    /// What the act before this page came to.
    pub(super) flash: Option<Flash>,
    /// The path and the query that were asked for.
    pub(super) path: String,
    pub(super) query: String,
    /// How people reach the server, for commands to copy.
    pub(super) base: String,
}

impl FromRequestParts<Shared> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, api: &Shared) -> Result<Self> {
        let page = find(&head.method, head.uri.path());
        let page =
            page.ok_or_else(|| Problem::new(Kind::Internal, "this page is not in the list of pages"))?;
        let session = api.session_of(&head.headers).await?;
        let session = session.ok_or_else(|| Problem::new(Kind::Unauthorized, "the session has ended"))?;
        let asked = head.extensions.get::<RequestContext>();
        if let Some(asked) = asked {
            asked.open.has_valid_key();
        }
        let visitor = Self::of(api, session, head, asked.map(|asked| asked.peer));
        match page.needs {
            Needs::Nothing | Needs::Session => {}
            Needs::Operation(name) => visitor.check(name)?,
            Needs::Admin if visitor.is_admin() => {}
            Needs::Admin => {
                return Err(Problem::new(
                    Kind::Forbidden,
                    "this needs a key for all tenants with the role admin",
                ));
            }
        }
        Ok(visitor)
    }
}

impl Visitor {
    fn of(api: &Api, session: Session, head: &Parts, peer: Option<IpAddr>) -> Self {
        let address = peer.map(|peer| client_address(peer, &head.headers, &api.trusted_proxies).to_string());
        let token = session.form_token();
        Self {
            actor: Actor { address, ..session.caller.actor() },
            caller: session.caller,
            place: session.place,
            token,
            theme: theme(&head.headers),
            has_shortcuts: cookie::read(&head.headers, cookie::SHORTCUTS) != Some("off"),
            flash: Flash::of(&head.headers),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or("").to_owned(),
            base: base(api, &head.headers),
        }
    }

    /// Whether the visitor may call an operation of the API: what it may not do is not shown.
    pub(super) fn may(&self, operation: &str) -> bool {
        self.check(operation).is_ok()
    }

    /// Whether the visitor may do anything, for all tenants.
    pub(super) fn is_admin(&self) -> bool {
        self.caller.role == Role::Admin && self.caller.tenant.is_none()
    }

    fn check(&self, operation: &str) -> Result<()> {
        match document().routes.access(operation) {
            Some(Access::Open) => Ok(()),
            Some(Access::Optional(needed) | Access::Key(needed)) => needed.check(&self.caller),
            None => Err(Problem::new(Kind::Internal, "a page names an operation that the API does not have")),
        }
    }
}

/// How people reach the server.
fn base(api: &Api, headers: &HeaderMap) -> String {
    if let Some(public) = &api.public_url {
        return public.origin().ascii_serialization();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1:7780");
    format!("http://{host}")
}

/// The theme that somebody chose.
pub(super) fn theme(headers: &HeaderMap) -> Option<&'static str> {
    let chosen = cookie::read(headers, cookie::THEME)?;
    ["light", "dark"].into_iter().find(|theme| *theme == chosen)
}

/// A form of a page that the visitor was shown: it holds the token of the session and comes from our own origin.
pub(super) struct Form {
    pub(super) visitor: Visitor,
    pub(super) fields: Fields,
    pub(super) headers: HeaderMap,
}

impl FromRequest<Shared> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Shared) -> Result<Self> {
        let (mut head, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut head, api).await?;
        check_origin(&head.headers, api.public_url.as_ref())?;
        let fields = Fields::read(body, api).await?;
        fields.check_token(&visitor.token)?;
        Ok(Self { visitor, fields, headers: head.headers })
    }
}

/// The fields of a form.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    #[cfg(test)]
    pub(super) const fn of(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    pub(super) async fn read(body: axum::body::Body, api: &Api) -> Result<Self> {
        let whole = tokio::time::timeout(api.body_timeout, Limited::new(body, LARGEST_FORM).collect()).await;
        let whole = whole.map_err(|_| Problem::new(Kind::Timeout, "the form was not complete in time"))?;
        let whole = whole.map_err(|_| Problem::new(Kind::TooLarge, "the form is too large or broke off"))?;
        let pairs = form_urlencoded::parse(&whole.to_bytes()).into_owned().collect();
        Ok(Self(pairs))
    }

    /// A field that is there and not empty, without spaces around it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// A field as it was typed.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// All of them, in the order of the form.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().cloned()
    }

    pub(super) fn check_token(&self, token: &str) -> Result<()> {
        let same = |given: &str| {
            aws_lc_rs::constant_time::verify_slices_are_equal(given.as_bytes(), token.as_bytes())
        };
        if self.get(TOKEN).is_some_and(|given| same(given).is_ok()) {
            return Ok(());
        }
        Err(Problem::new(Kind::Forbidden, "the form does not belong to this session: load the page again"))
    }
}

/// Refuses a form that another site sent.
pub(super) fn check_origin(headers: &HeaderMap, public: Option<&Url>) -> Result<()> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let (origin, host) = (text(ORIGIN), text(HOST));
    let origin = origin.and_then(|origin| Url::parse(origin).ok());
    let fits = match (&origin, host) {
        (Some(origin), Some(host)) => is_own(origin, host, public),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let detail = match public {
        None => {
            "the form was sent by another site; if a proxy stands before this server, server.public_url must \
                 say how people reach it"
                .to_owned()
        }
        Some(public) => {
            format!("the form was sent by another site than {public}, which server.public_url names")
        }
    };
    Err(Problem::new(Kind::Forbidden, detail))
}

fn is_own(origin: &Url, host: &str, public: Option<&Url>) -> bool {
    if public.is_some_and(|public| public.origin() == origin.origin()) {
        return true;
    }
    let named = origin.host_str().map(|name| match origin.port() {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    });
    let same = named.is_some_and(|named| named.eq_ignore_ascii_case(host));
    same && (public.is_none() || is_loopback(host))
}

/// Whether a `Host` names this machine itself.
fn is_loopback(host: &str) -> bool {
    let Ok(url) = Url::parse(&format!("http://{host}")) else { return false };
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Whether the browser will keep a cookie that is only for secure connections.
pub(super) fn is_secure(api: &Api, headers: &HeaderMap, peer: Option<IpAddr>) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let by_proxy = peer
        .is_some_and(|peer| api.trusted_proxies.iter().any(|subnet| subnet.contains(peer.to_canonical())));
    text("host").is_some_and(is_loopback)
        || api.public_url.as_ref().is_some_and(|url| url.scheme() == "https")
        || (by_proxy && text("x-forwarded-proto") == Some("https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_comes_from_the_site_itself() {
        let https: Url = "https://ph.example".parse().unwrap();
        for (origin, host, public, wanted) in [
            ("http://127.0.0.1:7780", "127.0.0.1:7780", None, true),
            ("https://ph.example", "ph.example", None, true),
            ("https://evil.example", "ph.example", None, false),
            ("http://127.0.0.1:7781", "127.0.0.1:7780", None, false),
            ("https://ph.example", "10.0.0.5:7780", Some(&https), true),
            ("http://ph.example", "ph.example", Some(&https), false),
            ("http://localhost:7780", "localhost:7780", Some(&https), true),
            ("https://evil.example", "evil.example", Some(&https), false),
        ] {
            let origin_url: Url = origin.parse().unwrap();
            assert_eq!(is_own(&origin_url, host, public), wanted, "{origin} {host} {public:?}");
        }
    }

    #[test]
    fn a_form_without_an_origin_is_refused() {
        let headers = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::from_iter([(HOST, http::HeaderValue::from_static("localhost:1"))]);
            headers.extend(origin.map(|origin| (ORIGIN, http::HeaderValue::from_static(origin))));
            headers
        };
        assert!(check_origin(&headers(Some("http://localhost:1")), None).is_ok());
        for bad in [None, Some("null"), Some("localhost:1"), Some("")] {
            assert_eq!(check_origin(&headers(bad), None).unwrap_err().kind, Kind::Forbidden, "{bad:?}");
        }
    }

    #[test]
    fn loopback_is_this_machine_and_nothing_else() {
        for host in ["127.0.0.1:7780", "127.9.9.9", "[::1]:80", "localhost", "a.localhost:1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example", "127.0.0.1.example", "", "["] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
