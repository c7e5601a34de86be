//! Links and forms as what the API takes.

use super::*;

fn wanted(query: &str) -> Wanted {
    Wanted::of(form_urlencoded::parse(query.as_bytes()).into_owned())
}

#[test]
fn a_link_or_a_form_becomes_what_the_api_takes() {
    for (query, body) in [
        ("all=true&canary=", json!({"action": "requeue", "filter": {}})),
        (
            "group=grp_1&action=discard&rate=50",
            json!({"action": "discard", "filter": {"group": "grp_1"}, "rate": 50}),
        ),
        (
            "channel=email&token=x&key=y&cursor=z&limit=5&q=",
            json!({"action": "requeue", "filter": {"channel": "email"}, "canary": {"size": 100, "maxFailurePercent": 10}}),
        ),
        (
            "ids=dl_1&ids=dl_2,dl_3&channel=email&scope=page&canary=0",
            json!({"action": "requeue", "ids": ["dl_1", "dl_2", "dl_3"]}),
        ),
        (
            "ids=dl_1&channel=email&scope=filter&canary=5&maxFailurePercent=0",
            json!({"action": "requeue", "filter": {"channel": "email"}, "canary": {"size": 5, "maxFailurePercent": 0}}),
        ),
        (
            "channel=email&f=channel%3Dsms+order+12&canary=0",
            json!({"action": "requeue", "filter": {"channel": "sms", "q": "order 12"}}),
        ),
        // What is wrong is left to the API.
        (
            "action=explode&all=true&rate=fast&canary=0",
            json!({"action": "explode", "filter": {}, "rate": "fast"}),
        ),
        ("scope=page&channel=email&canary=0", json!({"action": "requeue"})),
        ("canary=0", json!({"action": "requeue"})),
    ] {
        assert_eq!(wanted(query).body(), body, "{query}");
    }
}

#[test]
fn what_is_started_is_what_was_counted() {
    let now: Timestamp = "2026-11-17T02:41:12.345Z".parse().unwrap();
    let later = now.later(std::time::Duration::from_secs(600));
    let mut asked = wanted("since=1h&channel=email");
    asked.fix(now);
    let once = asked.clone();
    asked.fix(later);
    assert_eq!(asked, once);
    let fixed = |name: &str| asked.filter().iter().find(|(given, _)| given == name).unwrap().1.clone();
    assert!(fixed("since").starts_with("2026-11-17T01:41:12"), "{}", fixed("since"));
    assert!(fixed("until").starts_with("2026-11-17T02:41:12"), "{}", fixed("until"));
    // A limit that was given stays; what is wrong stays as it is.
    let mut given = wanted("until=2026-01-01");
    given.fix(now);
    assert!(given.filter()[0].1.starts_with("2026-01-01"), "{given:?}");
    let mut wrong = wanted("since=soon");
    wrong.fix(now);
    assert_eq!(wrong, wanted("since=soon"));
}

#[test]
fn the_same_is_a_command() {
    assert_eq!(
        wanted("q=it%27s&rate=50&canary=100&maxFailurePercent=5").command(),
        "posthaste retry-operations start --action requeue --filter 'q=it%27s' --rate 50 --canary 100 \
         --max-failure-percent 5 --watch"
    );
    assert_eq!(
        wanted("ids=dl_1,dl_2&action=discard").command(),
        "posthaste retry-operations start --action discard --id dl_1,dl_2 --watch"
    );
}

#[test]
fn a_large_discard_is_no_larger_than_the_number_that_was_typed() {
    let now = |total, exact| PreviewView { total, exact, sample: vec![], groups: vec![], expired: 0 };
    for (typed, counted, total, exact, right) in [
        (Some(20_012), Some(20_012), 20_012, true, true),
        // Some were resolved meanwhile.
        (Some(20_012), Some(20_012), 19_000, true, true),
        (Some(20_012), Some(20_012), 20_013, true, false),
        (Some(20_012), Some(20_012), 999_999, false, true),
        (Some(20_011), Some(20_012), 20_012, true, false),
        (None, Some(20_012), 20_012, true, false),
        (Some(20_012), None, 20_012, true, false),
        (None, None, 20_012, true, false),
    ] {
        let told = check_number(typed, counted, &now(total, exact));
        assert_eq!(told.is_ok(), right, "{typed:?} {counted:?} {total} {exact}");
    }
}
