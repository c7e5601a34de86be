//! Marks the files of the bench. Any other file may contain notifications, which a server would deliver.

use std::path::Path;

use anyhow::{Context as _, bail};
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::{Audit, StoredSettings};
use posthaste_store::sqlite::{Options, SqliteStore};

use crate::clock::SystemClock;

/// The setting that marks a store of the bench.
const MARK: &str = "bench";

/// Creates a marked store if the file does not exist, and returns whether it existed. A file without the mark
/// is refused.
pub(super) async fn claim(path: &Path) -> anyhow::Result<bool> {
    let was_there = path.try_exists().with_context(|| format!("{} cannot be read", path.display()))?;
    let place = std::path::absolute(path)?;
    let place = place.parent().context("--store names no file")?;
    if !place.is_dir() {
        bail!("directory {} does not exist", place.display());
    }
    let store = SqliteStore::open(path, Options::default())
        .with_context(|| format!("{} cannot be opened as a store of the bench", path.display()))?;
    let is_own = store.settings(None).await?.is_some_and(|settings| settings.values.contains_key(MARK));
    if was_there && !is_own {
        bail!(
            "{} was not created by the bench: its waiting notifications would be delivered. Name a new file, or one that \
             the bench created",
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
