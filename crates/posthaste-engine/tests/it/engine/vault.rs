//! Secrets at rest: what is kept and told never shows them, and what is sent has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use posthaste_core::master_key::{BadFit, WrappedKey};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::record::{Expected, RecordChange};
use posthaste_core::reply::Reply;
use posthaste_core::sealed::Key;
use posthaste_core::state::State;
use posthaste_engine::clock::Clock as _;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::{Records, Store};
use posthaste_engine::vault::{MasterKeys, NotStarted, VaultError, VaultSettings};

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, ada, http, notification, pass, secs, send};

pub(super) const SECRET: &str = "hunter2-and-more";
const TO: &str = "http://127.0.0.1:9/";

pub(super) fn key(byte: u8) -> Key {
    Key::new([byte; Key::LENGTH])
}

/// Other bytes at each call, which is all that a test needs.
fn random(bytes: &mut [u8]) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    for byte in bytes {
        *byte = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(151);
    }
}

pub(super) fn knowing(keys: &[u8]) -> VaultSettings {
    let keys = keys.iter().map(|byte| key(*byte)).collect();
    VaultSettings { keys: MasterKeys::new(keys, random), ..VaultSettings::default() }
}

/// A rig whose nodes know these master keys.
pub(super) fn rig(keys: &[u8]) -> Rig {
    let mut rig = Rig::new();
    rig.settings.vault = knowing(keys);
    rig
}

pub(super) fn with_secret(engine: &Engine, policy: &str) -> Notification {
    let mut new = notification(engine, TO, policy);
    for (name, value) in [("Authorization", format!("Bearer {SECRET}")), ("x-plain", "seen".to_owned())] {
        new.content.headers.insert(name.to_owned(), value);
    }
    new
}

fn sent() -> BTreeMap<String, String> {
    BTreeMap::from([
        ("Authorization".to_owned(), format!("Bearer {SECRET}")),
        ("x-plain".to_owned(), "seen".to_owned()),
    ])
}

/// Everything that the store holds, as text.
pub(super) fn kept(rig: &Rig) -> String {
    rig.model.inspect(|tables| format!("{tables:?}"))
}

pub(super) async fn refused(rig: &Rig) -> BadFit {
    match rig.try_start().await {
        Err(NotStarted::Keys(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_header_is_sent_and_never_kept_or_told() {
    let rig = rig(&[1]);
    let engine = rig.start().await;
    assert!(engine.vault().is_on());
    let echo = Reply { text: format!("who is Bearer {SECRET}? {}", &SECRET[..9]), ..Reply::http(503) };
    rig.always(TO, Script::Answer(echo));
    let quick = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 2, "jitter": "none",
        "timeout": "10s", "quick": {"tries": 1, "delay": "1s"}}"#;
    let id = send(&engine, with_secret(&engine, quick)).await;
    pass(secs(120)).await;
    assert_eq!(rig.state(id).await, State::DeadLetter);
    assert_eq!(rig.channel.headers(), vec![sent(); 4]);
    let attempts = rig.attempts(id).await;
    assert_eq!(attempts.len(), 2);
    for attempt in &attempts {
        assert_eq!(attempt.error.as_deref(), Some("answered 503: who is ***? ***"));
        assert_eq!(attempt.response.as_ref().unwrap().excerpt, "who is ***? ***");
        assert_eq!(attempt.quick_tries[0].error, "answered 503: who is ***? ***");
    }
    let content = rig.view(id).await.notification.content.clone();
    assert_eq!(content.headers, BTreeMap::from([("x-plain".to_owned(), "seen".to_owned())]));
    let shown = engine.shown_headers(&content);
    assert_eq!(shown["Authorization"], "Bearer ***");
    assert_eq!(shown["x-plain"], "seen");
    assert!(!kept(&rig).contains(&SECRET[..8]), "the store shows the secret");
    // The dead letter can be requeued, and is sent with its secret.
    let letter = rig.dead_letter(id).await;
    engine.requeue(letter.id, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(rig.channel.headers().pop(), Some(sent()));
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_before_is_sent_as_it_is_and_not_told_either() {
    let mut rig = Rig::new();
    let engine = rig.start().await;
    assert!(!engine.vault().is_on());
    rig.always(TO, Script::Answer(Reply { text: format!("no {SECRET}"), ..http(503) }));
    let id = send(&engine, with_secret(&engine, PLAIN)).await;
    assert_eq!(rig.view(id).await.notification.content.headers, sent());
    engine.drain(secs(1)).await.unwrap();
    rig.settings.vault = knowing(&[1]);
    let _engine = rig.start().await;
    pass(secs(70)).await;
    assert_eq!(rig.channel.headers(), vec![sent(); 2]);
    for attempt in rig.attempts(id).await {
        assert_eq!(attempt.error.as_deref(), Some("answered 503: no ***"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_secrets_of_an_edited_copy_are_sealed_under_its_own_id() {
    let rig = rig(&[1]);
    let engine = rig.start().await;
    rig.script(TO, [Script::Answer(http(400))]);
    let id = send(&engine, with_secret(&engine, PLAIN)).await;
    pass(secs(1)).await;
    let original = rig.view(id).await.notification.clone();
    let open = engine.with_open_headers(&original).await.unwrap();
    assert_eq!(open.content.headers, sent());
    let copy = Notification { id: engine.notification_id(), ..open };
    let copy_id = copy.id;
    let letter = rig.dead_letter(id).await;
    engine.edit_and_retry(letter.id, copy, None, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(rig.state(copy_id).await, State::Succeeded);
    assert_eq!(rig.channel.headers(), vec![sent(); 2]);
    let texts = [id, copy_id]
        .map(async |id| rig.view(id).await.notification.content.sealed_headers.clone().unwrap().text);
    let [one, other] = texts;
    assert_ne!(one.await, other.await);
    assert!(!kept(&rig).contains(SECRET));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_spent_while_the_data_key_cannot_be_read() {
    let rig = rig(&[1]);
    let engine = rig.start().await;
    let id = send(&engine, later(&engine, with_secret(&engine, PLAIN))).await;
    engine.drain(secs(1)).await.unwrap();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.refuse(&["records"]);
    pass(secs(95)).await;
    assert_eq!(rig.channel.arrivals(), []);
    assert_eq!(rig.attempts(id).await, []);
    assert!(store.calls("records") < 400, "{} calls", store.calls("records"));
    store.refuse(&[]);
    pass(secs(15)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(rig.attempts(id).await.len(), 1);
    drop(engine);
}

/// Due in a minute.
fn later(engine: &Engine, new: Notification) -> Notification {
    Notification { not_before: Some(engine.now().later(secs(60))), ..new }
}

async fn change_data_key(rig: &Rig, value: Option<&str>) {
    let tenant: Tenant = "default".parse().unwrap();
    let change = RecordChange {
        key: WrappedKey::key(&tenant),
        number: 0,
        value: value.map(str::to_owned),
        expected: Expected::Anything,
    };
    assert!(rig.model.put_records(vec![change], None, rig.clock.now()).await.unwrap()[0].is_some());
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_opened_is_buried_with_the_reason() {
    for (damage, says) in [
        (None, "no data key of the tenant `default`"),
        (Some("{}"), "the data key cannot be opened"),
        (
            Some(r#"{"under":"0123456789abcdef","key":"v1.AAAA"}"#),
            "master key 0123456789abcdef, which this node does not have",
        ),
    ] {
        let rig = rig(&[1]);
        let engine = rig.start().await;
        let id = send(&engine, later(&engine, with_secret(&engine, PLAIN))).await;
        engine.drain(secs(1)).await.unwrap();
        change_data_key(&rig, damage).await;
        let _engine = rig.start().await;
        pass(secs(70)).await;
        assert_eq!(rig.channel.arrivals(), []);
        let letter = rig.dead_letter(id).await;
        assert_eq!(letter.reason, Reason::PermanentFailure, "{letter:?}");
        let error = rig.attempts(id).await.pop().unwrap().error.unwrap();
        assert!(error.contains(says) && error.contains("requeue"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_need_a_data_key_at_once_agree_on_one() {
    let rig = rig(&[1]);
    let (one, other) = (rig.start().await, rig.start().await);
    pass(secs(4)).await;
    assert!(one.vault().is_on() && other.vault().is_on());
    let tenant: Tenant = "acme".parse().unwrap();
    let seal =
        async |engine: &Engine| engine.vault().seal(&tenant, ("a", "b"), b"secret").await.unwrap().unwrap();
    let sealed = tokio::join!(seal(&one), seal(&other), seal(&one));
    for text in [&sealed.0, &sealed.1, &sealed.2] {
        for engine in [&one, &other] {
            assert_eq!(engine.vault().open(&tenant, ("a", "b"), text).await.unwrap(), b"secret");
        }
    }
    let elsewhere = one.vault().open(&tenant, ("a", "c"), &sealed.0).await;
    assert!(matches!(elsewhere, Err(VaultError::NotOpened { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_key_of_the_store_does_not_start() {
    let mut rig = rig(&[1]);
    let first = rig.start().await;
    first.drain(secs(1)).await.unwrap();
    let wanted = key(1).name();
    for (keys, why) in
        [(&[][..], BadFit::None { wanted }), (&[2], BadFit::Other { wanted, known: vec![key(2).name()] })]
    {
        rig.settings.vault = knowing(keys);
        assert_eq!(refused(&rig).await, why);
    }
    assert_eq!(rig.model.inspect(|tables| tables.nodes.len()), 0, "who was refused has left");
    rig.settings.vault = knowing(&[2, 1]);
    let engine = rig.start().await;
    assert!(engine.vault().is_on());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sealed_while_a_node_lives_that_could_not_open_it() {
    let mut rig = Rig::new();
    let without = rig.start().await;
    rig.settings.vault = knowing(&[1]);
    let with = rig.start().await;
    pass(secs(5)).await;
    assert!(!with.vault().is_on() && !without.vault().is_on());
    let id = send(&with, with_secret(&with, PLAIN)).await;
    assert_eq!(rig.view(id).await.notification.content.headers, sent());
    // It stops, and could not start again.
    without.drain(secs(1)).await.unwrap();
    pass(secs(5)).await;
    assert!(with.vault().is_on());
    rig.settings.vault = VaultSettings::default();
    assert!(matches!(refused(&rig).await, BadFit::None { .. }));
}

#[tokio::test(start_paused = true)]
async fn an_accept_fails_whole_while_the_data_key_cannot_be_made() {
    let rig = rig(&[1]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone() as Arc<dyn Store>).await;
    store.next("put_records", [Trouble::Lie]);
    let new = with_secret(&engine, PLAIN);
    assert!(engine.accept(None, vec![new.clone()]).await.is_err());
    assert!(!kept(&rig).contains(&new.id.to_string()));
    // The key was made all the same, and is used.
    send(&engine, new).await;
    pass(secs(1)).await;
    assert_eq!(rig.channel.headers(), [sent()]);
}
