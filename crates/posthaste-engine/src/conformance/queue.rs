//! The hot path: what is accepted, claimed, settled and buried, and the keys of repeated requests.

use super::Promise;

mod accepting;
mod burying;
mod claiming;
mod keys;
mod settling;

pub(super) const SUBJECTS: &[&[Promise]] =
    &[accepting::PROMISES, keys::PROMISES, claiming::PROMISES, settling::PROMISES, burying::PROMISES];
