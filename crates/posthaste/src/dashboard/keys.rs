//! `/keys`: keys are made, rotated and revoked. A secret is shown once, on the page that answers the form.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::id::KeyId;
use posthaste_core::role::Role;
use serde_json::json;

use super::acts::again;
use super::flash::Flash;
use super::shell::Shell;
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::act::Optional;
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, Id, NoQuery};
use crate::http::keys::{self, KeyView, Rotation};
use crate::http::problem::{Problem, Result};

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    shell: Shell,
    keys: Vec<KeyView>,
    may_make: bool,
    /// The visitor's own tenant, for which alone it makes keys.
    tenant: Option<String>,
    /// A secret that is shown this once, and what it is of.
    made: Option<(String, String)>,
    problem: Option<Problem>,
    /// What was typed, so that a mistake need not be typed again.
    typed: Typed,
}

#[derive(Default)]
struct Typed {
    name: String,
    tenant: String,
    expires: String,
}

impl KeysPage {
    async fn of(api: &Shared, visitor: &Visitor) -> Result<Self> {
        let keys =
            keys::list(State(api.clone()), Authenticated(visitor.caller.clone()), NoQuery).await?.0.data;
        Ok(Self {
            shell: Shell::of(api, visitor, "Keys", "/keys").await,
            keys,
            may_make: visitor.may("createKey"),
            tenant: visitor.caller.tenant.as_ref().map(ToString::to_string),
            made: None,
            problem: None,
            typed: Typed::default(),
        })
    }
}

/// What a key may do, for people.
fn role_words(role: &Option<Role>) -> &'static str {
    role.map_or("sender and operator", Role::name)
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let page = KeysPage::of(&api, &visitor).await?;
    Ok(page.shell.answer(&page))
}

pub(super) async fn create(State(api): State<Shared>, form: Form) -> Result<Response> {
    let (visitor, fields) = (&form.visitor, &form.fields);
    let text = |name: &str| fields.get(name).unwrap_or_default().to_owned();
    let mut wanted = json!({"name": text("name"), "tenant": text("tenant")});
    for name in ["role", "expiresAt"] {
        if let Some(value) = fields.get(name) {
            wanted[name] = json!(value);
        }
    }
    let body = Text::of(&api, &visitor.caller, &wanted)?;
    let caller = Authenticated(visitor.caller.clone());
    let made = keys::create(State(api.clone()), caller, ActorOf(visitor.actor.clone()), NoQuery, body).await;
    let mut page = KeysPage::of(&api, visitor).await?;
    match made {
        Ok((status, Json(made))) => {
            page.made = Some((made.name, made.key));
            Ok(page.shell.answer_with(status, &page))
        }
        Err(problem) => {
            let (status, ..) = problem.kind.shown();
            page.typed = Typed { name: text("name"), tenant: text("tenant"), expires: text("expiresAt") };
            page.problem = Some(problem);
            Ok(page.shell.answer_with(status, &page))
        }
    }
}

pub(super) async fn rotate(State(api): State<Shared>, Id(id): Id<KeyId>, form: Form) -> Result<Response> {
    let visitor = &form.visitor;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let rotation = Optional(Rotation::default());
    match keys::rotate(State(api.clone()), caller, actor, NoQuery, Id(id), rotation).await {
        Ok(Json(made)) => {
            let mut page = KeysPage::of(&api, visitor).await?;
            page.made = Some((made.name, made.key));
            Ok(page.shell.answer_with(StatusCode::OK, &page))
        }
        Err(problem) => Ok(again(&form, Err(problem), "/keys")),
    }
}

pub(super) async fn revoke(State(api): State<Shared>, Id(id): Id<KeyId>, form: Form) -> Response {
    let visitor = &form.visitor;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let done = keys::revoke(State(api), caller, actor, NoQuery, Id(id)).await;
    again(&form, done.map(|_| Flash::done("Revoked. Its sessions have ended, too.")), "/keys")
}
