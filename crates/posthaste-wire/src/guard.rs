//! Which addresses may be connected to: the defence against requests into our own network (SSRF).
//!
//! The tables follow the IANA special-purpose registries and deny by default: of IPv6, only global unicast is
//! allowed. An IPv6 address that carries an IPv4 address (mapped, NAT64, 6to4, Teredo, ISATAP) is checked by
//! the address it carries. A network with a NAT64 prefix of its own cannot be recognized.
//!
//! Invariant: the guard checks addresses, never names. The checked address is the one that is connected to.
//! Behind a proxy, which resolves names itself, only a host that is written as an address can be checked, and
//! a few names whose address is known everywhere.

mod subnet;
mod target;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use subnet::{BadSubnet, Subnet};
pub use target::{BadUrl, Host, RefusedUrl, Scheme, Target};

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Subnet {
    Subnet::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits)
}

const fn v6(start: [u16; 3], bits: u8) -> Subnet {
    Subnet::new(IpAddr::V6(Ipv6Addr::new(start[0], start[1], start[2], 0, 0, 0, 0, 0)), bits)
}

/// Forbidden IPv4 ranges.
const FORBIDDEN_V4: &[(Subnet, &str)] = &[
    (v4(0, 0, 0, 0, 8), "this network"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "carrier-grade NAT"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    // Azure's host agent has a public address that only its own virtual machines reach.
    (v4(168, 63, 129, 16, 32), "cloud metadata"),
    (v4(169, 254, 169, 254, 32), "cloud metadata"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "protocol assignments"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 88, 99, 0, 24), "6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "benchmark"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(255, 255, 255, 255, 32), "broadcast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// Forbidden IPv6 ranges. Everything outside `GLOBAL_V6` is forbidden too; a range stands here for its name
/// in errors.
const FORBIDDEN_V6: &[(Subnet, &str)] = &[
    (Subnet::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128), "unspecified"),
    (Subnet::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128), "loopback"),
    (v6([0, 0, 0], 96), "IPv4-compatible"),
    (v6([0x64, 0xff9b, 1], 48), "local NAT64"),
    (v6([0x100, 0, 0], 64), "discard"),
    (v6([0x2001, 2, 0], 48), "benchmark"),
    (v6([0x2001, 0xdb8, 0], 32), "documentation"),
    (v6([0x3fff, 0, 0], 20), "documentation"),
    (v6([0x5f00, 0, 0], 16), "segment routing"),
    (Subnet::new(IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), 128), "cloud metadata"),
    (v6([0xfc00, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0], 8), "multicast"),
];

/// Allocated as global unicast.
const GLOBAL_V6: Subnet = v6([0x2000, 0, 0], 3);
/// The part of `GLOBAL_V6` reserved for protocols. Of these, only Teredo leads to a host.
const PROTOCOLS_V6: Subnet = v6([0x2001, 0, 0], 23);
const TEREDO: Subnet = v6([0x2001, 0, 0], 32);
const SIX_TO_FOUR: Subnet = v6([0x2002, 0, 0], 16);
const NAT64: Subnet = v6([0x64, 0xff9b, 0], 96);

/// Names of the metadata service of clouds.
const METADATA_NAMES: &[&str] =
    &["metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is a forbidden address ({range})")]
pub struct Forbidden {
    pub address: IpAddr,
    /// The name of the range.
    pub range: &'static str,
}

#[derive(Clone, Default)]
pub struct Guard {
    exceptions: Vec<Subnet>,
    is_behind_proxy: bool,
}

impl Guard {
    /// Creates a guard that allows every address in the subnets `exceptions`. An IPv4 subnet also allows the
    /// mapped IPv6 form, which is the same address, but no other IPv6 address that carries an IPv4 address.
    pub const fn new(exceptions: Vec<Subnet>) -> Self {
        Self { exceptions, is_behind_proxy: false }
    }

    /// The same, for a client whose names are resolved by a proxy, so that their addresses stay unknown. Names that
    /// everywhere lead to a forbidden address are then checked by that address.
    #[must_use]
    pub fn behind_proxy(self) -> Self {
        Self { is_behind_proxy: true, ..self }
    }

    /// Creates a guard from `security.allow_subnets`: subnets or single addresses.
    pub fn allowing<T: AsRef<str>>(texts: &[T]) -> Result<Self, BadSubnet> {
        Ok(Self::new(texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?))
    }

    /// Checks one address.
    pub fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        let plain = address.to_canonical();
        if self.exceptions.iter().any(|subnet| subnet.contains(plain)) {
            return Ok(());
        }
        let range = match plain {
            IpAddr::V4(plain) => forbidden_v4(plain),
            IpAddr::V6(plain) => forbidden_v6(plain),
        };
        range.map_or(Ok(()), |range| Err(Forbidden { address, range }))
    }

    /// Parses a webhook's URL as browsers do, and checks the host if it is an address. A name is not
    /// resolved: its addresses are checked when it is.
    pub fn check_url(&self, url: &str) -> Result<Target, RefusedUrl> {
        let target = Target::parse(url)?;
        let known = match &target.host {
            Host::Address(address) => Some(*address),
            Host::Name(name) if self.is_behind_proxy => well_known(name),
            Host::Name(_) => None,
        };
        if let Some(address) = known {
            self.check(address)?;
        }
        Ok(target)
    }
}

/// The address of a name that is the same in every network.
fn well_known(name: &str) -> Option<IpAddr> {
    if name == "localhost" || name.ends_with(".localhost") {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    METADATA_NAMES.contains(&name).then_some(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)))
}

impl fmt::Debug for Guard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Guard").field(&self.exceptions).finish()
    }
}

fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    range_of(FORBIDDEN_V4, IpAddr::V4(address))
}

fn forbidden_v6(address: Ipv6Addr) -> Option<&'static str> {
    let ip = IpAddr::V6(address);
    if let Some(range) = range_of(FORBIDDEN_V6, ip) {
        return Some(range);
    }
    let carried = carried(address);
    if carried == [None; 2] && (!GLOBAL_V6.contains(ip) || PROTOCOLS_V6.contains(ip)) {
        return Some("reserved");
    }
    carried.into_iter().flatten().find_map(forbidden_v4)
}

fn range_of(table: &[(Subnet, &'static str)], ip: IpAddr) -> Option<&'static str> {
    table.iter().find(|(subnet, _)| subnet.contains(ip)).map(|(_, range)| *range)
}

/// The IPv4 addresses that an IPv6 address carries. Teredo carries two: server and client.
fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let ip = IpAddr::V6(address);
    let bits = address.to_bits();
    // Cutting to 32 bits is the point.
    let word = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    let segments = address.segments();
    let isatap = segments[4] & !0x0200 == 0 && segments[5] == 0x5efe;
    if TEREDO.contains(ip) {
        [Some(word(64)), Some(Ipv4Addr::from_bits(!word(0).to_bits()))]
    } else if SIX_TO_FOUR.contains(ip) {
        [Some(word(80)), isatap.then(|| word(0))]
    } else if NAT64.contains(ip) || (isatap && GLOBAL_V6.contains(ip) && !PROTOCOLS_V6.contains(ip)) {
        [Some(word(0)), None]
    } else {
        [None; 2]
    }
}
