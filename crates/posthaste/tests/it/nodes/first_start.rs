//! Nodes that start together on an empty database make one admin key.

use std::path::Path;

use http::StatusCode;
use posthaste::client::Client;
use posthaste::wiring::KEY_FILE;

use super::super::program::{Home, Program};
use super::{CONCURRENCY, Cluster, DATABASE};

/// How often it is tried: who comes first is chance.
const ROUNDS: usize = 3;

async fn ready(nodes: &mut [Program]) {
    for node in nodes {
        node.ready().await;
    }
}

/// The key that a start wrote into a directory.
fn written(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join(KEY_FILE)).ok().map(|text| text.trim_end().to_owned())
}

/// There is one key, and it is good on every node.
async fn is_the_key(key: &str, cluster: &Cluster, nodes: &[Program]) {
    let kept = cluster.sql("select count(*) from setting where name like 'key:%'");
    assert_eq!(kept.trim(), "1");
    for node in nodes {
        let client = Client::new(&format!("http://{}", node.address()), Some(key)).unwrap();
        let list = client.get("/v1/keys").await.unwrap();
        assert_eq!(list.status, StatusCode::OK, "{}", node.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_make_one_admin_key() {
    let no_key = vec![("POSTHASTE_ADMIN_KEY", String::new())];
    let mut cluster = Cluster::new(3, CONCURRENCY);
    cluster.homes = cluster.homes.into_iter().map(|home| home.with_variables(no_key.clone())).collect();
    for _ in 0..ROUNDS {
        let mut nodes: Vec<Program> = cluster.homes.iter().map(Home::spawn).collect();
        ready(&mut nodes).await;
        let keys: Vec<String> = cluster.homes.iter().filter_map(|home| written(home.path())).collect();
        let [key] = &keys[..] else { panic!("{} files are left", keys.len()) };
        is_the_key(key, &cluster, &nodes).await;
        for node in nodes {
            node.stop().await;
        }
        for home in &cluster.homes {
            let _ = std::fs::remove_file(home.path().join(KEY_FILE));
        }
        cluster.sql(
            "delete from setting where name like 'key:%'; update setting_version set version = version + 1",
        );
    }
    // The same in one directory, where both want to write the same file.
    let home = Home::new(&[]).with_database(cluster.server.url(DATABASE), "127.0.0.1:0".parse().unwrap());
    let home = home.with_variables(no_key);
    let mut nodes = vec![home.spawn(), home.spawn()];
    ready(&mut nodes).await;
    is_the_key(&written(home.path()).unwrap(), &cluster, &nodes).await;
    for node in nodes {
        node.stop().await;
    }
}
