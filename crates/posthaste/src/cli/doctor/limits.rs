//! The checks of `posthaste doctor` on inbound limits and the queue limit of the settings.

use super::Finding;
use crate::config::Config;

/// The most notifications in a batch.
const LARGEST_BATCH: u32 = 500;

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let (tenant, module) = (config.rate_limit.per_tenant_per_minute, config.rate_limit.per_module_per_minute);
    let mut found = vec![];
    if tenant > 0 && module > tenant {
        let text = format!(
            "rate_limit.per_module_per_minute = {module} can never be reached: a tenant has {tenant}. Set it lower, or to 0"
        );
        found.push(Finding::warn("rate limits", text));
    }
    let limit = config.queue.limit;
    if limit > 0 && limit < LARGEST_BATCH {
        let text = format!(
            "queue.limit = {limit}: a batch of more than {limit} notifications is always refused. Set it to at least \
             {LARGEST_BATCH}"
        );
        found.push(Finding::warn("queue limit", text));
    }
    found
}
