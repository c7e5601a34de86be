//! Which addresses and URLs pass, in every spelling.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use posthaste_wire::guard::{Guard, RefusedUrl, Subnet};
use proptest::prelude::*;

/// A closed address, and what kind it is said to be.
const CLOSED: &[(&str, &str)] = &[
    ("0.0.0.0", "this network"),
    ("0.1.2.3", "this network"),
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.0", "carrier-grade NAT"),
    ("100.100.100.200", "carrier-grade NAT"),
    ("100.127.255.255", "carrier-grade NAT"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("168.63.129.16", "cloud metadata"),
    ("169.254.0.1", "link-local"),
    ("169.254.169.254", "cloud metadata"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.192", "protocol assignments"),
    ("192.0.2.1", "documentation"),
    ("192.88.99.1", "6to4 relay"),
    ("192.168.1.1", "private"),
    ("198.18.0.1", "benchmark"),
    ("198.19.255.255", "benchmark"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.9", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::127.0.0.1", "IPv4-compatible"),
    ("::8.8.8.8", "IPv4-compatible"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:169.254.169.254", "cloud metadata"),
    ("::ffff:0:127.0.0.1", "reserved"),
    ("64:ff9b::10.0.0.1", "private"),
    ("64:ff9b::7f00:1", "loopback"),
    ("64:ff9b:1::1", "local NAT64"),
    ("64:ff9b:1:ffff:8:808:800:0", "local NAT64"),
    ("64:ff9b::1:808:808", "reserved"),
    ("100::1", "discard"),
    ("2001::1", "this network"),
    ("2001:0:7f00:1::f7f7:f7f7", "loopback"),
    ("2001:0:808:808::80ff:fffe", "loopback"),
    ("2001:1::1", "reserved"),
    ("2001:2::1", "benchmark"),
    ("2001:10::1", "reserved"),
    ("2001:20::1", "reserved"),
    ("2001:db8::1", "documentation"),
    ("2002:7f00:1::1", "loopback"),
    ("2002:a9fe:a9fe::", "cloud metadata"),
    ("2a00:1450::5efe:10.0.0.1", "private"),
    ("2a00:1450::200:5efe:10.0.0.1", "private"),
    ("2002:808:808:0:0:5efe:10.0.0.1", "private"),
    ("3fff::1", "documentation"),
    ("4000::1", "reserved"),
    ("5f00::1", "segment routing"),
    ("fc00::1", "unique local"),
    ("fd00:ec2::254", "cloud metadata"),
    ("fd12:3456::1", "unique local"),
    ("fe80::1", "link-local"),
    ("febf::1", "link-local"),
    ("fec0::1", "site-local"),
    ("ff02::1", "multicast"),
];

const OPEN: &[&str] = &[
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2001:0:808:808::f7f7:f7f7",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2002:808:808::1",
    "2606:4700::1111",
    "2a00:1450:4001:80b::5efe",
    "2a00:1450::5efe:8.8.8.8",
];

#[test]
fn closed_ranges_are_closed_and_their_neighbours_open() {
    let guard = Guard::default();
    for (text, range) in CLOSED {
        let address: IpAddr = text.parse().unwrap();
        assert_eq!(guard.check(address).map_err(|forbidden| forbidden.range), Err(*range), "{text}");
    }
    for text in OPEN {
        assert_eq!(guard.check(text.parse().unwrap()), Ok(()), "{text}");
    }
}

#[test]
fn every_spelling_of_a_closed_address_is_forbidden() {
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "017700000001",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "127.1.",
        "127.0.0.01",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "１２７.０.０.１",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "0",
        "0x0",
        "00",
        "169.254.43518",
        "0xA9FEA9FE",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::FFFF:7f00:1]",
        "[::]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "1\u{ad}27.0.0.1",
        "12\t7.0.0.1",
    ] {
        for url in
            [format!("http://{host}/x"), format!("https://{host}:8443"), format!(" HTTP:\\\\{host}\\x ")]
        {
            let refused = Guard::default().check_url(&url);
            assert!(matches!(refused, Err(RefusedUrl::Forbidden(_))), "{url}: {refused:?}");
        }
    }
}

#[test]
fn what_is_no_url_of_a_webhook_is_refused_with_a_reason() {
    for (url, reason) in [
        ("", "relative"),
        ("example.com", "relative"),
        ("/hook", "relative"),
        ("http://", "empty host"),
        ("http:///", "empty host"),
        ("http://./", "names no host"),
        ("http://.../", "nothing between two dots"),
        ("http://a..b/", "nothing between two dots"),
        ("http://.example.com/", "nothing between two dots"),
        ("http://example.com../", "nothing between two dots"),
        (&format!("http://{}.com/", "a".repeat(64)), "more than 63"),
        (&format!("http://{}com/", "abc.".repeat(63)), "more than 253"),
        ("http://a:99999/", "port"),
        ("http://a:0/", "port 0"),
        ("ftp://example.com/", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("gopher://127.0.0.1:6379/_x", "http:// or https://"),
        ("unix:/run/docker.sock", "http:// or https://"),
        ("http://user@example.com/", "user name"),
        ("http://user:secret@example.com/", "user name"),
        ("http://:secret@example.com/", "user name"),
        ("http://1.2.3.4@127.0.0.1/", "user name"),
        ("http://256.1.1.1/", "IPv4"),
        ("http://1.2.3.4.5/", "IPv4"),
        ("http://0x100000000/", "IPv4"),
        ("http://[fe80::1%25eth0]/", "IPv6"),
        ("http://[::1/", "IPv6"),
        ("http://[127.0.0.1]/", "IPv6"),
        ("http://a b/", "domain"),
        ("http://a%00b/", "domain"),
        ("http://xn--a/", "domain"),
        (&format!("http://a/{}", "x".repeat(9_000)), "8 KiB"),
    ] {
        let Err(RefusedUrl::Bad(bad)) = Guard::default().check_url(url) else { panic!("{url} passes") };
        assert!(bad.to_string().contains(reason), "{url}: {bad}");
        assert!(!bad.to_string().contains("secret"), "{bad}");
    }
}

#[test]
fn the_destination_is_the_origin_in_one_spelling() {
    for (url, destination, authority, path) in [
        ("http://example.com", "http://example.com:80", "example.com", "/"),
        ("HTTPS://Hooks.Example.COM/A?b=C#d", "https://hooks.example.com:443", "hooks.example.com", "/A?b=C"),
        ("https://example.com:443/", "https://example.com:443", "example.com", "/"),
        ("http://example.com.:8080/x/../y", "http://example.com:8080", "example.com:8080", "/y"),
        (
            "https://bücher.example/ü?ü",
            "https://xn--bcher-kva.example:443",
            "xn--bcher-kva.example",
            "/%C3%BC?%C3%BC",
        ),
        ("http://0x08080808/", "http://8.8.8.8:80", "8.8.8.8", "/"),
        ("http://[2606:4700:0::1111]:81/", "http://[2606:4700::1111]:81", "[2606:4700::1111]:81", "/"),
        (
            "http://a/b c\"<>`{}|^'[]\\d?e f\"<>'`{}|^[]\\",
            "http://a:80",
            "a",
            "/b%20c%22%3C%3E%60%7B%7D|^'[]/d?e%20f%22%3C%3E%27`{}|^[]\\",
        ),
    ] {
        let target = Guard::default().check_url(url).unwrap_or_else(|refused| panic!("{url}: {refused}"));
        assert_eq!(target.destination, destination, "{url}");
        assert_eq!(target.authority(), authority, "{url}");
        assert_eq!(target.path.as_str(), path, "{url}");
    }
}

#[test]
fn exceptions_open_their_subnet_and_nothing_else() {
    let guard = Guard::allowing(&["10.1.0.0/16", "fd00::/8", "192.168.7.9", "::ffff:127.0.0.0/104"]).unwrap();
    for open in [
        "10.1.0.0",
        "10.1.255.255",
        "::ffff:10.1.2.3",
        "fd00:ec2::254",
        "192.168.7.9",
        "127.0.0.1",
        "8.8.8.8",
    ] {
        assert_eq!(guard.check(open.parse().unwrap()), Ok(()), "{open}");
    }
    for closed in
        ["10.0.255.255", "10.2.0.0", "192.168.7.8", "fc00::1", "::1", "64:ff9b::10.1.2.3", "2002:a01:203::"]
    {
        assert!(guard.check(closed.parse().unwrap()).is_err(), "{closed}");
    }
    assert!(guard.check_url("http://2130706433/").is_ok());
    let all = Guard::allowing(&["0.0.0.0/0", "::/0"]).unwrap();
    assert!(CLOSED.iter().all(|(text, _)| all.check(text.parse().unwrap()).is_ok()));
}

#[test]
fn a_bad_exception_is_an_error_that_names_it() {
    for text in [
        "",
        "x",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "10.0.0/8",
        "::/129",
        "example.com",
    ] {
        let error = text.parse::<Subnet>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{text}` ")), "{error}");
    }
    let error = "10.0.0.1/8".parse::<Subnet>().unwrap_err().to_string();
    assert_eq!(error, "`10.0.0.1/8` does not start its subnet: write 10.0.0.0/8");
    assert_eq!(
        Guard::allowing(&["127.0.0.1", "nonsense"]).unwrap_err().to_string().split(' ').next(),
        Some("`nonsense`")
    );
}

/// A second opinion on IPv4, from the standard library where it has one.
fn is_closed(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || address.octets() == [168, 63, 129, 16]
        || matches!((a, b), (0 | 240..=255, _) | (100, 64..=127) | (198, 18 | 19))
        || matches!((a, b, c), (192, 0, 0) | (192, 88, 99))
}

fn closed_v4() -> impl Strategy<Value = Ipv4Addr> {
    let starts: Vec<(u32, u8)> = CLOSED_STARTS.iter().map(|(start, bits)| (start.to_bits(), *bits)).collect();
    (prop::sample::select(starts), any::<u32>()).prop_map(|((start, bits), host)| {
        Ipv4Addr::from_bits(start | (host & u32::MAX.checked_shr(bits.into()).unwrap_or(0)))
    })
}

const CLOSED_STARTS: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The ways an IPv4 address is carried in an IPv6 address; `noise` fills what does not matter.
fn embeddings(address: Ipv4Addr, noise: u128) -> Vec<Ipv6Addr> {
    let word = u128::from(address.to_bits());
    let public = u128::from(Ipv4Addr::new(8, 8, 8, 8).to_bits());
    [
        word,
        (0xffff << 32) | word,
        (0x0064_ff9b << 96) | word,
        (0x0064_ff9b_0001 << 80) | (noise & ((1 << 80) - 1)),
        (0x2002 << 112) | (word << 80) | (noise & ((1 << 80) - 1)),
        (0x2001_0000 << 96) | (word << 64) | (noise & u128::from(u64::MAX)),
        (0x2001_0000 << 96) | (public << 64) | (noise & 0xffff_ffff_0000_0000) | (word ^ 0xffff_ffff),
        (0x2a00_1450 << 96) | (0x5efe << 32) | word,
    ]
    .map(Ipv6Addr::from_bits)
    .to_vec()
}

proptest! {
    #[test]
    fn no_closed_address_passes_in_any_embedding_or_spelling(address in closed_v4(), noise in any::<u128>()) {
        let guard = Guard::default();
        prop_assert!(is_closed(address));
        prop_assert!(guard.check(address.into()).is_err());
        for embedded in embeddings(address, noise) {
            prop_assert!(guard.check(embedded.into()).is_err(), "{}", embedded);
            let refused = guard.check_url(&format!("http://[{embedded}]/"));
            prop_assert!(matches!(refused, Err(RefusedUrl::Forbidden(_))), "{}", embedded);
        }
        let [a, b, c, d] = address.octets();
        let whole = address.to_bits();
        let rest = whole & 0x00ff_ffff;
        for host in [
            format!("{whole}"), format!("{whole:#x}"), format!("0{whole:o}"), format!("{a}.{rest}"),
            format!("{a}.{b}.{}", u32::from(c) << 8 | u32::from(d)), format!("0{a:o}.{b:#x}.{c}.0{d:o}"), format!("{address}."),
        ] {
            let refused = guard.check_url(&format!("https://{host}/"));
            prop_assert!(matches!(refused, Err(RefusedUrl::Forbidden(_))), "{}", host);
        }
    }

    #[test]
    fn ipv4_is_closed_exactly_where_the_second_opinion_says_so(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(Guard::default().check(address.into()).is_err(), is_closed(address));
        prop_assert_eq!(Guard::default().check(address.to_ipv6_mapped().into()).is_err(), is_closed(address));
    }

    #[test]
    fn an_open_ipv6_address_is_global_unicast_or_carries_an_open_ipv4_address(bits in any::<u128>()) {
        let address = Ipv6Addr::from_bits(bits);
        if Guard::default().check(address.into()).is_ok() {
            prop_assert_eq!(bits >> 125, 1);
            prop_assert!(!address.is_loopback() && !address.is_multicast() && !address.is_unique_local());
        }
    }

    #[test]
    fn no_text_makes_the_guard_panic(text in "\\PC{0,60}", host in "[0-9a-fxA-FX.:\\[\\]%]{0,30}") {
        let _ = Guard::default().check_url(&text);
        let _ = Guard::default().check_url(&format!("http://{host}/"));
        let _ = text.parse::<Subnet>();
        let _ = format!("{host}/{}", text.len()).parse::<Subnet>();
    }
}
