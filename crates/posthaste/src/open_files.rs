//! Checks the limit on open files: each connection needs one.

/// Files of the store, the log and the runtime.
const SPARE: u64 = 64;

/// The warning if the limit on open files is too low; `None` if it suffices or is not known.
pub(crate) fn warning(connections: u32, concurrency: u32) -> Option<String> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    too_low(&limits, u64::from(connections) + 2 * u64::from(concurrency) + SPARE)
}

fn too_low(limits: &str, needed: u64) -> Option<String> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // The soft limit comes first; `unlimited` is no number.
    let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
    (soft < needed).then(|| {
        format!(
            "this process may open {soft} files, but server.connections and engine.concurrency can ask for {needed}: \
             allow it with `ulimit -n {needed}` (systemd: LimitNOFILE={needed}), or lower the two settings"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_told_with_what_to_set() {
        let limits = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max cpu time              unlimited            unlimited            seconds   \n\
                 Max open files            {soft}                 524288               files     \n"
            )
        };
        let told = too_low(&limits("1024"), 1_025).unwrap();
        assert!(told.contains("may open 1024 files") && told.contains("ulimit -n 1025"), "{told}");
        assert_eq!(too_low(&limits("1024"), 1_024), None);
        assert_eq!(too_low(&limits("unlimited"), u64::MAX), None);
        assert_eq!(too_low("", 1), None);
    }
}
