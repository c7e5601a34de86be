//! What signs webhooks: made once, read seldom, known to every node, and never a reason to lose an attempt.

use std::sync::Arc;

use posthaste_core::attempt::Outcome;
use posthaste_core::failure::FailureType;
use posthaste_core::record::{Expected, RecordChange};
use posthaste_core::sealed::Key;
use posthaste_core::signature::SigningSecrets;
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::signing::SigningError;
use posthaste_engine::store::Records as _;
use posthaste_engine::vault::{MasterKeys, VaultSettings};

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Trouble, ada, ms, notification, pass, secs, send, someone_of};

/// A rig whose engines have a master key.
fn rig() -> Rig {
    let mut rig = Rig::new();
    let keys = MasterKeys::new(vec![Key::new([7; Key::LENGTH])], fastrand::fill);
    rig.settings.vault = VaultSettings { keys, ..VaultSettings::default() };
    rig
}

/// An engine that may encrypt.
async fn start(rig: &Rig, store: &Arc<FaultyStore>) -> Engine {
    let engine = rig.start_on(store.clone()).await;
    pass(secs(2)).await;
    assert!(engine.vault().is_on());
    engine
}

async fn send_one(rig: &Rig, engine: &Engine) -> Option<Arc<SigningSecrets>> {
    let before = rig.channel.signers().len();
    let id = send(engine, notification(engine, "a", PLAIN)).await;
    pass(ms(50)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    let mut signers = rig.channel.signers();
    assert_eq!(signers.len(), before + 1);
    signers.pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_made_at_its_first_use_and_stays() {
    let rig = rig();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = start(&rig, &store).await;
    let first = send_one(&rig, &engine).await.unwrap();
    assert_eq!(send_one(&rig, &engine).await, Some(first.clone()));
    // Also for whoever looks at it, and on a node that starts later.
    let shown = engine.signing_secret("default".parse().unwrap(), &ada()).await.unwrap();
    assert_eq!(&shown.secret, first.current());
    let other = engine.signing_secret("other".parse().unwrap(), &ada()).await.unwrap();
    assert_ne!(other.secret, shown.secret);
    drop(engine);
    let engine = start(&rig, &store).await;
    assert_eq!(send_one(&rig, &engine).await.unwrap().current(), first.current());
}

#[tokio::test(start_paused = true)]
async fn a_send_reads_nothing_while_the_secrets_are_fresh() {
    let rig = rig();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = start(&rig, &store).await;
    send_one(&rig, &engine).await;
    let before = store.calls("records");
    for _ in 0..200 {
        send_one(&rig, &engine).await;
    }
    // Ten seconds of sends: a read every five.
    let reads = store.calls("records") - before;
    assert!((1..=3).contains(&reads), "{reads}");
    // Nobody sends, so nobody reads.
    let before = store.calls("records");
    pass(secs(60)).await;
    assert!(store.calls("records") - before <= 1);
}

#[tokio::test(start_paused = true)]
async fn known_secrets_sign_while_the_store_cannot_be_asked() {
    let rig = rig();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = start(&rig, &store).await;
    let first = send_one(&rig, &engine).await;
    store.refuse(&["records"]);
    for wait in [1, 30, 600] {
        pass(secs(wait)).await;
        assert_eq!(send_one(&rig, &engine).await, first, "{wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_read_that_fails_spends_no_attempt() {
    let rig = rig();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = start(&rig, &store).await;
    store.refuse(&["records"]);
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(30)).await;
    assert_eq!(rig.channel.arrivals(), []);
    assert!(rig.attempts(id).await.is_empty());
    // It went back, and did not turn on the spot meanwhile.
    assert!((10..=200).contains(&store.calls("release")), "{}", store.calls("release"));
    store.refuse(&[]);
    pass(secs(10)).await;
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert!(rig.channel.signers()[0].is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_answered_as_an_error_makes_no_second_secret() {
    let rig = rig();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = start(&rig, &store).await;
    // The data key is made first.
    engine.signing_secret("other".parse().unwrap(), &ada()).await.unwrap();
    send_one(&rig, &engine).await;
    store.next("put_records", [Trouble::Lie]);
    let told = engine.rotate_signing_secret("default".parse().unwrap(), &ada()).await;
    assert!(matches!(told, Err(SigningError::Store(_))), "{told:?}");
    pass(secs(11)).await;
    let signer = send_one(&rig, &engine).await.unwrap();
    assert_eq!(signer.signing(engine.now()).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_make_a_secret_at_a_time_sign_with_the_same() {
    let rig = rig();
    let stores = [(); 2].map(|()| Arc::new(FaultyStore::on(&rig.model)));
    let one = start(&rig, &stores[0]).await;
    let two = start(&rig, &stores[1]).await;
    // Both read before either writes.
    for store in &stores {
        store.next("put_records", [Trouble::DoneLate(ms(100)), Trouble::DoneLate(ms(100))]);
    }
    let tenant = || "default".parse().unwrap();
    let (actor, other) = (ada(), someone_of("default"));
    let (seen, also) =
        tokio::join!(one.signing_secret(tenant(), &actor), two.signing_secret(tenant(), &other));
    assert_eq!(seen.unwrap().secret, also.unwrap().secret);
    let kept = one.signing_secret(tenant(), &actor).await.unwrap().secret;
    for engine in [&one, &two] {
        assert_eq!(send_one(&rig, engine).await.unwrap().current(), &kept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rotation_is_known_to_a_node_that_sends_and_to_one_that_did_not_within_ten_seconds() {
    let rig = rig();
    let stores = [(); 2].map(|()| Arc::new(FaultyStore::on(&rig.model)));
    let one = start(&rig, &stores[0]).await;
    let two = start(&rig, &stores[1]).await;
    let first = send_one(&rig, &two).await.unwrap();
    send_one(&rig, &one).await;
    let rotated = one.rotate_signing_secret("default".parse().unwrap(), &ada()).await.unwrap();
    // At once where it was done.
    assert_eq!(send_one(&rig, &one).await.unwrap().current(), &rotated.secret);
    for _ in 0..100 {
        let signer = send_one(&rig, &two).await.unwrap();
        assert!([first.current(), &rotated.secret].contains(&signer.current()));
        pass(ms(50)).await;
    }
    assert_eq!(send_one(&rig, &two).await.unwrap().current(), &rotated.secret);
    let again = one.rotate_signing_secret("default".parse().unwrap(), &ada()).await.unwrap();
    pass(secs(3_600)).await;
    assert_eq!(send_one(&rig, &two).await.unwrap().current(), &again.secret);
    // The older ones end a day later, although nobody wrote anything.
    pass(secs(23 * 3_600)).await;
    let signer = send_one(&rig, &one).await.unwrap();
    assert_eq!(signer.signing(one.now()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_master_key_nothing_is_signed_or_read() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    pass(secs(2)).await;
    let before = store.calls("records");
    assert_eq!(send_one(&rig, &engine).await, None);
    assert_eq!(store.calls("records"), before);
    let told = engine.signing_secret("default".parse().unwrap(), &ada()).await;
    assert!(matches!(told, Err(SigningError::NoMasterKey)), "{told:?}");
    assert!(rig.audit().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_and_cannot_be_opened_fails_the_attempt_and_is_never_sent_unsigned() {
    let rig = rig();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = start(&rig, &store).await;
    send_one(&rig, &engine).await;
    let key = SigningSecrets::key(&"default".parse().unwrap());
    let damage =
        RecordChange { key, number: 0, value: Some("v1.AAAA".to_owned()), expected: Expected::Anything };
    rig.model.put_records(vec![damage], None, engine.now()).await.unwrap();
    drop(engine);
    let engine = start(&rig, &store).await;
    let sent = rig.channel.arrivals().len();
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    assert_eq!(rig.channel.arrivals().len(), sent);
    let attempts = rig.attempts(id).await;
    assert_eq!(attempts[0].outcome, Outcome::Failed(FailureType::Unknown));
    assert!(attempts[0].error.as_deref().unwrap().contains("signs the webhooks"), "{attempts:?}");
    assert!(engine.signing_secret("default".parse().unwrap(), &ada()).await.is_err());
    // A rotation is the way out.
    let new = engine.rotate_signing_secret("default".parse().unwrap(), &ada()).await.unwrap();
    assert_eq!(new.standing.previous_until, None);
    assert_eq!(send_one(&rig, &engine).await.unwrap().current(), &new.secret);
    pass(secs(60)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
}
