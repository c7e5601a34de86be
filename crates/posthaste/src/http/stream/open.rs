//! How many streams are open: a bounded number, of which one tenant has a part, so that some connections are
//! left for requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::notification::Tenant;

use super::super::problem::{Kind, Problem, Result};
use super::super::read_slots::Reader;
use super::counters::{AllCounters, Counters};
use crate::keys::Caller;

/// The streams of this process.
#[derive(Debug)]
pub(in crate::http) struct Streams {
    /// The most of all.
    most: usize,
    /// The most of one tenant, or of the keys for all tenants.
    most_of_one: usize,
    open: Mutex<Open>,
    counters: AllCounters,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    by_reader: HashMap<Reader, usize>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: Arc<Streams>,
    reader: Reader,
}

impl Streams {
    /// Three quarters of the connections, half of them for one tenant.
    pub(in crate::http) fn new(connections: usize) -> Self {
        Self {
            most: (connections * 3 / 4).max(1),
            most_of_one: (connections / 2).max(1),
            open: Mutex::default(),
            counters: AllCounters::default(),
        }
    }

    pub(super) fn open(self: &Arc<Self>, caller: &Caller) -> Result<OpenStream> {
        let (mut open, reader) = (self.lock(), Reader::of(caller));
        let own = open.by_reader.get(&reader).copied().unwrap_or_default();
        if own >= self.most_of_one {
            let detail = format!("{own} streams of this tenant are open, as many as may be: close one");
            return Err(Problem::new(Kind::TooManyStreams, detail));
        }
        if open.count >= self.most {
            let detail = format!("{} streams are open, as many as may be (server.connections)", open.count);
            return Err(Problem::new(Kind::Overloaded, detail));
        }
        open.count += 1;
        *open.by_reader.entry(reader.clone()).or_default() += 1;
        Ok(OpenStream { streams: self.clone(), reader })
    }

    /// The counters of a tenant, or of all, which streams share.
    pub(super) fn counters(&self, tenant: Option<Tenant>) -> Arc<Counters> {
        self.counters.of(tenant)
    }

    pub(super) fn count(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no code panics while it counts streams")
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.count -= 1;
        if let Some(own) = open.by_reader.get_mut(&self.reader) {
            *own -= 1;
            if *own == 0 {
                open.by_reader.remove(&self.reader);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::role::Role;

    use super::*;
    use crate::keys::Credential;

    fn caller(tenant: Option<&str>) -> Caller {
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        Caller { name: "x".to_owned(), tenant, credential: Credential::Given, role: Role::Reader }
    }

    #[test]
    fn one_tenant_has_half_of_the_connections_and_all_have_three_quarters() {
        let streams = Arc::new(Streams::new(8));
        let (a, b) = (caller(Some("a")), caller(Some("b")));
        let mut of_a: Vec<OpenStream> = (0..4).map(|_| streams.open(&a).unwrap()).collect();
        assert_eq!(streams.open(&a).unwrap_err().kind, Kind::TooManyStreams);
        let of_b: Vec<OpenStream> = (0..2).map(|_| streams.open(&b).unwrap()).collect();
        assert_eq!(streams.open(&b).unwrap_err().kind, Kind::Overloaded);
        assert_eq!(streams.open(&caller(None)).unwrap_err().kind, Kind::Overloaded);
        of_a.pop();
        let of_all = streams.open(&caller(None)).unwrap();
        assert_eq!(streams.count(), 6);
        drop((of_a, of_b, of_all));
        assert_eq!((streams.count(), streams.lock().by_reader.len()), (0, 0));
    }

    #[test]
    fn there_is_always_room_for_one() {
        assert!(Arc::new(Streams::new(1)).open(&caller(None)).is_ok());
    }
}
