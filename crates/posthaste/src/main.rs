//! The `posthaste` program.

use std::process::ExitCode;

/// A notification is made of many small texts that one thread makes and another lets go; docs/performance.md has the
/// measurement.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    posthaste::cli::main()
}
