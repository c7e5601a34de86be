//! The dashboard in a real browser: Debian's chromium, driven over WebDriver by our own HTTP client.
//!
//! Every test ends by [`Scene::end`]: nothing was asked of another host, no dialog opened, no script failed and nothing was tried that
//! the content security policy forbids.

mod charts;
mod driver;
mod hostile;
mod incident;
mod keyboard;
mod live;
mod looks;
mod server;
mod story;
mod tour;
mod views;
mod visitors;

use posthaste::config::Config;
use serde_json::json;

use self::driver::Driver;
use super::running::{ADMIN, Running, StoreKind};

/// A running Posthaste and a browser.
struct Scene {
    running: Running,
    browser: Driver,
    origin: String,
}

impl Scene {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// One with other settings.
    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let running = Running::with(StoreKind::Sqlite, change).await;
        let origin = format!("http://{}", running.address());
        Self { browser: Driver::start().await, running, origin }
    }

    /// One whose browser is logged in with a key for everything.
    async fn of_admin() -> Self {
        let scene = Self::start().await;
        scene.log_in(ADMIN).await;
        scene
    }

    async fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.origin)).await;
        self.browser.is_painted().await;
    }

    async fn log_in(&self, key: &str) {
        self.open("/login").await;
        self.browser.type_into("#key", key).await;
        self.browser.press("Sign in").await;
        self.browser.wait_for("nav.side", "Overview").await;
    }

    /// Opens a page again and again until an element of it has a text in it, as a person does who waits for news.
    async fn reads(&self, path: &str, selector: &str, text: &str) {
        let script =
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent).join('\\n')";
        self.open(path).await;
        self.browser
            .until(&format!("{selector} of {path} does not say {text:?}"), async || {
                let found = self.browser.script(script, json!([selector])).await;
                if found.as_str().unwrap().contains(text) {
                    return Ok(());
                }
                self.browser.reload().await;
                Err(found)
            })
            .await;
    }

    async fn end(self) {
        self.end_after(&[]).await;
    }

    /// Ends it. Complaints of the browser that have one of these texts in them were meant to be.
    async fn end_after(self, meant: &[&str]) {
        let heard = self.browser.heard().await;
        let own = format!("{}/", self.origin);
        let is_own = |address: &String| address.starts_with(&own) || address.starts_with("about:");
        assert!(heard.addresses.len() > 5 && heard.addresses.iter().all(is_own), "{:#?}", heard.addresses);
        assert!(heard.dialogs.is_empty(), "{:#?}", heard.dialogs);
        let is_meant = |complaint: &String| meant.iter().any(|text| complaint.contains(text));
        let complaints: Vec<&String> = heard.complaints.iter().filter(|one| !is_meant(one)).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        // Before the server: a page says when it is no longer live.
        self.browser.quit().await;
        self.running.stop().await;
    }
}
