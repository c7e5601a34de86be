//! `pages`: how long the server takes for each page of the dashboard, with a million dead letters and a million notifications that
//! wait.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::header::{CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, ORIGIN, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use posthaste::client::{Client, encode};
use posthaste::clock::SystemClock;
use posthaste_engine::clock::Clock as _;
use serde_json::Value;
use tokio::time::Instant;

use super::Setting;
use super::fill::{FAR, Waiting};
use super::neighbour::sink;
use super::operation::make_dead_letters;
use super::server::Server;
use super::verdict::{Times, Verdict, shown};

const GOAL: Duration = Duration::from_millis(50);
/// How often each page is asked for.
const ROUNDS: usize = 20;

/// Pages whose address needs no id.
const PAGES: [&str; 21] = [
    "/",
    "/notifications",
    "/notifications?status=failed",
    "/notifications?status=delivered",
    "/notifications?q=nothing-has-this",
    "/retry-queue",
    "/dead-letters",
    "/dead-letters?status=all",
    "/dead-letters?statusCode=400",
    "/failure-groups",
    "/failure-groups?by=destination",
    "/retry-operations",
    "/destinations",
    "/destinations?all=true",
    "/tenants",
    "/settings",
    "/policies",
    "/jobs",
    "/audit",
    "/nodes",
    "/keys",
];

/// Measures every page as an admin sees it.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (rows, mut verdict) = (setting.size.unwrap_or(1_000_000), Verdict::default());
    let (place, receiver) = (setting.place().await?, sink(0).await?);
    let due = SystemClock.now().later(FAR);
    Waiting { tenant: "a", flows: 100, rows, due, to: "http://127.0.0.1:9/" }.write(&place)?;
    let server = setting.serve(&place).await?;
    let admin = server.admin()?;
    let begun = Instant::now();
    make_dead_letters(&admin, &receiver.url("/status/400"), rows).await?;
    eprintln!("  {rows} dead letters made in {:.0} s", begun.elapsed().as_secs_f64());
    let mut pages: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    let letters: Value = admin.get("/v1/dead-letters?limit=1").await?.json()?;
    for (list, id) in [("dead-letters", "id"), ("notifications", "notificationId")] {
        let id = letters["data"][0][id].as_str().context("there is no dead letter")?;
        pages.push(format!("/{list}/{id}"));
    }
    let visitor = Visitor::log_in(&server).await?;
    for page in pages {
        visitor.measure(&page, &mut verdict).await?;
    }
    Ok(verdict)
}

/// A browser without script that is logged in.
struct Visitor {
    client: Client,
    cookies: HeaderValue,
}

impl Visitor {
    async fn log_in(server: &Server) -> anyhow::Result<Self> {
        let client = Client::new(&server.0.url, None)?;
        let form = client.get("/login").await?;
        let page = String::from_utf8_lossy(&form.body).into_owned();
        let token = page.split_once("name=\"token\" value=\"").and_then(|(_, rest)| rest.split('"').next());
        let token = token.context("the login page has no token")?;
        let body = format!("token={}&key={}&to=%2F", encode(token), encode(&server.0.key));
        let headers = [
            (COOKIE, cookies(&form.headers)?),
            (ORIGIN, HeaderValue::from_str(&server.0.url)?),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
        ];
        let answer = client.send(Method::POST, "/login", &headers, body.into()).await?;
        ensure!(answer.status == StatusCode::SEE_OTHER, "the login answers {}", answer.status);
        Ok(Self { client, cookies: cookies(&answer.headers)? })
    }

    async fn measure(&self, page: &str, verdict: &mut Verdict) -> anyhow::Result<()> {
        let headers: [(HeaderName, HeaderValue); 1] = [(COOKIE, self.cookies.clone())];
        let (mut times, mut size) = (vec![], 0);
        for _ in 0..ROUNDS {
            let from = Instant::now();
            let answer = self.client.send(Method::GET, page, &headers, "".into()).await?;
            times.push(from.elapsed());
            ensure!(answer.status == StatusCode::OK, "{page} answers {}", answer.status);
            size = answer.body.len();
        }
        // The first look reads what no page has read yet.
        let cold = times.remove(0);
        // An id says nothing here.
        let page = if page.len() > 40 { &page[..page.rfind('/').map_or(0, |end| end + 1)] } else { page };
        verdict.note(format!("{page}: first look, bytes"), format!("{}, {size}", shown(cold)));
        verdict.below(page, &Times::of(times, vec![]), GOAL);
        Ok(())
    }
}

/// What a browser sends back of the cookies that it was given.
fn cookies(headers: &HeaderMap) -> anyhow::Result<HeaderValue> {
    let mut all = vec![];
    for cookie in headers.get_all(SET_COOKIE) {
        all.extend(cookie.to_str()?.split(';').next().map(str::to_owned));
    }
    Ok(HeaderValue::from_str(&all.join("; "))?)
}
