//! `[auth.jwt]`: what can be set, and what does not fit together.

use std::path::Path;

use posthaste::config::{Config, JwtKeys};
use posthaste::tokens::Algorithm;
use serde_json::{Value, json};

use super::load;
use crate::api::tokens::issuer::{Signer, jwks, pem};

/// An RSA key of 1024 bits.
const SHORT: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDN2NEZ+gfCh5HqEu0GPwMGaVD0
oFc91kO4IdMgkYx33G0IrvvOSEjEewz+rxg5pZ/PvcmiqaIHyGQmLCeJLrdIa7Qt
LvLCQmqbJeWfume/SuTE9Qz1MQyUdB5EfD/RDSO9XUIBB9CHDdS0wPtSpGm/PR0E
NH5dPuGDzPvKX3LIZwIDAQAB
-----END PUBLIC KEY-----
";
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A section that is complete but for its keys.
fn section(algorithm: &str, keys: &str) -> String {
    format!("[auth.jwt]\nalgorithm = \"{algorithm}\"\nissuer = \"i\"\naudience = \"a\"\n{keys}")
}

fn complaint(file: &str) -> String {
    load(file, &[], &[]).unwrap_err()
}

/// A file with this text.
fn written(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn access_tokens_are_off_unless_an_algorithm_is_named() {
    assert_eq!(Config::defaults().jwt, None);
    let config = load(&section("HS256", &format!("secret = \"{SECRET}\"")), &[], &[]).unwrap();
    let jwt = config.jwt.unwrap();
    assert_eq!(
        (jwt.algorithm, jwt.rules.issuer.as_str(), jwt.rules.audience.as_str()),
        (Algorithm::Hs256, "i", "a")
    );
    assert_eq!([jwt.rules.tenant, jwt.rules.role, jwt.rules.module], ["tenant", "role", "module"]);
    assert_eq!(config.warnings, Vec::<String>::new());
    let variables = [
        ("POSTHASTE__AUTH__JWT__ALGORITHM", "EdDSA"),
        ("POSTHASTE__AUTH__JWT__JWKS_URL", "https://id.example/keys"),
        ("POSTHASTE__AUTH__JWT__ISSUER", "i"),
        ("POSTHASTE__AUTH__JWT__AUDIENCE", "a"),
        ("POSTHASTE__AUTH__JWT__TENANT_CLAIM", "https://example.com/tenant"),
    ];
    let jwt = load("", &variables, &[]).unwrap().jwt.unwrap();
    let JwtKeys::Url { target, .. } = &jwt.keys else { panic!("{jwt:?}") };
    assert_eq!(target.destination, "https://id.example:443");
    assert_eq!(jwt.rules.tenant, "https://example.com/tenant");
}

/// An algorithm, the keys beside it, and the complaint. `LONG` stands for a secret that is long enough.
const MISFITS: &[(&str, &str, &str)] = &[
    ("hs256", "", "algorithm must be one of HS256, RS256, ES256, EdDSA, not `hs256`"),
    ("none", "", "algorithm must be one of HS256, RS256, ES256, EdDSA, not `none`"),
    ("RS512", "", "algorithm must be one of HS256, RS256, ES256, EdDSA, not `RS512`"),
    ("HS256", "", "secret is missing: "),
    ("RS256", "", "public_key_file is missing: give it, auth.jwt.jwks_file or auth.jwt.jwks_url"),
    ("HS256", "secret = \"hunter2\"", "secret has 7 bytes, and HS256 needs at least 32"),
    ("HS256", "secret = 7", "secret must be a text in quotes"),
    (
        "HS256",
        "public_key_file = \"k.pem\"",
        "public_key_file is for RS256, ES256 and EdDSA: HS256 is verified with auth.jwt.secret",
    ),
    ("HS256", "jwks_url = \"https://h/k\"\nsecret = \"LONG\"", "jwks_url is for RS256, ES256 and EdDSA"),
    ("EdDSA", "secret = \"LONG\"", "secret is for HS256 alone: EdDSA is verified with a public key"),
    (
        "RS256",
        "jwks_url = \"https://h/k\"\njwks_file = \"k\"",
        "jwks_url is set, and auth.jwt.jwks_file is as well: give one of them",
    ),
    ("RS256", "jwks_url = \"http://id.example/keys\"", "jwks_url must start with https://"),
    (
        "RS256",
        "jwks_url = \"https://me:pw@id.example/keys\"",
        "jwks_url cannot be used: the URL must not hold a user name or password",
    ),
    ("RS256", "jwks_url = \"id.example\"", "jwks_url cannot be used: the URL "),
    ("RS256", "jwks_url = \"https://h/k\"\ntenant_claim = \"\"", "tenant_claim must be the name of a claim"),
    ("RS256", "jwks_url = \"https://h/k\"\nrole_claim = \"aud\"", "role_claim must not be `aud`"),
    (
        "RS256",
        "jwks_url = \"https://h/k\"\nrole_claim = \"tenant\"",
        "role_claim names the same claim as another key",
    ),
    (
        "RS256",
        "jwks_url = \"https://h/k\"\nmodule_claim = \"role\"",
        "module_claim names the same claim as another key",
    ),
    (
        "RS256",
        "jwks_url = \"https://h/k\"\nroot_certificates = [\"/dev/null\"]",
        "root_certificates names /dev/null, which holds no certificate",
    ),
    ("RS256", "jwks_file = \"/nowhere/keys\"", "jwks_file names /nowhere/keys, which cannot be read: "),
    ("RS256", "public_key_file = \"/nowhere/k\"", "public_key_file names /nowhere/k, which cannot be read: "),
    (
        "RS256",
        "public_key_file = \"/dev/null\"",
        "public_key_file names /dev/null, which holds no public key in PEM form",
    ),
    (
        "RS256",
        "jwks_file = \"/dev/null\"",
        "jwks_file names /dev/null, which holds no JSON object with a list `keys`",
    ),
    ("RS256", "jwks_file = \"/dev/zero\"", "jwks_file names /dev/zero, which is larger than 256 KiB"),
];

/// A whole section, and the complaint.
const SECTIONS: &[(&str, &str)] = &[
    (
        "algorithm = \"RS256\"\njwks_url = \"https://h/k\"\naudience = \"a\"",
        "issuer is missing: the `iss` of the tokens",
    ),
    (
        "algorithm = \"RS256\"\njwks_url = \"https://h/k\"\nissuer = \"i\"",
        "audience is missing: the `aud` of the tokens",
    ),
    (
        "issuer = \"i\"",
        "issuer is set, and auth.jwt.algorithm is not: it must be one of HS256, RS256, ES256, EdDSA",
    ),
    ("secret = \"hunter2\"", "secret is set, and auth.jwt.algorithm is not"),
    ("algoritm = \"RS256\"", "algoritm is unknown; did you mean `algorithm`?"),
];

#[test]
fn what_does_not_fit_together_is_refused_with_its_key_and_the_reason() {
    let misfits = MISFITS.iter().map(|(algorithm, keys, said)| {
        let keys = keys.replace("LONG", SECRET);
        (section(algorithm, &keys), said)
    });
    let sections = SECTIONS.iter().map(|(text, said)| (format!("[auth.jwt]\n{text}"), said));
    for (file, said) in misfits.chain(sections) {
        let told = complaint(&file);
        assert!(told.contains(&format!("FILE: auth.jwt.{said}")), "{file}\n{told}");
        assert!(!told.contains("hunter2") && !told.contains(SECRET), "{told}");
    }
}

#[test]
fn a_file_of_keys_holds_what_the_algorithm_needs() {
    let directory = tempfile::tempdir().unwrap();
    let [rs, es, ed] =
        [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa].map(|one| Signer::new(one, one.name()));
    for signer in [&rs, &es, &ed] {
        let (name, file) = (signer.algorithm().name(), written(directory.path(), "good.pem", &signer.pem()));
        let jwt =
            load(&section(name, &format!("public_key_file = \"{file}\"")), &[], &[]).unwrap().jwt.unwrap();
        assert_eq!(jwt.keys, JwtKeys::PublicKey(signer.pem().into_bytes()));
        let file = written(directory.path(), "good.json", &jwks([signer]));
        load(&section(name, &format!("jwks_file = \"{file}\"")), &[], &[]).unwrap();
    }
    let private = pem("PRIVATE KEY", b"whatever it holds");
    for (algorithm, text, said) in [
        ("RS256", es.pem(), "holds an EC key on P-256, and RS256 needs an RSA key"),
        ("ES256", rs.pem(), "holds an RSA key, and ES256 needs an EC key on P-256"),
        ("EdDSA", rs.pem(), "holds an RSA key, and EdDSA needs an Ed25519 key"),
        ("ES256", ed.pem(), "holds an Ed25519 key, and ES256 needs an EC key on P-256"),
        ("ES256", pem("PUBLIC KEY", b"nonsense"), "holds a key of another kind, and ES256 needs"),
        ("RS256", SHORT.to_owned(), "holds an RSA key of 1024 bits, and RS256 needs 2048 to 8192"),
        ("RS256", rs.pem() + &rs.pem(), "holds more than one public key"),
        ("RS256", private.clone(), "holds a private key: give the public key alone"),
        ("RS256", rs.pem() + &private, "holds a private key: give the public key alone"),
        ("RS256", "hello".to_owned(), "holds no public key in PEM form"),
    ] {
        let file = written(directory.path(), "key.pem", &text);
        let told = complaint(&section(algorithm, &format!("public_key_file = \"{file}\"")));
        assert!(told.contains(&format!("auth.jwt.public_key_file names {file}, which {said}")), "{told}");
    }
    // Everybody may know a public key: as a secret it would let everybody sign.
    let file = written(directory.path(), "public.pem", &rs.pem());
    let told = complaint(&section("HS256", &format!("secret = \"file:{file}\"")));
    assert!(told.contains("auth.jwt.secret is a key in PEM form"), "{told}");
    let file = written(directory.path(), "others.json", &jwks([&es, &ed]));
    let told = complaint(&section("RS256", &format!("jwks_file = \"{file}\"")));
    assert!(told.contains(&format!("names {file}, which holds no key that verifies RS256")), "{told}");
    let many: Vec<Value> = vec![es.jwk(); 101];
    let file = written(directory.path(), "many.json", &json!({ "keys": many }).to_string());
    let told = complaint(&section("ES256", &format!("jwks_file = \"{file}\"")));
    assert!(told.contains("holds 101 keys; the limit is 100"), "{told}");
}

#[test]
fn the_secret_may_stand_elsewhere_and_is_masked() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "secret", &format!("{SECRET}\n"));
    let config = load(&section("HS256", &format!("secret = \"file:{file}\"")), &[], &[]).unwrap();
    let JwtKeys::Secret(secret) = &config.jwt.as_ref().unwrap().keys else { panic!("{:?}", config.jwt) };
    assert_eq!(secret.reveal(), SECRET);
    assert!(!format!("{config:?}").contains(SECRET));
    let shown = |config: &Config| {
        let found = config.settings.iter().find(|setting| setting.key == "auth.jwt.secret");
        found.unwrap().value.clone()
    };
    assert_eq!(shown(&config), json!(format!("file:{file}")));
    let config = load(&section("HS256", &format!("secret = \"{SECRET}\"")), &[], &[]).unwrap();
    assert_eq!(shown(&config), "***");
}
