//! Which files are the bench's own. In any other there may be notifications of somebody, which a server would deliver.

use std::path::Path;

use anyhow::{Context as _, bail};
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::{Audit, StoredSettings};
use posthaste_store::sqlite::{Options, SqliteStore};

use crate::clock::SystemClock;

/// The setting that marks a store of the bench.
const MARK: &str = "bench";

/// Makes a marked store where there is no file, and answers whether there was one. A file without the mark is refused.
pub(super) async fn claim(path: &Path) -> anyhow::Result<bool> {
    let was_there = path.try_exists().with_context(|| format!("{} cannot be looked at", path.display()))?;
    let place = std::path::absolute(path)?;
    let place = place.parent().context("--store names no file")?;
    if !place.is_dir() {
        bail!("{} cannot be written to: there is no such directory", place.display());
    }
    let store = SqliteStore::open(path, Options::default())
        .with_context(|| format!("{} cannot be opened as a store of the bench", path.display()))?;
    let is_own = store.settings(None).await?.is_some_and(|settings| settings.values.contains_key(MARK));
    if was_there && !is_own {
        bail!(
            "{} was not made by the bench: what waits in it would be delivered. Name a file that is not there, or one that \
             the bench made",
            path.display()
        );
    }
    if !is_own {
        let audit = Audit {
            key_id: None,
            address: None,
            tenant: None,
            actor: Audit::ITSELF.to_owned(),
            action: "bench".to_owned(),
            target: MARK.to_owned(),
            at: SystemClock.now(),
        };
        store.put_setting(MARK.to_owned(), Some("made by posthaste bench".to_owned()), audit).await?;
    }
    Ok(was_there)
}
