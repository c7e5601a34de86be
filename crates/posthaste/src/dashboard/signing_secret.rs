//! `/signing-secret`: the secret that signs a tenant's webhooks. It is shown on the page that answers a form, because each look
//! is in the audit, and a look is what somebody asked for.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::notification::Tenant;
use posthaste_engine::signing::SigningStanding;

use super::shell::Shell;
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::act::NoBody;
use crate::http::extract::{ActorOf, Authenticated};
use crate::http::problem::{Kind, Problem, Result};
use crate::http::query::Query;
use crate::http::signing_secret::{self, Secret, SecretView};

const PATH: &str = "/v1/signing-secret";

#[derive(Template)]
#[template(path = "signing-secret.html")]
struct SecretPage {
    shell: Shell,
    /// Whose; none if a visitor for all tenants has not said it yet.
    tenant: Option<String>,
    /// Whether the visitor may name any tenant.
    any_tenant: bool,
    /// None if the secret was not used yet.
    standing: Option<SigningStanding>,
    /// The secret, shown this once.
    secret: Option<SecretView>,
    problem: Option<Problem>,
}

impl SecretPage {
    async fn of(api: &Shared, visitor: &Visitor, tenant: Option<&str>) -> Self {
        let own = visitor.caller.tenant.as_ref().map(ToString::to_string);
        let any_tenant = own.is_none();
        let tenant = own.or_else(|| tenant.map(str::to_owned));
        let standing = standing(api, tenant.as_deref()).await;
        let (standing, problem) =
            standing.map_or_else(|problem| (None, Some(problem)), |found| (found, None));
        let shell = Shell::of(api, visitor, "Signing secret", "/signing-secret").await;
        Self { shell, tenant, any_tenant, standing, secret: None, problem }
    }
}

/// How the secret of a tenant stands, without it.
async fn standing(api: &Shared, tenant: Option<&str>) -> Result<Option<SigningStanding>> {
    let Some(tenant) = tenant else { return Ok(None) };
    let bad = |bad| Problem::parameter("tenant", format!("tenant: {bad}"));
    let tenant: Tenant = tenant.parse().map_err(bad)?;
    Ok(api.engine.signing_standing(&tenant).await?)
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut query = Query::parse("/signing-secret", &visitor.query)?;
    let tenant = query.take("tenant");
    query.finish()?;
    if let (Some(own), Some(named)) = (&visitor.caller.tenant, &tenant)
        && own.as_str() != named
    {
        return Err(Problem::new(Kind::Forbidden, "this key sees only its own tenant"));
    }
    let page = SecretPage::of(&api, &visitor, tenant.as_deref()).await;
    Ok(page.shell.answer(&page))
}

pub(super) async fn show(State(api): State<Shared>, form: Form) -> Result<Response> {
    let (caller, actor) = (Authenticated(form.visitor.caller.clone()), ActorOf(form.visitor.actor.clone()));
    let asked = query(&form)?;
    answered(&api, &form, signing_secret::show(State(api.clone()), caller, actor, asked).await).await
}

pub(super) async fn rotate(State(api): State<Shared>, form: Form) -> Result<Response> {
    let (caller, actor) = (Authenticated(form.visitor.caller.clone()), ActorOf(form.visitor.actor.clone()));
    let asked = query(&form)?;
    answered(
        &api,
        &form,
        signing_secret::rotate(State(api.clone()), caller, actor, asked, NoBody::NONE).await,
    )
    .await
}

/// The query of the API with the tenant of the form.
fn query(form: &Form) -> Result<Query> {
    let tenant = form.fields.get("tenant").map(|tenant| {
        let value: String = url::form_urlencoded::byte_serialize(tenant.as_bytes()).collect();
        format!("tenant={value}")
    });
    Query::parse(PATH, tenant.as_deref().unwrap_or(""))
}

async fn answered(api: &Shared, form: &Form, done: Result<Secret>) -> Result<Response> {
    let mut page = SecretPage::of(api, &form.visitor, form.fields.get("tenant")).await;
    let status = match done {
        Ok((_, Json(secret))) => {
            page.secret = Some(secret);
            StatusCode::OK
        }
        Err(problem) => {
            let (status, ..) = problem.kind.shown();
            page.problem = Some(problem);
            status
        }
    };
    Ok(page.shell.answer_with(status, &page))
}
