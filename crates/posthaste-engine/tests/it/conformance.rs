//! `ModelStore` keeps every promise, and the promises see the bugs that can be planted in it.

use std::sync::Arc;

use posthaste_engine::conformance::{broken_promises, promises, random};
use posthaste_engine::model_store::{ModelStore, Planted};
use posthaste_engine::store::Store;

fn with_bug(bug: Planted) -> Arc<dyn Store> {
    let store = ModelStore::new();
    store.plant(bug);
    Arc::new(store)
}

#[tokio::test]
async fn the_model_keeps_every_promise() {
    let broken = broken_promises(|| Arc::new(ModelStore::new())).await;
    let lines: Vec<String> = broken.iter().map(|(name, how)| format!("{name}\n    {how}")).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[test]
fn every_promise_has_a_name_of_its_own() {
    let mut names: Vec<&str> = promises().map(|promise| promise.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[tokio::test]
async fn every_planted_bug_breaks_a_promise() {
    for bug in Planted::ALL {
        let broken = broken_promises(|| with_bug(bug)).await;
        assert!(!broken.is_empty(), "no promise sees {bug:?}");
    }
}

#[tokio::test]
async fn a_model_agrees_with_itself_on_random_operations() {
    for seed in 0..20 {
        let (left, right) = (ModelStore::new(), ModelStore::new());
        random::compare(seed, 1_000, Arc::new(left.clone()), Arc::new(right)).await.unwrap();
        assert_eq!(left.drift(), None, "seed {seed}");
    }
}

#[tokio::test]
async fn random_operations_tell_every_planted_bug_from_the_model() {
    for bug in Planted::ALL {
        let mut difference = None;
        for seed in 0..20 {
            let compared = random::compare(seed, 1_000, with_bug(bug), Arc::new(ModelStore::new())).await;
            difference = compared.err();
            if difference.is_some() {
                break;
            }
        }
        assert!(difference.is_some(), "no seed of 20 shows {bug:?}");
    }
}
