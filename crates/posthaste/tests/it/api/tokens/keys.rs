//! Keys from a JWKS: read at the start, when a token names an unknown one, and kept while the source is away.

use futures_util::future::join_all;
use http::Method;
use posthaste::config::JwtKeys;
use posthaste::tokens::Algorithm;
use posthaste_wire::guard::Target;
use serde_json::json;

use super::super::running::{Running, StoreKind};
use super::issuer::{KeyServer, Signer, claims, jwks};
use super::{accept, elsewhere, jwt};

async fn start(on: StoreKind, algorithm: Algorithm, server: &KeyServer) -> Running {
    let keys = JwtKeys::Url { target: Target::parse(&server.url).unwrap(), roots: vec![] };
    Running::with(on, |config| accept(config, jwt(algorithm, keys))).await
}

/// The status of a read with a new token of this signer.
async fn status(running: &Running, signer: &Signer) -> u16 {
    let caller = running.caller(Some(&signer.token(&claims("a", "reader"))));
    caller.ask(Method::GET, "/v1/stats", &[("x-forwarded-for", &elsewhere())], "").await.status.as_u16()
}

async fn a_new_key_of_the_provider_is_found_and_unknown_ones_cause_one_request(on: StoreKind) {
    let [first, second, made_up] =
        ["first", "second", "made up"].map(|name| Signer::new(Algorithm::EdDsa, name));
    let begun = std::time::Instant::now();
    let server = KeyServer::start(&jwks([&first])).await;
    let running = start(on, Algorithm::EdDsa, &server).await;
    let remembered = running.caller(Some(&first.token(&claims("a", "reader"))));
    remembered.get("/v1/stats").await;
    assert_eq!((status(&running, &first).await, server.asked()), (200, 1));
    server.serve(&jwks([&second]));
    assert_eq!((status(&running, &second).await, server.asked()), (200, 2));
    // The key that is gone verifies nothing any more, not even what was verified before.
    remembered.ask(Method::GET, "/v1/stats", &[], "").await.problem(401, "UNAUTHORIZED");
    let flood = join_all((0..50).map(|_| status(&running, &made_up))).await;
    assert!(flood.iter().all(|status| *status == 401), "{flood:?}");
    let more = usize::try_from(begun.elapsed().as_secs() / 10).unwrap();
    assert!(server.asked() <= 2 + more, "{} requests in {:?}", server.asked(), begun.elapsed());
    assert_eq!(status(&running, &second).await, 200);
    running.stop().await;
}

async fn known_keys_stay_while_the_provider_is_away(on: StoreKind) {
    let answers = [
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot JSON!".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{".to_owned(),
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", " ".repeat(300 * 1024)),
        String::new(),
    ];
    for answer in answers {
        let [known, other] = ["known", "other"].map(|name| Signer::new(Algorithm::Es256, name));
        let server = KeyServer::start(&jwks([&known])).await;
        let running = start(on, Algorithm::Es256, &server).await;
        assert_eq!(status(&running, &known).await, 200);
        server.answer(&answer);
        if answer.is_empty() {
            server.fall();
        }
        assert_eq!(status(&running, &other).await, 401, "{answer:.60}");
        assert!(server.asked() >= 2);
        assert_eq!(status(&running, &known).await, 200, "{answer:.60}");
        let metrics = running.admin.ask(Method::GET, "/metrics", &[], "").await;
        let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
        assert!(metrics.contains("\nposthaste_token_key_reads_total{outcome=\"failed\"} 1\n"), "{metrics}");
        assert!(metrics.contains("\nposthaste_token_keys 1\n"), "{metrics}");
        running.stop().await;
    }
}

async fn a_server_starts_without_its_provider(on: StoreKind) {
    let signer = Signer::new(Algorithm::Rs256, "k");
    let server = KeyServer::start(&jwks([&signer])).await;
    server.fall();
    let running = start(on, Algorithm::Rs256, &server).await;
    assert_eq!(status(&running, &signer).await, 401);
    running.tenant("a").await.get("/v1/stats").await;
    running.stop().await;
}

async fn a_file_of_keys_is_read_again(on: StoreKind) {
    let [first, second] = ["first", "second"].map(|name| Signer::new(Algorithm::Rs256, name));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, jwks([&first])).unwrap();
    let keys = JwtKeys::File(file.clone());
    let running = Running::with(on, |config| accept(config, jwt(Algorithm::Rs256, keys))).await;
    assert_eq!(status(&running, &first).await, 200);
    std::fs::write(&file, jwks([&first, &second])).unwrap();
    assert_eq!(status(&running, &second).await, 200);
    // While it is half written, what is known stays.
    std::fs::write(&file, "{\"keys\": [").unwrap();
    assert_eq!(status(&running, &Signer::new(Algorithm::Rs256, "third")).await, 401);
    assert_eq!([status(&running, &first).await, status(&running, &second).await], [200, 200]);
    running.stop().await;
}

async fn keys_that_do_not_fit_the_algorithm_are_passed_over(on: StoreKind) {
    let signers = Algorithm::ALL.map(|algorithm| Signer::new(algorithm, algorithm.name()));
    let set = jwks(&signers);
    for own in &signers[1..] {
        let server = KeyServer::start(&set).await;
        let running = start(on, own.algorithm(), &server).await;
        assert_eq!(status(&running, own).await, 200);
        for other in &signers {
            // A header that lies about the algorithm, with the key that the set has for it.
            let header = json!({"alg": own.algorithm().name(), "kid": other.name});
            let token = other.token_with(&header, &claims("a", "reader"));
            let from = [("x-forwarded-for", &*elsewhere())];
            let told = running.caller(Some(&token)).ask(Method::GET, "/v1/stats", &from, "").await;
            let wanted = if other.name == own.name { 200 } else { 401 };
            assert_eq!(told.status, wanted, "{} as {}", other.name, own.name);
        }
        running.stop().await;
    }
}

on_each_store! {
    a_new_key_of_the_provider_is_found_and_unknown_ones_cause_one_request;
    known_keys_stay_while_the_provider_is_away;
    a_server_starts_without_its_provider;
    a_file_of_keys_is_read_again;
    keys_that_do_not_fit_the_algorithm_are_passed_over;
}
