//! The `posthaste` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    posthaste::cli::main()
}
