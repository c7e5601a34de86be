//! `posthaste notifications` and `posthaste retry-queue`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use posthaste_core::state::State;

use super::filter::{Filter, RetryFilter};
use super::listing::{self, Column, Paging, Query, attempts, field, last_error, short};
use super::reach::ServerArgs;
use super::{Exit, acts, detail, watch};

const EXAMPLES: &str = "\
Examples:
  posthaste notifications list --state deadLetter --since 1h
  posthaste notifications show ntf_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste notifications retry ntf_01jrq3v9zk8n2m4p6r8t0w2y4a";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste notifications list
  posthaste notifications list --state pending,retryScheduled --destination https://hooks.example.com/in
  posthaste notifications list --since 2026-04-15 --until 2026-04-16 --all
  posthaste notifications list -q order-17 --output json";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste notifications show ntf_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste notifications show ntf_01jrq3v9zk8n2m4p6r8t0w2y4a --watch";
const RETRY_EXAMPLES: &str = "\
Examples:
  posthaste notifications retry ntf_01jrq3v9zk8n2m4p6r8t0w2y4a";
const RETRY_NOW_EXAMPLES: &str = "\
Examples:
  posthaste notifications retry-now ntf_01jrq3v9zk8n2m4p6r8t0w2y4a";
const CANCEL_EXAMPLES: &str = "\
Examples:
  posthaste notifications cancel ntf_01jrq3v9zk8n2m4p6r8t0w2y4a";
const FAILED_EXAMPLES: &str = "\
Examples:
  posthaste notifications failed
  posthaste notifications failed --all --output json";
const RETRY_QUEUE_EXAMPLES: &str = "\
Examples:
  posthaste retry-queue
  posthaste retry-queue --limit 10";

const STATUSES: [&str; 7] = ["queued", "sending", "retrying", "delivered", "failed", "cancelled", "expired"];

/// List, show, retry and cancel notifications
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NotificationsArgs {
    #[command(subcommand)]
    act: NotificationsCommand,
}

#[derive(Subcommand)]
enum NotificationsCommand {
    /// List them, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(Box<ListArgs>),
    /// Show one with its attempts and events
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// The notification
        id: String,
        /// Watch until it ends, and print every change
        #[arg(long)]
        watch: bool,
    },
    /// Start a new run of attempts for a failed one; attempts keep counting
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(NotificationIds),
    /// Make a scheduled retry due at once
    #[command(after_help = RETRY_NOW_EXAMPLES)]
    RetryNow(NotificationIds),
    /// Cancel one that has not ended
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel(NotificationIds),
    /// List failed ones, with the reason
    #[command(after_help = FAILED_EXAMPLES)]
    Failed {
        #[command(flatten)]
        filter: Box<Filter>,
        #[command(flatten)]
        paging: Paging,
    },
}

#[derive(Args)]
struct NotificationIds {
    /// The notifications
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Args)]
struct ListArgs {
    /// In this state, or in one of these
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(State::ALL.map(State::name)))]
    state: Vec<String>,
    /// With this status, or one of these
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(STATUSES))]
    status: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    paging: Paging,
}

/// List notifications that wait for a retry, the soonest first
#[derive(Args)]
#[command(after_help = RETRY_QUEUE_EXAMPLES)]
pub(crate) struct RetryQueueArgs {
    #[command(flatten)]
    filter: RetryFilter,
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 11] = [
    ("ID", |row| field(row, "notificationId")),
    ("TENANT", |row| field(row, "tenant")),
    ("STATUS", watch::words),
    ("ATTEMPTS", attempts),
    ("CHANNEL", |row| field(row, "channel")),
    ("TO", |row| short(row, "to")),
    ("EVENT KEY", |row| short(row, "eventKey")),
    ("CREATED", |row| field(row, "createdAt")),
    ("NEXT ATTEMPT", |row| field(row, "nextAttemptAt")),
    ("CODE", |row| field(row, "reasonCode")),
    ("LAST ERROR", last_error),
];
const FAILED_COLUMNS: [Column; 6] = [
    ("ID", |row| field(row, "notificationId")),
    ("CHANNEL", |row| field(row, "channel")),
    ("ATTEMPTS", |row| field(row, "attempts")),
    ("FAILED", |row| field(row, "failedAt")),
    ("CODE", |row| field(row, "reasonCode")),
    ("REASON", |row| short(row, "reason")),
];

pub(crate) async fn run(args: NotificationsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        NotificationsCommand::List(args) => {
            listing::print(&session, "/v1/notifications", &query(&args), &args.paging, &COLUMNS).await
        }
        NotificationsCommand::Failed { filter, paging } => {
            let mut query = Query::default();
            filter.add_to(&mut query);
            listing::print(&session, "/v1/notifications/failed", &query, &paging, &FAILED_COLUMNS).await
        }
        NotificationsCommand::Show { id, watch: true } => watch::watch(&session, &id).await,
        NotificationsCommand::Show { id, watch: false } => {
            detail::print(&session, "notifications", &id).await
        }
        NotificationsCommand::Retry(ids) => acts::each(&session, "notifications", "retry", &ids.ids).await,
        NotificationsCommand::RetryNow(ids) => {
            acts::each(&session, "notifications", "retry-now", &ids.ids).await
        }
        NotificationsCommand::Cancel(ids) => acts::each(&session, "notifications", "cancel", &ids.ids).await,
    }
}

pub(crate) async fn retry_queue(args: RetryQueueArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let mut query = Query::default();
    args.filter.add_to(&mut query);
    listing::print(&reach.open()?, "/v1/retry-queue", &query, &args.paging, &COLUMNS).await
}

fn query(args: &ListArgs) -> Query {
    let mut query = Query::default();
    query.set_several("state", &args.state);
    query.set_several("status", &args.status);
    args.filter.add_to(&mut query);
    query
}
