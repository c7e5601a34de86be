//! Jobs: whether one failed, is late, or does not keep up with what it has to remove.

use std::time::Duration;

use posthaste_core::job::{Job, Schedule};
use posthaste_core::time::Timestamp;
use serde_json::Value;

use super::Finding;

/// How late a job may start without a warning.
const LATE: Duration = Duration::from_secs(300);
/// The jobs without which tables grow. Each run of them looks at everything that has outlived its period, so rows are older than
/// that by more than two runs only if no run ended for so long.
const REMOVERS: [Job; 2] = [Job::Retention, Job::DeadLetterCleanup];

pub(super) fn finding(page: &Value, now: Timestamp) -> Finding {
    let jobs = page["data"].as_array().into_iter().flatten();
    let found: Vec<String> = jobs.filter_map(|job| trouble(job, now)).collect();
    match found.as_slice() {
        [] => Finding::ok("jobs", "none failed, none is late, and what is old is removed"),
        found => Finding::warn("jobs", found.join("\n")),
    }
}

fn trouble(job: &Value, now: Timestamp) -> Option<String> {
    let id = job["id"].as_str().unwrap_or_default();
    if job["lastRun"]["outcome"] == "failed" {
        let error = job["lastRun"]["error"].as_str().unwrap_or_default();
        return Some(format!("the last run of {id} failed: {error}\nlook at `posthaste jobs runs {id}`"));
    }
    let removes = REMOVERS.iter().any(|remover| remover.name() == id);
    if job["paused"] == true && removes {
        return Some(format!(
            "{id} is paused, so tables grow beyond their periods: `posthaste jobs resume {id}`"
        ));
    }
    let next = time(&job["nextRunAt"]);
    if job["running"] == false && next.is_some_and(|next| now.since(next) > LATE) {
        let at = &job["nextRunAt"];
        return Some(format!("{id} is late: it was to run at {at}; do all nodes reach the store?"));
    }
    let ended = time(&job["lastRun"]["finishedAt"])?;
    (removes && now.since(ended) > two_runs(job, now)? + LATE).then(|| {
        let at = &job["lastRun"]["finishedAt"];
        format!(
            "tables are over their periods: the last run of {id} ended at {at}, and the one under way does not keep up\n\
             look at `posthaste jobs runs {id}` and at the metric posthaste_retention_removed_total"
        )
    })
}

fn time(shown: &Value) -> Option<Timestamp> {
    shown.as_str()?.parse().ok()
}

/// How long two runs take by the schedule of a job.
fn two_runs(job: &Value, now: Timestamp) -> Option<Duration> {
    let schedule = Schedule::parse(job["cron"].as_str()?).ok()?;
    let first = schedule.next_after(now)?;
    let third = schedule.next_after(schedule.next_after(first)?)?;
    Some(third.since(first))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Mark;
    use super::*;

    fn look(job: Value) -> Finding {
        finding(&json!({"data": [job]}), "2026-04-15T12:10:00Z".parse().unwrap())
    }

    fn retention(finished: &str) -> Value {
        json!({
            "id": "retention", "cron": "0 * * * *", "paused": false, "running": true, "nextRunAt": "2026-04-15T13:00:00Z",
            "lastRun": {"outcome": "done", "finishedAt": finished, "error": null}
        })
    }

    #[test]
    fn a_job_that_removes_and_ends_no_run_for_two_of_its_times_is_told() {
        assert_eq!(look(retention("2026-04-15T12:01:00Z")).mark, Mark::Ok);
        assert_eq!(look(retention("2026-04-15T10:06:00Z")).mark, Mark::Ok, "within two runs");
        let found = look(retention("2026-04-15T10:04:00Z"));
        assert_eq!(found.mark, Mark::Warn);
        assert!(found.text.contains("over their periods") && found.text.contains("10:04"), "{}", found.text);
        let mut other = retention("2026-04-15T10:04:00Z");
        other["id"] = json!("retry-expire");
        assert_eq!(look(other).mark, Mark::Ok, "it removes nothing");
        let mut new = retention("");
        new["lastRun"] = Value::Null;
        assert_eq!(look(new).mark, Mark::Ok, "its first run is under way");
    }

    #[test]
    fn a_job_that_failed_is_late_or_is_paused_is_told() {
        let mut failed = retention("2026-04-15T12:01:00Z");
        failed["lastRun"]["outcome"] = json!("failed");
        let mut late = retention("2026-04-15T12:01:00Z");
        (late["running"], late["nextRunAt"]) = (json!(false), json!("2026-04-15T12:04:00Z"));
        let mut paused = retention("2026-04-15T12:01:00Z");
        paused["paused"] = json!(true);
        for (job, word) in [(failed, "failed"), (late, "late"), (paused, "paused")] {
            let found = look(job);
            assert_eq!(found.mark, Mark::Warn, "{word}");
            assert!(found.text.contains(word), "{}", found.text);
        }
    }
}
