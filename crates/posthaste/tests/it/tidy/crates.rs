//! Rules for the crates of others: their licences, where they come from, and which must not be there.

use std::process::Command;

use serde_json::Value;

/// The licences under which a crate may be used. deny.toml has the same list.
const LICENCES: [&str; 7] =
    ["Apache-2.0", "BSD-3-Clause", "CDLA-Permissive-2.0", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// The one registry.
const REGISTRY: &str = "https://github.com/rust-lang/crates.io-index";

/// TLS is rustls with aws-lc-rs: two providers in one program panic at the first handshake.
const BANNED: [&str; 4] = ["ring", "openssl", "openssl-sys", "native-tls"];

/// Two versions of these do not understand each other's types or providers.
const ONCE: [&str; 7] = [
    "aws-lc-rs",
    "aws-lc-sys",
    "rustls",
    "rustls-pki-types",
    "rustls-webpki",
    "tokio-rustls",
    "webpki-roots",
];

/// What is wrong with a crate of `cargo metadata`.
fn complaint(package: &Value) -> Option<String> {
    let name = &package["name"];
    let Some(source) = package["source"].as_str() else {
        let own = name.as_str().is_some_and(|name| name == "posthaste" || name.starts_with("posthaste-"));
        return (!own).then(|| format!("{name} comes from a path"));
    };
    if source.strip_prefix("registry+") != Some(REGISTRY) {
        return Some(format!("{name} comes from {source}"));
    }
    let licence = package["license"].as_str().unwrap_or("");
    (!allowed(licence)).then(|| format!("{name} has the licence `{licence}`"))
}

/// Whether an SPDX expression can be met with the licences of the list. Old manifests write `/` for OR.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) == Some(true) && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> Option<bool> {
    let mut met = all(rest)?;
    while let Some((&"OR", after)) = rest.split_first() {
        *rest = after;
        met |= all(rest)?;
    }
    Some(met)
}

fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut met = one(rest)?;
    while let Some((&"AND", after)) = rest.split_first() {
        *rest = after;
        met &= one(rest)?;
    }
    Some(met)
}

fn one(rest: &mut &[&str]) -> Option<bool> {
    let (word, after) = rest.split_first()?;
    *rest = after;
    if *word == "(" {
        let met = any(rest)?;
        let (close, after) = rest.split_first()?;
        *rest = after;
        return (*close == ")").then_some(met);
    }
    // An exception only allows more, but it is another licence by name, and none is on the list.
    if let Some((&"WITH", after)) = rest.split_first() {
        *rest = after.split_first()?.1;
        return Some(false);
    }
    Some(LICENCES.contains(word))
}

/// What a tree of `name vX.Y.Z` lines has that must not be there, or not twice.
fn tree_complaints(tree: &str) -> Vec<String> {
    let mut crates: Vec<(&str, &str)> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or(rest)))
        .collect();
    crates.sort_unstable();
    crates.dedup();
    let mut found: Vec<String> = crates
        .iter()
        .filter(|(name, _)| BANNED.contains(name))
        .map(|(name, version)| format!("{name} {version} must not be used"))
        .collect();
    for name in ONCE {
        let versions: Vec<&str> =
            crates.iter().filter(|(other, _)| *other == name).map(|(_, version)| *version).collect();
        if versions.len() != 1 {
            found.push(format!("{name} is there in {} versions: {versions:?}", versions.len()));
        }
    }
    found
}

/// Cargo's own words. The crates of this platform are here, because this test was built from them: no network is needed.
fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let ran = Command::new(cargo)
        .args(args)
        .args(["--locked", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(ran.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("cargo writes text")
}

#[test]
fn every_crate_has_a_licence_of_the_list_and_comes_from_the_registry() {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let text = cargo(&["metadata", "--format-version", "1", "--filter-platform", &platform]);
    let told: Value = serde_json::from_str(&text).unwrap();
    let packages = told["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{} packages", packages.len());
    let found: Vec<String> = packages.iter().filter_map(complaint).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// `cargo metadata` also names optional crates that no feature turns on; the tree is what is built.
#[test]
fn there_is_one_tls_and_one_provider_for_it() {
    let tree = cargo(&["tree", "--workspace", "--all-features", "--prefix", "none", "--format", "{p}"]);
    let found = tree_complaints(&tree);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn deny_toml_has_the_same_lists() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deny.toml")).unwrap();
    let deny: toml::Table = text.parse().unwrap();
    let texts = |section: &str, key: &str| -> Vec<String> {
        let list = deny[section][key].as_array().unwrap();
        list.iter().map(|one| one.get("name").unwrap_or(one).as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts("licenses", "allow"), LICENCES);
    assert_eq!(texts("bans", "deny"), BANNED);
    assert_eq!(texts("sources", "allow-registry"), [REGISTRY]);
    assert_eq!(texts("sources", "allow-git"), [""; 0]);
    for key in ["unknown-registry", "unknown-git"] {
        assert_eq!(deny["sources"][key].as_str(), Some("deny"));
    }
}

#[test]
fn a_licence_that_is_not_on_the_list_is_found() {
    for fine in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0-only OR MIT",
        "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
        "ISC AND (Apache-2.0 OR ISC)",
    ] {
        assert!(allowed(fine), "{fine}");
    }
    for bad in [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "Apache-2.0 WITH LLVM-exception",
        "(MIT",
        "MIT OR",
        "MIT MIT",
        "(MIT OR ISC) AND AGPL-3.0-only",
        "MIT OR ISC AND",
    ] {
        assert!(!allowed(bad), "{bad}");
    }
}

#[test]
fn a_crate_from_elsewhere_and_a_second_tls_are_found() {
    let package =
        |source: Value, licence: &str| serde_json::json!({"name": "x", "source": source, "license": licence});
    let registry = format!("registry+{REGISTRY}");
    assert_eq!(complaint(&package(registry.clone().into(), "MIT")), None);
    for bad in [
        package(registry.into(), "GPL-3.0-only"),
        package("git+https://github.com/a/b".into(), "MIT"),
        package("registry+https://elsewhere.example/index".into(), "MIT"),
        package(Value::Null, "MIT"),
    ] {
        assert!(complaint(&bad).is_some(), "{bad}");
    }
    let fine: String = ONCE.iter().map(|name| format!("{name} v1.0.0\n")).collect();
    assert_eq!(tree_complaints(&fine), [""; 0]);
    assert_eq!(tree_complaints(&format!("{fine}rustls v0.22.0\nring v0.17.0 (*)\n")).len(), 2);
    assert_eq!(tree_complaints("").len(), ONCE.len());
}
