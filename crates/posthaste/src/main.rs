//! The `posthaste` program.

use std::process::ExitCode;

/// A notification is made of many small strings that one thread allocates and another frees; docs/performance.md
/// has the measurement.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    posthaste::cli::main()
}
