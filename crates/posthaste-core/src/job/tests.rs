//! Schedules, and when a job is due.

use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn an_expression_names_the_next_time_in_utc() {
    let table = [
        ("*/2 * * * *", "2026-11-18T11:59:30Z", "2026-11-18T12:00:00Z"),
        ("*/2 * * * *", "2026-11-18T12:00:00Z", "2026-11-18T12:02:00Z"),
        ("0 * * * *", "2026-11-18T12:00:00.000001Z", "2026-11-18T13:00:00Z"),
        ("0 2 * * *", "2026-12-31T02:00:00Z", "2027-01-01T02:00:00Z"),
        ("0 5 * * 1", "2026-11-18T00:00:00Z", "2026-11-23T05:00:00Z"),
        ("0 0 * * MON-FRI", "2026-11-20T12:00:00Z", "2026-11-23T00:00:00Z"),
        ("0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        // A zone with summer time would skip or repeat these.
        ("30 1 * * *", "2026-10-24T23:00:00Z", "2026-10-25T01:30:00Z"),
        ("30 2 * * *", "2026-03-28T23:00:00Z", "2026-03-29T02:30:00Z"),
    ];
    for (cron, now, next) in table {
        let schedule = Schedule::parse(cron).unwrap();
        assert_eq!(schedule.next_after(time(now)), Some(time(next)), "{cron} after {now}");
    }
    assert_eq!(Schedule::parse(" 0  2 * * * ").unwrap().as_str(), "0 2 * * *");
}

#[test]
fn what_is_no_expression_or_never_fires_is_refused() {
    let long = format!("0 {}", "1,".repeat(200));
    for text in [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "0 24 * * *",
        "x * * * *",
        "@daily",
        "0 2 * * * 2026",
        &long,
    ] {
        assert!(matches!(Schedule::parse(text), Err(BadSchedule::Form(_))), "{text}");
    }
    for text in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
        assert!(matches!(Schedule::parse(text), Err(BadSchedule::Never(_))), "{text}");
    }
}

#[test]
fn a_job_is_due_by_its_schedule_and_a_run_of_a_dead_node_is_repeated() {
    let (next, start) = (time("2026-11-18T12:00:00Z"), time("2026-11-18T11:00:00Z"));
    let running = |alive| Some(Running { started_at: start, alive });
    let table = [
        (false, Some(next), None, Some(next)),
        (false, None, None, None),
        (true, Some(next), None, None),
        (false, Some(next), running(true), None),
        (false, Some(next), running(false), Some(start.later(REPEAT_AFTER))),
        (false, None, running(false), Some(start.later(REPEAT_AFTER))),
        (true, Some(next), running(false), None),
    ];
    for (paused, next_run, running, expected) in table {
        let standing = Standing { paused, next_run, running };
        assert_eq!(due(&standing), expected, "{standing:?}");
    }
}

#[test]
fn names_and_outcomes_can_be_read_back() {
    for job in Job::ALL {
        assert_eq!(Job::from_name(job.name()), Some(job));
    }
    assert!(Job::ALL.is_sorted_by_key(|job| job.name()));
    assert_eq!(Job::from_name("cleanup"), None);
    let outcomes = [RunOutcome::Done { count: 3 }, RunOutcome::failed(1, "x"), RunOutcome::Interrupted];
    for outcome in outcomes {
        let (count, error) = outcome.parts();
        let back = RunOutcome::from_parts(outcome.word(), count, error.map(str::to_owned));
        assert_eq!(back, Some(outcome));
    }
    let RunOutcome::Failed { error, .. } = RunOutcome::failed(0, &"ä".repeat(1_000)) else { unreachable!() };
    assert_eq!(error.chars().count(), 500);
}

proptest! {
    #[test]
    fn the_next_time_is_later_and_nothing_panics(
        cron in "[0-9*,/ -]{0,20}|([0-9]{1,2}|\\*|\\*/[0-9]{1,2})( ([0-9]{1,2}|\\*|\\*/[0-9]{1,2})){4}",
        micros in Timestamp::MIN.as_micros()..=Timestamp::MAX.as_micros(),
    ) {
        if let Ok(schedule) = Schedule::parse(&cron) {
            let now = Timestamp::from_micros(micros);
            if let Some(next) = schedule.next_after(now) {
                prop_assert!(next > now, "{cron}: {next} after {now}");
            }
        }
    }
}
