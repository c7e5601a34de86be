//! `posthaste failure-groups`: pending dead letters by cause, destination, template, channel or tenant.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use posthaste_core::group::GroupBy;
use posthaste_core::view::ViewList;
use serde_json::{Value, json};

use super::filter::TenantFilter;
use super::listing::{self, Column, Paging, Query, field, short};
use super::output::{harmless, line};
use super::reach::ServerArgs;
use super::views::ViewFlag;
use super::{Exit, detail};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste failure-groups list
  posthaste failure-groups show grp_2tthczw8vgnv4tjy43e8xn4edg
  posthaste dead-letters list --group grp_2tthczw8vgnv4tjy43e8xn4edg";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste failure-groups list
  posthaste failure-groups list --by destination --tenant acme";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste failure-groups show grp_2tthczw8vgnv4tjy43e8xn4edg";
const NOTE_EXAMPLES: &str = "\
Examples:
  posthaste failure-groups note grp_2tthczw8vgnv4tjy43e8xn4edg 'the provider is down, ticket 4711'
  posthaste failure-groups note grp_2tthczw8vgnv4tjy43e8xn4edg ''";

/// Show what the pending dead letters have in common, and write notes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FailureGroupsArgs {
    #[command(subcommand)]
    act: FailureGroupsCommand,
}

#[derive(Subcommand)]
enum FailureGroupsCommand {
    /// List them, the largest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// What dead letters are grouped by; fingerprint by default
        #[arg(long, value_parser = PossibleValuesParser::new(GroupBy::ALL.map(GroupBy::name)))]
        by: Option<String>,
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        view: ViewFlag,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its hours and its note
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// The group
        id: String,
    },
    /// Write a note at a group; an empty text removes it
    #[command(after_help = NOTE_EXAMPLES)]
    Note {
        /// The group
        id: String,
        /// What to write
        text: String,
    },
}

const COLUMNS: [Column; 7] = [
    ("ID", |row| field(row, "id")),
    ("COUNT", |row| field(row, "count")),
    ("TITLE", |row| short(row, "title")),
    ("LAST 24 H", |row| last_day(row).to_string()),
    ("FIRST SEEN", |row| field(row, "firstSeen")),
    ("LAST SEEN", |row| field(row, "lastSeen")),
    ("NOTE", |row| short(&row["note"], "text")),
];

fn last_day(row: &Value) -> u64 {
    row["hours"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum()
}

pub(crate) async fn run(args: FailureGroupsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        FailureGroupsCommand::List { by, tenant, view, paging } => {
            let mut query = Query::default();
            query.set("by", by);
            tenant.add_to(&mut query);
            view.add_to(&session, ViewList::FailureGroups, &mut query).await?;
            listing::print(&session, "/v1/failure-groups", &query, &paging, &COLUMNS).await
        }
        FailureGroupsCommand::Show { id } => detail::print(&session, "failure-groups", &id).await,
        FailureGroupsCommand::Note { id, text } => {
            let path = format!("/v1/failure-groups/{}/note", encode(&id));
            let body = json!({"text": text}).to_string();
            let answer = session.call(Method::PUT, &path, &[], Some(body)).await?;
            session.print(&answer, |group| {
                let done = if group["note"].is_null() { "has no note" } else { "has a note" };
                line(&harmless(&format!("{id} {done}")))
            })?;
            Ok(Exit::Done)
        }
    }
}
