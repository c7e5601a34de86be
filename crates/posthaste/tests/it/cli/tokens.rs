//! What the doctor says of access tokens.

use posthaste::tokens::Algorithm;

use super::run;
use crate::api::tokens::issuer::{KeyServer, Signer, jwks};

#[tokio::test]
async fn the_doctor_reads_the_keys_of_access_tokens() {
    let server = KeyServer::start(&jwks([&Signer::new(Algorithm::Es256, "k")])).await;
    let look = async |algorithm: &str| {
        let settings = [
            format!("auth.jwt.algorithm={algorithm}"),
            format!("auth.jwt.jwks_url={}", server.url),
            "auth.jwt.issuer=https://id.example".to_owned(),
            "auth.jwt.audience=posthaste".to_owned(),
        ];
        let mut args = vec!["doctor", "--url", "http://127.0.0.1:1"];
        args.extend(settings.iter().flat_map(|setting| ["--set", setting.as_str()]));
        run(&args).await.out
    };
    let well = look("ES256").await;
    assert!(well.contains(&format!("{} holds a key for ES256", server.url)), "{well}");
    let other = look("RS256").await;
    assert!(other.contains("holds no key for RS256") && other.contains("fail"), "{other}");
    server.answer("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let away = look("ES256").await;
    assert!(away.contains("answers 404") && away.contains("keeps the keys that it knows"), "{away}");
    let off = run(&["doctor", "--url", "http://127.0.0.1:1"]).await.out;
    assert!(!off.contains("access tokens"), "{off}");
}
