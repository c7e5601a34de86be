//! The command line: one file per command, and what they share.
//!
//! The commands of operators use the HTTP API (`reach.rs`). `dev`, `serve`, `sink` and `bench` run something.
//! `migrate`, `backup` and `doctor` open the store itself (`settings.rs`). Exit codes: 0 done, 1 failed, 2
//! wrong use.

mod acts;
mod audit;
mod backup;
mod bench;
mod completions;
mod dead_letters;
mod destinations;
mod detail;
mod dev;
mod doctor;
mod failure;
mod failure_groups;
mod filter;
mod input;
mod jobs;
mod keys;
mod listing;
mod man;
mod migrate;
mod nodes;
mod notifications;
mod output;
mod policy;
mod reach;
mod retry_operations;
mod send;
mod serve;
mod server_settings;
mod settings;
mod signing_secret;
mod sink;
mod stats;
mod tail;
mod tenants;
mod views;
mod watch;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::reach::ServerArgs;
use crate::config::ConfigError;

const EXAMPLES: &str = "\
Examples:
  posthaste dev                                        everything on this machine, to try it
  posthaste send --to http://127.0.0.1:7790/sequence/503,503,200 --json '{\"order\": 1}' --watch
  posthaste notifications list --state deadLetter
  posthaste dead-letters requeue dl_01jrq3v9zk8n2m4p6r8t0w2y4a

Exit codes: 0 done, 1 failed, 2 wrong use";

/// Delivers notifications: accepts them, retries temporary failures, keeps what cannot be delivered.
#[derive(Parser)]
#[command(name = "posthaste", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    reach: ServerArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Dev(dev::DevArgs),
    Serve(serve::ServeArgs),
    Send(Box<send::SendArgs>),
    Sink(sink::SinkArgs),
    Notifications(notifications::NotificationsArgs),
    DeadLetters(dead_letters::DeadLettersArgs),
    FailureGroups(failure_groups::FailureGroupsArgs),
    RetryOperations(retry_operations::RetryOperationsArgs),
    RetryQueue(notifications::RetryQueueArgs),
    Destinations(destinations::DestinationsArgs),
    Views(views::ViewsArgs),
    Stats(stats::StatsArgs),
    Tail(Box<tail::TailArgs>),
    Audit(audit::AuditArgs),
    Policy(policy::PolicyArgs),
    Keys(keys::KeysArgs),
    SigningSecret(signing_secret::SigningSecretArgs),
    Tenants(tenants::TenantsArgs),
    Jobs(jobs::JobsArgs),
    Nodes(nodes::NodesArgs),
    Settings(server_settings::SettingsArgs),
    Doctor(doctor::DoctorArgs),
    Migrate(migrate::MigrateArgs),
    Backup(backup::BackupArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// The result of a command that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The command has printed why.
    Failed,
}

/// A usage error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUse(pub(crate) String);

/// All commands with their flags.
pub fn command() -> clap::Command {
    let mut built = Cli::command();
    built.build();
    with_short_usage(Cli::command(), &mut built)
}

/// Sets the usage line of each command to what its help shows. Otherwise clap adds every flag that has a value to the
/// usage line of an error, also those that come from the environment.
fn with_short_usage(command: clap::Command, built: &mut clap::Command) -> clap::Command {
    let usage = built.render_usage().to_string();
    let own = usage.strip_prefix("Usage: ").unwrap_or(&usage).trim().to_owned();
    command.override_usage(own).mut_subcommands(|inner| match built.find_subcommand_mut(inner.get_name()) {
        Some(built) => with_short_usage(inner, built),
        None => inner,
    })
}

pub fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            failure::print_usage(&error);
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let output = cli.reach.output;
    match run(cli) {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::from(1),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failure::print(&error, output);
            ExitCode::from(if is_wrong_use(&error) { 2 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let reach = cli.reach;
    match cli.command {
        Command::Dev(args) => dev::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Bench(args) => bench::run(args, reach.output),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Backup(args) => backup::run(args, reach.output),
        Command::Migrate(args) => block_on(migrate::run(args, reach.output)),
        Command::Sink(args) => block_on(sink::run(args)),
        Command::Send(args) => block_on(send::run(*args, &reach)),
        Command::Notifications(args) => block_on(notifications::run(args, &reach)),
        Command::DeadLetters(args) => block_on(dead_letters::run(args, &reach)),
        Command::RetryOperations(args) => block_on(retry_operations::run(args, &reach)),
        Command::RetryQueue(args) => block_on(notifications::retry_queue(args, &reach)),
        Command::Destinations(args) => block_on(destinations::run(args, &reach)),
        Command::Views(args) => block_on(views::run(args, &reach)),
        Command::Stats(args) => block_on(stats::run(args, &reach)),
        Command::Tail(args) => block_on(tail::run(*args, &reach)),
        Command::Audit(args) => block_on(audit::run(args, &reach)),
        Command::Policy(args) => block_on(policy::run(args, &reach)),
        Command::Keys(args) => block_on(keys::run(args, &reach)),
        Command::SigningSecret(args) => block_on(signing_secret::run(args, &reach)),
        Command::Tenants(args) => block_on(tenants::run(args, &reach)),
        Command::FailureGroups(args) => block_on(failure_groups::run(args, &reach)),
        Command::Jobs(args) => block_on(jobs::run(args, &reach)),
        Command::Nodes(args) => block_on(nodes::run(args, &reach)),
        Command::Settings(args) => block_on(server_settings::run(args, &reach)),
        Command::Doctor(args) => block_on(doctor::run(args, &reach)),
    }
}

/// Runs a command that only waits for others, on this thread.
fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(command);
    // A DNS lookup may still block a thread.
    runtime.shutdown_background();
    outcome
}

/// Whether the command line is wrong.
fn is_wrong_use(error: &anyhow::Error) -> bool {
    error.is::<WrongUse>() || error.downcast_ref::<ConfigError>().is_some_and(ConfigError::is_wrong_use)
}

/// Whether the reader of our output is gone, as `head` is once it has its lines. That is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
