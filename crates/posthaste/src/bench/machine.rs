//! The machine of the measurement.

use std::path::Path;

use serde_json::{Value, json};

pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) processor: String,
    pub(super) kernel: String,
    /// Of the directory of the store.
    pub(super) filesystem: String,
}

impl Machine {
    pub(super) fn look(store: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor.unwrap_or_else(|| "unknown".to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            filesystem: filesystem(&read("/proc/mounts"), store),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "cores": self.cores, "processor": self.processor, "kernel": self.kernel,
            "filesystem": self.filesystem,
        })
    }

    /// Whether fsync costs anything here.
    pub(super) fn has_disk(&self) -> bool {
        !matches!(self.filesystem.as_str(), "tmpfs" | "ramfs")
    }
}

/// The type of the file system of a directory: that of the deepest mount point above it.
fn filesystem(mounts: &str, directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut best = (0, "unknown");
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind)) = (words.next(), words.next()) else { continue };
        // A later mount hides an earlier one at the same path.
        if directory.starts_with(at) && at.len() >= best.0 {
            best = (at.len(), kind);
        }
    }
    best.1.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_deepest_mount() {
        let mounts =
            "/dev/vda / ext4 rw 0 0\ntmpfs /nowhere/tmp tmpfs rw 0 0\n/dev/vdb /nowhere/tmpfile xfs rw 0 0\n";
        for (directory, wanted) in [
            ("/nowhere/tmp/x", "tmpfs"),
            ("/nowhere/tmpfiles", "ext4"),
            ("/nowhere/tmpfile", "xfs"),
            ("/", "ext4"),
        ] {
            assert_eq!(filesystem(mounts, Path::new(directory)), wanted, "{directory}");
        }
    }
}
