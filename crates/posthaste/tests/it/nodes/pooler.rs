//! A pooler in transaction mode stands between the nodes and the database: PgBouncer, as Debian has it.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;

use super::super::cli::run;
use super::super::program::{Home, eventually, get, json as answered, post, sink};
use super::{Cluster, DATABASE, free_doors};

/// A running pooler. Dropping it stops it.
struct Pooler {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Pooler {
    /// In transaction mode, with fewer connections to the server than the nodes open to it, so that none keeps its own.
    async fn start(cluster: &Cluster) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), free_doors(1)[0].port());
        let file = directory.path().join("pgbouncer.ini");
        let server = cluster.server.port();
        let text = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={server} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = 4\n"
        );
        std::fs::File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
        let mut command = Command::new("pgbouncer");
        // As root it must be told to be somebody else, who must be able to read its file.
        if std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
            command.args(["-u", "nobody"]);
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(directory.path(), mode).unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        // In a file, since nobody reads along while it runs.
        let log = directory.path().join("pgbouncer.log");
        let said = std::fs::File::create(&log).unwrap();
        let child = command.arg(&file).env("PATH", format!("{path}:/usr/sbin")).stderr(said).spawn();
        let child =
            child.expect("pgbouncer is missing: install it, on Debian with: sudo apt-get install pgbouncer");
        let mut pooler = Self { child, port, _directory: directory };
        let open = eventually(async || {
            let ended = pooler.child.try_wait().unwrap();
            let said = || std::fs::read_to_string(&log).unwrap();
            assert!(ended.is_none(), "the pooler does not run: {ended:?}\n{}", said());
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        let open = open.await;
        assert!(open.is_some(), "the pooler does not listen:\n{}", std::fs::read_to_string(&log).unwrap());
        pooler
    }

    fn home(&self, settings: &[&str]) -> Home {
        let url = format!("postgres://postgres@127.0.0.1:{}/{DATABASE}", self.port);
        Home::new(settings).with_database(url, free_doors(1)[0])
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_behind_a_pooler_in_transaction_mode_accept_and_deliver() {
    let (cluster, sink) = (Cluster::new(0, 1), sink().await);
    let pooler = Pooler::start(&cluster).await;
    let homes = [pooler.home(&["store.prepared=false"]), pooler.home(&["store.prepared=false"])];
    let nodes = [homes[0].start().await, homes[1].start().await];
    let policy =
        json!({"strategy": "fixed", "initialDelay": "100ms", "jitter": "none", "quick": {"tries": 0}});
    let one = json!({"channel": "webhook", "to": sink.url("/sequence/503,200"), "body": 1, "policy": policy});
    for node in &nodes {
        for _ in 0..5 {
            post(&node.client(), "/v1/notifications/batch", &json!({"notifications": vec![&one; 100]})).await;
        }
    }
    nodes[0].rest().await;
    // What one node is told the other knows with its next heartbeat, within two seconds on a machine that is not busy.
    let key = nodes[0].client().post("/v1/keys", &json!({"name": "k", "tenant": "acme"})).await.unwrap();
    let id = answered(&key, StatusCode::CREATED)["id"].as_str().unwrap().to_owned();
    let shown = async || get(&nodes[1].client(), "/v1/keys").await.to_string().contains(&id).then_some(());
    let told = Instant::now();
    eventually(shown).await.expect("the other node learns of the key");
    let took = told.elapsed();
    eprintln!("pooler: the key is known after {took:?}");
    assert!(took <= Duration::from_secs(3), "the other node learned of the key after {took:?}");
    for node in nodes {
        assert!(!node.log().contains("ERROR"), "{}", node.log());
        node.stop().await;
    }
    let kept = cluster.kept();
    assert_eq!((kept.all.len(), kept.duplicates(&sink), kept.interruptions()), (1_000, 0, 0));
    assert_eq!(kept.miscounted, Vec::<String>::new(), "I17");
    assert_eq!(sink.received(), 2_000);
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_know_a_pooler_and_say_what_to_set() {
    let cluster = Cluster::new(0, 1);
    let pooler = Pooler::start(&cluster).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{DATABASE}", pooler.port);
    let refused = run(&["migrate", "up", "--store", &url]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("a pooler") && refused.err.contains("store.prepared = false"),
        "{refused:?}"
    );
    for what in ["up", "status"] {
        let ended = run(&["migrate", what, "--store", &url, "--set", "store.prepared=false"]).await;
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
    }
    let doctor = run(&["doctor", "--store", &url, "--set", "store.prepared=false"]).await;
    let results: Vec<Vec<&str>> =
        doctor.out.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert!(
        results.contains(&vec!["warn", "wake-ups"]) && results.contains(&vec!["ok", "schema"]),
        "{doctor:?}"
    );
}
