//! A temporary PostgreSQL server for the bench and for tests. It is created in its own directory with the
//! installed programs, and is stopped and removed when the process that started it ends, even by a crash.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A running server. Its methods block, so they must not run on a thread of an async runtime.
#[derive(Debug)]
pub struct OwnServer {
    bin: PathBuf,
    directory: PathBuf,
    port: u16,
    /// The shell that stops the server when its standard input is closed.
    watch: Option<(Child, ChildStdin)>,
}

/// Creates the server in a new private directory, reports its port, and waits for the end of its input, which
/// is the end of the process that started it. The root user opens no file in that directory, because it
/// belongs to another user.
const WATCH: &str = r#"
    trap '' INT TERM HUP
    as() { "$@"; }
    DIRECTORY=$(mktemp -d "$BELOW/posthaste-pg-XXXXXXXXXX") || exit 1
    if [ "$(id -u)" = 0 ]; then
        user=nobody
        id -u postgres >/dev/null 2>&1 && user=postgres
        chown "$user" "$DIRECTORY"
        as() { runuser -u "$user" -- "$@"; }
    fi
    end() {
        as "$BIN/pg_ctl" -D data -m immediate stop >/dev/null 2>&1
        cd / && rm -rf "$DIRECTORY"
    }
    trap end EXIT
    cd "$DIRECTORY" || exit 1
    if [ "$OF" ]; then
        said=$(as "$BIN/pg_basebackup" -D data -h 127.0.0.1 -p "$OF" -U postgres -R -c fast --no-sync 2>&1)
    else
        said=$(as "$BIN/initdb" -D data -A trust -U postgres -E UTF8 --locale=C --no-sync 2>&1) &&
            as sed -i '1i host all locked 127.0.0.1/32 scram-sha-256' data/pg_hba.conf
    fi || { echo "$said" >&2; exit 1; }
    as tee -a data/postgresql.conf >/dev/null <<TEXT
port = $PORT
listen_addresses = '127.0.0.1'
unix_socket_directories = '$DIRECTORY'
max_connections = 300
$SETTINGS
TEXT
    order() {
        said=$(as "$BIN/pg_ctl" -D data -w -t 60 -l "$DIRECTORY/data/log" "$@" 2>&1) && return
        echo "$said" >&2
        as cat data/log >&2
        exit 1
    }
    order start
    echo "up $DIRECTORY"
    while read -r wanted; do
        case $wanted in
            start|promote) order "$wanted" ;;
            *) order -m immediate "$wanted" ;;
        esac
        echo done
    done
"#;

impl OwnServer {
    /// Starts a new server in a directory below `below`. `settings` are added to its `postgresql.conf`.
    pub fn start(below: &Path, settings: &str) -> io::Result<Self> {
        Self::begin(below, settings, None)
    }

    /// Starts a standby of another server: it replicates that one and is read-only until `promote`.
    pub fn standby_of(first: &Self, below: &Path) -> io::Result<Self> {
        Self::begin(below, "", Some(first.port))
    }

    fn begin(below: &Path, settings: &str, of: Option<u16>) -> io::Result<Self> {
        let (bin, port) = (installed()?, free_port()?);
        let mut watch = Command::new("sh");
        watch
            .args(["-c", WATCH])
            .env("BIN", &bin)
            .env("BELOW", std::path::absolute(below)?)
            .env("SETTINGS", settings)
            .env("OF", of.map(|port| port.to_string()).unwrap_or_default());
        watch.env("PORT", port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut watch = watch.spawn()?;
        let input = watch.stdin.take().expect("the input was asked for");
        let mut server = Self { bin, directory: PathBuf::new(), port, watch: Some((watch, input)) };
        server.directory = server.answered("up ")?.into();
        Ok(server)
    }

    /// Waits for a line that starts with `word`, and returns the rest of it.
    fn answered(&mut self, word: &str) -> io::Result<String> {
        let (watch, _) = self.watch.as_mut().expect("the shell is there until the drop");
        let mut line = String::new();
        // The shell writes one line at a time, so nothing remains in the buffer.
        let output = watch.stdout.as_mut().expect("the output was asked for");
        BufReader::new(output).read_line(&mut line)?;
        let more = line.trim_end().strip_prefix(word).map(str::to_owned);
        more.ok_or_else(|| {
            io::Error::other("PostgreSQL did not do as it was told; what it said stands above")
        })
    }

    /// Runs `restart`, `stop`, `start` or `promote`. Running transactions are aborted.
    pub fn order(&mut self, order: &str) -> io::Result<()> {
        let (_, input) = self.watch.as_mut().expect("the shell is there until the drop");
        writeln!(input, "{order}")?;
        self.answered("done").map(drop)
    }

    /// Runs statements with `psql` and returns their rows, one per line.
    pub fn sql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        psql.args(["-p", &self.port.to_string(), "-d", database, "-c", sql]);
        let output = psql.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("{sql}\n{said}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some((mut watch, input)) = self.watch.take() {
            drop(input);
            let _ = watch.wait();
        }
    }
}

/// Finds the programs of PostgreSQL: on the PATH, or in the directories of Debian, newest version first.
fn installed() -> io::Result<PathBuf> {
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
    // A link on the PATH leads to the directory of all programs.
    let real = |place: PathBuf| Some(place.join("pg_ctl").canonicalize().ok()?.parent()?.to_owned());
    let complete = |bin: &PathBuf| ["initdb", "pg_ctl", "psql"].iter().all(|name| bin.join(name).is_file());
    let found = places.into_iter().filter_map(real).find(complete);
    found.ok_or_else(|| {
        let what = "PostgreSQL is missing: pg_ctl, initdb and psql are neither on the PATH nor in \
                    /usr/lib/postgresql/*/bin. Install it, on Debian with: sudo apt-get install postgresql";
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
