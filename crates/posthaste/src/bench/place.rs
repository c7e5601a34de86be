//! The stores that are measured.

use std::path::{Path, PathBuf};

use super::database::Database;

/// The value of `--store`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A temporary SQLite file.
    Nothing,
    /// This SQLite file, which is kept.
    File(PathBuf),
    /// A temporary PostgreSQL server.
    OwnServer,
    /// This database, which must be empty.
    Database(String),
}

impl Asked {
    pub(crate) fn parse(given: Option<&str>) -> Self {
        match given {
            None => Self::Nothing,
            Some("postgres") => Self::OwnServer,
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::Database(url.to_owned())
            }
            Some(path) => Self::File(PathBuf::from(path.strip_prefix("sqlite://").unwrap_or(path))),
        }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Nothing | Self::OwnServer | Self::Database(_) => None,
        }
    }
}

/// The subject of a figure. The machine comes first, because the others are compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Machine,
    Sqlite,
    Postgres,
}

impl Whose {
    /// The key of a figure in JSON.
    pub(super) fn key(self, name: &str) -> String {
        match self {
            Self::Machine | Self::Sqlite => name.to_owned(),
            Self::Postgres => {
                let (first, rest) = name.split_at(1);
                format!("postgres{}{rest}", first.to_uppercase())
            }
        }
    }

    /// Prefix of the name of a figure if both stores are measured.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Machine => "",
            Self::Sqlite => "SQLite: ",
            Self::Postgres => "PostgreSQL: ",
        }
    }
}

pub(super) enum Place {
    File(PathBuf),
    Database(Database),
}

impl Place {
    /// The value of `store.url`.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File(path) => format!("sqlite://{}", path.display()),
            Self::Database(database) => database.url.clone(),
        }
    }

    pub(super) const fn whose(&self) -> Whose {
        match self {
            Self::File(_) => Whose::Sqlite,
            Self::Database(_) => Whose::Postgres,
        }
    }

    /// Size in bytes.
    pub(super) async fn size(&self) -> anyhow::Result<u64> {
        match self {
            Self::File(path) => Ok(std::fs::metadata(path)?.len()),
            Self::Database(database) => database.size().await,
        }
    }

    /// Position in the write-ahead log, in bytes; `None` for SQLite.
    pub(super) async fn wal(&self) -> anyhow::Result<Option<u64>> {
        match self {
            Self::File(_) => Ok(None),
            Self::Database(database) => Ok(Some(database.wal().await?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_unless_it_says_postgres() {
        assert_eq!(Asked::parse(None), Asked::Nothing);
        assert_eq!(Asked::parse(Some("postgres")), Asked::OwnServer);
        assert_eq!(Asked::parse(Some("./postgres")), Asked::File("./postgres".into()));
        assert_eq!(Asked::parse(Some("sqlite://b.db")), Asked::File("b.db".into()));
        for url in ["postgres://u@h/d", "postgresql://u@h/d"] {
            assert_eq!(Asked::parse(Some(url)), Asked::Database(url.to_owned()));
        }
    }
}
