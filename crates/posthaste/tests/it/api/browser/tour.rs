//! A tour of the dashboard: every page that links lead to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use http::Method;
use posthaste::dashboard::PAGES;
use serde_json::json;

use super::Scene;

/// Addresses of this site that the page links to.
const LINKS: &str = "return [...document.querySelectorAll('a[href]')] \
    .filter((link) => link.origin === location.origin) \
    .map((link) => link.pathname + link.search)";

/// The page that an address leads to, by its route.
fn route_of(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap();
    let fits = |route: &str| {
        let (route, path): (Vec<_>, Vec<_>) = (route.split('/').collect(), path.split('/').collect());
        route.len() == path.len()
            && route.iter().zip(&path).all(|(part, given)| part == given || part.starts_with('{'))
    };
    let mut fitting: Vec<&str> = pages().filter(|route| fits(route)).collect();
    // A path without braces wins over one with them.
    fitting.sort_by_key(|route| route.matches('{').count());
    fitting.first().copied()
}

/// Every page, by its route.
pub(super) fn pages() -> impl Iterator<Item = &'static str> {
    let pages = PAGES.iter().filter(|page| page.method == Method::GET && page.path != "/assets/{file}");
    pages.map(|page| page.path)
}

impl Scene {
    /// Opens `also`, every page without an id, and what they link to, at most `most` addresses of a route; looks at each. Returns
    /// how often each route was seen, and fails if one was not.
    pub(super) async fn tour(
        &self,
        also: &[String],
        most: usize,
        mut look: impl AsyncFnMut(&str, &'static str),
    ) -> BTreeMap<&'static str, usize> {
        let mut ahead: VecDeque<String> = also.iter().cloned().collect();
        ahead.extend(pages().filter(|page| !page.contains('{')).map(str::to_owned));
        let named: BTreeSet<String> = ahead.iter().cloned().collect();
        let (mut met, mut seen) = (BTreeSet::new(), BTreeMap::new());
        while let Some(path) = ahead.pop_front() {
            let Some(route) = route_of(&path) else { continue };
            let count: &mut usize = seen.entry(route).or_default();
            if !met.insert(path.clone()) || (*count >= most && !named.contains(&path)) {
                continue;
            }
            *count += 1;
            self.open(&path).await;
            look(&path, route).await;
            let links = self.browser.script(LINKS, json!([])).await;
            ahead.extend(links.as_array().unwrap().iter().map(|link| link.as_str().unwrap().to_owned()));
        }
        let missed: Vec<&str> = pages().filter(|page| !seen.contains_key(page)).collect();
        assert!(missed.is_empty(), "no link leads to {missed:?}: make something that has such a page");
        seen
    }
}
