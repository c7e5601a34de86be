//! The numbers of flows that this node has met lately, so that an arrival need not ask the store.

use std::sync::Mutex;

use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::recent::Recent;

/// The most flows whose numbers are kept.
const MOST_FLOWS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct FlowNames(Mutex<Recent<FlowKey, FlowId>>);

impl Default for FlowNames {
    fn default() -> Self {
        Self::new(MOST_FLOWS)
    }
}

impl FlowNames {
    fn new(capacity: usize) -> Self {
        Self(Mutex::new(Recent::new(capacity)))
    }

    /// The number of each flow, where it is kept.
    pub(crate) fn ids(&self, keys: &[FlowKey]) -> Vec<Option<FlowId>> {
        let mut known = self.0.lock().expect("no code panics while it looks up a flow");
        keys.iter().map(|key| known.get(key).copied()).collect()
    }

    pub(crate) fn remember<'k>(&self, flows: impl IntoIterator<Item = (&'k FlowKey, FlowId)>) {
        let mut known = self.0.lock().expect("no code panics while it looks up a flow");
        for (key, id) in flows {
            known.insert(key.clone(), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::channel::Channel;
    use proptest::prelude::*;

    use super::*;

    fn key(number: i64) -> FlowKey {
        FlowKey {
            tenant: "acme".parse().unwrap(),
            channel: Channel::Webhook,
            destination: format!("https://{number}").into(),
        }
    }

    proptest! {
        #[test]
        fn a_name_has_the_number_it_was_given_or_none(
            steps in prop::collection::vec((prop::collection::vec(0i64..30, 0..5), 0i64..30), 1..100)
        ) {
            let names = FlowNames::new(16);
            for (asked, met) in steps {
                let keys: Vec<FlowKey> = asked.iter().copied().map(key).collect();
                let ids = names.ids(&keys);
                prop_assert_eq!(ids.len(), keys.len());
                for (number, id) in asked.iter().zip(ids) {
                    prop_assert!(id.is_none_or(|id| id == FlowId(*number)));
                }
                names.remember([(&key(met), FlowId(met))]);
                prop_assert_eq!(names.ids(&[key(met)]), [Some(FlowId(met))], "the last one is there");
                prop_assert!(names.0.lock().unwrap().len() <= 16);
            }
        }
    }
}
