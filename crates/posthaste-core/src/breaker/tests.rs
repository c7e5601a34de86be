//! Tables and properties of the breaker.

use proptest::prelude::*;

use super::*;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const LASTS: Duration = Duration::from_secs(30);

fn at(secs: i64) -> Timestamp {
    Timestamp::from_millis(secs * 1_000)
}

fn settings() -> BreakerSettings {
    BreakerSettings::default()
}

fn failed(count: u32, secs: i64) -> Tally {
    let mut tally = Tally::default();
    (0..count).for_each(|_| tally.add(Health::Down, at(secs)));
    tally
}

fn succeeded() -> Tally {
    let mut tally = Tally::default();
    tally.add(Health::Up, at(0));
    tally
}

fn until(breaker: &Breaker) -> Timestamp {
    match breaker {
        Breaker::Open { until, .. } => *until,
        other => panic!("not open: {other:?}"),
    }
}

/// Opened at 0 for 10 s.
fn open() -> Breaker {
    let (breaker, event) = Breaker::default().tallied(failed(10, 0), &settings(), at(0));
    assert_eq!(event, Some(BreakerEvent::Opened { until: at(10) }));
    breaker
}

fn probed(breaker: Breaker, health: Health, now: Timestamp) -> Breaker {
    let (half, event) = breaker.probe(ONE, LASTS, now).unwrap();
    assert_eq!(event, BreakerEvent::Probed);
    half.probed(ONE, health, &settings(), now).unwrap().0
}

#[test]
fn ten_failures_in_a_row_open_it_also_those_of_several_nodes() {
    let (one, event) = Breaker::default().tallied(failed(5, 0), &settings(), at(0));
    assert_eq!((event, one.gate(at(0))), (None, Gate::Closed));
    let (nine, event) = one.tallied(failed(4, 3), &settings(), at(3));
    assert_eq!(event, None);
    assert_eq!(
        nine.failures().map(|failures| (failures.count, failures.first_at, failures.last_at)),
        Some((9, at(0), at(3)))
    );
    let (open, event) = nine.tallied(failed(1, 4), &settings(), at(4));
    assert_eq!(event, Some(BreakerEvent::Opened { until: at(14) }));
    assert_eq!((open.gate(at(13)), open.gate(at(14))), (Gate::Open, Gate::Probe));
}

#[test]
fn a_success_between_failures_starts_the_count_anew() {
    let (nine, _) = Breaker::default().tallied(failed(9, 0), &settings(), at(0));
    let mut tally = failed(3, 1);
    tally.add(Health::Up, at(1));
    tally.add(Health::Down, at(2));
    let (one, event) = nine.tallied(tally, &settings(), at(2));
    assert_eq!((event, one.failures().map(|failures| failures.count)), (None, Some(1)));
    assert_eq!(one.tallied(succeeded(), &settings(), at(3)).0, Breaker::default());
}

#[test]
fn failures_before_a_quiet_time_are_forgotten() {
    let (nine, _) = Breaker::default().tallied(failed(9, 0), &settings(), at(0));
    assert_eq!(nine.forgotten_at(&settings()), at(600));
    let (one, event) = nine.tallied(failed(1, 600), &settings(), at(600));
    assert_eq!((event, one.failures().map(|failures| failures.count)), (None, Some(1)));
}

#[test]
fn each_probe_that_fails_doubles_the_break_up_to_the_longest() {
    let (mut breaker, mut now, mut breaks) = (open(), at(10), vec![]);
    for _ in 0..7 {
        breaker = probed(breaker, Health::Down, now);
        breaks.push(until(&breaker).since(now).as_secs());
        now = until(&breaker);
    }
    assert_eq!(breaks, [20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(breaker.failures().map(|failures| failures.count), Some(17));
}

#[test]
fn equal_breaks_make_it_flat_and_a_first_one_over_the_longest_counts_as_that() {
    for first_break in [300, 3_000].map(Duration::from_secs) {
        let settings = BreakerSettings { first_break, ..settings() };
        let (breaker, _) = Breaker::default().tallied(failed(10, 0), &settings, at(0));
        assert_eq!(until(&breaker), at(300));
        let (half, _) = breaker.probe(ONE, LASTS, at(300)).unwrap();
        let (again, event) = half.probed(ONE, Health::Down, &settings, at(301)).unwrap();
        assert_eq!((until(&again), event), (at(601), Some(BreakerEvent::Opened { until: at(601) })));
    }
}

#[test]
fn there_is_one_probe_and_its_node_alone_may_answer_for_it() {
    assert_eq!(open().probe(ONE, LASTS, at(9)), None, "not yet");
    let (half, _) = open().probe(ONE, LASTS, at(10)).unwrap();
    assert_eq!((half.gate(at(11)), half.probe(TWO, LASTS, at(11))), (Gate::Open, None));
    assert_eq!(half.probed(TWO, Health::Up, &settings(), at(11)), None);
    assert_eq!(
        half.tallied(failed(100, 11), &settings(), at(11)),
        (half, None),
        "late answers change nothing"
    );
}

#[test]
fn a_probe_that_never_comes_back_leaves_the_next_one_its_turn() {
    let (half, _) = open().probe(ONE, LASTS, at(10)).unwrap();
    assert_eq!((half.gate(at(39)), half.gate(at(40))), (Gate::Open, Gate::Probe));
    let (second, _) = half.probe(TWO, LASTS, at(40)).unwrap();
    assert_eq!(second.probed(ONE, Health::Up, &settings(), at(41)), None, "the first one came too late");
    assert!(second.probed(TWO, Health::Up, &settings(), at(41)).is_some());
}

#[test]
fn what_a_probe_brings_decides() {
    let closed = |health| matches!(probed(open(), health, at(10)), Breaker::Ramping { .. });
    assert!(closed(Health::Up) && closed(Health::Answered));
    assert_eq!(until(&probed(open(), Health::Down, at(10))), at(30));
    let unsent = probed(open(), Health::Unknown, at(10));
    assert_eq!(
        (unsent.gate(at(10)), unsent.gate(at(11))),
        (Gate::Open, Gate::Probe),
        "soon, and not in a circle"
    );
}

#[test]
fn after_a_success_it_ramps_up_and_then_says_nothing_any_more() {
    let ramping = probed(open(), Health::Up, at(10));
    let at_once = |secs| ramping.ramp(at(secs)).map(|ramp| ramp.at_once);
    assert_eq!([10, 15, 16, 22, 69].map(at_once), [Some(1), Some(1), Some(2), Some(4), Some(512)]);
    assert_eq!((at_once(70), ramping.gate(at(70))), (None, Gate::Closed));
    assert_eq!(ramping.gate(at(16)), Gate::Ramp(2));
    assert_eq!((ramping.changes_at(at(10)), ramping.changes_at(at(16))), (Some(at(16)), Some(at(22))));
    assert_eq!((ramping.changes_at(at(69)), ramping.changes_at(at(70))), (Some(at(70)), None));
    assert_eq!(ramping.forgotten_at(&settings()), at(70));
    assert!(ramping.is_budgeted(at(69)) && !ramping.is_budgeted(at(70)));
    assert!(open().is_budgeted(at(0)) && !Breaker::default().is_budgeted(at(0)));
}

#[test]
fn three_failures_in_a_row_end_a_ramp_with_a_longer_break() {
    let ramping = probed(open(), Health::Up, at(10));
    let (still, event) = ramping.tallied(failed(2, 12), &settings(), at(12));
    assert_eq!((event, still.gate(at(12))), (None, Gate::Ramp(1)));
    let (again, event) = still.tallied(failed(1, 13), &settings(), at(13));
    assert_eq!((event, until(&again)), (Some(BreakerEvent::Opened { until: at(33) }), at(33)));
    let (over, event) = ramping.tallied(failed(3, 75), &settings(), at(75));
    assert_eq!(
        (event, over.failures().map(|failures| failures.count)),
        (None, Some(3)),
        "after the ramp it takes ten"
    );
}

#[test]
fn only_some_failures_blame_the_destination() {
    let http = |status| Reply {
        answer: Answer::Http { status, retry_after: None },
        ..Reply::fault(Fault::Reset, "")
    };
    let of = |reply: &Reply, failure_type| {
        Health::of(Verdict::Failed(crate::classify::Failure { failure_type, retry_after: None }), reply)
    };
    let cases = [
        (FailureType::Temporary, Health::Down),
        (FailureType::Timeout, Health::Down),
        (FailureType::NetworkFailure, Health::Down),
        (FailureType::Unknown, Health::Answered),
        (FailureType::Permanent, Health::Answered),
        (FailureType::RateLimit, Health::Answered),
        (FailureType::AuthenticationFailure, Health::Answered),
        (FailureType::InvalidRecipient, Health::Answered),
        (FailureType::QuotaExceeded, Health::Answered),
    ];
    for (failure_type, health) in cases {
        assert_eq!(of(&http(500), failure_type), health, "{failure_type:?}");
    }
    for fault in [Fault::Refused, Fault::NoRoute, Fault::Dns, Fault::Tls, Fault::Reset, Fault::Timeout] {
        assert_eq!(of(&Reply::fault(fault, ""), FailureType::NetworkFailure), Health::Down, "{fault:?}");
    }
    for fault in [Fault::Forbidden, Fault::Unsendable, Fault::NoProvider, Fault::Broken] {
        assert_eq!(of(&Reply::fault(fault, ""), FailureType::Temporary), Health::Unknown, "{fault:?}");
    }
    assert_eq!(Health::of(Verdict::Delivered, &http(200)), Health::Up);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Told(u32, bool),
    Probe(i64),
    Probed(i64, Health),
}

fn step() -> impl Strategy<Value = Step> {
    let health =
        prop_oneof![Just(Health::Up), Just(Health::Down), Just(Health::Answered), Just(Health::Unknown)];
    prop_oneof![
        (0u32..12, any::<bool>()).prop_map(|(count, up)| Step::Told(count, up)),
        (1i64..4).prop_map(Step::Probe),
        (1i64..4, health).prop_map(|(node, health)| Step::Probed(node, health)),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_it_lets_pass_again_within_the_longest_break_and_is_read_back_as_written(
        steps in prop::collection::vec((step(), 0i64..400), 0..100)
    ) {
        let (mut breaker, mut now) = (Breaker::default(), 0);
        for (step, pause) in steps {
            now += pause;
            let before = breaker.gate(at(now));
            match step {
                Step::Told(count, up) => {
                    let tally = Tally { succeeded: up, ..failed(count, now) };
                    breaker = breaker.tallied(tally, &settings(), at(now)).0;
                    if before == Gate::Open {
                        prop_assert_eq!(breaker.gate(at(now)), Gate::Open, "only time and probes end a break");
                    }
                }
                Step::Probe(node) => {
                    let probe = breaker.probe(NodeId(node), LASTS, at(now));
                    prop_assert_eq!(probe.is_some(), before == Gate::Probe);
                    breaker = probe.map_or(breaker, |(breaker, _)| breaker);
                }
                Step::Probed(node, health) => {
                    let probed = breaker.probed(NodeId(node), health, &settings(), at(now));
                    breaker = probed.map_or(breaker, |(breaker, _)| breaker);
                }
            }
            prop_assert_ne!(breaker.gate(at(now + 301)), Gate::Open);
            let changes = breaker.changes_at(at(now));
            prop_assert!(changes.is_none_or(|then| then > at(now)));
            let text = serde_json::to_string(&breaker).unwrap();
            prop_assert_eq!(serde_json::from_str::<Breaker>(&text).unwrap(), breaker);
        }
    }
}

/// What was forgotten the moment its probe was due would be sent to at full speed.
#[test]
fn an_open_breaker_is_kept_until_its_probe_had_time() {
    let same = Duration::from_secs(300);
    let flat =
        BreakerSettings { failure_threshold: 1, first_break: same, break_duration: same, forget_after: same };
    let at = Timestamp::from_millis(1_000_000);
    let failures = Failures { count: 1, first_at: at, last_at: at };
    let (open, _) = Breaker::opened(at, failures, same, at);
    let Breaker::Open { until, .. } = open else { panic!("{open:?}") };
    assert!(open.forgotten_at(&flat) >= until.later(Duration::from_secs(60)));
}
