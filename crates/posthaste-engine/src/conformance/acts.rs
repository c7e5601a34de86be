//! Acts: which fit which state, and what each of them does.

use super::Promise;

mod acting;
mod replacing;
mod table;

pub(super) const SUBJECTS: &[&[Promise]] = &[table::PROMISES, acting::PROMISES, replacing::PROMISES];
