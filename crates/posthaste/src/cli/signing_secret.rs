//! `posthaste signing-secret`: the secret that signs a tenant's webhooks.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::Exit;
use super::listing::field;
use super::output::{harmless, line, note};
use super::reach::{ServerArgs, Session};
use crate::client::{ClientResponse, encode};

const EXAMPLES: &str = "\
Examples:
  posthaste signing-secret show
  posthaste signing-secret rotate --tenant acme

Webhooks are signed by Standard Webhooks; docs/receivers.md shows how a receiver verifies them.
Needs a key with the role admin. Each look at the secret is in the audit.";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste signing-secret show
  posthaste signing-secret show --tenant acme

Only the secret is on stdout. The first call makes it, if no webhook did.";
const ROTATE_EXAMPLES: &str = "\
Examples:
  posthaste signing-secret rotate
  posthaste signing-secret rotate --tenant acme

The old secret signs, too, for 24 hours: give the new one to your receivers within that time. At most three secrets sign
at a time, so a third rotation within 24 hours ends the oldest one at once.";

/// Show or rotate the secret that signs a tenant's webhooks
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SigningSecretArgs {
    #[command(subcommand)]
    act: SigningSecretCommand,
}

#[derive(Subcommand)]
enum SigningSecretCommand {
    /// Print it
    #[command(after_help = SHOW_EXAMPLES)]
    Show(Whose),
    /// Replace it by a new one and print that, with time to change over
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(Whose),
}

#[derive(Args)]
struct Whose {
    /// Whose; needed with a key for all tenants
    #[arg(long)]
    tenant: Option<String>,
}

impl Whose {
    fn path(&self, path: &str) -> String {
        match &self.tenant {
            Some(tenant) => format!("{path}?tenant={}", encode(tenant)),
            None => path.to_owned(),
        }
    }
}

pub(crate) async fn run(args: SigningSecretArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let answer = match args.act {
        SigningSecretCommand::Show(whose) => session.get(&whose.path("/v1/signing-secret")).await?,
        SigningSecretCommand::Rotate(whose) => session.act(&whose.path("/v1/signing-secret/rotate")).await?,
    };
    print(&session, &answer)
}

fn print(session: &Session, answer: &ClientResponse) -> anyhow::Result<Exit> {
    session.print(answer, |secret: &Value| {
        // Only the secret is on stdout, for scripts.
        line(&harmless(&field(secret, "secret")))?;
        let old = match secret["previous"]["expiresAt"].as_str() {
            Some(until) => format!("; the one before it signs, too, until {}", harmless(until)),
            None => String::new(),
        };
        note(&format!("made {}{old}", harmless(&field(secret, "createdAt"))));
        Ok(())
    })?;
    Ok(Exit::Done)
}
