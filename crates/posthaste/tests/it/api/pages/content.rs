//! What pages show: everything escaped, filters as the API takes them, problems at their place.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use http::Method;
use posthaste::dashboard::{FILES, PAGES};
use serde_json::json;

use super::super::running::{ADMIN, Running, StoreKind, quick};
use super::{Browser, is_safe};

const NOTE: &str = include_str!("../../../../assets/dashboard/README.md");

/// What must never reach a page as it is.
const EVIL: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>";

#[tokio::test]
async fn what_senders_and_receivers_say_is_escaped_everywhere() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut sent = json!({
        "channel": "webhook", "to": running.sink.url("/status/400/%3Cscript%3Ealert(3)"),
        "subject": EVIL, "eventKey": EVIL, "correlationId": EVIL, "module": EVIL,
        "body": {EVIL: EVIL, "list": [EVIL]}, "metadata": {EVIL: EVIL},
        "headers": {"x-evil": EVIL}, "policy": quick(1),
    });
    let dead = running.admin.send_until(&sent, "deadLetter").await;
    sent["body"] = json!(EVIL);
    sent["to"] = json!(running.sink.url("/status/503"));
    sent["policy"] = json!({"strategy": "fixed", "initialDelay": "1h", "maxAttempts": 3, "quick": {"tries": 1, "delay": "1ms"}});
    let waits = running.admin.send_until(&sent, "retryScheduled").await;
    running.admin.post("/v1/keys", &json!({"name": EVIL, "tenant": "a", "role": "reader"})).await.is(201);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let destination = blocked(&running).await;
    // What a receiver said is kept as it said it.
    let said = EVIL.replace('\'', "''");
    let change =
        format!("update attempt set error = '{said}', response = '{said}', response_type = '{said}'");
    running.change_store(&change).await;
    let mut pages: Vec<String> = PAGES
        .iter()
        .filter(|page| page.method == Method::GET && !page.path.contains('{'))
        .map(|page| page.path.to_owned())
        .collect();
    pages.push(format!("/notifications/{}", text(&dead["notificationId"])));
    pages.push(format!("/notifications/{}", text(&waits["notificationId"])));
    pages.push(format!("/dead-letters/{}", text(&dead["deadLetterId"])));
    pages.push(format!("/destinations/{destination}"));
    let evil: String = url::form_urlencoded::byte_serialize(EVIL.as_bytes()).collect();
    for list in ["notifications", "dead-letters", "retry-queue", "audit", "stream"] {
        pages.push(format!("/{list}?q={evil}"));
        pages.push(format!("/{list}?{evil}={evil}"));
        pages.push(format!("/{list}?since={evil}&cursor={evil}"));
    }
    pages.push(format!("/login?to={evil}&once={evil}"));
    pages.push(format!("/failure-groups?by={evil}&tenant={evil}"));
    pages.push(format!("/retry-operations/new?q={evil}"));
    pages.push(format!("/retry-operations/new?q={evil}&{evil}={evil}&action={evil}&rate={evil}"));
    pages.push(format!("/retry-operations/new?ids={evil}"));
    pages.push(format!("/policies/{evil}"));
    pages.push(format!("/destinations?name={evil}&all={evil}&{evil}={evil}"));
    pages.push(format!(
        "/policies/global/simulate?script={evil}&rate={evil}&channel={evil}&most={evil}&atOnce={evil}"
    ));
    pages.push(format!("/policies/global/simulate?script={evil}&rate=5"));
    pages.push(format!("/policies/{evil}/simulate"));
    pages.push(format!("/jobs/{evil}/runs"));
    let mut browser = Browser::with(&running, ADMIN).await;
    let mut escaped = BTreeMap::new();
    for path in pages {
        let shown = browser.get(&path).await;
        assert!(!shown.status.is_server_error() && !shown.status.is_redirection(), "{path}: {shown:?}");
        for raw in ["<script>alert", "<img src=x", "\"'><"] {
            assert!(!shown.text.contains(raw), "{path}: {}", shown.text);
        }
        is_safe(&Lenient::of(shown, &path, &mut escaped));
    }
    // The test can fail: what is evil was on the pages, escaped.
    for path in ["/notifications", "/dead-letters", "/retry-queue", "/keys", "/destinations"] {
        assert!(escaped[path] > 0, "{path} shows nothing evil: {escaped:?}");
    }
    assert!(
        escaped
            .iter()
            .filter(|(path, _)| path.contains("ntf_") || path.contains("dl_"))
            .all(|(_, count)| *count > 5),
        "{escaped:?}"
    );
    running.stop().await;
}

/// The id of a destination that is blocked for a reason that somebody typed.
async fn blocked(running: &Running) -> String {
    let listed = running.admin.get("/v1/destinations?all=true").await;
    let id = listed["data"][0]["id"].as_str().unwrap().to_owned();
    let reason = json!({"reason": EVIL});
    running.admin.post(&format!("/v1/destinations/{id}/block"), &reason).await.is(200);
    id
}

/// A page whose escaped texts are taken out, so that words such as `onerror=` in them are not taken for attributes.
struct Lenient;

impl Lenient {
    fn of(mut shown: super::Shown, path: &str, escaped: &mut BTreeMap<String, usize>) -> super::Shown {
        let count = ["&lt;img src=x onerror=alert(2)&gt;", "&#60;img src=x onerror=alert(2)&#62;"]
            .iter()
            .map(|form| {
                let found = shown.text.matches(form).count();
                shown.text = shown.text.replace(form, "");
                found
            })
            .sum();
        escaped.insert(path.to_owned(), count);
        shown
    }
}

#[tokio::test]
async fn what_is_typed_into_the_filter_becomes_the_address() {
    let running = Running::start(StoreKind::Sqlite).await;
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    let mut browser = Browser::with(&running, ADMIN).await;
    let typed = browser.get("/notifications?status=delivered&f=channel%3Dwebhook+127.0.0.1").await;
    typed.is(303);
    assert_eq!(typed.to(), "/notifications?status=delivered&channel=webhook&q=127.0.0.1");
    let page = browser.get(typed.to()).await.page();
    assert!(
        page.contains("posthaste notifications list --status delivered --channel webhook --search 127.0.0.1"),
        "{page}"
    );
    assert!(
        page.contains("/v1/notifications?status=delivered&#38;channel=webhook&#38;q=127.0.0.1"),
        "{page}"
    );
    assert!(page.contains(">1 rows"), "{page}");
    // A mistake is said where it was made, in the words of the API.
    for (wrong, words) in [
        ("nonsense=1", "is unknown"),
        ("limit=501", "from 1 to 500"),
        ("since=soon", "since"),
        ("cursor=00", "start again"),
    ] {
        let shown = browser.get(&format!("/notifications?{wrong}")).await;
        shown.is(422);
        assert!(
            shown.text.contains("The filter is not right") && shown.text.contains(words),
            "{wrong}: {}",
            shown.text
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn a_list_goes_on_where_its_page_ends() {
    let running = Running::start(StoreKind::Sqlite).await;
    for _ in 0..3 {
        running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    }
    let ids: Vec<String> = running
        .admin
        .all("/v1/notifications")
        .await
        .iter()
        .map(|row| row["notificationId"].as_str().unwrap().to_owned())
        .collect();
    let mut browser = Browser::with(&running, ADMIN).await;
    // The cursor of the API is that of the page.
    let first = running.admin.get("/v1/notifications?limit=2").await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let page = browser.get(&format!("/notifications?limit=2&cursor={cursor}")).await.page();
    assert!(
        page.contains(&ids[2]) && !page.contains(&ids[0]) && page.contains("Back to the start"),
        "{page}"
    );
    let page = browser.get("/notifications?limit=2").await.page();
    assert!(page.contains(&ids[0]) && !page.contains(&ids[2]) && page.contains("Next page"), "{page}");
    running.stop().await;
}

#[tokio::test]
async fn an_address_that_is_not_there_is_said_in_words() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    for path in [
        "/notifications/ntf_nothing",
        "/dead-letters/x",
        "/jobs/none/runs",
        "/policies/nonsense",
        "/failure-groups/grp_x",
        "/failure-groups/grp_2tthczw8vgnv4tjy43e8xn4edg",
        "/retry-operations/op_x",
    ] {
        let shown = browser.get(path).await;
        shown.is(404);
        assert!(
            shown.text.contains("There is no such thing") && shown.headers.contains_key("x-request-id"),
            "{shown:?}"
        );
        is_safe(&shown);
    }
    let origin = browser.origin.clone();
    let wrong = browser.ask(Method::POST, "/notifications", &[("origin", &origin)], String::new()).await;
    wrong.is(405);
    assert_eq!(wrong.headers["allow"], "GET, HEAD");
    // Elsewhere the API answers as ever.
    let elsewhere = browser.get("/nothing/here").await;
    assert_eq!(
        (elsewhere.status.as_u16(), elsewhere.headers["content-type"].to_str().unwrap()),
        (404, "application/problem+json")
    );
    running.stop().await;
}

#[tokio::test]
async fn style_sheets_and_scripts_keep_to_their_budget_and_are_asked_for_once() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::new(running.address());
    let login = browser.get("/login").await.page();
    for file in &FILES {
        let path = format!("/assets/{}", file.name);
        let plain = browser.get(&path).await;
        plain.is(200);
        assert!(plain.headers["cache-control"].to_str().unwrap().contains("immutable"));
        let packed = browser.ask(Method::GET, &path, &[("accept-encoding", "gzip")], String::new()).await;
        assert_eq!(packed.headers["content-encoding"], "gzip");
        let tag = packed.headers["etag"].to_str().unwrap();
        let again = browser
            .ask(Method::GET, &path, &[("accept-encoding", "gzip"), ("if-none-match", tag)], String::new())
            .await;
        again.is(304);
        if ["tokens.css", "app.css"].contains(&file.name) {
            assert!(login.contains(&format!("{path}?v={}", &file.sum()[..12])), "{login}");
        }
    }
    let size = |names: &[&str]| -> (usize, usize) {
        let chosen = FILES.iter().filter(|file| names.contains(&file.name));
        chosen.fold((0, 0), |(plain, packed), file| {
            (plain + file.content().len(), packed + file.in_gzip().len())
        })
    };
    let css = size(&["tokens.css", "app.css"]);
    assert!(css.0 <= 25_000 && css.1 <= 7_500, "{css:?}");
    assert!(size(&["app.js", "tail.js", "chart.js"]).1 <= 8_000 && size(&["htmx.min.js"]).1 <= 16_000);
    assert!(size(&["uplot.min.js"]).1 <= 22_000 && size(&["chart.css"]).0 <= 1_500);
    browser.get("/assets/nothing.css").await.is(404);
    running.stop().await;
}

#[test]
fn the_vendored_scripts_are_those_of_the_note() {
    for name in ["htmx.min.js", "uplot.min.js"] {
        let file = FILES.iter().find(|file| file.name == name).unwrap();
        let sum: String =
            digest(&SHA256, &file.content()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(NOTE.contains(&format!("| SHA-256 of `{name}` | {sum} |")), "{name} {sum}");
    }
}
