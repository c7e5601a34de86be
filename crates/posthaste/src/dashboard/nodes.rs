//! `/nodes`: who is alive and what each holds.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::shell::Shell;
use super::show;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::{Authenticated, NoQuery};
use crate::http::nodes::{self, NodeView};
use crate::http::problem::Result;

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    shell: Shell,
    nodes: Vec<NodeView>,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let nodes = nodes::list(State(api.clone()), Authenticated(visitor.caller.clone()), NoQuery).await?.0.data;
    let page = NodesPage { shell: Shell::of(&api, &visitor, "Nodes", "/nodes").await, nodes };
    Ok(page.shell.answer(&page))
}
