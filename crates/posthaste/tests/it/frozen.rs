//! A database that stands still: it neither answers nor hangs up.

use std::process::Command;

use posthaste_store::postgres::own::OwnServer;

/// The processes of a server, stopped where they stand until this is dropped.
pub(crate) struct Frozen(Vec<String>);

impl Frozen {
    /// Stops every process of the server.
    pub(crate) fn of(server: &OwnServer) -> Self {
        let first = std::fs::read_to_string(server.directory().join("data/postmaster.pid")).unwrap();
        let mut processes = vec![first.lines().next().unwrap().trim().to_owned()];
        tell(&processes, "-STOP");
        // From here on there are no new ones.
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            // The name may hold anything but ends with the last parenthesis; then come the state and the parent.
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
            if parent == Some(processes[0].as_str()) {
                processes.push(entry.file_name().into_string().unwrap());
            }
        }
        assert!(processes.len() > 1, "{processes:?}");
        tell(&processes[1..], "-STOP");
        Self(processes)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        tell(&self.0, "-CONT");
    }
}

fn tell(processes: &[String], signal: &str) {
    let told = Command::new("kill").arg(signal).args(processes).status().unwrap();
    assert!(told.success(), "{signal} {processes:?}");
}
