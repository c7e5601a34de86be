//! `posthaste dead-letters`: notifications that are no longer retried automatically.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use posthaste_core::operation::Action;
use posthaste_core::view::ViewList;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use super::filter::Filter;
use super::listing::{self, Column, Paging, Query, field, short};
use super::output::{Output, harmless, json as print_json, line};
use super::reach::{ServerArgs, Session};
use super::send::{Fields, idempotency};
use super::views::ViewFlag;
use super::{Exit, WrongUse, acts, detail, retry_operations, watch};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste dead-letters list
  posthaste dead-letters show dl_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste dead-letters requeue dl_01jrq3v9zk8n2m4p6r8t0w2y4a dl_01jrq3v9zk8n2m4p6r8t0w2y4b";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters list
  posthaste dead-letters list --status requeued --since 1d
  posthaste dead-letters list --group grp_2tthczw8vgnv4tjy43e8xn4edg
  posthaste dead-letters list --all --output json";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters show dl_01jrq3v9zk8n2m4p6r8t0w2y4a";
const REQUEUE_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters requeue dl_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste dead-letters requeue dl_01jrq3v9zk8n2m4p6r8t0w2y4a dl_01jrq3v9zk8n2m4p6r8t0w2y4b
  posthaste dead-letters requeue --reason-code MAX_ATTEMPTS_EXCEEDED --since 1d";
const DISCARD_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters discard dl_01jrq3v9zk8n2m4p6r8t0w2y4a";
const EDIT_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters edit-and-retry dl_01jrq3v9zk8n2m4p6r8t0w2y4a --to https://hooks.example.com/orders
  posthaste dead-letters edit-and-retry dl_01jrq3v9zk8n2m4p6r8t0w2y4a --json @order.json --remove subject,headers.X-Shop
  posthaste dead-letters edit-and-retry dl_01jrq3v9zk8n2m4p6r8t0w2y4a --ttl 1d --watch

Prints the id of the new notification. What is not given stays as it was.
Exit codes: 0 done, 1 failed, 2 wrong use";
const RESTORE_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters restore dl_01jrq3v9zk8n2m4p6r8t0w2y4a";

/// List, show, requeue, edit, discard and restore dead letters
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeadLettersArgs {
    #[command(subcommand)]
    act: DeadLettersCommand,
}

#[derive(Subcommand)]
enum DeadLettersCommand {
    /// List them, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Only with this status, or one of these; pending by default
        #[arg(long, value_enum, value_delimiter = ',')]
        status: Vec<Status>,
        /// In this failure group
        #[arg(long, value_name = "ID")]
        group: Option<String>,
        #[command(flatten)]
        filter: Box<Filter>,
        #[command(flatten)]
        view: ViewFlag,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its payload and attempts
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// The dead letter
        id: String,
    },
    /// Send them again with a new run of attempts, numbered from 1
    #[command(after_help = REQUEUE_EXAMPLES)]
    Requeue(Box<Several>),
    /// Give them up
    #[command(after_help = DISCARD_EXAMPLES)]
    Discard(Box<Several>),
    /// Send an edited copy in place of one
    #[command(after_help = EDIT_EXAMPLES)]
    EditAndRetry(Box<EditArgs>),
    /// Turn discarded ones into dead letters again, and bring deleted ones back as they were
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Box<Several>),
}

/// Which dead letters are meant: by their ids, or by filters.
#[derive(Args)]
struct Several {
    /// The dead letters, several by one retry operation; without ids, all that the filters match
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
}

impl Several {
    async fn act(&self, session: &Session, action: Action) -> anyhow::Result<Exit> {
        let mut query = Query::default();
        self.filter.add_to(&mut query);
        match (self.ids.is_empty(), query.is_empty()) {
            (false, true) => acts::some(session, "dead-letters", action, &self.ids).await,
            (true, false) => retry_operations::on_filter(session, action, &query).await,
            (false, false) => Err(WrongUse("give ids or filters, not both".to_owned()).into()),
            (true, true) => {
                let text = "say which: ids, or filters such as --since 1d; for all of them use \
                            `posthaste retry-operations start --all`";
                Err(WrongUse(text.to_owned()).into())
            }
        }
    }
}

#[derive(Args)]
struct EditArgs {
    /// The dead letter
    id: String,
    #[command(flatten)]
    fields: Fields,
    /// Leave this field out of the copy, as the API calls it; `headers.NAME` for one header. May be repeated
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    remove: Vec<String>,
    /// Send it only once, even if this is repeated: the same key gives the same notification
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Watch the copy until it ends, and print every change
    #[arg(long)]
    watch: bool,
}

impl EditArgs {
    fn body(&self) -> anyhow::Result<String> {
        let mut fields = self.fields.json()?;
        for name in &self.remove {
            if let Some(header) = name.strip_prefix("headers.") {
                let given = fields.remove("headers");
                let mut headers: Map<String, Value> =
                    given.map_or(Ok(Map::new()), |given| serde_json::from_str(given.get()))?;
                headers.insert(header.to_owned(), Value::Null);
                fields.insert("headers", to_raw_value(&headers)?);
            } else if fields.contains_key(name.as_str()) {
                return Err(WrongUse(format!("--remove {name}: the field is given as well")).into());
            } else {
                fields.insert(name, to_raw_value(&Value::Null)?);
            }
        }
        if fields.is_empty() {
            let text = "say what to change, or use `posthaste dead-letters requeue` to send it as it is";
            return Err(WrongUse(text.to_owned()).into());
        }
        Ok(serde_json::to_string(&fields)?)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    /// No act yet
    Pending,
    /// Sent again
    Requeued,
    /// Discarded or replaced
    #[value(alias = "cancelled")]
    Discarded,
    /// Removed from the lists, and not yet for good
    Deleted,
    /// All but those that are deleted
    All,
}

const COLUMNS: [Column; 11] = [
    ("ID", |row| field(row, "id")),
    ("NOTIFICATION", |row| field(row, "notificationId")),
    ("TENANT", |row| field(row, "tenant")),
    ("STATUS", |row| field(row, "status")),
    ("ATTEMPTS", |row| row["attempts"].as_array().map_or(0, Vec::len).to_string()),
    ("CHANNEL", |row| field(row, "channel")),
    ("RECIPIENT", |row| short(row, "recipient")),
    ("EVENT KEY", |row| short(row, "eventKey")),
    ("DIED", |row| field(row, "createdAt")),
    ("CODE", |row| field(row, "reasonCode")),
    ("REASON", |row| short(row, "reason")),
];

pub(crate) async fn run(args: DeadLettersArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        DeadLettersCommand::List { status, group, filter, view, paging } => {
            let mut query = Query::default();
            let names = status.iter().filter_map(ValueEnum::to_possible_value);
            query.set_several("status", &names.map(|name| name.get_name().to_owned()).collect::<Vec<_>>());
            query.set("group", group.as_ref());
            filter.add_to(&mut query);
            view.add_to(&session, ViewList::DeadLetters, &mut query).await?;
            listing::print(&session, "/v1/dead-letters", &query, &paging, &COLUMNS).await
        }
        DeadLettersCommand::Show { id } => detail::print(&session, "dead-letters", &id).await,
        DeadLettersCommand::Requeue(which) => which.act(&session, Action::Requeue).await,
        DeadLettersCommand::Discard(which) => which.act(&session, Action::Discard).await,
        DeadLettersCommand::EditAndRetry(args) => edit_and_retry(&session, &args).await,
        DeadLettersCommand::Restore(which) => which.act(&session, Action::Restore).await,
    }
}

async fn edit_and_retry(session: &Session, args: &EditArgs) -> anyhow::Result<Exit> {
    let headers = args.idempotency_key.as_deref().map(idempotency).transpose()?;
    let path = format!("/v1/dead-letters/{}/edit-and-retry", encode(&args.id));
    let answer = session.try_call(Method::POST, &path, headers.as_slice(), Some(args.body()?)).await?;
    let answer = answer.ok().map_err(|problem| session.refused(&problem))?;
    let copy = field(&session.value(&answer)?, "notificationId");
    match session.output {
        Output::Table => line(&harmless(&copy))?,
        Output::Json if !args.watch => print_json(&answer.body)?,
        Output::Json => {}
    }
    if args.watch { watch::watch(session, &copy).await } else { Ok(Exit::Done) }
}
