//! Another master key, while nodes run, and killed at each step.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::master_key::{BadFit, MasterRecord};
use posthaste_core::notification::Tenant;
use posthaste_core::record::RecordKind;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Records;
use posthaste_engine::vault::{RotateError, VaultSettings};

use super::PLAIN;
use super::vault::{SECRET, kept, key, knowing, refused, rig, with_secret};
use crate::rig::{FaultyStore, Rig, Trouble, ada, pass, secs, send};

const TENANTS: usize = 205;

fn tenant(number: usize) -> Tenant {
    format!("t{number}").parse().unwrap()
}

async fn seal(engine: &Engine, tenant: &Tenant) -> String {
    engine.vault().seal(tenant, ("id", "field"), SECRET.as_bytes()).await.unwrap().unwrap()
}

/// One sealed text of each tenant.
async fn seal_all(engine: &Engine) -> Vec<String> {
    let mut texts = vec![];
    for number in 0..TENANTS {
        texts.push(seal(engine, &tenant(number)).await);
    }
    texts
}

async fn opens_all(engine: &Engine, texts: &[String]) {
    for (number, text) in texts.iter().enumerate() {
        let opened = engine.vault().open(&tenant(number), ("id", "field"), text).await;
        assert_eq!(opened.unwrap(), SECRET.as_bytes(), "tenant {number}");
    }
}

/// How many data keys are wrapped under a key.
async fn wrapped_under(rig: &Rig, byte: u8) -> usize {
    let page = rig.model.record_page(RecordKind::DataKey, None, None, 1_000).await.unwrap();
    let name = key(byte).name().to_string();
    page.rows.iter().filter(|row| row.value.as_ref().unwrap().contains(&name)).count()
}

async fn restarted(rig: &mut Rig, engine: Engine, keys: &[u8]) -> Engine {
    engine.drain(secs(1)).await.unwrap();
    rig.settings.vault = knowing(keys);
    rig.start().await
}

#[tokio::test(start_paused = true)]
async fn data_keys_are_wrapped_again_and_notifications_are_not_touched() {
    let mut rig = rig(&[1]);
    let engine = rig.start().await;
    let texts = seal_all(&engine).await;
    let id = send(&engine, with_secret(&engine, PLAIN)).await;
    let before = rig.view(id).await.notification.content.clone();
    let engine = restarted(&mut rig, engine, &[2, 1]).await;
    let rotated = engine.rotate_master_key(&ada()).await.unwrap();
    assert_eq!((rotated.from, rotated.to), (key(1).name(), key(2).name()));
    assert_eq!(rotated.wrapped as usize, TENANTS + 1);
    assert_eq!((wrapped_under(&rig, 1).await, wrapped_under(&rig, 2).await), (0, TENANTS + 1));
    let again = engine.rotate_master_key(&ada()).await.unwrap();
    assert!(again.was_done(), "{again:?}");
    let audit: Vec<_> = rig.audit().into_iter().map(|row| (row.audit.action, row.audit.target)).collect();
    assert_eq!(audit, [("rotate-master-key".to_owned(), key(2).name().to_string())]);
    // The old key is not needed any more.
    let engine = restarted(&mut rig, engine, &[2]).await;
    opens_all(&engine, &texts).await;
    assert_eq!(rig.view(id).await.notification.content, before);
    assert!(!kept(&rig).contains(SECRET));
    engine.drain(secs(1)).await.unwrap();
    rig.settings.vault = knowing(&[1]);
    let wanted = key(2).name();
    assert_eq!(refused(&rig).await, BadFit::Other { wanted, known: vec![key(1).name()] });
}

#[tokio::test(start_paused = true)]
async fn wherever_a_rotation_is_killed_the_next_one_ends_it() {
    for (puts, trouble) in (0..8).flat_map(|puts| [(puts, Trouble::Refuse), (puts, Trouble::Lie)]) {
        let mut rig = rig(&[1]);
        let engine = rig.start().await;
        let texts = seal_all(&engine).await;
        engine.drain(secs(1)).await.unwrap();
        rig.settings.vault = knowing(&[2, 1]);
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        let done = (0..puts).map(|_| Trouble::DoneLate(Duration::ZERO));
        store.next("put_records", done.chain([trouble]));
        let killed = engine.rotate_master_key(&ada()).await;
        assert!(killed.is_err() || puts > 4, "{puts}: {killed:?}");
        // The process is gone without a word, and its time runs out.
        drop(engine);
        pass(secs(20)).await;
        let engine = rig.start().await;
        opens_all(&engine, &texts).await;
        // A tenant that comes between the two is no exception.
        let new = seal(&engine, &tenant(900)).await;
        engine.rotate_master_key(&ada()).await.unwrap();
        assert_eq!(wrapped_under(&rig, 1).await, 0, "{puts} {trouble:?}");
        let engine = restarted(&mut rig, engine, &[2]).await;
        opens_all(&engine, &texts).await;
        assert!(engine.vault().open(&tenant(900), ("id", "field"), &new).await.is_ok());
        assert!(engine.vault().is_on());
    }
}

#[tokio::test(start_paused = true)]
async fn every_live_node_must_know_the_new_key_first() {
    let mut rig = rig(&[1]);
    rig.settings.name = "old".to_owned();
    let old = rig.start().await;
    rig.settings.vault = knowing(&[2, 1]);
    let new = rig.start().await;
    pass(secs(5)).await;
    let sealed = seal(&new, &tenant(1)).await;
    let before = rig.model.records(vec![MasterRecord::key()]).await.unwrap();
    let refused = new.rotate_master_key(&ada()).await.unwrap_err();
    assert_eq!(rig.model.records(vec![MasterRecord::key()]).await.unwrap(), before, "it was not begun");
    let text = refused.to_string();
    assert!(matches!(refused, RotateError::Unaware { .. }), "{text}");
    assert!(text.contains("(`old`)") && text.contains("put it first"), "{text}");
    assert_eq!(wrapped_under(&rig, 2).await, 0);
    // Nothing was changed: a node with the old key alone still starts.
    rig.settings.vault = knowing(&[1]);
    rig.start().await.drain(secs(1)).await.unwrap();
    old.drain(secs(1)).await.unwrap();
    new.rotate_master_key(&ada()).await.unwrap();
    assert!(new.vault().open(&tenant(1), ("id", "field"), &sealed).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_made_while_a_rotation_is_taken_back_opens_on_every_node() {
    let mut rig = rig(&[1]);
    rig.start().await.drain(secs(1)).await.unwrap();
    rig.settings.vault = knowing(&[2, 1]);
    let other = rig.start().await;
    let store = Arc::new(FaultyStore::on(&rig.model));
    let rotating = rig.start_on(store.clone()).await;
    // The record names the next key after 3 s, and no longer after 6 s.
    store.next("put_records", [Trouble::DoneLate(secs(3)), Trouble::DoneLate(secs(3))]);
    let meanwhile = async {
        pass(secs(1)).await;
        rig.settings.vault = knowing(&[1]);
        let old = rig.start().await;
        pass(secs(3)).await;
        let sealed = seal(&other, &tenant(7)).await;
        assert_eq!(wrapped_under(&rig, 2).await, 1);
        (old, sealed)
    };
    let ada = ada();
    let (refused, (old, sealed)) = tokio::join!(rotating.rotate_master_key(&ada), meanwhile);
    assert!(matches!(refused, Err(RotateError::Unaware { .. })), "{refused:?}");
    let opened = old.vault().open(&tenant(7), ("id", "field"), &sealed).await;
    assert_eq!(opened.unwrap(), SECRET.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_a_rotation_knows_both_keys_and_seals_under_the_new_one() {
    let mut rig = rig(&[1]);
    let engine = rig.start().await;
    seal(&engine, &tenant(1)).await;
    engine.drain(secs(1)).await.unwrap();
    rig.settings.vault = knowing(&[2, 1]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    // The change is begun, and the first data key is not wrapped again.
    store.next("put_records", [Trouble::DoneLate(Duration::ZERO), Trouble::Refuse]);
    assert!(engine.rotate_master_key(&ada()).await.is_err());
    rig.settings.vault = knowing(&[1]);
    let next = key(2).name();
    assert_eq!(refused(&rig).await, BadFit::Next { next, known: vec![key(1).name()] });
    rig.settings.vault = knowing(&[1, 2]);
    let joined = rig.start().await;
    seal(&joined, &tenant(2)).await;
    assert_eq!((wrapped_under(&rig, 1).await, wrapped_under(&rig, 2).await), (1, 1));
    // Back to the old key: what was begun is ended, and every data key is under it again.
    let back = joined.rotate_master_key(&ada()).await.unwrap();
    assert_eq!((back.from, back.to), (key(1).name(), key(1).name()));
    assert_eq!(wrapped_under(&rig, 2).await, 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_master_key_there_is_nothing_to_rotate() {
    let mut rig = Rig::new();
    rig.settings.vault = VaultSettings::default();
    let engine = rig.start().await;
    assert!(matches!(engine.rotate_master_key(&ada()).await, Err(RotateError::NoKey)));
}
