//! DNS lookup.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use async_trait::async_trait;

/// Looks up names. The guard checks the addresses before one is connected to.
///
/// The channel limits the number of parallel lookups, and runs each to its end even if no try waits for it
/// any more.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of a name, in the order of preference.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system. Each lookup blocks a thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let name = name.to_owned();
        let lookup = move || Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect());
        tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
    }
}
