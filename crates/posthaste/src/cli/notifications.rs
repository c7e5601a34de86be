//! `posthaste notifications` and `posthaste retry-queue`.

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use posthaste_core::operation::Action;
use posthaste_core::series::Step;
use posthaste_core::view::ViewList;
use serde_json::Value;

use super::filter::{Filter, NotificationFilter, RetryFilter, TenantFilter};
use super::listing::{self, Column, Paging, Query, attempts, field, last_error, short};
use super::output::{Table, line};
use super::reach::ServerArgs;
use super::stats::bars;
use super::views::ViewFlag;
use super::{Exit, acts, detail, input, watch};

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
  posthaste notifications list --view 'failed today'
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
  posthaste notifications cancel ntf_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste notifications cancel ntf_01jrq3v9zk8n2m4p6r8t0w2y4a ntf_01jrq3v9zk8n2m4p6r8t0w2y4b";
const FAILED_EXAMPLES: &str = "\
Examples:
  posthaste notifications failed
  posthaste notifications failed --all --output json";
const RETRY_QUEUE_EXAMPLES: &str = "\
Examples:
  posthaste retry-queue
  posthaste retry-queue --limit 10
  posthaste retry-queue load";
const LOAD_EXAMPLES: &str = "\
Examples:
  posthaste retry-queue load
  posthaste retry-queue load --until 6h --step 5m";

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
    /// Make a scheduled retry due at once; several by one retry operation
    #[command(after_help = RETRY_NOW_EXAMPLES)]
    RetryNow(NotificationIds),
    /// Cancel one that has not ended; several by one retry operation
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
    #[command(flatten)]
    filter: NotificationFilter,
    #[command(flatten)]
    view: ViewFlag,
    #[command(flatten)]
    paging: Paging,
}

/// List notifications that wait for a retry, the soonest first
#[derive(Args)]
#[command(after_help = RETRY_QUEUE_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct RetryQueueArgs {
    #[command(subcommand)]
    over: Option<RetryQueueCommand>,
    #[command(flatten)]
    filter: RetryFilter,
    #[command(flatten)]
    view: ViewFlag,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Subcommand)]
enum RetryQueueCommand {
    /// Show how many retries are due when
    #[command(after_help = LOAD_EXAMPLES)]
    Load {
        #[command(flatten)]
        tenant: TenantFilter,
        /// Up to then: a time, or a duration such as 6h from now
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = input::future)]
        until: String,
        /// The distance between two points
        #[arg(long, default_value = "1m", value_parser = PossibleValuesParser::new(Step::ALL.map(Step::name)))]
        step: String,
    },
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
            let mut query = Query::default();
            args.filter.add_to(&mut query);
            args.view.add_to(&session, ViewList::Notifications, &mut query).await?;
            listing::print(&session, "/v1/notifications", &query, &args.paging, &COLUMNS).await
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
            acts::some(&session, "notifications", Action::RetryNow, &ids.ids).await
        }
        NotificationsCommand::Cancel(ids) => {
            acts::some(&session, "notifications", Action::Cancel, &ids.ids).await
        }
    }
}

pub(crate) async fn retry_queue(args: RetryQueueArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let mut query = Query::default();
    if let Some(RetryQueueCommand::Load { tenant, until, step }) = args.over {
        tenant.add_to(&mut query);
        query.set("until", Some(until));
        query.set("step", Some(step));
        let session = reach.open()?;
        let answer = session.get(&query.after("/v1/retry-queue/load")).await?;
        session.print(&answer, show_load)?;
        return Ok(Exit::Done);
    }
    args.filter.add_to(&mut query);
    let session = reach.open()?;
    args.view.add_to(&session, ViewList::RetryQueue, &mut query).await?;
    listing::print(&session, "/v1/retry-queue", &query, &args.paging, &COLUMNS).await
}

/// The steps that have retries, under a line of bars.
fn show_load(load: &Value) -> io::Result<()> {
    let none = vec![];
    let points = load["data"].as_array().unwrap_or(&none);
    let count = |point: &Value| point["count"].as_u64().unwrap_or(0);
    let counts: Vec<u64> = points.iter().map(count).collect();
    let most = if load["complete"] == false { " or more" } else { "" };
    line(&format!("retries due  {}  {}{most}", bars(&counts), counts.iter().sum::<u64>()))?;
    let busy: Vec<&Value> = points.iter().filter(|point| count(point) > 0).collect();
    if busy.is_empty() {
        return Ok(());
    }
    line("")?;
    let mut table = Table::new(&["AT", "COUNT"]);
    for point in busy {
        table.row([field(point, "at"), field(point, "count")]);
    }
    table.print()
}
