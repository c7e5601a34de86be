//! A real PostgreSQL: made in a directory of its own, stopped and removed when the tests end, however they end.
//!
//! Nothing is skipped: where PostgreSQL is not installed, every test that needs it fails and says what to install.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthaste_store::postgres::{PostgresOptions, PostgresStore, Time};

/// A database with the schema, which the others are copied from.
const TEMPLATE: &str = "posthaste_template";

/// The database in which most tests have a schema each.
const SHARED: &str = "posthaste_shared";

/// A server.
pub(crate) struct Server {
    bin: PathBuf,
    port: u16,
    databases: AtomicUsize,
    /// The shell that stops the server when this end of its input is closed.
    watch: Option<(Child, ChildStdin)>,
}

/// Makes the server, tells when it is up, and waits for the end of its input, which is the end of the tests.
const WATCH: &str = r#"
    trap '' INT TERM HUP
    if [ "$(id -u)" = 0 ]; then
        user=nobody
        id -u postgres >/dev/null 2>&1 && user=postgres
        install -d -o "$user" -m 700 "$DIRECTORY"
        as() { runuser -u "$user" -- "$@"; }
    else
        install -d -m 700 "$DIRECTORY"
        as() { "$@"; }
    fi
    cd "$DIRECTORY" || exit 1
    as "$BIN/initdb" -D data -A trust -U postgres -E UTF8 --locale=C --no-sync >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
    as sed -i '1i host all locked 127.0.0.1/32 scram-sha-256' data/pg_hba.conf
    as tee -a data/postgresql.conf >/dev/null <<TEXT
port = $PORT
listen_addresses = '127.0.0.1'
unix_socket_directories = '$DIRECTORY'
max_connections = 300
shared_buffers = 64MB
TEXT
    order() {
        as "$BIN/pg_ctl" -D data -w -t 60 -l "$DIRECTORY/data/log" "$@" >>start.log 2>&1 && return
        cat start.log data/log >&2
        exit 1
    }
    order start
    echo up
    while read -r wanted; do
        case $wanted in
            start) order start ;;
            *) order -m immediate "$wanted" ;;
        esac
        echo done
    done
    as "$BIN/pg_ctl" -D data -m immediate stop >/dev/null 2>&1
    cd / && rm -rf "$DIRECTORY"
"#;

impl Server {
    /// The one that tests share, with the template of their databases.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A new server.
    pub(crate) fn start() -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let bin = installed();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("posthaste-pg-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let port = free_port();
        let mut watch = Command::new("sh");
        watch.args(["-c", WATCH]).env("BIN", &bin).env("DIRECTORY", &directory);
        watch.env("PORT", port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut watch = watch.spawn().unwrap();
        let input = watch.stdin.take().unwrap();
        let mut server = Self { bin, port, databases: AtomicUsize::new(0), watch: Some((watch, input)) };
        server.answered("up");
        server.sql("postgres", &format!("create database {TEMPLATE}"));
        server.sql(TEMPLATE, &schema());
        server.sql("postgres", &format!("create database {SHARED} template template0"));
        server
    }

    fn answered(&mut self, word: &str) {
        let (watch, _) = self.watch.as_mut().unwrap();
        let mut line = String::new();
        // One line at a time is all that the shell says, so nothing is left in the buffer.
        let output = watch.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word, "PostgreSQL did not start; see what it said above");
    }

    /// Tells the server to `restart`, `stop` or `start`, without giving it time to end what is under way.
    pub(crate) fn order(&mut self, order: &str) {
        use std::io::Write;
        let (_, input) = self.watch.as_mut().unwrap();
        writeln!(input, "{order}").unwrap();
        self.answered("done");
    }

    /// Runs a statement beside any store and answers with its rows, a line each.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        psql.args(["-p", &self.port.to_string(), "-d", database, "-c", sql]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{sql}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A new database with the schema.
    pub(crate) fn database(&self) -> String {
        self.copy_of(TEMPLATE)
    }

    /// A new database without anything.
    pub(crate) fn empty_database(&self) -> String {
        self.copy_of("template0")
    }

    fn copy_of(&self, template: &str) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("create database {name} template {template}"));
        name
    }

    /// The URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a new schema in the database that most tests share, with everything in it. This writes a hundredth of what
    /// a new database does.
    pub(crate) fn schema(&self) -> String {
        let name = format!("s{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(SHARED, &format!("create schema {name}; set search_path = {name}; {}", schema()));
        format!("{}?options=-csearch_path%3D{name}", self.url(SHARED))
    }

    /// A store in a new schema.
    pub(crate) async fn store(&self, options: PostgresOptions) -> PostgresStore {
        PostgresStore::connect(&self.schema(), options).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((mut watch, input)) = self.watch.take() {
            drop(input);
            let _ = watch.wait();
        }
    }
}

/// Options for tests that bring their own time, with few connections each and the patience that a busy machine needs.
pub(crate) fn callers_time() -> PostgresOptions {
    let patience = Duration::from_secs(60);
    PostgresOptions {
        time: Time::Caller,
        connections: 4,
        migrate: false,
        connect_timeout: patience,
        statement_timeout: patience,
        lock_timeout: patience,
        idle_timeout: patience,
        ..PostgresOptions::default()
    }
}

/// The schema as the runner leaves it.
fn schema() -> String {
    let first = include_str!("../../../migrations/postgres/0001_first.sql");
    let quoted = first.replace('\'', "''");
    format!(
        "{first};
         create table schema_migration (version integer primary key, name text not null, checksum text not null,
             applied_at timestamptz not null default clock_timestamp());
         insert into schema_migration (version, name, checksum)
         values (1, '0001_first', encode(sha256(convert_to('{quoted}', 'UTF8')), 'hex'))"
    )
}

/// Where the programs of PostgreSQL are: on the PATH, or where Debian puts them, the newest version first.
fn installed() -> PathBuf {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|found| found.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort_by_key(|bin| {
        let version = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        std::cmp::Reverse(version.and_then(|name| name.parse::<u32>().ok()))
    });
    places.extend(versions);
    // A link on the PATH leads to the place where all of them are.
    let real = |place: PathBuf| Some(place.join("pg_ctl").canonicalize().ok()?.parent()?.to_owned());
    let complete = |bin: &PathBuf| ["initdb", "pg_ctl", "psql"].iter().all(|name| bin.join(name).is_file());
    let found = places.into_iter().filter_map(real).find(complete);
    found.unwrap_or_else(|| {
        panic!(
            "PostgreSQL is missing, and its store cannot be tested without it: pg_ctl, initdb and psql are neither on \
             the PATH nor in /usr/lib/postgresql/*/bin. Install it, on Debian with: sudo apt-get install postgresql"
        )
    })
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
