//! Several nodes on one PostgreSQL: the built program as processes of their own, on a server that the tests start.
//!
//! `POSTHASTE_NODES_NOTIFICATIONS` and `POSTHASTE_NODES_ROUNDS` make the run with everything at once a longer one.

mod breakers;
mod chaos;
mod clock;
mod failover;
mod first_start;
mod leases;
mod mixed;
mod operations;
mod pause;
mod pooler;
mod rolling;
mod settings;
mod stall;
mod takeover;

use std::net::{SocketAddr, TcpListener};

use fastrand::Rng;
use posthaste_store::postgres::own::OwnServer;
use tokio::task::block_in_place;

use self::leases::Book;
use super::kept::Kept;
use super::load::Ledger;
use super::program::{Home, Program};

/// The database that the nodes share.
const DATABASE: &str = "posthaste";
/// How many notifications a node sends at once.
const CONCURRENCY: u32 = 32;

/// A database, and the homes of the nodes that share it.
struct Cluster {
    server: OwnServer,
    homes: Vec<Home>,
    /// Where each node listens, at every start.
    doors: Vec<SocketAddr>,
}

impl Cluster {
    /// An empty database and so many homes of nodes that send so many at once.
    fn new(nodes: usize, concurrency: u32) -> Self {
        let server = block_in_place(|| OwnServer::start(&std::env::temp_dir(), "")).unwrap();
        let url = server.url(DATABASE);
        Self::on(server, &url, nodes, concurrency)
    }

    /// The same on that server, which the nodes know by that URL.
    fn on(server: OwnServer, url: &str, nodes: usize, concurrency: u32) -> Self {
        block_in_place(|| server.sql("postgres", &format!("create database {DATABASE}"))).unwrap();
        let doors = free_doors(nodes);
        Self { server, homes: Self::homes(url, &doors, concurrency), doors }
    }

    /// The homes of nodes at these addresses.
    fn homes(url: &str, doors: &[SocketAddr], concurrency: u32) -> Vec<Home> {
        let home = |(place, door): (usize, &SocketAddr)| {
            let settings = [format!("engine.concurrency={concurrency}"), format!("engine.name=node-{place}")];
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            Home::new(&settings).with_database(url.to_owned(), *door)
        };
        doors.iter().enumerate().map(home).collect()
    }

    /// The same cluster, whose nodes have these settings besides.
    fn with_settings(self, settings: &[&str]) -> Self {
        let homes = self.homes.into_iter().map(|home| home.with_settings(settings)).collect();
        Self { homes, ..self }
    }

    /// Starts every node, one after the other.
    async fn start(&self) -> Vec<Program> {
        let mut nodes = vec![];
        for home in &self.homes {
            nodes.push(home.start().await);
        }
        nodes
    }

    /// Hands in again what was left without an answer, lets everything end, stops the nodes, and checks what is kept.
    async fn end(&self, nodes: Vec<Program>, ledger: &mut Ledger, rng: &mut Rng) -> (Kept, Book) {
        ledger.repeat(&nodes[0].client(), rng).await;
        nodes[0].rest().await;
        for node in nodes {
            node.stop().await;
        }
        let (kept, book) = (self.kept(), Book::read(self));
        kept.check(ledger);
        (kept, book)
    }

    /// Runs statements in the database.
    fn sql(&self, sql: &str) -> String {
        block_in_place(|| self.server.sql(DATABASE, sql)).unwrap()
    }

    /// What is kept.
    fn kept(&self) -> Kept {
        block_in_place(|| Kept::read_database(&self.server, DATABASE))
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("the variable is a number"))
}

/// Addresses that nobody listens at.
fn free_doors(count: usize) -> Vec<SocketAddr> {
    // All are open at the same time, so that each is another one.
    let free: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    free.iter().map(|door| door.local_addr().unwrap()).collect()
}
