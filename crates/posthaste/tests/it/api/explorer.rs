//! `/docs`: every file that the page asks for is there, and nothing comes from elsewhere.

use aws_lc_rs::digest::{SHA256, digest};
use http::{HeaderMap, Method, StatusCode};
use posthaste::client::Client;
use posthaste::http::docs::{CSP, FILES};

use super::running::{Running, StoreKind, Told};

const PAGE: &str = include_str!("../../../assets/docs/index.html");
const SCRIPT: &str = include_str!("../../../assets/docs/explorer.js");
const NOTE: &str = include_str!("../../../assets/docs/README.md");

/// What a page names in `src` and `href`, but for `data:`.
fn named(page: &str) -> Vec<&str> {
    let parts = page.split('"').collect::<Vec<_>>();
    let pairs = parts.windows(2).filter(|pair| pair[0].ends_with("src=") || pair[0].ends_with("href="));
    pairs.map(|pair| pair[1]).filter(|target| !target.starts_with("data:")).collect()
}

async fn ask(running: &Running, method: Method, path: &str, headers: &[(&str, &str)]) -> Told {
    running.caller(None).ask(method, path, headers, "").await
}

/// An answer with its status.
trait With {
    fn with(self, status: u16) -> Self;
}

impl With for Told {
    fn with(self, status: u16) -> Self {
        self.is(status);
        self
    }
}

fn has_usual_headers(headers: &HeaderMap) {
    assert_eq!(headers["content-security-policy"], CSP);
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-cache");
    assert_eq!(headers["vary"], "accept-encoding");
    assert!(headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn every_file_that_the_page_asks_for_is_answered_without_a_key() {
    let running = Running::start(StoreKind::Sqlite).await;
    let page = ask(&running, Method::GET, "/docs", &[]).await.with(200);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    has_usual_headers(&page.headers);
    let text = String::from_utf8(page.bytes.to_vec()).unwrap();
    assert_eq!(text, PAGE);
    let wanted = named(&text);
    assert!(wanted.contains(&"docs/swagger-ui-bundle.js") && wanted.len() >= 5, "{wanted:?}");
    // Relative to /docs, as a browser resolves it.
    for target in wanted.into_iter().chain(["openapi.json"]) {
        let told = ask(&running, Method::GET, &format!("/{target}"), &[]).await.with(200);
        assert!(!told.bytes.is_empty(), "{target}");
        if target.starts_with("docs/") {
            has_usual_headers(&told.headers);
        }
    }
    assert!(SCRIPT.contains("url: \"openapi.json\""), "the page shows the description of this server");
    ask(&running, Method::GET, "/docs/nothing.js", &[]).await.problem(404, "not-found");
    ask(&running, Method::GET, "/docs/..%2fREADME.md", &[]).await.problem(404, "not-found");
    ask(&running, Method::POST, "/docs", &[]).await.problem(405, "METHOD_NOT_ALLOWED");
    running.stop().await;
}

#[tokio::test]
async fn files_come_packed_to_those_who_accept_it_and_are_asked_for_once() {
    let running = Running::start(StoreKind::Sqlite).await;
    for file in &FILES {
        let path = format!("/docs/{}", file.name);
        let plain = ask(&running, Method::GET, &path, &[]).await.with(200);
        assert_eq!((&plain.bytes[..], plain.headers.get("content-encoding")), (&*file.content(), None));
        let packed = ask(&running, Method::GET, &path, &[("accept-encoding", "br, gzip")]).await.with(200);
        let is_packed = packed.headers.get("content-encoding").is_some();
        assert_eq!(is_packed, packed.bytes.len() < plain.bytes.len(), "{path}");
        assert_eq!(is_packed, packed.headers["etag"] != plain.headers["etag"], "{path}");
        let head = ask(&running, Method::HEAD, &path, &[]).await.with(200);
        assert_eq!(head.headers["content-length"], plain.bytes.len().to_string());
        assert!(head.bytes.is_empty(), "{path}");
        let tag = plain.headers["etag"].to_str().unwrap();
        let again = ask(&running, Method::GET, &path, &[("if-none-match", tag)]).await.with(304);
        assert!(again.bytes.is_empty() && again.headers["etag"] == tag, "{path}");
        ask(&running, Method::GET, &path, &[("if-none-match", "\"other\"")]).await.with(200);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_slash_too_many_leads_to_the_page() {
    let running = Running::start(StoreKind::Sqlite).await;
    let told =
        Client::new(&format!("http://{}", running.address()), None).unwrap().get("/docs/").await.unwrap();
    assert_eq!(
        (told.status, &told.headers["location"]),
        (StatusCode::PERMANENT_REDIRECT, &"../docs".parse().unwrap())
    );
    running.stop().await;
}

#[test]
fn nothing_is_loaded_from_another_host_and_nothing_is_inline() {
    for text in [PAGE, SCRIPT, include_str!("../../../assets/docs/explorer.css")] {
        assert!(!text.contains("//") || text.lines().all(|line| !line.contains("://")), "{text}");
    }
    for target in named(PAGE) {
        assert!(!target.contains(':') && !target.starts_with("//"), "{target}");
    }
    for tag in PAGE.split("<script").skip(1) {
        assert!(tag.starts_with(" src=") && tag.contains("></script>"), "an inline script: {tag}");
    }
    assert!(!PAGE.contains("<style") && !PAGE.contains("style=") && !PAGE.contains("onload"));
    // What the bundle itself may load is up to the browser, by these words.
    for part in CSP.split("; ") {
        let sources: Vec<&str> = part.split(' ').skip(1).collect();
        let fine = sources.iter().all(|one| ["'none'", "'self'", "data:"].contains(one));
        assert!(fine && (!sources.contains(&"data:") || part.starts_with("img-src")), "{part}");
    }
    assert!(CSP.starts_with("default-src 'none';"));
    let styles = FILES.iter().find(|file| file.name == "swagger-ui.css").unwrap().content();
    let styles = String::from_utf8(styles.into_owned()).unwrap();
    assert!(!styles.contains("@import"));
    for url in styles.split("url(").skip(1) {
        assert!(url.trim_start_matches('"').starts_with("data:"), "{}", &url[..40]);
    }
}

#[test]
fn the_vendored_files_are_those_of_the_note() {
    for name in ["swagger-ui-bundle.js", "swagger-ui.css"] {
        let file = FILES.iter().find(|file| file.name == name).unwrap();
        let sum: String =
            digest(&SHA256, &file.content()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(NOTE.contains(&format!("| SHA-256 of `{name}` | {sum} |")), "{name}: {sum}");
    }
}
