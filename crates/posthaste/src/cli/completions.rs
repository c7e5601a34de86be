//! `posthaste completions`: what a shell needs to complete commands and flags.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use clap_complete::Shell as Kind;

use super::Outcome;

const EXAMPLES: &str = "\
Examples:
  posthaste completions bash > ~/.local/share/bash-completion/completions/posthaste
  posthaste completions zsh > ~/.zfunc/_posthaste
  posthaste completions fish > ~/.config/fish/completions/posthaste.fish";

/// Print what a shell needs to complete commands and flags
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints them.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let kind = match args.shell {
        Shell::Bash => Kind::Bash,
        Shell::Zsh => Kind::Zsh,
        Shell::Fish => Kind::Fish,
    };
    // Into memory first: the generator panics on an output that is closed.
    let mut script = Vec::new();
    clap_complete::generate(kind, &mut super::command(), "posthaste", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Outcome::Done)
}
