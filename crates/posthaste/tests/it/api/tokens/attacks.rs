//! Tokens that must not be accepted. Each is refused with the same answer, and changes nothing.

use http::Method;
use posthaste::tokens::Algorithm;
use serde_json::{Value, json};

use super::super::running::{Running, StoreKind};
use super::issuer::{Signer, claims, part, pem, seconds};
use super::{accepting, elsewhere};

/// A name and a token.
type Attack = (String, String);

/// What a good token says, with one claim replaced; null removes it.
fn with(name: &str, value: Value) -> Value {
    let mut said = claims("a", "admin");
    let fields = said.as_object_mut().unwrap();
    match value {
        Value::Null => drop(fields.remove(name).unwrap()),
        value => drop(fields.insert(name.to_owned(), value)),
    }
    said
}

/// Tokens that say how they want to be verified.
fn headers(signer: &Signer) -> Vec<Attack> {
    let good = claims("a", "admin");
    let mut all: Vec<Attack> = vec![];
    for alg in [
        "none", "None", "NONE", "nOnE", "none ", "", "HS256", "HS512", "RS512", "PS256", "ES256", "EdDSA",
        "rs256", " RS256",
    ] {
        let header = json!({"alg": alg, "typ": "JWT", "kid": "k"});
        let token = signer.token_with(&header, &good);
        let (signed, _) = token.rsplit_once('.').unwrap();
        all.push((format!("alg {alg:?}, signed"), token.clone()));
        all.push((format!("alg {alg:?}, unsigned"), format!("{signed}.")));
        all.push((format!("alg {alg:?}, two parts"), signed.to_owned()));
    }
    for alg in [json!(null), json!(["RS256"]), json!({"a": "RS256"}), json!(1), json!(true)] {
        all.push((format!("alg {alg}"), signer.token_with(&json!({"alg": alg, "kid": "k"}), &good)));
    }
    all.push(("no alg".to_owned(), signer.token_with(&json!({"typ": "JWT", "kid": "k"}), &good)));
    // The attacker's own key, which signs what the header says.
    let own = Signer::new(Algorithm::Rs256, "own");
    for (name, value) in [
        ("jku", json!("https://evil.example/keys")),
        ("x5u", json!("https://evil.example/cert")),
        ("jwk", own.jwk()),
        ("x5c", json!(["MIIB"])),
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(false)),
        ("b64", json!(true)),
        ("cty", json!("JWT")),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
        ("typ", json!("logout+jwt")),
        ("typ", json!(["JWT"])),
        ("kid", json!(7)),
        ("kid", json!("x".repeat(300))),
    ] {
        let mut header = signer.header();
        header[name] = value.clone();
        all.push((format!("{name} {value}, signed by the attacker"), own.token_with(&header, &good)));
        all.push((format!("{name} {value}, signed well"), signer.token_with(&header, &good)));
    }
    all.push(("a stranger's signature".to_owned(), own.token_with(&signer.header(), &good)));
    // Key confusion: everybody knows the public key, and HS256 takes any bytes as its secret.
    let bare = signer.der();
    for secret in
        [bare.clone(), pem("PUBLIC KEY", &bare).into_bytes(), signer.pem().trim().as_bytes().to_vec(), vec![]]
    {
        let confused = Signer::with_secret(&secret);
        for alg in ["HS256", "RS256"] {
            let header = json!({"alg": alg, "typ": "JWT", "kid": "k"});
            all.push((
                format!("{alg} with {} bytes as the secret", secret.len()),
                confused.token_with(&header, &good),
            ));
        }
    }
    all
}

/// Claims about times, each of which makes a token invalid; null for none.
fn times() -> Vec<(&'static str, Value)> {
    let now = seconds();
    vec![
        ("exp", json!(now - 31)),
        ("exp", json!(0)),
        ("exp", json!(-1)),
        ("exp", json!((now + 600).to_string())),
        ("exp", json!([now + 600])),
        ("exp", json!(1e300)),
        ("exp", json!(u64::MAX)),
        ("exp", Value::Null),
        ("nbf", json!(now + 300)),
        ("nbf", json!("0")),
        ("iat", json!(now + 300)),
        ("iat", json!(4_000_000_000_u64)),
        ("iat", json!(false)),
    ]
}

/// Tokens of the issuer that are meant for somebody else, for another time or for nobody.
fn said(signer: &Signer) -> Vec<Attack> {
    let others = [
        ("iss", json!("https://evil.example")),
        ("iss", json!("https://id.example/")),
        ("iss", json!(["https://id.example"])),
        ("iss", Value::Null),
        ("aud", json!("another")),
        ("aud", json!(["another", "Posthaste", "posthaste "])),
        ("aud", json!([])),
        ("aud", json!(["posthaste", 1])),
        ("aud", json!({"posthaste": true})),
        ("aud", Value::Null),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!("two\nlines")),
        ("sub", json!("\u{202e}nimda")),
        ("sub", json!("x".repeat(256))),
        ("sub", json!("posthaste")),
        ("sub", Value::Null),
        ("tenant", json!("*")),
        ("tenant", json!("a b")),
        ("tenant", json!("a\u{0}")),
        ("tenant", json!("../b")),
        ("tenant", json!("a' or 1=1 --")),
        ("tenant", json!("x".repeat(65))),
        ("tenant", json!("")),
        ("tenant", json!(["a"])),
        ("tenant", json!(true)),
        ("tenant", Value::Null),
        ("role", json!("superuser")),
        ("role", json!("tenant")),
        ("role", json!("Admin")),
        ("role", json!("*")),
        ("role", json!(["admin"])),
        ("role", json!(4)),
        ("role", Value::Null),
        ("module", json!("")),
        ("module", json!(["billing"])),
        ("module", json!("x".repeat(256))),
    ];
    let mut tokens: Vec<Attack> = vec![];
    for (name, value) in times().into_iter().chain(others) {
        let about = format!("{name} {value}");
        let mut said = claims("a", "admin");
        if value.is_null() {
            said = with(name, value)
        } else {
            said[name] = value
        }
        tokens.push((about, signer.token(&said)));
    }
    tokens.push((
        "tenant null".to_owned(),
        signer.token(&{
            let mut said = claims("a", "admin");
            said["tenant"] = Value::Null;
            said
        }),
    ));
    tokens
}

/// Texts that are no tokens, or not quite.
fn forms(signer: &Signer) -> Vec<Attack> {
    let (header, good) = (signer.header().to_string(), claims("a", "admin"));
    let token = signer.token(&good);
    let parts: Vec<&str> = token.split('.').collect();
    let text = good.to_string();
    let inner = &text[1..text.len() - 1];
    let signed = |header: &str, claims: &str| signer.token_of(header, claims);
    let mut all: Vec<Attack> = [
        ("twice a tenant", signed(&header, &format!(r#"{{"tenant":"b",{inner}}}"#))),
        ("twice a role, escaped", signed(&header, &format!(r#"{{{inner},"r\u006fle":"admin"}}"#))),
        ("twice an exp", signed(&header, &format!(r#"{{{inner},"exp":9999999999}}"#))),
        ("twice an alg", signed(r#"{"alg":"none","alg":"RS256","kid":"k"}"#, &text)),
        ("exp 1e400", signed(&header, &text.replace(&good["exp"].to_string(), "1e400"))),
        ("exp NaN", signed(&header, &text.replace(&good["exp"].to_string(), "NaN"))),
        ("claims are a list", signed(&header, "[]")),
        ("claims are a text", signed(&header, "\"x\"")),
        ("claims are null", signed(&header, "null")),
        ("claims are empty", signed(&header, "{}")),
        ("claims are not JSON", signed(&header, "{")),
        ("claims and more", signed(&header, &format!("{text} {{}}"))),
        ("a nested token as the claims", signed(&header, &token)),
        ("a header that is a list", signed("[]", &text)),
        ("a header that is nothing", signed("", &text)),
        (
            "deeply nested",
            signed(&header, &format!(r#"{{{inner},"x":{}{}}}"#, "[".repeat(500), "]".repeat(500))),
        ),
        ("more than 8 KiB", signed(&header, &format!(r#"{{{inner},"x":"{}"}}"#, "x".repeat(7000)))),
        ("nothing", String::new()),
        ("one dot", ".".to_owned()),
        ("two dots", "..".to_owned()),
        ("one part", parts[0].to_owned()),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("half a signature", token[..token.len() - 100].to_owned()),
        ("a signature and more", format!("{token}AAAA")),
        ("a part and more", format!("{token}.")),
        ("five parts", format!("{token}.{}.{}", parts[1], parts[2])),
        ("padded", format!("{}=.{}.{}", parts[0], parts[1], parts[2])),
        ("a padded signature", format!("{token}==")),
        (
            "the base64 of files",
            format!("{}.{}.{}", parts[0], parts[1], parts[2].replace('-', "+").replace('_', "/") + "+/"),
        ),
        ("a space within", format!("{}.{} .{}", parts[0], parts[1], parts[2])),
        ("a quoted token", format!("\"{token}\"")),
        ("parts in another order", format!("{}.{}.{}", parts[1], parts[0], parts[2])),
        (
            "the signature of another token",
            format!("{}.{}.{}", parts[0], part(br#"{"role":"admin"}"#), parts[2]),
        ),
        ("twice the scheme", format!("Bearer {token}")),
        ("a key that does not exist", "phk_0123456789abcdef0123456789abcdef".to_owned()),
        ("a token that looks like a key", format!("phk_{token}")),
    ]
    .map(|(name, token)| (name.to_owned(), token))
    .into();
    let last = token.chars().next_back().unwrap();
    for other in ['B', 'C', 'D'].into_iter().filter(|other| *other != last) {
        // 256 bytes leave bits in the last character that mean nothing.
        all.push((format!("the last character is {other}"), format!("{}{other}", &token[..token.len() - 1])));
    }
    all
}

async fn every_attack_gets_the_same_answer(on: StoreKind) {
    let signer = Signer::new(Algorithm::Rs256, "k");
    let running = Running::with(on, accepting(&signer)).await;
    running.caller(Some(&signer.token(&claims("a", "admin")))).get("/v1/stats").await;
    let before = running.admin.get("/v1/audit").await;
    let mut answers: Vec<(String, Value)> = vec![];
    let mut all = headers(&signer);
    all.extend(said(&signer));
    all.extend(forms(&signer));
    let count = all.len();
    for (name, token) in all {
        // An empty header says something else: there is no token.
        if token.is_empty() {
            continue;
        }
        let caller = running.caller(None);
        let authorization = format!("Bearer {token}");
        let sent = running.webhook("/ok").to_string();
        for (method, path, body) in
            [(Method::GET, "/v1/stats", ""), (Method::POST, "/v1/notifications", sent.as_str())]
        {
            let headers = [("authorization", &*authorization), ("x-forwarded-for", &*elsewhere())];
            let told = caller.ask(method, path, &headers, body.to_owned()).await;
            assert_eq!(told.status, 401, "{name}: {}", told.json);
            assert_eq!(told.headers["www-authenticate"], "Bearer", "{name}");
            let mut shown = told.json;
            shown.as_object_mut().unwrap().remove("requestId").unwrap();
            answers.push((name.clone(), shown));
        }
    }
    assert!(count > 150, "{count} attacks");
    for (name, answer) in &answers {
        assert_eq!(answer, &answers[0].1, "{name}");
    }
    assert_eq!(running.admin.get("/v1/audit").await["data"], before["data"]);
    assert_eq!(running.admin.get("/v1/notifications").await["data"], json!([]));
    let metrics = running.admin.ask(Method::GET, "/metrics", &[], "").await;
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    for reason in [
        "size",
        "form",
        "header",
        "algorithm",
        "signature",
        "expired",
        "not_yet_valid",
        "issuer",
        "audience",
        "claims",
        "tenant",
        "role",
    ] {
        let name = format!("posthaste_tokens_refused_total{{reason=\"{reason}\"}} ");
        let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap();
        assert_ne!(line, format!("{name}0"));
    }
    running.stop().await;
}

on_each_store! {
    every_attack_gets_the_same_answer;
}
