//! From a name to its addresses.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use async_trait::async_trait;

/// Looks up names. What it answers is checked by the guard before anything is connected to.
///
/// The channel bounds how many lookups run at a time, and runs each to its end even if nobody waits for it any more.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// Every address of a name, the preferred one first.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks the operating system, on a thread of its own for each lookup.
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
