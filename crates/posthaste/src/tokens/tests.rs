//! Tokens by themselves: to the second, to the bit, and for a long time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use posthaste_core::role::Role;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, advance};

use super::reading::{MAX_WAIT, PAUSE, RETRY, URL_INTERVAL};
use super::*;
use crate::config::Secret;
use crate::keys::hash;

/// In seconds since 1970.
const NOW: i64 = 1_800_000_000;
const SECRET: &str = "a secret that is 32 bytes long, or more";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn rules() -> Rules {
    let [issuer, audience, tenant, role, module] = ["i", "a", "tenant", "role", "module"].map(str::to_owned);
    Rules { issuer, audience, tenant, role, module }
}

fn tokens(algorithm: Algorithm, keys: JwtKeys) -> Tokens {
    Tokens::new(&Jwt { algorithm, keys, rules: rules() }).unwrap()
}

/// Verifies tokens with the secret.
fn by_secret() -> Tokens {
    tokens(Algorithm::Hs256, JwtKeys::Secret(Secret::new(SECRET.to_owned())))
}

fn part(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn claims() -> Value {
    json!({"iss": "i", "aud": "a", "sub": "s", "tenant": "t", "role": "reader", "exp": NOW + 600})
}

fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", part(header.to_string().as_bytes()), part(claims.to_string().as_bytes()));
    let signature = sign(message.as_bytes());
    format!("{message}.{}", part(&signature))
}

fn token(claims: &Value) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    signed(&json!({"alg": "HS256"}), claims, |message| hmac::sign(&key, message).as_ref().to_vec())
}

fn refusal(tokens: &Tokens, token: &str, now: Timestamp) -> Option<Refusal> {
    tokens.verify(token, now).err()
}

/// A claim and its value in a token that is otherwise good.
fn with(name: &str, value: Value) -> String {
    let mut said = claims();
    said[name] = value;
    token(&said)
}

#[test]
fn a_token_says_who_calls() {
    let mut said = claims();
    said["module"] = json!("billing");
    said["aud"] = json!(["another", "a"]);
    let verified = by_secret().verify(&token(&said), at(NOW)).ok().unwrap();
    let caller = verified.caller();
    assert_eq!((caller.name.as_str(), caller.role), ("s", Role::Reader));
    assert_eq!(caller.tenant, Some("t".parse().unwrap()));
    assert_eq!((caller.key(), caller.module()), (None, Some("billing")));
    let actor = caller.actor();
    assert_eq!((actor.name.as_str(), actor.key_id), ("s", None));
}

#[test]
fn clocks_may_differ_by_thirty_seconds() {
    let tokens = by_secret();
    for (name, seconds, wanted) in [
        ("exp", json!(NOW - 29), None),
        ("exp", json!(NOW - 30), Some(Refusal::Expired)),
        ("exp", json!(NOW as f64 - 29.5), None),
        ("exp", json!(NOW as f64 - 30.5), Some(Refusal::Expired)),
        ("exp", json!(253_402_300_799_i64), None),
        ("exp", json!(253_402_300_800_i64), Some(Refusal::Claims)),
        ("exp", json!(i64::MAX), Some(Refusal::Claims)),
        ("exp", json!(i64::MIN), Some(Refusal::Claims)),
        ("exp", json!(-0.5), Some(Refusal::Claims)),
        ("exp", json!(f64::MAX), Some(Refusal::Claims)),
        ("nbf", json!(NOW + 30), None),
        ("nbf", json!(NOW + 31), Some(Refusal::NotYetValid)),
        ("iat", json!(NOW + 30), None),
        ("iat", json!(NOW + 31), Some(Refusal::NotYetValid)),
        ("iat", json!(0), None),
        ("iat", json!("0"), Some(Refusal::Claims)),
    ] {
        assert_eq!(refusal(&tokens, &with(name, seconds.clone()), at(NOW)), wanted, "{name} {seconds}");
    }
}

#[test]
fn each_claim_is_checked_for_itself() {
    let tokens = by_secret();
    for (name, value, wanted) in [
        ("iss", json!("I"), Refusal::Issuer),
        ("aud", json!("A"), Refusal::Audience),
        ("tenant", json!("*"), Refusal::Tenant),
        ("role", json!("tenant"), Refusal::Role),
        ("sub", json!(""), Refusal::Claims),
        ("sub", json!("system"), Refusal::Claims),
        ("module", Value::Null, Refusal::Claims),
    ] {
        assert_eq!(refusal(&tokens, &with(name, value), at(NOW)), Some(wanted), "{name}");
    }
    for name in ["iss", "aud", "sub", "tenant", "role", "exp"] {
        let mut said = claims();
        said.as_object_mut().unwrap().remove(name);
        assert_eq!(refusal(&tokens, &token(&said), at(NOW)), Some(Refusal::Claims), "{name}");
    }
}

/// A token with the right signature over any texts.
fn token_of(header: &str, claims: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let message = format!("{}.{}", part(header.as_bytes()), part(claims.as_bytes()));
    format!("{message}.{}", part(hmac::sign(&key, message.as_bytes()).as_ref()))
}

#[test]
fn a_header_names_the_algorithm_and_asks_for_nothing_else() {
    let (tokens, claims) = (by_secret(), claims().to_string());
    for (header, wanted) in [
        (r#"{"alg":"HS256"}"#, None),
        (r#"{"alg":"HS256","typ":"at+JWT","kid":"k","x5t":"abc","unknown":[]}"#, None),
        (r#"{"alg":"hs256"}"#, Some(Refusal::Algorithm)),
        (r#"{"alg":"none"}"#, Some(Refusal::Algorithm)),
        (r#"{"alg":"HS512"}"#, Some(Refusal::Algorithm)),
        (r#"{"alg":"RS256"}"#, Some(Refusal::Algorithm)),
        (r#"{"alg":["HS256"]}"#, Some(Refusal::Algorithm)),
        ("{}", Some(Refusal::Algorithm)),
        (r#"{"alg":"HS256","alg":"HS256"}"#, Some(Refusal::Form)),
        (r#"["HS256"]"#, Some(Refusal::Form)),
        (r#"{"alg":"HS256","typ":"secevent+jwt"}"#, Some(Refusal::Header)),
        (r#"{"alg":"HS256","kid":1}"#, Some(Refusal::Header)),
    ] {
        assert_eq!(refusal(&tokens, &token_of(header, &claims), at(NOW)), wanted, "{header}");
    }
    for field in ["jku", "jwk", "x5u", "x5c", "crit", "b64", "cty", "zip", "enc"] {
        let header = format!(r#"{{"alg":"HS256","{field}":null}}"#);
        assert_eq!(refusal(&tokens, &token_of(&header, &claims), at(NOW)), Some(Refusal::Header), "{field}");
    }
}

#[test]
fn a_claim_is_given_once_and_a_token_is_short() {
    let (tokens, text) = (by_secret(), claims().to_string());
    let inner = &text[1..text.len() - 1];
    for (claims, wanted) in [
        (format!(r#"{{{inner},"x":"{}"}}"#, "x".repeat(5_000)), None),
        (format!(r#"{{{inner},"x":"{}"}}"#, "x".repeat(6_200)), Some(Refusal::Size)),
        (format!(r#"{{{inner},"role":"reader"}}"#), Some(Refusal::Form)),
        (format!(r#"{{{inner},"x":{{"y":1,"y":2}}}}"#), Some(Refusal::Form)),
        (format!("{text}x"), Some(Refusal::Form)),
    ] {
        assert_eq!(refusal(&tokens, &token_of(r#"{"alg":"HS256"}"#, &claims), at(NOW)), wanted);
    }
}

#[test]
fn the_claims_are_not_read_before_the_signature_is_right() {
    let other = hmac::Key::new(hmac::HMAC_SHA256, b"another secret");
    let forged = signed(&json!({"alg": "HS256"}), &json!("no claims at all"), |message| {
        hmac::sign(&other, message).as_ref().to_vec()
    });
    assert_eq!(refusal(&by_secret(), &forged, at(NOW)), Some(Refusal::Signature));
}

#[test]
fn a_signature_has_one_form_and_is_not_made_of_zeros() {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let point = pair.public_key().as_ref();
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": part(&point[1..33]), "y": part(&point[33..])});
    let set = json!({ "keys": [jwk] }).to_string();
    let set = KeySet::read(Algorithm::Es256, set.as_bytes()).unwrap();
    let key = set.find(None).unwrap();
    let good = pair.sign(&SystemRandom::new(), b"message").unwrap();
    let good = good.as_ref();
    assert!(key.verifies(b"message", good) && !key.verifies(b"massage", good));
    // The form of certificates, of the same two numbers.
    let number = |half: &[u8]| [&[2, 33, 0], half].concat();
    let der = [vec![48, 70], number(&good[..32]), number(&good[32..])].concat();
    for bad in [&[0; 64][..], &[255; 64], &[], &good[..63], &[good, &[0]].concat(), &der] {
        assert!(!key.verifies(b"message", bad), "{bad:?}");
    }
}

/// A pair of keys as a JWKS, with other fields beside.
fn jwk(pair: &Ed25519KeyPair, more: Value) -> Value {
    let mut jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": part(pair.public_key().as_ref())});
    jwk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    jwk
}

fn set(keys: &[Value]) -> KeySet {
    KeySet::read(Algorithm::EdDsa, json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

#[test]
fn a_key_of_a_set_counts_if_all_that_it_says_fits() {
    let pair = Ed25519KeyPair::generate().unwrap();
    for (more, counts) in [
        (json!({}), true),
        (json!({"use": "sig", "alg": "EdDSA", "key_ops": ["verify"], "x5c": [], "unknown": {}}), true),
        (json!({"alg": "Ed25519"}), true),
        (json!({"alg": "ES256"}), false),
        (json!({"alg": "none"}), false),
        (json!({"use": "enc"}), false),
        (json!({"key_ops": ["sign"]}), false),
        (json!({"key_ops": "verify"}), false),
        (json!({"kty": "EC"}), false),
        (json!({"kty": "oct", "k": "AAAA"}), false),
        (json!({"crv": "X25519"}), false),
        (json!({"crv": Value::Null}), false),
        (json!({"x": "AAAA"}), false),
        (json!({"x": 7}), false),
        (json!({"kid": 7}), false),
    ] {
        assert_eq!(set(&[jwk(&pair, more.clone())]).count(), usize::from(counts), "{more}");
    }
    for bad in ["", "[]", "{}", r#"{"keys": {}}"#, r#"{"keys": null}"#, "\u{0}"] {
        assert_eq!(KeySet::read(Algorithm::EdDsa, bad.as_bytes()).err(), Some(BadSet::Form), "{bad}");
    }
    let short = json!({"keys": [{"kty": "RSA", "n": part(&[255; 128]), "e": "AQAB"}]}).to_string();
    assert_eq!(KeySet::read(Algorithm::Rs256, short.as_bytes()).unwrap().count(), 0);
    assert_eq!(set(&[json!(1), json!(null), json!([]), json!("k")]).count(), 0);
}

#[test]
fn a_token_without_the_name_of_a_key_means_the_only_one() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let [named, other, bare] =
        [json!({"kid": "a"}), json!({"kid": "b"}), json!({})].map(|more| jwk(&pair, more));
    let finds = |keys: &[&Value], name: Option<&str>| {
        let keys: Vec<Value> = keys.iter().map(|key| (*key).clone()).collect();
        set(&keys).find(name).is_some()
    };
    assert!(finds(&[&named], Some("a")) && finds(&[&named], None));
    assert!(finds(&[&bare], None) && !finds(&[&bare], Some("a")));
    assert!(!finds(&[&named, &other], None) && !finds(&[&named, &bare], None));
    assert!(finds(&[&named, &other], Some("b")) && !finds(&[&named], Some("c")));
}

#[test]
fn a_caller_is_remembered_until_its_token_expires_or_the_keys_change() {
    let tokens = by_secret();
    let text = token(&claims());
    let hash = hash(&text);
    assert!(tokens.find(&hash, at(NOW)).is_none());
    let verified = tokens.verify(&text, at(NOW)).ok().unwrap();
    let caller = tokens.remember(hash, &verified);
    assert!(Arc::ptr_eq(&caller, &tokens.find(&hash, at(NOW + 629)).unwrap()));
    assert!(tokens.find(&hash, at(NOW + 630)).is_none());
    tokens.replace(KeySet::empty());
    assert!(tokens.find(&hash, at(NOW)).is_none());
    // What was verified with the keys before is not remembered after they have changed.
    tokens.remember(hash, &verified);
    assert!(tokens.find(&hash, at(NOW)).is_none());
    assert_eq!(refusal(&tokens, &text, at(NOW)), Some(Refusal::Key));
}

#[test]
fn what_is_remembered_is_bounded_and_the_newest_stay() {
    let tokens = by_secret();
    let verified = tokens.verify(&token(&claims()), at(NOW)).ok().unwrap();
    let name = |number: usize| hash(&number.to_string());
    for number in 0..3 * REMEMBERED {
        tokens.remember(name(number), &verified);
        let known = tokens.known();
        assert!(known.young.len() <= REMEMBERED && known.old.len() <= REMEMBERED);
    }
    let finds = |number: usize| tokens.find(&name(number), at(NOW)).is_some();
    assert!(finds(3 * REMEMBERED - 1) && finds(2 * REMEMBERED) && !finds(0));
}

/// One change to a text.
fn mutated(text: &str, kind: u8, place: Index, other: Index, byte: u8) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (at, to) = (place.index(bytes.len()), other.index(bytes.len()));
    match kind {
        0 => bytes[at] = byte,
        1 => bytes.insert(at, byte),
        2 => drop(bytes.remove(at)),
        3 => bytes.truncate(at),
        4 => bytes.swap(at, to),
        5 => bytes.extend_from_within(at.min(to)..at.max(to)),
        6 => bytes.reverse(),
        _ => bytes.rotate_left(at),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #[test]
    fn no_change_to_a_good_token_passes(
        changes in prop::collection::vec((0..8_u8, any::<Index>(), any::<Index>(), 32..127_u8), 1..4),
    ) {
        let (tokens, good) = (by_secret(), token(&claims()));
        prop_assert!(tokens.verify(&good, at(NOW)).is_ok());
        let mut text = good.clone();
        for (kind, place, other, byte) in changes {
            if !text.is_empty() {
                text = mutated(&text, kind, place, other, byte);
            }
        }
        prop_assert!(text == good || tokens.verify(&text, at(NOW)).is_err(), "{text}");
    }

    #[test]
    fn claims_that_somebody_signed_make_nothing_panic(
        name in prop::sample::select(vec!["iss", "aud", "sub", "tenant", "role", "exp", "nbf", "iat", "module", "x"]),
        json in prop_oneof![
            any::<String>().prop_map(Value::from), any::<f64>().prop_map(Value::from), any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from), prop::collection::vec(any::<String>(), 0..3).prop_map(Value::from),
        ],
    ) {
        match by_secret().verify(&with(name, json), at(NOW)) {
            Ok(verified) => prop_assert!(verified.claims.tenant.as_str().len() <= Tenant::MAX_LENGTH),
            Err(_) => prop_assert!(name != "x"),
        }
    }

    #[test]
    fn a_set_of_anything_makes_nothing_panic(text in ".*", algorithm in 0..4_usize) {
        let _ = KeySet::read(Algorithm::ALL[algorithm], text.as_bytes());
        let key = json!({"keys": [{"kty": "RSA", "n": text, "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": text, "y": text}]});
        prop_assert_eq!(KeySet::read(Algorithm::ALL[algorithm], key.to_string().as_bytes()).unwrap().count(), 0);
    }
}

/// Runs the readings of a set beside a test, on paused time. The set is answered by `read`, which is told how often it was
/// called before.
async fn beside<F: Future<Output = Result<Vec<u8>, Unreadable>>>(
    read: impl Fn(usize) -> F,
    test: impl AsyncFnOnce(&Tokens, &AtomicUsize),
) {
    let target = posthaste_wire::guard::Target::parse("http://127.0.0.1:1/").unwrap();
    let tokens = tokens(Algorithm::EdDsa, JwtKeys::Url { target, roots: vec![] });
    let (calls, (stop, stopped)) = (AtomicUsize::new(0), watch::channel(false));
    let counted = || read(calls.fetch_add(1, Ordering::SeqCst));
    let test = async {
        test(&tokens, &calls).await;
        stop.send(true).unwrap();
    };
    let reading = tokens.reading.as_ref().unwrap();
    // The test asks first, while the reading of the start is still to come.
    tokio::join!(biased; test, tokens.keep_from(reading, counted, stopped));
}

fn a_set() -> Vec<u8> {
    let key = jwk(&Ed25519KeyPair::generate().unwrap(), json!({"kid": "k"}));
    json!({ "keys": [key] }).to_string().into_bytes()
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_cause_one_reading_in_ten_seconds_whoever_asks() {
    let set = a_set();
    beside(
        async |_| Ok(set.clone()),
        async |tokens, calls| {
            let crowd = async || join_all((0..50).map(|_| tokens.reread())).await;
            // The reading of the start is shared too.
            crowd().await;
            assert_eq!((calls.load(Ordering::SeqCst), tokens.key_count()), (1, 1));
            for round in 2..5 {
                crowd().await;
                crowd().await;
                assert_eq!(calls.load(Ordering::SeqCst), round);
                advance(PAUSE - Duration::from_millis(1)).await;
                crowd().await;
                assert_eq!(calls.load(Ordering::SeqCst), round);
                advance(Duration::from_millis(1)).await;
            }
            advance(URL_INTERVAL).await;
            tokio::task::yield_now().await;
            assert_eq!(calls.load(Ordering::SeqCst), 5);
            assert_eq!(tokens.readings(), Some([5, 0]));
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_for_a_set_that_does_not_come() {
    beside(
        async |_| std::future::pending().await,
        async |tokens, calls| {
            let begun = Instant::now();
            join_all((0..10).map(|_| tokens.reread())).await;
            assert_eq!((begun.elapsed(), calls.load(Ordering::SeqCst)), (MAX_WAIT, 1));
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn known_keys_stay_while_the_set_cannot_be_read_and_go_when_it_says_so() {
    let set = a_set();
    let answer = async |call: usize| match call {
        0 => Ok(set.clone()),
        1 => Err(Unreadable::TooLarge),
        2 => Ok(b"<html>down for maintenance</html>".to_vec()),
        3 => Ok(set.clone()),
        _ => Ok(br#"{"keys": []}"#.to_vec()),
    };
    beside(answer, async |tokens, calls| {
        for (call, keys, version) in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 0, 2)] {
            tokens.reread().await;
            assert_eq!((calls.load(Ordering::SeqCst), tokens.key_count()), (call, keys));
            // A set that is as it was makes no token be verified again.
            assert_eq!(tokens.known().version, version, "{call}");
            advance(PAUSE).await;
        }
        assert_eq!(tokens.readings(), Some([3, 2]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_could_not_be_read_is_tried_again_soon() {
    beside(
        async |_| Err(Unreadable::TooLarge),
        async |tokens, calls| {
            tokens.reread().await;
            for call in 2..5 {
                advance(RETRY).await;
                tokio::task::yield_now().await;
                assert_eq!(calls.load(Ordering::SeqCst), call);
            }
        },
    )
    .await;
}
