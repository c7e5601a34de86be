//! `posthaste migrate`: the migrations of the store's schema.

use clap::{Args, Subcommand};
use posthaste_store::schema::Step;
use posthaste_store::sqlite::vacuum::Rewritten;
use serde_json::{Value, json};

use super::output::{Output, Table, json as print_json, line};
use super::settings::StoreArgs;
use super::{Exit, WrongUse};
use crate::config::StoreUrl;
use crate::wiring::store;

const EXAMPLES: &str = "\
Examples:
  posthaste migrate status
  posthaste migrate status --store postgres://posthaste@db.example.com/posthaste --output json
  posthaste migrate up --config /etc/posthaste/posthaste.toml
  posthaste migrate vacuum --store sqlite:///var/lib/posthaste/posthaste.db

A server takes missing steps when it starts, unless store.migrate = false.
Exit codes: 0 up to date, 1 not (steps are missing, or this program does not know the schema), 2 wrong use";

/// Show the schema of the store, or bring it up to date
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: Migrate,
}

#[derive(Subcommand)]
enum Migrate {
    /// List the steps, which of them were taken, and whether this program can run on the store; changes
    /// nothing
    #[command(after_help = EXAMPLES)]
    Status(StoreArgs),
    /// Take the steps that are missing
    #[command(after_help = EXAMPLES)]
    Up(StoreArgs),
    /// Rewrite an SQLite file without its free space, while no server uses it
    #[command(after_help = EXAMPLES)]
    Vacuum(StoreArgs),
}

pub(crate) async fn run(args: MigrateArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        Migrate::Status(args) => status(args, output).await,
        Migrate::Up(args) => up(args, output).await,
        Migrate::Vacuum(args) => vacuum(args, output),
    }
}

async fn status(args: StoreArgs, output: Output) -> anyhow::Result<Exit> {
    let config = args.load()?.store;
    let schema = store::schema(&config).await?;
    let problem = schema.refused.map(|refused| format!("{:#}", anyhow::Error::new(refused)));
    match output {
        Output::Json => {
            let steps: Vec<Value> = schema.steps.iter().map(shown).collect();
            let shown = json!({
                "store": config.url.to_string(), "inOrder": problem.is_none(), "problem": problem, "steps": steps,
            });
            print_json(shown.to_string().as_bytes())?;
        }
        Output::Table => {
            let mut table = Table::new(&["STEP", "NAME", "TAKEN"]);
            for step in &schema.steps {
                let taken = match step.applied_at {
                    Some(at) => at.to_string(),
                    None => if step.applied { "yes" } else { "no" }.to_owned(),
                };
                table.row([step.version.to_string(), step.name.clone(), taken]);
            }
            table.print()?;
            line(problem.as_deref().unwrap_or("in order: this program can run on it"))?;
        }
    }
    Ok(if problem.is_none() { Exit::Done } else { Exit::Failed })
}

async fn up(args: StoreArgs, output: Output) -> anyhow::Result<Exit> {
    let config = args.load()?.store;
    let taken = store::migrate(&config).await?;
    match output {
        Output::Json => {
            let taken: Vec<Value> = taken.iter().map(shown).collect();
            print_json(json!({"store": config.url.to_string(), "taken": taken}).to_string().as_bytes())?;
        }
        Output::Table => {
            for step in &taken {
                line(&format!("took step {}, {}", step.version, step.name))?;
            }
            if taken.is_empty() {
                line("in order: there was no step to take")?;
            }
        }
    }
    Ok(Exit::Done)
}

fn vacuum(args: StoreArgs, output: Output) -> anyhow::Result<Exit> {
    let config = args.load()?.store;
    let StoreUrl::Sqlite(file) = &config.url else {
        let text = "migrate vacuum is for SQLite files: PostgreSQL makes the space of removed rows usable again by itself";
        return Err(WrongUse(text.to_owned()).into());
    };
    let Rewritten { before, after } = store::vacuum(file)?;
    match output {
        Output::Json => {
            let shown = json!({"store": config.url.to_string(), "bytesBefore": before, "bytesAfter": after});
            print_json(shown.to_string().as_bytes())?;
        }
        Output::Table => line(&format!("rewritten: {before} bytes before, {after} bytes after"))?,
    }
    Ok(Exit::Done)
}

fn shown(step: &Step) -> Value {
    let applied_at = step.applied_at.map(|at| at.to_string());
    json!({"version": step.version, "name": step.name, "applied": step.applied, "appliedAt": applied_at})
}
