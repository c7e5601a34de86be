//! `posthaste completions`: scripts for shell completion.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use clap_complete::Shell as Kind;

use super::Exit;

const EXAMPLES: &str = "\
Examples:
  posthaste completions bash > ~/.local/share/bash-completion/completions/posthaste
  posthaste completions zsh > ~/.zfunc/_posthaste
  posthaste completions fish > ~/.config/fish/completions/posthaste.fish";

/// Print a script with which a shell completes commands and flags
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

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let kind = match args.shell {
        Shell::Bash => Kind::Bash,
        Shell::Zsh => Kind::Zsh,
        Shell::Fish => Kind::Fish,
    };
    // Into memory first, because the generator panics if the output is closed.
    let mut script = Vec::new();
    clap_complete::generate(kind, &mut super::command(), "posthaste", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}
