//! `posthaste man`: manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use clap_mangen::Man;

use super::Exit;

const EXAMPLES: &str = "\
Examples:
  posthaste man > /usr/local/share/man/man1/posthaste.1
  posthaste man --to /usr/local/share/man/man1";

/// Print the manual page, or write one for each command
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// The directory for the pages of all commands: posthaste.1, posthaste-serve.1 and so on
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<Exit> {
    let command = super::command();
    match &args.to {
        Some(directory) => write_all(command, "posthaste", directory)?,
        None => io::stdout().lock().write_all(&page(command)?)?,
    }
    Ok(Exit::Done)
}

/// The pages of a command and of those inside it.
fn write_all(command: clap::Command, name: &str, directory: &Path) -> anyhow::Result<()> {
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        write_all(inner.clone(), &format!("{name}-{}", inner.get_name()), directory)?;
    }
    let path = directory.join(format!("{name}.1"));
    let page = page(command.display_name(name.to_owned()))?;
    fs::write(&path, page).with_context(|| format!("{} cannot be written", path.display()))
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}
