//! A range of addresses, as `10.0.0.0/8` or as a single address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that share the first `bits` bits with `start`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    start: IpAddr,
    bits: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {reason}")]
pub struct BadSubnet {
    text: String,
    reason: String,
}

impl Subnet {
    pub(super) const fn new(start: IpAddr, bits: u8) -> Self {
        Self { start, bits }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let difference = match (self.start, address) {
            (IpAddr::V4(start), IpAddr::V4(address)) => {
                u128::from(start.to_bits() ^ address.to_bits()) << (128 - 32)
            }
            (IpAddr::V6(start), IpAddr::V6(address)) => start.to_bits() ^ address.to_bits(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        difference.leading_zeros() >= u32::from(self.bits)
    }

    fn first(&self) -> IpAddr {
        match self.start {
            IpAddr::V4(start) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(start.to_bits() & mask))
            }
            IpAddr::V6(start) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(start.to_bits() & mask))
            }
        }
    }

    /// Converts an IPv4 range written as mapped IPv6 to IPv4.
    fn plain(self) -> Self {
        match self.start.to_canonical() {
            start @ IpAddr::V4(_) if self.start.is_ipv6() && self.bits >= 96 => {
                Self { start, bits: self.bits - 96 }
            }
            _ => self,
        }
    }
}

impl FromStr for Subnet {
    type Err = BadSubnet;

    fn from_str(text: &str) -> Result<Self, BadSubnet> {
        let bad = |reason: String| BadSubnet { text: text.chars().take(64).collect(), reason };
        let (start, bits) = text.trim().split_once('/').map_or((text.trim(), None), |(a, b)| (a, Some(b)));
        let unreadable = || bad("is not a subnet such as 10.0.0.0/8, or an address".to_owned());
        let start: IpAddr = start.parse().map_err(|_| unreadable())?;
        let max = if start.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => max,
            Some(bits) if !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let fits = bits.parse().ok().filter(|bits| *bits <= max);
                fits.ok_or_else(|| bad(format!("has a prefix longer than {max} bits")))?
            }
            Some(_) => return Err(unreadable()),
        };
        let subnet = Self { start, bits };
        if subnet.first() != start {
            return Err(bad(format!("does not start its subnet: write {}/{bits}", subnet.first())));
        }
        Ok(subnet.plain())
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.start, self.bits)
    }
}

impl fmt::Debug for Subnet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
