//! What is counted, kept and drawn.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

fn some_figures() -> Figures {
    let mut figures = Figures::default();
    let took = Duration::from_millis(40);
    for happened in [
        Happened::Accepted,
        Happened::Accepted,
        Happened::Delivered { first_try: true, took },
        Happened::Delivered { first_try: false, took: Duration::from_secs(90) },
        Happened::Retried,
        Happened::DeadLettered(Reason::MaxAttemptsExceeded),
        Happened::Failed(Reason::PermanentFailure),
        Happened::Failed(Reason::PermanentFailure),
        Happened::Expired,
        Happened::Cancelled,
    ] {
        figures.add(happened);
    }
    figures
}

#[test]
fn everything_that_happens_is_counted_and_weighs() {
    let figures = some_figures();
    assert_eq!(figures.counts(), [2, 2, 1, 1, 1, 2, 1, 1]);
    assert_eq!((figures.ended(), figures.happened()), (7, 10));
    assert_eq!(figures.first_try_rate(), Some(1.0 / 7.0));
    assert_eq!(Figures::default().first_try_rate(), None);
    let reasons = [(Reason::PermanentFailure, 2), (Reason::MaxAttemptsExceeded, 1)];
    assert_eq!(figures.top_reasons(), reasons);
    let took = Duration::ZERO;
    for more in [
        Happened::Accepted,
        Happened::Delivered { first_try: false, took },
        Happened::Retried,
        Happened::DeadLettered(Reason::Interrupted),
        Happened::Failed(Reason::Interrupted),
        Happened::Expired,
        Happened::Cancelled,
    ] {
        let mut grown = figures.clone();
        grown.add(more);
        assert!(grown.weight() > figures.weight(), "{more:?}");
    }
}

#[test]
fn what_is_stored_is_read_back() {
    let figures = some_figures();
    assert_eq!(Figures::from_pairs(figures.to_pairs()), figures);
    assert_eq!(Figures::from_pairs([]), Figures::default());
    assert_eq!(Figures::default().to_pairs(), []);
    // A newer version has more counts and more reasons.
    let newer = figures.to_pairs().into_iter().chain([(9, 1), (60, 1)]);
    assert_eq!(Figures::from_pairs(newer), figures);
}

/// The codes are stored: a count or a reason keeps its number.
#[test]
fn the_codes_stay_as_they_are() {
    let mut one = Figures { cancelled: 3, ..Figures::default() };
    one.add(Happened::Failed(Reason::Suppressed));
    one.add(Happened::Delivered { first_try: true, took: Duration::from_millis(40) });
    assert_eq!(one.to_pairs(), [(1, 1), (2, 1), (5, 1), (7, 3), (40, 1), (164, 1)]);
    assert_eq!(Span::ALL.map(Span::code), [0, 1]);
    for span in Span::ALL {
        assert_eq!(Span::from_code(span.code()), Some(span));
    }
}

#[test]
fn merging_adds_everything() {
    let mut twice = some_figures();
    twice.merge(&some_figures());
    assert_eq!(twice.counts(), some_figures().counts().map(|count| count * 2));
    assert_eq!(twice.top_reasons()[0], (Reason::PermanentFailure, 4));
    assert_eq!(twice.times.counts().map(|(_, count)| count).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn points_are_whole_steps_and_bounded() {
    let points = Points::new(at(61), at(181), Duration::from_secs(60)).unwrap();
    assert_eq!((points.first(), points.count(), points.end()), (at(60), 3, at(240)));
    let exact = Points::new(at(60), at(180), Duration::from_secs(60)).unwrap();
    assert_eq!((exact.count(), exact.end()), (2, at(180)));
    assert_eq!(
        [at(59), at(60), at(119), at(120), at(180)].map(|time| exact.place(time)),
        [None, Some(0), Some(0), Some(1), None]
    );
    assert_eq!(Points::new(at(5), at(5), Duration::from_secs(60)), Err(BadPoints::Backwards));
    assert_eq!(Points::new(at(6), at(5), Duration::from_secs(60)), Err(BadPoints::Backwards));
    let most = Points::MOST as i64;
    assert!(Points::new(at(0), at(60 * most), Duration::from_secs(60)).is_ok());
    let beyond = Points::new(at(0), at(60 * most + 1), Duration::from_secs(60));
    assert_eq!(beyond, Err(BadPoints::TooMany(1_501)));
    let extreme = Points::new(Timestamp::MIN, Timestamp::MAX, Duration::from_secs(60));
    assert!(matches!(extreme, Err(BadPoints::TooMany(_))));
}

#[test]
fn a_series_has_every_point_and_the_figures_of_its_periods() {
    let points = Points::new(at(0), at(900), Step::FiveMinutes.length()).unwrap();
    let one = Figures { accepted: 1, ..Figures::default() };
    let periods = [at(-60), at(0), at(240), at(300), at(840), at(900)].map(|start| (start, &one));
    let counts: Vec<u64> = points.gather(periods).iter().map(|point| point.accepted).collect();
    assert_eq!(counts, [2, 1, 1]);
}

#[test]
fn a_step_is_known_by_its_name() {
    for step in Step::ALL {
        assert_eq!(Step::from_name(step.name()), Some(step));
        assert_eq!(serde_json::to_value(step).unwrap(), step.name());
        assert!(step.length() >= step.span().length());
    }
    assert_eq!(Step::from_name("2m"), None);
    assert_eq!(Span::Hour.start(at(3_599)), at(0));
    assert_eq!(Span::Minute.start(at(-1)), at(-60));
}
