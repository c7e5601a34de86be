//! A store of either kind that the tests of upgrades fill, copy as SQL and read.

use std::path::PathBuf;
use std::process::Command;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tokio::task::block_in_place;

use crate::kept::Kept;
use crate::postgres;
use crate::program::Home;

/// A file, or a database on the server that the tests share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    /// Its name, as in the names of the fixtures.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// An empty store, and the home of the program that uses it.
pub(super) struct Place {
    pub(super) home: Home,
    /// None where the store is a file.
    database: Option<String>,
}

impl Place {
    /// A store without a schema, for the program at that path or the one under test.
    pub(super) fn new(kind: Kind, binary: Option<&PathBuf>) -> Self {
        // A copy of a file opens its secrets with the key of the first.
        let master_key = ("POSTHASTE_MASTER_KEY", "07".repeat(32));
        let mut home = Home::new(&[]).with_variables(vec![master_key]);
        if let Some(binary) = binary {
            home = home.with_binary(binary.clone());
        }
        match kind {
            Kind::Sqlite => Self { home, database: None },
            Kind::Postgres => {
                let name = block_in_place(postgres::database);
                let url = postgres::shared().url(&name);
                let anywhere = "127.0.0.1:0".parse().unwrap();
                Self { home: home.with_database(url, anywhere), database: Some(name) }
            }
        }
    }

    /// Runs statements while no program uses the store.
    pub(super) fn run(&self, sql: &str) {
        let Some(database) = &self.database else {
            return Connection::open(self.home.file()).unwrap().execute_batch(sql).unwrap();
        };
        // A file, because an argument can only be so long.
        let file = self.home.path().join("statements.sql");
        std::fs::write(&file, sql).unwrap();
        block_in_place(|| postgres::shared().sql(database, &format!("\\i {}", file.display()))).unwrap();
    }

    /// The rows of a statement, each value as text and empty where it is null.
    pub(super) fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        if let Some(database) = &self.database {
            let shown = block_in_place(|| postgres::shared().sql(database, sql)).unwrap();
            return shown.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect();
        }
        let conn = Connection::open(self.home.file()).unwrap();
        let mut select = conn.prepare(sql).unwrap();
        let columns = select.column_count();
        let text = |value: ValueRef<'_>| match value {
            ValueRef::Null => String::new(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            ValueRef::Blob(_) | ValueRef::Real(_) => panic!("neither is asked for: {sql}"),
        };
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get_ref(at).map(text)).collect();
        select.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    /// What is kept, while the programs are at rest.
    pub(super) fn kept(&self) -> Kept {
        match &self.database {
            None => Kept::read(self.home.file()),
            Some(database) => block_in_place(|| Kept::read_database(postgres::shared(), database)),
        }
    }

    /// Everything as SQL that makes it again, schema and all.
    pub(super) fn dump(&self) -> String {
        match &self.database {
            None => dump_of_file(&Connection::open(self.home.file()).unwrap()),
            Some(database) => dump_of_database(&postgres::shared().url(database)),
        }
    }
}

fn dump_of_file(conn: &Connection) -> String {
    let list = |sql: &str| -> Vec<String> {
        let mut select = conn.prepare(sql).unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let mut lines = vec!["begin;".to_owned()];
    let ours = "from sqlite_master where sql is not null and name not like 'sqlite_%'";
    lines.extend(list(&format!("select sql || ';' {ours} order by rowid")));
    for table in list(&format!("select name {ours} and type = 'table' order by rowid")) {
        let columns = list(&format!("select 'quote(' || name || ')' from pragma_table_info('{table}')"));
        let values = columns.join(" || ', ' || ");
        lines
            .extend(list(&format!("select 'insert into {table} values (' || {values} || ');' from {table}")));
    }
    for pragma in ["user_version", "application_id"] {
        let value: i64 = conn.query_row(&format!("pragma {pragma}"), [], |row| row.get(0)).unwrap();
        lines.push(format!("pragma {pragma} = {value};"));
    }
    lines.push("commit;\n".to_owned());
    lines.join("\n")
}

/// What `pg_dump` writes, without what it says for its own sake.
fn dump_of_database(url: &str) -> String {
    let mut dump = Command::new("pg_dump");
    dump.args(["--inserts", "--no-owner", "--no-privileges", "--no-comments", url]);
    let output = dump.output().expect("pg_dump is installed with PostgreSQL");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let idle = |line: &&str| {
        line.is_empty()
            || ["--", "\\", "SET ", "SELECT pg_catalog.set_config"]
                .iter()
                .any(|start| line.starts_with(start))
    };
    text.lines().filter(|line| !idle(line)).map(|line| format!("{line}\n")).collect()
}
