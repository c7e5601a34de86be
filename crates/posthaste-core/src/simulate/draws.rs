//! Numbers that look random and follow from a seed, so that a simulation can be repeated.

/// The generator SplitMix64.
#[derive(Debug, Clone)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in `0.0..1.0`.
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // As many bits as a fraction has.
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_they_are_spread_evenly() {
        let draws = |seed| {
            let mut draws = Draws::new(seed);
            (0..10_000).map(|_| draws.next()).collect::<Vec<f64>>()
        };
        let some = draws(7);
        assert_eq!(some, draws(7));
        assert_ne!(some, draws(8));
        assert!(some.iter().all(|number| (0.0..1.0).contains(number)));
        for part in 0..10 {
            let low = f64::from(part) / 10.0;
            let inside = some.iter().filter(|number| (low..low + 0.1).contains(*number)).count();
            assert!((850..1_150).contains(&inside), "{inside} from {low}");
        }
    }
}
