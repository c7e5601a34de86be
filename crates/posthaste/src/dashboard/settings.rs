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
use crate::http::master_key::{self, MasterKeyView};
use crate::http::problem::Result;
use crate::http::settings::{self, SettingView};
use crate::master_key::HOW_TO_SET;

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    shell: Shell,
    settings: Vec<SettingView>,
    changed: usize,
    /// Whether secrets are sealed, and under which key.
    secrets: String,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let settings = settings::list(State(api.clone()), caller, NoQuery).await.0.data;
    let caller = Authenticated(visitor.caller.clone());
    let secrets = secrets(&master_key::get(State(api.clone()), caller, NoQuery).await?.0);
    let shell = Shell::of(&api, &visitor, "Settings", "/settings").await;
    let changed = settings.iter().filter(|one| is_set(one)).count();
    let page = SettingsPage { shell, settings, changed, secrets };
    Ok(page.shell.answer(&page))
}

fn secrets(key: &MasterKeyView) -> String {
    let Some(name) = key.in_force else {
        return format!(
            "There is no master key, so headers such as authorization are stored as they are. To have them sealed: {HOW_TO_SET}."
        );
    };
    if !key.sealing {
        return format!(
            "Nothing is sealed yet: a live node does not know the master key {name}, or is of an older version."
        );
    }
    let file = key
        .file
        .as_ref()
        .map_or_else(String::new, |file| format!(" It is in {file}; a backup needs that file as well."));
    format!("Secrets in the store are sealed under the master key {name}.{file}")
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
