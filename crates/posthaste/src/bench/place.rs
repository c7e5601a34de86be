//! Where what is measured keeps its notifications.

use std::path::{Path, PathBuf};

use super::database::Database;

/// What `--store` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A SQLite file for temporary use.
    Nothing,
    /// This SQLite file, which stays.
    File(PathBuf),
    /// A PostgreSQL server of its own, gone at the end.
    OwnServer,
    /// This database, which has to be empty.
    Database(String),
}

impl Asked {
    /// From the words of the command line.
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

    /// The SQLite file, if one was named.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Nothing | Self::OwnServer | Self::Database(_) => None,
        }
    }
}

/// Whose a figure is. What is nobody's comes first, because the others are compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Machine,
    Sqlite,
    Postgres,
}

impl Whose {
    /// The key of a figure in the report for programs.
    pub(super) fn key(self, name: &str) -> String {
        match self {
            Self::Machine | Self::Sqlite => name.to_owned(),
            Self::Postgres => {
                let (first, rest) = name.split_at(1);
                format!("postgres{}{rest}", first.to_uppercase())
            }
        }
    }

    /// For people, before the name of a figure where both are measured.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Machine => "",
            Self::Sqlite => "SQLite: ",
            Self::Postgres => "PostgreSQL: ",
        }
    }
}

/// One store.
pub(super) enum Place {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database.
    Database(Database),
}

impl Place {
    /// What a server is told.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File(path) => format!("sqlite://{}", path.display()),
            Self::Database(database) => database.url.clone(),
        }
    }

    /// Whose figures they are that are measured here.
    pub(super) const fn whose(&self) -> Whose {
        match self {
            Self::File(_) => Whose::Sqlite,
            Self::Database(_) => Whose::Postgres,
        }
    }

    /// How many bytes it takes on the disk.
    pub(super) async fn size(&self) -> anyhow::Result<u64> {
        match self {
            Self::File(path) => Ok(std::fs::metadata(path)?.len()),
            Self::Database(database) => database.size().await,
        }
    }

    /// How many bytes its log has grown to since its beginning; files do not tell.
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
