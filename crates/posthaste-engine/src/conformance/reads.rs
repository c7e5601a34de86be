//! Lists and counters.

use super::Promise;

pub(super) use self::counting::recount;

mod audit;
mod counting;
mod lists;

pub(super) const SUBJECTS: &[&[Promise]] = &[lists::PROMISES, audit::PROMISES, counting::PROMISES];
