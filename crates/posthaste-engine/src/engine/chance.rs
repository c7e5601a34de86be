//! Chance, for everything but secrets: one generator that a seed repeats.

use super::Shared;

impl Shared {
    /// A number from 0.0 to just under 1.0.
    pub(crate) fn draw(&self) -> f64 {
        self.chance.lock().expect("no code panics while it draws").f64()
    }

    /// Random bits for an id.
    pub(crate) fn random(&self) -> u128 {
        self.chance.lock().expect("no code panics while it draws").u128(..)
    }
}
