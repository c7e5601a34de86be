//! The address of a caller: the other end of its connection, or what a trusted proxy says of it.

use std::net::IpAddr;

use http::HeaderMap;
use posthaste_wire::guard::Subnet;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The nearest address that is not a trusted proxy. Each proxy adds the address that it was called from at
/// the end of `X-Forwarded-For`, so the header is read from there; what stands before the first untrusted
/// address may be made up.
pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Subnet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|subnet| subnet.contains(address));
    let lines = headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
    let hops: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    let mut address = peer.to_canonical();
    for hop in hops.into_iter().rev() {
        if !is_trusted(address) {
            break;
        }
        let Ok(before) = hop.parse::<IpAddr>() else { break };
        address = before.to_canonical();
    }
    address
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_what_trusted_proxies_say_counts() {
        let proxies: Vec<Subnet> = ["10.0.0.0/8", "::1/128"].map(|text| text.parse().unwrap()).into();
        for (peer, forwarded, wanted) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["10.0.0.3,10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, nonsense"], "10.0.0.1"),
            ("::1", &["2001:db8::7"], "2001:db8::7"),
        ] {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
            }
            let seen = client_address(peer.parse().unwrap(), &headers, &proxies);
            assert_eq!(seen, wanted.parse::<IpAddr>().unwrap(), "{peer} {forwarded:?}");
        }
    }
}
