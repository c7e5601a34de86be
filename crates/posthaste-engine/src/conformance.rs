//! One list of promises that every store keeps, and random operation sequences that compare two stores.
//!
//! A promise is given a fresh, empty store and says by `Err` what was expected and what was found, so that one run
//! tells everything that is broken. A new store is right when `broken_promises` finds nothing and `random::compare`
//! finds no difference to `ModelStore`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::store::{Store, StoreError};

mod acts;
mod destinations;
mod groups;
mod inbound;
mod jobs;
mod key_uses;
mod nodes;
mod operations;
mod queue;
pub mod random;
mod reads;
mod records;
mod retention;
mod scene;
mod series;
mod settings;
mod waking;

/// A sentence that is true of every store.
#[derive(Clone, Copy)]
pub struct Promise {
    /// The sentence.
    pub name: &'static str,
    /// Shows whether the given empty store keeps it.
    pub run: fn(Arc<dyn Store>) -> Showing,
}

/// A promise being shown.
pub type Showing = Pin<Box<dyn Future<Output = Kept> + Send>>;

/// Whether a promise was kept.
pub type Kept = Result<(), Broken>;

/// What was expected, and what was found instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<StoreError> for Broken {
    #[track_caller]
    fn from(error: StoreError) -> Self {
        Self::at_caller(format!("the store refused: {error}"))
    }
}

impl Broken {
    /// The text with the place in this suite that it comes from.
    #[track_caller]
    fn at_caller(text: impl fmt::Display) -> Self {
        let place = std::panic::Location::caller();
        let file = place.file().rsplit('/').next().unwrap_or_default();
        Self(format!("{file}:{}: {text}", place.line()))
    }
}

/// Lists functions as promises under their own names.
macro_rules! list {
    ($($name:ident),+ $(,)?) => {
        &[$($crate::conformance::Promise {
            name: stringify!($name),
            run: |store| Box::pin($name($crate::conformance::scene::Scene::new(store))),
        }),+]
    };
}
use list;

/// Every promise, by slice and subject.
const SLICES: &[&[&[Promise]]] = &[
    queue::SUBJECTS,
    &[nodes::PROMISES, waking::PROMISES],
    acts::SUBJECTS,
    &[settings::PROMISES, key_uses::PROMISES, records::PROMISES, jobs::PROMISES, series::PROMISES],
    &[retention::PROMISES, groups::PROMISES, destinations::PROMISES, inbound::PROMISES],
    operations::SUBJECTS,
    reads::SUBJECTS,
];

/// Every promise there is.
pub fn promises() -> impl Iterator<Item = Promise> {
    SLICES.iter().copied().flatten().copied().flatten().copied()
}

/// Shows every promise on a store of its own, and tells which were broken and how.
pub async fn broken_promises(make: impl Fn() -> Arc<dyn Store>) -> Vec<(&'static str, String)> {
    let mut broken = vec![];
    for promise in promises() {
        if let Err(how) = (promise.run)(make()).await {
            broken.push((promise.name, how.to_string()));
        }
    }
    broken
}

/// What was found is what was wanted.
#[track_caller]
fn same<F: PartialEq<W> + fmt::Debug, W: fmt::Debug>(what: &str, found: F, wanted: W) -> Kept {
    if found == wanted {
        return Ok(());
    }
    Err(Broken::at_caller(format!("{what}: expected {wanted:?}, found {found:?}")))
}

/// The store refused, and did not answer.
#[track_caller]
fn refused<T: fmt::Debug>(what: &str, answer: crate::store::Result<T>) -> Kept {
    match answer {
        Err(_) => Ok(()),
        Ok(answer) => Err(Broken::at_caller(format!("{what}: expected an error, found {answer:?}"))),
    }
}
