//! The settings of the store, as every room of the program sees them.

use std::sync::Arc;

use posthaste_core::policy::Scope;
use posthaste_engine::acts::ActError;
use posthaste_engine::store::StoredSettings;

use crate::rig::{FaultyStore, Rig, Trouble, ada, ms, notification, pass, secs, someone_of};

async fn put(engine: &posthaste_engine::engine::Engine, name: &str, value: Option<&str>) {
    engine.put_setting(name, value.map(str::to_owned), "put-key", name, &ada()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_setting_is_shown_when_it_is_answered_and_where_nobody_hears_of_it_with_the_next_heartbeat() {
    let rig = Rig::new();
    let (engine, other) =
        (rig.start().await, rig.start_on(Arc::new(FaultyStore::on(&rig.model).deaf())).await);
    assert_eq!(engine.settings().version, 0);
    put(&engine, "key:key_1", Some("hash")).await;
    let before = engine.settings();
    assert_eq!(before.values["key:key_1"], "hash");
    assert!(other.settings().values.is_empty());
    pass(secs(2)).await;
    assert_eq!(other.settings(), before);
    put(&other, "key:key_1", None).await;
    assert!(other.settings().values.is_empty());
    assert!(other.settings().version > before.version);
    // A snapshot that somebody holds does not change in their hands.
    assert_eq!(before.values["key:key_1"], "hash");
}

#[tokio::test(start_paused = true)]
async fn a_setting_of_an_earlier_life_is_there_at_the_start() {
    let rig = Rig::new();
    put(&rig.start().await, "cursor-secret", Some("s")).await;
    assert_eq!(rig.start().await.settings().values["cursor-secret"], "s");
}

#[tokio::test(start_paused = true)]
async fn each_setting_leaves_its_audit_row_and_never_its_value() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let actor = someone_of("acme");
    let value = Some("secret".to_owned());
    engine.put_setting("key:key_1", value, "create-key", "key_1", &actor).await.unwrap();
    let audit = rig.audit().remove(0).audit;
    assert_eq!((audit.actor.as_str(), audit.tenant), ("eve", actor.tenant));
    assert_eq!((audit.action.as_str(), audit.target.as_str()), ("create-key", "key_1"));
    assert!(!format!("{:?}{:?}", rig.audit(), engine.settings()).contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn policies_and_other_settings_do_not_disturb_each_other() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let layer = serde_json::from_str(r#"{"maxAttempts": 2}"#).unwrap();
    engine.put_policy(&Scope::Global, Some(layer), &ada()).await.unwrap();
    put(&engine, "key:key_1", Some("hash")).await;
    let names: Vec<String> = engine.settings().values.keys().cloned().collect();
    assert_eq!(names, ["key:key_1", "policy:global"]);
    let mut plain = notification(&engine, "a", "{}");
    plain.content.policy = None;
    let mut templated = plain.clone();
    templated.template = Some("welcome".to_owned());
    for _ in 0..2 {
        assert_eq!(engine.policies().of(&plain).max_attempts, 2);
        assert_eq!(engine.policies().of(&templated).max_attempts, 2);
    }
    let layer = serde_json::from_str(r#"{"maxAttempts": 4}"#).unwrap();
    engine.put_policy(&"template:welcome".parse().unwrap(), Some(layer), &ada()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(engine.policies().of(&plain).max_attempts, 2);
        assert_eq!(engine.policies().of(&templated).max_attempts, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn one_read_of_the_store_serves_policies_and_settings() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model).deaf());
    let engine = rig.start_on(store.clone()).await;
    pass(ms(3_100)).await;
    assert_eq!(store.calls("settings"), 1 + store.calls("heartbeat"));
    put(&engine, "a", Some("1")).await;
    assert_eq!(store.calls("settings"), 2 + store.calls("heartbeat"));
}

#[tokio::test(start_paused = true)]
async fn a_setting_that_could_not_be_stored_is_an_error_and_changes_nothing() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("put_setting", [Trouble::Refuse]);
    let refused = engine.put_setting("a", Some("1".to_owned()), "put", "a", &ada()).await;
    assert!(matches!(refused, Err(ActError::Store(_))), "{refused:?}");
    assert!(engine.settings().values.is_empty());
    assert_eq!(rig.model.settings(Some(0)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_older_answer_that_arrives_last_does_not_bring_back_what_was_removed() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model).deaf());
    let engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(2)).await;
    put(&other, "key:key_1", Some("hash")).await;
    // The next heartbeat reads the key, and its answer is under way while the key is removed.
    store.next("settings", [Trouble::ToldLate(secs(1))]);
    let asked = store.calls("settings");
    pass(ms(1_100)).await;
    assert_eq!(store.calls("settings"), asked + 1);
    assert!(engine.settings().values.is_empty(), "the answer is still under way");
    put(&engine, "key:key_1", None).await;
    let newest = engine.settings();
    assert!(newest.values.is_empty());
    pass(ms(1_000)).await;
    assert_eq!(store.calls("settings"), asked + 2, "no later look has mended it");
    assert_eq!(engine.settings(), newest);
}
