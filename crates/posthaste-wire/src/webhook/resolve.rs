//! From a name to its addresses.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// Looks up names. What it answers is checked by the guard before anything is connected to.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// Every address of a name, the preferred one first.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks the operating system.
#[derive(Debug)]
pub struct SystemResolver {
    places: Arc<Semaphore>,
}

impl SystemResolver {
    /// The most lookups at a time. A lookup blocks a thread and cannot be called off, so a name server that is down
    /// would otherwise take every thread that the program has for such work.
    const MOST: usize = 64;
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(Self::MOST)) }
    }
}

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let place = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        let lookup = move || {
            let found = (name.as_str(), 0).to_socket_addrs();
            // The place is taken until the thread is free, however long ago the asker gave up.
            drop(place);
            Ok(found?.map(|address| address.ip()).collect())
        };
        tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
    }
}
