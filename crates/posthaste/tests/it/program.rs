//! The rig around the built binary: starts `posthaste serve`, speaks to it, stops it in every way there is.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::StatusCode;
use posthaste::client::{Client, ClientResponse};
use posthaste::clock::SystemClock;
use posthaste_wire::sink::{Sink, SinkOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The admin key of every program in the tests.
pub(crate) const KEY: &str = "an-admin-key-of-32-characters-or-more";
/// How long anything may take that must come. Generous, because the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often something is looked at that nobody tells about.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
/// How many lines of its log are shown when a test fails.
const TAIL: usize = 40;

/// Where a program lives from one start to the next: its store and its settings.
pub(crate) struct Home {
    directory: TempDir,
    file: PathBuf,
    binary: PathBuf,
    /// The database that is used instead of the file.
    database: Option<String>,
    listen: SocketAddr,
    settings: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Home {
    /// An empty home with a file in a temporary directory.
    pub(crate) fn new(settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("posthaste.db");
        let settings = settings.iter().map(ToString::to_string).collect();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let binary = env!("CARGO_BIN_EXE_posthaste").into();
        Self { directory, file, binary, database: None, listen, settings, variables: vec![] }
    }

    /// The same home with its store in a database, and the same address at every start.
    pub(crate) fn with_database(self, url: String, listen: SocketAddr) -> Self {
        Self { database: Some(url), listen, ..self }
    }

    /// The same home with settings besides.
    pub(crate) fn with_settings(mut self, settings: &[&str]) -> Self {
        self.settings.extend(settings.iter().map(ToString::to_string));
        self
    }

    /// The same home with variables in the surroundings of the program.
    pub(crate) fn with_variables(self, variables: Vec<(&'static str, String)>) -> Self {
        Self { variables, ..self }
    }

    /// The same home with its file elsewhere.
    pub(crate) fn with_file(self, file: PathBuf) -> Self {
        Self { file, ..self }
    }

    /// The same home with another program, such as an older one.
    pub(crate) fn with_binary(self, binary: PathBuf) -> Self {
        Self { binary, ..self }
    }

    /// The file of the store.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// A directory that goes with the home.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `posthaste serve`, on any free port unless one was chosen.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["serve".to_owned(), "--listen".to_owned(), self.listen.to_string()];
        let store = self.database.clone().unwrap_or_else(|| format!("sqlite://{}", self.file.display()));
        arguments.extend(["--store".to_owned(), store]);
        let fixed = ["security.allow_subnets=127.0.0.0/8"];
        for setting in fixed.into_iter().chain(self.settings.iter().map(String::as_str)) {
            arguments.extend(["--set".to_owned(), setting.to_owned()]);
        }
        arguments
    }

    /// Starts the program and does not wait for it.
    pub(crate) fn spawn(&self) -> Program {
        let mut command = Command::new(&self.binary);
        command.args(self.arguments());
        self.run(command)
    }

    /// Starts the program and waits until it is ready.
    pub(crate) async fn start(&self) -> Program {
        let mut program = self.spawn();
        program.ready().await;
        program
    }

    /// Starts the program behind a shell that first does `before`, and waits until it is ready.
    pub(crate) async fn start_after(&self, before: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}; exec \"$@\""), "sh"]).arg(&self.binary);
        command.args(self.arguments());
        let mut program = self.run(command);
        program.ready().await;
        program
    }

    fn run(&self, mut command: Command) -> Program {
        // Nothing of the surroundings sets anything, and the directory holds no posthaste.toml.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // All receivers of a test share one origin; the tests of breakers say what opens them.
        command.env("POSTHASTE__BREAKER__FAILURE_THRESHOLD", "1000000");
        command.env("POSTHASTE_ADMIN_KEY", KEY).envs(self.variables.iter().cloned()).current_dir(self.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = child.stderr.take().expect("standard error is a pipe");
        let (tell, address) = watch::channel(None);
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = log.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(address) = ready_at(&line) {
                    let _ = tell.send(Some(address));
                }
                kept.lock().unwrap().push(line);
            }
        });
        Program { child, address, log, reader: Some(reader) }
    }
}

/// The address in the line that the program logs once it serves.
fn ready_at(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once(" ready address=")?;
    address.trim().parse().ok()
}

/// A running program. Dropping it kills it and waits until it is gone.
pub(crate) struct Program {
    child: Child,
    address: watch::Receiver<Option<SocketAddr>>,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Program {
    /// Waits until it says where it listens.
    pub(crate) async fn listens(&mut self) {
        let told =
            timeout(PATIENCE, self.address.wait_for(Option::is_some)).await.is_ok_and(|told| told.is_ok());
        assert!(told, "the program does not serve:\n{}", self.log());
    }

    /// Waits until `/readyz` says so.
    pub(crate) async fn ready(&mut self) {
        self.listens().await;
        let client = self.client();
        let ready = eventually(async || {
            let answer = client.get("/readyz").await.ok()?;
            (answer.status == StatusCode::OK).then_some(())
        });
        ready.await.expect("the program becomes ready");
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.borrow().expect("the program was waited for")
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A client with a connection of its own.
    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address()), Some(KEY)).unwrap()
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Waits until it has logged this: what it says is read by another thread.
    pub(crate) async fn says(&self, text: &str) {
        let said = eventually(async || self.log().contains(text).then_some(())).await;
        said.unwrap_or_else(|| panic!("the log lacks `{text}`:\n{}", self.log()));
    }

    /// Ends it as a crash would: kill -9. Gone when this returns.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the program can be killed");
        self.child.wait().expect("the program can be waited for");
    }

    /// Sends a signal by its name, such as TERM.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(status.success(), "{kill}: {status}");
    }

    /// Stops it where it stands, until it is killed. Threads inside of the system may end what they are at there, but
    /// not one takes another step of its own.
    pub(crate) async fn freeze(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name before the state may hold anything but ends with the last parenthesis.
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            matches!(state, Some('T' | 'D'))
        };
        let frozen = eventually(async || fs::read_dir(&tasks).ok()?.flatten().all(stands).then_some(()));
        frozen.await.expect("the program stops where it stands");
    }

    /// Whether the process is still there.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it has ended by itself, and answers with how.
    pub(crate) async fn ended(&mut self, within: Duration) -> ExitStatus {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the program did not end within {within:?}:\n{}", self.log());
            sleep(LOOK).await;
        }
    }

    /// Asks it to stop and waits until it has, in order.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended(PATIENCE).await;
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Waits until nothing waits and nothing is under way, as long as that becomes less.
    pub(crate) async fn rest(&self) {
        let client = self.client();
        let (mut least, mut until) = (u64::MAX, Instant::now() + PATIENCE);
        loop {
            let stats = client.get("/v1/stats").await.ok().and_then(|answer| answer.json::<Value>().ok());
            let count = |stats: &Value| {
                ["queued", "sending", "inRetry"].iter().map(|kind| stats[kind].as_u64().unwrap_or(1)).sum()
            };
            match stats.as_ref().map(count) {
                Some(0) => return,
                Some(left) if left < least => (least, until) = (left, Instant::now() + PATIENCE),
                _ => assert!(Instant::now() < until, "work is left: {stats:?}\n{}", self.log()),
            }
            sleep(LOOK).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        if std::thread::panicking() {
            let log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            eprintln!("the end of the program's log:\n{}", log[log.len().saturating_sub(TAIL)..].join("\n"));
        }
    }
}

/// Asks until there is an answer, or the patience is at its end.
pub(crate) async fn eventually<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if answer.is_some() || Instant::now() > until {
            return answer;
        }
        sleep(LOOK).await;
    }
}

/// The JSON of an answer that must have that status.
pub(crate) fn json(answer: &ClientResponse, status: StatusCode) -> Value {
    assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
    answer.json().unwrap()
}

/// What is at a path.
pub(crate) async fn get(client: &Client, path: &str) -> Value {
    json(&client.get(path).await.unwrap(), StatusCode::OK)
}

/// What is answered to something that is taken.
pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> Value {
    json(&client.post(path, body).await.unwrap(), StatusCode::ACCEPTED)
}

/// A sink in this process, which remembers everything.
pub(crate) async fn sink() -> Sink {
    let options = SinkOptions { keep: 10_000_000, excerpt: 64, ..SinkOptions::new(Arc::new(SystemClock)) };
    Sink::start("127.0.0.1:0".parse().unwrap(), options).await.unwrap()
}

/// How large the file is whose name is that of the store and an ending, such as `-wal`.
pub(crate) fn size_beside(home: &Home, ending: &str) -> u64 {
    let mut path = home.file().as_os_str().to_owned();
    path.push(ending);
    fs::metadata(path).map_or(0, |data| data.len())
}
