//! What the parameters of a list mean, and that a filter which is printed is read back.

use proptest::collection::btree_set;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const LISTS: [List; 4] = [List::Notifications, List::Failed, List::RetryQueue, List::DeadLetters];

/// The group of everything that is in no other group by fingerprint.
const OTHER: &str = "group=grp_3e6g5sszxkfac9s9a4wtxqg2hc";

fn now() -> Timestamp {
    "2026-04-15T10:45:30Z".parse().unwrap()
}

fn parse(list: List, query: &str) -> Result<Filter, BadFilter> {
    let pairs: Vec<(&str, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, decoded(value)))
        .collect();
    Filter::parse(list, pairs.iter().map(|(name, value)| (*name, value.as_str())), now())
}

fn decoded(value: &str) -> String {
    let (mut bytes, mut rest) = (vec![], value.bytes());
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: String = rest.by_ref().take(2).map(char::from).collect();
            bytes.push(u8::from_str_radix(&digits, 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn several_values_are_parted_by_commas() {
    let read = parse(
        List::Notifications,
        "tenant=acme&state=pending, failed,pending&channel=email,webhook&failureType=timeout&reasonCode=DISCARDED\
         &statusCode=503,429&template=a,b&destination=https://a.example/x&since=1d&until=2026-04-15&q=order-1,2",
    );
    let wanted = Filter {
        tenant: Some("acme".parse().unwrap()),
        states: vec![State::Pending, State::Failed],
        statuses: vec![],
        channels: vec![Channel::Webhook, Channel::Email],
        templates: vec!["a".to_owned(), "b".to_owned()],
        destinations: vec!["https://a.example:443".to_owned()],
        failure_types: vec![FailureType::Timeout],
        status_codes: vec![429, 503],
        reasons: vec![Reason::Discarded],
        since: Some("2026-04-14T10:45:30Z".parse().unwrap()),
        until: Some("2026-04-15T00:00:00Z".parse().unwrap()),
        text: Some("order-1,2".to_owned()),
        group: None,
    };
    assert_eq!(read, Ok(wanted));
}

#[test]
fn a_status_is_a_set_of_states_or_how_a_dead_letter_stands() {
    use LetterStatus::{Deleted, Discarded, Pending, Requeued};
    let states = |query| parse(List::Notifications, query).map(|filter| filter.states);
    assert_eq!(states("status=failed"), Ok(vec![State::Failed, State::DeadLetter]));
    assert_eq!(
        states("status=queued,retrying"),
        Ok(vec![State::Pending, State::RetryScheduled, State::Retrying])
    );
    assert_eq!(states("status=failed&state=deadLetter,pending"), Ok(vec![State::DeadLetter]));
    assert_eq!(parse(List::Failed, "status=queued").map(|filter| filter.states), Ok(FAILED.to_vec()));
    let statuses = |query| parse(List::DeadLetters, query).map(|filter| filter.statuses);
    assert_eq!(statuses(""), Ok(vec![Pending]));
    assert_eq!(statuses("status=all"), Ok(vec![Pending, Requeued, Discarded]));
    assert_eq!(statuses("status=cancelled"), Ok(vec![Discarded]));
    assert_eq!(statuses("status=deleted,all"), Ok(vec![Pending, Requeued, Discarded, Deleted]));
}

#[test]
fn what_cannot_be_understood_is_named_with_what_is_allowed() {
    let table = [
        (List::Notifications, "state=lost", "state", "pending, processing"),
        (List::Notifications, "state=", "state", "not ``"),
        (List::Notifications, "status=pending", "status", "queued, sending"),
        (List::Notifications, "status=failed&state=pending", "status", "no state"),
        (List::DeadLetters, "status=failed", "status", "pending, requeued, discarded, deleted, all"),
        (List::DeadLetters, "channel=fax", "channel", "webhook, email"),
        (List::DeadLetters, "failureType=Timeout", "failureType", "timeout"),
        (List::DeadLetters, "reasonCode=BORED", "reasonCode", "MAX_ATTEMPTS_EXCEEDED"),
        (List::RetryQueue, "statusCode=5xx", "statusCode", "503"),
        (List::RetryQueue, "statusCode=70000", "statusCode", "503"),
        (List::RetryQueue, "since=yesterday", "since", "2026-04-15"),
        (List::RetryQueue, "until=2026-13-01", "until", "1d"),
        (List::Failed, "tenant=a b", "tenant", "a b"),
        (List::DeadLetters, "group=dl_1", "group", "grp_"),
        (List::DeadLetters, OTHER, "group", "filter by something else"),
    ];
    for (list, query, parameter, allowed) in table {
        let bad = parse(list, query).unwrap_err();
        assert_eq!(bad.parameter, parameter, "{query}");
        let text = bad.to_string();
        assert!(text.contains(parameter) && text.contains(allowed), "{query}: {text}");
    }
}

#[test]
fn a_list_reads_its_own_parameters_only() {
    let read = parse(List::RetryQueue, "state=lost&status=lost&reasonCode=BORED&limit=9&cursor=x");
    assert_eq!(read, Ok(Filter::default()));
}

prop_compose! {
    fn filters()(
        tenant in of("[a-z0-9._-]{1,9}"),
        states in btree_set(select(&State::ALL), 0..4),
        statuses in btree_set(select(&LetterStatus::ALL), 1..4),
        channels in btree_set(select(&Channel::ALL), 0..3),
        templates in btree_set("[^, \n][^,\n]{0,9}[^, \n]", 0..3),
        destinations in btree_set("https?://[a-z0-9.-]{1,9}[a-z]:[0-9]{1,5}|pool:[a-z]{1,5}", 0..3),
        failure_types in btree_set(select(&FailureType::ALL), 0..3),
        status_codes in btree_set(any::<u16>(), 0..3),
        reasons in btree_set(select(&Reason::ALL), 0..3),
        since in of(any::<i64>()),
        until in of(any::<i64>()),
        (text, group) in (of(".{1,9}"), of(any::<[u8; 16]>())),
    ) -> Filter {
        let trimmed = |text: &String| text.trim() == text;
        Filter {
            tenant: tenant.map(|name| name.parse().unwrap()),
            states: states.into_iter().collect(),
            statuses: statuses.into_iter().collect(),
            channels: channels.into_iter().collect(),
            templates: templates.into_iter().filter(trimmed).collect(),
            destinations: destinations.into_iter().collect(),
            failure_types: failure_types.into_iter().collect(),
            status_codes: status_codes.into_iter().collect(),
            reasons: reasons.into_iter().collect(),
            since: since.map(Timestamp::from_micros),
            until: until.map(Timestamp::from_micros),
            text,
            group: group.map(GroupId::from_bytes),
        }
    }
}

/// The fields that the list has no parameter for are as it sets them.
fn of_list(list: List, filter: Filter) -> Filter {
    match list {
        List::Notifications => Filter { statuses: vec![], group: None, ..filter },
        List::Failed => Filter { statuses: vec![], states: FAILED.to_vec(), group: None, ..filter },
        List::RetryQueue => {
            Filter { statuses: vec![], states: vec![], reasons: vec![], group: None, ..filter }
        }
        List::DeadLetters => Filter { states: vec![], ..filter },
    }
}

proptest! {
    #[test]
    fn a_filter_that_is_printed_is_read_back(filter in filters()) {
        for list in LISTS {
            let filter = of_list(list, filter.clone());
            prop_assert_eq!(parse(list, &filter.query_string(list)), Ok(filter));
        }
    }

    #[test]
    fn what_is_read_is_printed_and_read_back(
        values in proptest::collection::vec(".{0,12}|https?://.{0,12}|[0-9]{1,5}[dhms]?", 13),
    ) {
        for list in LISTS {
            for (name, value) in list.parameters().zip(&values) {
                if let Ok(filter) = Filter::parse(list, [(name, value.as_str())], now()) {
                    prop_assert_eq!(parse(list, &filter.query_string(list)), Ok(filter), "{}={}", name, value);
                }
            }
        }
    }
}
