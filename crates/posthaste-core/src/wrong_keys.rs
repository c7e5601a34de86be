//! Wrong keys: how long the answer to one is held back, by the network that it came from.
//!
//! A key that is right is never looked up here, so it is neither refused nor delayed, whatever its neighbours do.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// How many wrong keys in a minute are answered at once.
pub const AT_ONCE: u32 = 5;
/// In this time, the count of wrong keys falls by one.
const FORGIVEN: Duration = Duration::from_secs(60 / AT_ONCE as u64);
/// The delay after the first key too many; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(250);
pub const LONGEST_DELAY: Duration = Duration::from_secs(4);
/// Upper bound on the wrong keys that count, so that a network is forgiven after four minutes.
const MOST_COUNTED: u32 = 20;
/// How many networks are remembered. Beyond them the one that failed least recently is forgotten.
pub const MOST_NETWORKS: usize = 4_096;
/// How many answers to one network may be held back at a time.
pub const MOST_WAITING: u32 = 4;

/// When a wrong key is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    AtOnce,
    /// `WrongKeys::answered` must be called after it.
    After(Duration),
    /// Too many answers are held back already. The refusal is sent at once, with this time as `Retry-After`.
    Refused(Duration),
}

/// The wrong keys of a node. `now` is the time since any fixed moment.
#[derive(Debug)]
pub struct WrongKeys {
    networks: HashMap<IpAddr, Failures>,
    /// The networks by their last failure.
    order: BTreeMap<u64, IpAddr>,
    last: u64,
    waiting: usize,
    most_waiting: usize,
}

#[derive(Debug)]
struct Failures {
    /// Its place in `order`.
    place: u64,
    /// When it is forgiven wholly: each wrong key moves this by `FORGIVEN`.
    until: Duration,
    waiting: u32,
}

impl WrongKeys {
    /// At most so many answers are held back at a time.
    pub fn new(most_waiting: usize) -> Self {
        Self { networks: HashMap::new(), order: BTreeMap::new(), last: 0, waiting: 0, most_waiting }
    }

    /// A wrong key came from this address.
    pub fn failed(&mut self, address: IpAddr, now: Duration) -> Verdict {
        let network = network(address);
        self.last += 1;
        if let Some(known) = self.networks.get(&network) {
            self.order.remove(&known.place);
        } else if self.networks.len() >= MOST_NETWORKS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.networks.remove(&oldest);
        }
        self.order.insert(self.last, network);
        let fresh = Failures { place: 0, until: now, waiting: 0 };
        let known = self.networks.entry(network).or_insert(fresh);
        known.place = self.last;
        known.until = (known.until.max(now) + FORGIVEN).min(now + FORGIVEN * MOST_COUNTED);
        let left = known.until - now;
        let delay = delay(left.as_nanos().div_ceil(FORGIVEN.as_nanos()).try_into().unwrap_or(MOST_COUNTED));
        if delay.is_zero() {
            return Verdict::AtOnce;
        }
        if known.waiting >= MOST_WAITING || self.waiting >= self.most_waiting {
            return Verdict::Refused(left.saturating_sub(FORGIVEN * (AT_ONCE - 1)));
        }
        known.waiting += 1;
        self.waiting += 1;
        Verdict::After(delay)
    }

    /// An answer is no longer held back.
    pub fn answered(&mut self, address: IpAddr) {
        self.waiting = self.waiting.saturating_sub(1);
        // The network may have been forgotten meanwhile, and be known again since.
        if let Some(known) = self.networks.get_mut(&network(address)) {
            known.waiting = known.waiting.saturating_sub(1);
        }
    }
}

/// The delay for the n-th wrong key of a network that is not forgiven yet.
fn delay(number: u32) -> Duration {
    match number.checked_sub(AT_ONCE + 1) {
        None => Duration::ZERO,
        Some(too_many) => FIRST_DELAY.saturating_mul(1 << too_many.min(16)).min(LONGEST_DELAY),
    }
}

/// The network that is counted as one caller: an IPv4 address, or an IPv6 /64, whose addresses usually belong to one host.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 1_000;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn the_delay_grows_from_nothing_to_a_few_seconds() {
        for (number, millis) in [
            (1, 0),
            (5, 0),
            (6, 250),
            (7, 500),
            (8, 1_000),
            (9, 2_000),
            (10, 4_000),
            (11, 4_000),
            (u32::MAX, 4_000),
        ] {
            assert_eq!(delay(number), Duration::from_millis(millis), "{number}");
        }
    }

    #[test]
    fn a_network_is_forgiven_one_wrong_key_at_a_time() {
        // When a wrong key comes, and the delay of its answer in milliseconds.
        for (times, wanted) in [
            (&[0, 0, 0, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 250, 500][..]),
            (&[0, 0, 0, 0, 0, 11, 12], &[0, 0, 0, 0, 0, 250, 250]),
            (&[0, 0, 0, 0, 0, 12, 24, 36], &[0, 0, 0, 0, 0, 0, 0, 0]),
            (&[0, 0, 0, 0, 0, 0, 72, 72, 72, 72, 72, 72], &[0, 0, 0, 0, 0, 250, 0, 0, 0, 0, 0, 250]),
        ] {
            let mut keys = WrongKeys::new(MANY);
            for (time, millis) in times.iter().zip(wanted) {
                let verdict = match millis {
                    0 => Verdict::AtOnce,
                    millis => Verdict::After(Duration::from_millis(*millis)),
                };
                assert_eq!(keys.failed(address(1), at(*time)), verdict, "{times:?}");
            }
        }
        let mut keys = WrongKeys::new(MANY);
        for _ in 0..100_000 {
            keys.failed(address(1), at(0));
        }
        assert_eq!(keys.failed(address(1), at(240)), Verdict::AtOnce, "forgiven after four minutes");
    }

    #[test]
    fn no_more_than_so_many_wait_of_one_network_and_in_all() {
        let mut keys = WrongKeys::new(6);
        let verdicts: Vec<_> = (0..11).map(|_| keys.failed(address(1), at(0))).collect();
        assert!(verdicts[..5].iter().all(|one| *one == Verdict::AtOnce));
        assert!(verdicts[5..9].iter().all(|one| matches!(one, Verdict::After(_))), "{verdicts:?}");
        // The tenth and the eleventh: 60 s until the network is forgiven but for five, and 12 s more.
        assert_eq!(verdicts[9..], [Verdict::Refused(at(72)), Verdict::Refused(at(84))]);
        keys.answered(address(1));
        assert_eq!(keys.failed(address(1), at(0)), Verdict::After(LONGEST_DELAY));
        // Two places are left for all others.
        let seen: Vec<_> = (0..8).map(|_| keys.failed(address(2), at(0))).collect();
        assert!(matches!(seen[5..], [Verdict::After(_), Verdict::After(_), Verdict::Refused(_)]), "{seen:?}");
    }

    #[test]
    fn an_ipv6_network_is_one_caller_and_an_ipv4_address_is_one() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
        ] {
            let of = |text: &str| network(text.parse().unwrap());
            assert_eq!(of(one) == of(other), same, "{one} {other}");
        }
    }

    #[test]
    fn the_networks_are_bounded_and_the_one_that_failed_least_recently_is_forgotten() {
        let mut keys = WrongKeys::new(MANY);
        let slow = |keys: &mut WrongKeys| matches!(keys.failed(address(0), at(0)), Verdict::After(_));
        for _ in 0..5 {
            keys.failed(address(0), at(0));
        }
        for number in 1..=MOST_NETWORKS as u32 - 1 {
            keys.failed(address(number), at(0));
        }
        assert!(slow(&mut keys), "it is the last now");
        for number in 10_000..10_000 + MOST_NETWORKS as u32 - 1 {
            keys.failed(address(number), at(0));
        }
        assert!(slow(&mut keys));
        assert_eq!((keys.networks.len(), keys.order.len()), (MOST_NETWORKS, MOST_NETWORKS));
        for number in 20_000..20_000 + MOST_NETWORKS as u32 {
            keys.failed(address(number), at(0));
        }
        assert_eq!(keys.failed(address(0), at(0)), Verdict::AtOnce, "it was forgotten");
        // What was held back for a forgotten network still ends.
        keys.answered(address(0));
        keys.answered(address(0));
        assert_eq!(keys.waiting, 0);
    }
}
