//! `posthaste views`: filters of lists that people gave names, and the flag `--view` of the lists.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use posthaste_core::view::ViewList;
use serde_json::json;
use url::form_urlencoded;

use super::listing::{self, Column, Query, field, short};
use super::output::{Output, harmless, json as print_json, line};
use super::reach::{ServerArgs, Session};
use super::{Exit, WrongUse};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste views list
  posthaste views save 'failed today' --list notifications --query 'status=failed&since=1d'
  posthaste notifications list --view 'failed today'
  posthaste views delete 'failed today'

The views of a tenant are seen with each of its keys; keys for all tenants have their own.";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste views list
  posthaste views list --list dead-letters --output json";
const SAVE_EXAMPLES: &str = "\
Examples:
  posthaste views save 'failed today' --list notifications --query 'status=failed&since=1d'
  posthaste views save timeouts --list dead-letters --query 'failureType=timeout' --private

The query is what stands after `?` in the address of the list. A duration in it counts from when the view is used.";
const DELETE_EXAMPLES: &str = "\
Examples:
  posthaste views delete 'failed today'";

/// List, save and delete filters of lists
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ViewsArgs {
    #[command(subcommand)]
    act: ViewsCommand,
}

#[derive(Subcommand)]
enum ViewsCommand {
    /// List them
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Only those of this list
        #[arg(long, value_parser = lists())]
        list: Option<String>,
    },
    /// Save one, in place of the one of its name
    #[command(after_help = SAVE_EXAMPLES)]
    Save {
        /// Its name
        name: String,
        /// The list that it shows
        #[arg(long, value_parser = lists())]
        list: String,
        /// The filter, as it stands in the address of the list
        #[arg(long)]
        query: String,
        /// Only for this key, and for admins
        #[arg(long)]
        private: bool,
    },
    /// Delete one
    #[command(after_help = DELETE_EXAMPLES)]
    Delete {
        /// Its name
        name: String,
    },
}

fn lists() -> PossibleValuesParser {
    PossibleValuesParser::new(ViewList::ALL.map(ViewList::name))
}

/// The flag with which a list shows a view.
#[derive(Args)]
pub(crate) struct ViewFlag {
    /// With the filter of this saved view; other flags come before it
    #[arg(long, value_name = "NAME")]
    view: Option<String>,
}

impl ViewFlag {
    /// Adds the conditions of the view that are not given otherwise.
    pub(crate) async fn add_to(
        &self,
        session: &Session,
        list: ViewList,
        query: &mut Query,
    ) -> anyhow::Result<()> {
        let Some(name) = &self.view else { return Ok(()) };
        let answer = session.get(&path(name)).await?;
        let view = session.value(&answer)?;
        if view["list"] != list.name() {
            let text =
                format!("the view `{name}` is of the list {}, not of {}", field(&view, "list"), list.name());
            return Err(WrongUse(text).into());
        }
        for (name, value) in form_urlencoded::parse(field(&view, "query").as_bytes()) {
            query.set_if_free(&name, &value);
        }
        Ok(())
    }
}

fn path(name: &str) -> String {
    format!("/v1/views/{}", encode(name))
}

const COLUMNS: [Column; 6] = [
    ("NAME", |row| short(row, "name")),
    ("LIST", |row| field(row, "list")),
    ("QUERY", |row| short(row, "query")),
    ("SHARED", |row| field(row, "shared")),
    ("SAVED", |row| field(row, "at")),
    ("BY", |row| short(row, "by")),
];

pub(crate) async fn run(args: ViewsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        ViewsCommand::List { list } => {
            let mut query = Query::default();
            query.set("list", list);
            listing::print_whole(&session, &query.after("/v1/views"), &COLUMNS).await
        }
        ViewsCommand::Save { name, list, query, private } => {
            let body = json!({"list": list, "query": query, "shared": !private}).to_string();
            let answer = session.call(Method::PUT, &path(&name), &[], Some(body)).await?;
            session.print(&answer, |_| line(&harmless(&format!("{name} is saved"))))?;
            Ok(Exit::Done)
        }
        ViewsCommand::Delete { name } => {
            session.call(Method::DELETE, &path(&name), &[], None).await?;
            match session.output {
                Output::Table => line(&harmless(&format!("{name} is deleted")))?,
                Output::Json => print_json(json!({"name": name, "deleted": true}).to_string().as_bytes())?,
            }
            Ok(Exit::Done)
        }
    }
}
