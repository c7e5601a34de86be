//! Tests of fingerprints, titles and ids of groups.

use proptest::prelude::*;

use super::*;

const TEMPORARY: Option<FailureType> = Some(FailureType::Temporary);

fn titled(status: Option<u16>, text: &str) -> String {
    title(Reason::MaxAttemptsExceeded, TEMPORARY, status, text)
}

/// Texts of one cause, and the title that a person reads.
const TABLE: &[(Option<u16>, &str, &[&str])] = &[
    (
        Some(503),
        "503: upstream connect error or disconnect/reset before headers",
        &[
            "answered 503: upstream connect error or disconnect/reset before headers. reset reason: connection timeout",
        ],
    ),
    (Some(503), "503: upstream connect error", &["answered 503: upstream connect error"]),
    (
        Some(503),
        "503: no healthy upstream",
        &["answered 503: no healthy upstream", "answered 503:  no healthy upstream\n"],
    ),
    (Some(500), "500: temporary failure", &["answered 500", "answered 500: ", "answered 500: {}"]),
    (
        Some(502),
        "502: Bad Gateway",
        &[
            "answered 502: <html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx/1.18.0 (Ubuntu)</center>",
            "answered 502: <html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center>nginx/1.25.3</center>",
        ],
    ),
    (
        Some(413),
        "413: Request Entity Too Large",
        &["answered 413: <HTML><HEAD><TITLE>413 Request Entity Too Large</TITLE></HEAD>"],
    ),
    (
        None,
        "no answer within …",
        &["no answer within 10s", "no answer within 2.5s", "no answer within 250ms", "no answer within 60s"],
    ),
    (
        None,
        "cannot connect: Connection refused (os error …)",
        &[
            "cannot connect: Connection refused (os error 111)",
            "cannot connect: Connection refused (os error 61)",
        ],
    ),
    (
        None,
        "cannot resolve …: no such name",
        &["cannot resolve hooks.example.com: no such name", "cannot resolve a.b.c.example.org: no such name"],
    ),
    (None, "… has no address", &["hooks.example.com has no address", "x1.example.net has no address"]),
    (
        None,
        "connect to … failed: timed out",
        &[
            "connect to 10.0.0.7:8443 failed: timed out",
            "connect to 192.168.1.1 failed: timed out",
            "connect to 2001:db8::7 failed: timed out",
            "connect to https://hooks.example.com/in?x=1 failed: timed out",
        ],
    ),
    (
        None,
        "TLS handshake failed: invalid peer certificate: certificate expired …",
        &[
            "TLS handshake failed: invalid peer certificate: certificate expired: verification time 1776249930 (UNIX), but certificate is not valid after 1770000000",
            "TLS handshake failed: invalid peer certificate: certificate expired: verification time 1776249931 (UNIX), but certificate is not valid after 1760000000",
        ],
    ),
    (
        Some(550),
        "550: 5.1.1 <…>: Recipient address rejected: User unknown in local recipient table",
        &[
            "answered 550: 5.1.1 <ada@example.com>: Recipient address rejected: User unknown in local recipient table",
            "answered 550: 5.1.1 <b.c+d@mail.example.org>: Recipient address rejected: User unknown in local recipient table",
        ],
    ),
    (
        Some(421),
        "421: 4.7.0 Try again later, closing connection",
        &["answered 421: 4.7.0 Try again later, closing connection. d2e1a72fcca58-7aab2c-23.41 - gsmtp"],
    ),
    (
        Some(400),
        "400: Invalid token",
        &[
            r#"answered 400: {"error":{"message":"Invalid token","type":"OAuthException","code":190,"fbtrace_id":"AbCdEf123"}}"#,
            r#"answered 400: {"error": {"message": "Invalid token", "type": "OAuthExc"#,
            r#"answered 400: {"message":"Invalid token"}"#,
        ],
    ),
    (
        Some(422),
        "422: user … not found",
        &[
            r#"answered 422: {"error":"user 4711 not found","requestId":"req_8f3a2b11c0"}"#,
            r#"answered 422: {"requestId":"4","error":"user ntf_01jrq3v9zk8n2m4p6r8t0w2y4a not found"}"#,
            r#"answered 422: {"error":"user 6f9619ff-8b86-d011-b42d-00c04fc964ff not found"}"#,
            r#"answered 422: {"error":"user ada@example.com not found"}"#,
        ],
    ),
    (
        Some(500),
        "500: java.net.ConnectException: Connection refused",
        &["answered 500: java.net.ConnectException: Connection refused"],
    ),
    (
        Some(429),
        "429: Rate limit reached for … on tokens per min",
        &[
            "answered 429: Rate limit reached for org-A1b2C3d4 on tokens per min. Limit: 90,000, try again in 6ms",
        ],
    ),
];

#[test]
fn texts_of_one_cause_have_one_fingerprint_and_a_title_that_people_understand() {
    for (status, wanted, texts) in TABLE {
        let print = |text: &str| fingerprint(Reason::MaxAttemptsExceeded, TEMPORARY, *status, &pattern(text));
        for text in *texts {
            let shown = titled(*status, text);
            assert_eq!(shown, *wanted, "{text}");
            assert_eq!(print(text), print(texts[0]), "{}\n{}", pattern(text), pattern(texts[0]));
        }
    }
}

#[test]
fn different_causes_have_different_fingerprints() {
    let texts: Vec<String> = TABLE.iter().map(|(_, _, texts)| pattern(texts[0])).collect();
    let causes = [
        (Reason::MaxAttemptsExceeded, TEMPORARY, Some(503)),
        (Reason::PermanentFailure, TEMPORARY, Some(503)),
        (Reason::MaxAttemptsExceeded, Some(FailureType::Permanent), Some(503)),
        (Reason::MaxAttemptsExceeded, None, Some(503)),
        (Reason::MaxAttemptsExceeded, TEMPORARY, Some(50)),
        (Reason::MaxAttemptsExceeded, TEMPORARY, None),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for text in &texts {
        for (reason, failure, status) in causes {
            assert!(seen.insert(fingerprint(reason, failure, status, text)), "{text}");
        }
    }
    for (one, other) in [
        ("550: 5.1.1 user unknown", "550: 5.7.1 user unknown"),
        ("connection refused", "connection reset"),
        ("utf8 expected", "json expected"),
    ] {
        assert_ne!(pattern(one), pattern(other));
    }
}

#[test]
fn an_end_without_an_error_is_titled_by_its_reason() {
    let words = Reason::MaxAgeExceeded.words();
    assert_eq!(title(Reason::MaxAgeExceeded, None, None, words), words);
    assert_eq!(
        title(Reason::MaxAgeExceeded, TEMPORARY, Some(503), words),
        format!("{words} (the last answer was 503)")
    );
}

#[test]
fn a_fingerprint_stays_what_it_is() {
    let text = pattern("answered 503: upstream connect error");
    assert_eq!(text, "upstream connect error");
    assert_eq!(pattern("up\0stream connect error"), text);
    assert_eq!(GroupId::other(GroupBy::Fingerprint).to_string(), "grp_3e6g5sszxkfac9s9a4wtxqg2hc");
    let print = fingerprint(Reason::MaxAttemptsExceeded, TEMPORARY, Some(503), &text);
    assert_eq!(GroupId::from_bytes(print).to_string(), "grp_20hk1sjb73aj90jt0ej2cny8h6");
    assert_eq!(GroupId::of(GroupBy::Fingerprint, &print).to_string(), "grp_2tthczw8vgnv4tjy43e8xn4edg");
}

#[test]
fn every_kind_has_a_group_of_its_own_for_the_same_key() {
    let grouped = Grouped {
        fingerprint: *b"acmeacmeacmeacme",
        tenant: "acmeacmeacmeacme",
        channel: Channel::Email,
        destination: "acmeacmeacmeacme",
        template: Some("acmeacmeacmeacme"),
    };
    let ids: std::collections::BTreeSet<GroupId> = grouped.groups().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| !id.is_other()));
    assert_eq!(Grouped { template: None, ..grouped }.groups().count(), 4);
    assert!(GroupBy::ALL.into_iter().all(|by| GroupId::other(by).is_other()));
    for by in GroupBy::ALL {
        assert_eq!((GroupBy::from_code(by.code()), GroupBy::from_name(by.name())), (Some(by), Some(by)));
    }
    assert_eq!((GroupBy::from_code(5), GroupBy::from_name("Tenant")), (None, None));
}

proptest! {
    #[test]
    fn any_text_has_a_bounded_pattern_and_title(text in ".{0,900}") {
        let found = pattern(&text);
        prop_assert!(found.chars().count() <= 3 * 600, "{found}");
        prop_assert!(!found.chars().any(char::is_control));
        let shown = titled(Some(503), &text);
        prop_assert!(shown.chars().count() <= MAX_TITLE + 10 && !shown.ends_with([' ', ':']), "{shown}");
    }

    #[test]
    fn numbers_hosts_and_addresses_do_not_count(
        number in 0u64.., host in "[a-z]{1,9}(-[a-z0-9]{1,5})?\\.(example|test)\\.(com|org)", ip in any::<std::net::Ipv4Addr>(),
        user in "[a-z][a-z0-9]{0,8}", id in any::<[u8; 16]>(),
    ) {
        let id = GroupId::from_bytes(id);
        let text = format!("item {number} of {id} at {host}:{number} ({ip}) for {user}@{host}, see https://{host}/{user}");
        prop_assert_eq!(pattern(&text), "item … of … at … (…) for …, see …");
    }
}
