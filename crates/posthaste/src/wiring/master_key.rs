//! Where the master key of a node comes from: the settings, or a file beside an SQLite store.

use posthaste_core::master_key::MasterRecord;
use posthaste_core::sealed::Key;
use posthaste_core::sensitive::SensitiveHeaders;
use posthaste_engine::store::Store;
use posthaste_engine::vault::{MasterKeys, VaultSettings};

use super::StartError;
use crate::config::{Config, StoreUrl};
use crate::master_key::{self, HOW_TO_SET, KeyFileError, KeySource};

/// Finds the master keys. An SQLite store that never had one gets a file.
pub(super) async fn find(
    config: &Config,
    store: &dyn Store,
) -> Result<(VaultSettings, KeySource), StartError> {
    let (keys, source) = match (&config.store.url, config.security.master_keys.clone()) {
        (_, keys) if !keys.is_empty() => (keys, KeySource::Settings),
        (StoreUrl::Postgres(_), _) => (vec![], KeySource::None),
        (StoreUrl::Sqlite(file), _) => {
            let path = master_key::beside(file);
            let keys = match master_key::read(&path)? {
                Some(keys) => keys,
                None if has_record(store).await? => return Err(KeyFileError::Gone { path }.into()),
                None => made(&path)?,
            };
            if master_key::is_open_to_others(&path) {
                tracing::warn!(path = %path.display(), "others than its owner may read the master key; `chmod 600` ends that");
            }
            (keys, KeySource::File(path))
        }
    };
    if source == KeySource::None {
        tracing::warn!(
            "no master key: webhooks are not signed, and headers such as authorization are kept as they are; {HOW_TO_SET}"
        );
    }
    let sensitive = SensitiveHeaders::with(config.security.sensitive_headers.iter().cloned());
    Ok((VaultSettings { keys: MasterKeys::new(keys, random), sensitive }, source))
}

fn made(path: &std::path::Path) -> Result<Vec<Key>, KeyFileError> {
    let keys = master_key::make(path)?;
    tracing::info!(path = %path.display(), "made the master key; a backup of the store needs this file as well");
    Ok(keys)
}

async fn has_record(store: &dyn Store) -> Result<bool, StartError> {
    Ok(!store.records(vec![MasterRecord::key()]).await?.is_empty())
}

fn random(bytes: &mut [u8]) {
    aws_lc_rs::rand::fill(bytes).expect("the operating system has random bytes");
}
