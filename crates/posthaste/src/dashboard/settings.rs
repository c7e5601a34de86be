//! `/settings`: the configuration of the node that answers, and where each value came from.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde_json::Value;

use super::shell::Shell;
use super::visitor::Visitor;
use crate::config::SettingSource;
use crate::http::Shared;
use crate::http::extract::{Authenticated, NoQuery};
use crate::http::problem::Result;
use crate::http::settings::{self, SettingView};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    shell: Shell,
    settings: Vec<SettingView>,
    changed: usize,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let settings = settings::list(State(api.clone()), caller, NoQuery).await.0.data;
    let shell = Shell::of(&api, &visitor, "Settings", "/settings").await;
    let changed = settings.iter().filter(|one| is_set(one)).count();
    let page = SettingsPage { shell, settings, changed };
    Ok(page.shell.answer(&page))
}

fn is_set(one: &SettingView) -> bool {
    one.source != SettingSource::BuiltIn
}

/// A value as in the file, but for the quotes of a text.
fn shown(value: &Value) -> String {
    match value.as_str() {
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}
