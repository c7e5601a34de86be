//! Lists and counters.

use super::Promise;

pub(super) use self::counting::recount;

mod counting;
mod lists;

pub(super) const SUBJECTS: &[&[Promise]] = &[lists::PROMISES, counting::PROMISES];
