//! `posthaste dead-letters`: notifications that are no longer retried automatically.

use clap::{Args, Subcommand, ValueEnum};

use super::filter::Filter;
use super::listing::{self, Column, Paging, Query, field, short};
use super::reach::ServerArgs;
use super::{Exit, acts, detail};

const EXAMPLES: &str = "\
Examples:
  posthaste dead-letters list
  posthaste dead-letters show dl_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste dead-letters requeue dl_01jrq3v9zk8n2m4p6r8t0w2y4a dl_01jrq3v9zk8n2m4p6r8t0w2y4b";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters list
  posthaste dead-letters list --status requeued --since 1d
  posthaste dead-letters list --all --output json";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters show dl_01jrq3v9zk8n2m4p6r8t0w2y4a";
const REQUEUE_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters requeue dl_01jrq3v9zk8n2m4p6r8t0w2y4a";
const DISCARD_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters discard dl_01jrq3v9zk8n2m4p6r8t0w2y4a";
const RESTORE_EXAMPLES: &str = "\
Examples:
  posthaste dead-letters restore dl_01jrq3v9zk8n2m4p6r8t0w2y4a";

/// List, show, requeue, discard and restore dead letters
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
        /// Only with this status, or one of these
        #[arg(long, value_enum, value_delimiter = ',', default_value = "pending")]
        status: Vec<Status>,
        #[command(flatten)]
        filter: Box<Filter>,
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
    Requeue(DeadLetterIds),
    /// Give them up
    #[command(after_help = DISCARD_EXAMPLES)]
    Discard(DeadLetterIds),
    /// Turn discarded ones into dead letters again
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(DeadLetterIds),
}

#[derive(Args)]
struct DeadLetterIds {
    /// The dead letters
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
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
        DeadLettersCommand::List { status, filter, paging } => {
            let mut query = Query::default();
            let names = status.iter().filter_map(ValueEnum::to_possible_value);
            query.set_several("status", &names.map(|name| name.get_name().to_owned()).collect::<Vec<_>>());
            filter.add_to(&mut query);
            listing::print(&session, "/v1/dead-letters", &query, &paging, &COLUMNS).await
        }
        DeadLettersCommand::Show { id } => detail::print(&session, "dead-letters", &id).await,
        DeadLettersCommand::Requeue(ids) => acts::each(&session, "dead-letters", "requeue", &ids.ids).await,
        DeadLettersCommand::Discard(ids) => acts::each(&session, "dead-letters", "discard", &ids.ids).await,
        DeadLettersCommand::Restore(ids) => acts::each(&session, "dead-letters", "restore", &ids.ids).await,
    }
}
