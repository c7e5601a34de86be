//! Bugs in the built program that a test switches on by a variable. Not compiled into releases.

use posthaste_engine::engine::Settings;
use posthaste_engine::planted;
use posthaste_store::sqlite::{Options, Planted};

/// The name of the bug: `loop` makes a loop of the engine panic, `writer` the writer thread of SQLite.
const VARIABLE: &str = "POSTHASTE_PLANTED";

pub(super) fn in_engine(settings: &mut Settings) {
    settings.planted = is("loop").then_some(planted::Planted::PanicAtAccept);
}

pub(super) fn in_file(options: Options) -> Options {
    Options { planted: is("writer").then_some(Planted::WriterPanics), ..options }
}

fn is(name: &str) -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == name)
}
