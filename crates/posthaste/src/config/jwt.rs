//! `[auth.jwt]`: how access tokens are verified. Off unless an algorithm is named.

use std::path::{Path, PathBuf};

use posthaste_wire::guard::{Host, Scheme, Target};
use posthaste_wire::http::Root;

use super::layers::ConfigValue;
use super::named::Secret;
use super::read::ConfigReader;
use super::sections::roots;
use super::values::{self, Read};
use crate::tokens::{Algorithm, Key, KeySet, Rules, read_file};

/// The least bytes of a secret of HS256 (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;
/// The most bytes of the name of a claim.
const MAX_CLAIM: usize = 128;
/// Claims with a meaning of their own.
const OWN_CLAIMS: [&str; 5] = ["exp", "nbf", "iat", "iss", "aud"];

const ALGORITHM: &str = "auth.jwt.algorithm";
const SECRET: &str = "auth.jwt.secret";
const PUBLIC_KEY_FILE: &str = "auth.jwt.public_key_file";
const JWKS_FILE: &str = "auth.jwt.jwks_file";
const JWKS_URL: &str = "auth.jwt.jwks_url";
const ROOTS: &str = "auth.jwt.root_certificates";
const ISSUER: &str = "auth.jwt.issuer";
const AUDIENCE: &str = "auth.jwt.audience";

/// `[auth.jwt]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    pub algorithm: Algorithm,
    pub keys: JwtKeys,
    pub rules: Rules,
}

/// Where the keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwtKeys {
    Secret(Secret),
    /// A file in PEM form, which was checked.
    PublicKey(Vec<u8>),
    /// A JWKS.
    File(PathBuf),
    /// A JWKS.
    Url {
        target: Target,
        /// Certificate authorities to trust, in addition to the public ones.
        roots: Vec<Root>,
    },
}

/// The section as it is written.
struct Given {
    algorithm: String,
    secret: Option<Secret>,
    public_key_file: Option<String>,
    jwks_file: Option<String>,
    jwks_url: Option<String>,
    roots: Vec<Root>,
    issuer: String,
    audience: String,
    tenant: String,
    role: String,
    module: String,
}

/// Reads the section. Everything that does not fit together is reported.
pub(super) fn read(reader: &mut ConfigReader<'_>) -> Option<Jwt> {
    reader.without_effect_from_here(None);
    let given = Given {
        algorithm: reader.read(ALGORITHM, values::text),
        secret: reader.secret(SECRET),
        public_key_file: reader.read(PUBLIC_KEY_FILE, values::optional_text),
        jwks_file: reader.read(JWKS_FILE, values::optional_text),
        jwks_url: reader.read(JWKS_URL, values::optional_text),
        roots: reader.read(ROOTS, roots),
        issuer: reader.read(ISSUER, values::text),
        audience: reader.read(AUDIENCE, values::text),
        tenant: reader.read("auth.jwt.tenant_claim", claim),
        role: reader.read("auth.jwt.role_claim", claim),
        module: reader.read("auth.jwt.module_claim", claim),
    };
    let names = Algorithm::ALL.map(Algorithm::name).join(", ");
    if given.algorithm.is_empty() {
        let reason = format!("is set, and {ALGORITHM} is not: it must be one of {names}");
        given.set().iter().for_each(|key| reader.report_key(key, &reason));
        return None;
    }
    let Some(algorithm) = Algorithm::from_name(&given.algorithm) else {
        let shown = values::excerpt(&given.algorithm.as_str().into());
        reader.report_key(ALGORITHM, &format!("must be one of {names}, not {shown}"));
        return None;
    };
    let keys = given.keys(algorithm, reader);
    let rules = given.rules(reader);
    Some(Jwt { algorithm, keys: keys?, rules })
}

impl Given {
    /// The keys that say nothing without an algorithm.
    fn set(&self) -> Vec<&'static str> {
        let texts = [(ISSUER, &self.issuer), (AUDIENCE, &self.audience)];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(key, _)| key);
        let roots = (!self.roots.is_empty()).then_some(ROOTS);
        self.sources().into_iter().chain(texts).chain(roots).collect()
    }

    /// The sources of keys that are set.
    fn sources(&self) -> Vec<&'static str> {
        let all = [
            (SECRET, self.secret.is_some()),
            (PUBLIC_KEY_FILE, self.public_key_file.is_some()),
            (JWKS_FILE, self.jwks_file.is_some()),
            (JWKS_URL, self.jwks_url.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }

    /// The one source of keys, if it fits the algorithm.
    fn keys(&self, algorithm: Algorithm, reader: &mut ConfigReader<'_>) -> Option<JwtKeys> {
        let name = algorithm.name();
        let sources = self.sources();
        let misfits = sources.iter().filter(|key| (**key == SECRET) != (algorithm == Algorithm::Hs256));
        for key in misfits.clone() {
            let reason = match algorithm {
                Algorithm::Hs256 => format!("is for RS256, ES256 and EdDSA: HS256 is verified with {SECRET}"),
                Algorithm::Rs256 | Algorithm::Es256 | Algorithm::EdDsa => {
                    format!("is for HS256 alone: {name} is verified with a public key")
                }
            };
            reader.report_key(key, &reason);
        }
        if misfits.count() > 0 {
            return None;
        }
        if !self.roots.is_empty() && self.jwks_url.is_none() {
            reader.report_key(ROOTS, &format!("is for {JWKS_URL} alone"));
        }
        match sources.as_slice() {
            [] if algorithm == Algorithm::Hs256 => {
                let reason =
                    format!("is missing: a secret of at least {MIN_SECRET} bytes that the issuer signs with");
                reader.report_missing(SECRET, ALGORITHM, &reason);
                None
            }
            [] => {
                let reason = format!("is missing: give it, {JWKS_FILE} or {JWKS_URL}");
                reader.report_missing(PUBLIC_KEY_FILE, ALGORITHM, &reason);
                None
            }
            [one] => {
                let keys = self.source(algorithm);
                keys.map_err(|reason| reader.report_key(one, &reason)).ok()
            }
            [first, second, ..] => {
                reader.report_key(second, &format!("is set, and {first} is as well: give one of them"));
                None
            }
        }
    }

    /// The keys of the one source that is set.
    fn source(&self, algorithm: Algorithm) -> Read<JwtKeys> {
        if let Some(secret) = &self.secret {
            return check_secret(secret).map(|()| JwtKeys::Secret(secret.clone()));
        }
        if let Some(path) = &self.public_key_file {
            let pem = read_file(Path::new(path)).map_err(|error| format!("names {path}, which {error}"))?;
            Key::from_pem(algorithm, &pem).map_err(|bad| format!("names {path}, which {bad}"))?;
            return Ok(JwtKeys::PublicKey(pem));
        }
        if let Some(path) = &self.jwks_file {
            let set = read_file(Path::new(path)).map_err(|error| format!("names {path}, which {error}"))?;
            let set = KeySet::read(algorithm, &set).map_err(|bad| format!("names {path}, which {bad}"))?;
            if set.count() == 0 {
                return Err(format!("names {path}, which holds no key that verifies {}", algorithm.name()));
            }
            return Ok(JwtKeys::File(path.into()));
        }
        let target = Target::parse(self.jwks_url.as_deref().unwrap_or_default());
        let target = target.map_err(|bad| format!("cannot be used: {bad}"))?;
        if target.scheme == Scheme::Http && !is_loopback(&target.host) {
            return Err("must start with https://: over plain HTTP somebody on the way could put in keys of their own".to_owned());
        }
        Ok(JwtKeys::Url { target, roots: self.roots.clone() })
    }

    fn rules(self, reader: &mut ConfigReader<'_>) -> Rules {
        for (key, text, what) in [
            (ISSUER, &self.issuer, "the `iss` of the tokens, such as \"https://id.example.com\""),
            (
                AUDIENCE,
                &self.audience,
                "the `aud` of the tokens that are meant for this server, such as \"posthaste\"",
            ),
        ] {
            if text.is_empty() {
                reader.report_missing(key, ALGORITHM, &format!("is missing: {what}"));
            }
        }
        let claims = [("role_claim", &self.role), ("module_claim", &self.module)];
        for (at, (key, name)) in claims.into_iter().enumerate() {
            let before = [&self.tenant, &self.role];
            if before[..=at].contains(&name) {
                let reason =
                    "names the same claim as another key: tenant, role and module stand in three claims";
                reader.report_key(&format!("auth.jwt.{key}"), reason);
            }
        }
        let Self { issuer, audience, tenant, role, module, .. } = self;
        Rules { issuer, audience, tenant, role, module }
    }
}

/// The bytes of a secret are the key as they are.
fn check_secret(secret: &Secret) -> Read<()> {
    let secret = secret.reveal();
    if secret.contains("-----BEGIN") {
        return Err(
            "is a key in PEM form: everybody may know a public key, so HS256 needs a secret of its own"
                .to_owned(),
        );
    }
    match secret.len() {
        length if length < MIN_SECRET => Err(format!(
            "has {length} bytes, and HS256 needs at least {MIN_SECRET} (`openssl rand -base64 32` makes a secret)"
        )),
        _ => Ok(()),
    }
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Name(name) => name == "localhost",
        Host::Address(address) => address.is_loopback(),
    }
}

/// The name of a claim.
fn claim(given: &ConfigValue) -> Read<String> {
    let name = values::text(given)?;
    if name.is_empty() || name.len() > MAX_CLAIM || name.chars().any(char::is_control) {
        return Err(format!("must be the name of a claim, of 1 to {MAX_CLAIM} printable bytes"));
    }
    if OWN_CLAIMS.contains(&name.as_str()) {
        return Err(format!("must not be `{name}`, which says something else"));
    }
    Ok(name)
}
