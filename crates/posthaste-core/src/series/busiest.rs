//! The busiest destinations of a period in bounded memory, by the Space-Saving algorithm (Metwally, Agrawal and El Abbadi,
//! 2005).
//!
//! There are only so many places. A destination without one takes over the place of the least busy one, together with its
//! count. So the count of a place never falls, it is never less than what happened to its destination, and it is too large by
//! at most the count that was taken over. With `n` places, whatever had more than one part in `n` of everything has a place.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Figures;
use crate::channel::Channel;

/// A channel and a destination, as flows name it.
pub type Addressed = (Channel, Arc<str>);

/// The busiest destinations, with what happened to each since it has its place.
#[derive(Debug, Clone, Default)]
pub struct Busiest {
    places: Vec<Place>,
    /// The number of the place of each destination.
    known: HashMap<Addressed, usize>,
    /// Counts with the numbers of their places: the least busy one is the first.
    order: BTreeSet<(u64, usize)>,
}

/// One of the busiest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub whose: Addressed,
    /// What happened since it has the place, which may be less than what happened to it.
    pub figures: Figures,
    /// Grows with each use of the place, whoever has it.
    pub count: u64,
    /// The part of the count that was taken over.
    pub taken_over: u64,
}

impl Busiest {
    /// In the order of their numbers; a place keeps its number.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether a destination has a place.
    pub fn knows(&self, whose: &Addressed) -> bool {
        self.known.contains_key(whose)
    }

    /// Adds what happened to a destination. `most` is how many places there may be now; those that are there stay. Returns
    /// whether it has a place: without any place there is none to take over.
    pub fn add(&mut self, whose: &Addressed, figures: &Figures, most: usize) -> bool {
        let times = figures.happened();
        if times == 0 {
            return self.knows(whose);
        }
        let number = match self.known.get(whose) {
            Some(number) => *number,
            None if self.places.len() < most => self.make_place(whose),
            None => match self.order.first() {
                Some((_, least)) => self.take_over(*least, whose),
                None => return false,
            },
        };
        let place = &mut self.places[number];
        self.order.remove(&(place.count, number));
        place.count = place.count.saturating_add(times);
        place.figures.merge(figures);
        self.order.insert((place.count, number));
        true
    }

    fn make_place(&mut self, whose: &Addressed) -> usize {
        let number = self.places.len();
        self.places.push(Place {
            whose: whose.clone(),
            figures: Figures::default(),
            count: 0,
            taken_over: 0,
        });
        self.known.insert(whose.clone(), number);
        number
    }

    fn take_over(&mut self, number: usize, whose: &Addressed) -> usize {
        let place = &mut self.places[number];
        self.known.remove(&place.whose);
        self.known.insert(whose.clone(), number);
        place.whose = whose.clone();
        place.figures = Figures::default();
        place.taken_over = place.count;
        number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn whose(number: u64) -> Addressed {
        (Channel::Webhook, format!("https://{number}.example:443").into())
    }

    fn accepted(times: u64) -> Figures {
        Figures { accepted: times, ..Figures::default() }
    }

    #[test]
    fn the_least_busy_one_gives_its_place_away() {
        let mut busiest = Busiest::default();
        for (number, times) in [(1, 5), (2, 2), (3, 1), (2, 1)] {
            assert!(busiest.add(&whose(number), &accepted(times), 2));
        }
        // The third took over the 2 of the second, which then took over the 3.
        let shown: Vec<_> = busiest
            .places()
            .iter()
            .map(|place| (place.count, place.taken_over, place.figures.accepted))
            .collect();
        assert_eq!(shown, [(5, 0, 5), (4, 3, 1)]);
        assert_eq!(busiest.places()[1].whose, whose(2));
        assert!(busiest.knows(&whose(1)) && !busiest.knows(&whose(3)));
    }

    #[test]
    fn without_a_place_there_is_none_to_take_over() {
        let mut busiest = Busiest::default();
        assert!(!busiest.add(&whose(1), &accepted(1), 0));
        assert!(!busiest.add(&whose(1), &Figures::default(), 5));
        assert_eq!(busiest.places(), []);
        assert!(busiest.add(&whose(1), &accepted(1), 1));
        assert!(busiest.add(&whose(2), &accepted(1), 0), "the places that are there stay");
        assert_eq!(busiest.places().len(), 1);
    }

    #[test]
    fn channels_are_told_apart() {
        let mut busiest = Busiest::default();
        let pool = |channel| (channel, Arc::from("pool:x"));
        busiest.add(&pool(Channel::Email), &accepted(1), 9);
        busiest.add(&pool(Channel::Sms), &accepted(1), 9);
        assert_eq!(busiest.places().len(), 2);
    }

    proptest! {
        /// The promises of the algorithm, against exact counts.
        #[test]
        fn counts_are_never_too_small_and_the_busy_ones_have_a_place(
            stream in prop::collection::vec((0u64..40, 1u64..9), 1..400),
            most in 1usize..12,
        ) {
            let mut busiest = Busiest::default();
            let mut exact: BTreeMap<u64, u64> = BTreeMap::new();
            let mut before: Vec<u64> = vec![];
            for (number, times) in stream {
                // Few numbers are busy.
                let number = if number < 30 { number % 4 } else { number };
                prop_assert!(busiest.add(&whose(number), &accepted(times), most));
                *exact.entry(number).or_default() += times;
                let counts: Vec<u64> = busiest.places().iter().map(|place| place.count).collect();
                prop_assert!(counts.iter().zip(&before).all(|(now, before)| now >= before), "a count fell");
                before = counts;
            }
            let all: u64 = exact.values().sum();
            prop_assert!(busiest.places().len() <= most);
            prop_assert_eq!(busiest.places().iter().map(|place| place.count).sum::<u64>(), all);
            for (number, happened) in exact {
                let place = busiest.places().iter().find(|place| place.whose == whose(number));
                prop_assert_eq!(busiest.knows(&whose(number)), place.is_some());
                match place {
                    Some(place) => {
                        prop_assert!(place.count >= happened && place.count - place.taken_over <= happened);
                        prop_assert_eq!(place.figures.accepted, place.count - place.taken_over);
                    }
                    None => prop_assert!(happened * most as u64 <= all, "a busy one has no place"),
                }
            }
        }
    }
}
