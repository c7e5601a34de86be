//! Headers that hold secrets: which they are, how they are shown, and how their values are kept out of what others send back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::notification::Content;
use crate::reply::Reply;

/// What stands for a secret.
pub const MASK: &str = "***";

/// The names of the headers whose values are secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensitiveHeaders(Vec<String>);

impl SensitiveHeaders {
    /// Those that always are.
    pub const BUILT_IN: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

    pub fn with(more: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = Self::BUILT_IN.map(str::to_owned).into();
        names.extend(more.into_iter().map(|name| name.to_ascii_lowercase()));
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|sensitive| sensitive.eq_ignore_ascii_case(name))
    }

    pub fn any_of(&self, headers: &BTreeMap<String, String>) -> bool {
        headers.keys().any(|name| self.contains(name))
    }

    /// Takes the sensitive headers out of the others.
    pub fn split(&self, headers: &mut BTreeMap<String, String>) -> SecretHeaders {
        let (secret, plain) = std::mem::take(headers).into_iter().partition(|(name, _)| self.contains(name));
        *headers = plain;
        SecretHeaders(secret)
    }

    /// The headers of a notification as everybody may see them.
    pub fn shown(&self, content: &Content) -> BTreeMap<String, String> {
        let one = |(name, value): (&String, &String)| {
            let value = if self.contains(name) { mask(value) } else { value.clone() };
            (name.clone(), value)
        };
        let sealed = content.sealed_headers.iter().flat_map(|sealed| sealed.shown.clone());
        content.headers.iter().map(one).chain(sealed).collect()
    }
}

impl Default for SensitiveHeaders {
    fn default() -> Self {
        Self::with([])
    }
}

/// Headers with their values. They are never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretHeaders(BTreeMap<String, String>);

impl SecretHeaders {
    pub const fn reveal(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names and masked values.
    pub fn shown(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, value)| (name.clone(), mask(value))).collect()
    }

    /// The text that is sealed.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.0).expect("texts can be written")
    }

    pub fn from_json(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().map(Self)
    }
}

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.shown()).finish()
    }
}

/// The sensitive headers of a notification as they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedHeaders {
    /// The names and masked values.
    pub shown: BTreeMap<String, String>,
    /// `SecretHeaders::to_json`, sealed about the notification and `FIELD`.
    pub text: String,
}

impl SealedHeaders {
    /// The field of a notification that they are.
    pub const FIELD: &str = "headers";
}

/// The words that stand before a secret and are none.
const SCHEMES: [&str; 12] = [
    "apikey",
    "aws4-hmac-sha256",
    "basic",
    "bearer",
    "digest",
    "dpop",
    "hmac",
    "key",
    "negotiate",
    "ntlm",
    "signature",
    "token",
];

/// What is shown of a value: its scheme, if it has one that is known.
pub fn mask(value: &str) -> String {
    let is_known = |scheme: &str| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    match value.trim().split_once(' ') {
        Some((scheme, _)) if is_known(scheme) => format!("{scheme} {MASK}"),
        Some(_) | None => MASK.to_owned(),
    }
}

/// Keeps secrets out of texts that come from outside: a receiver may send back what it was sent.
pub struct Redactor {
    /// What to look for, the longest first.
    secrets: Vec<String>,
}

/// Shorter ones stand in any text by chance.
const SHORTEST: usize = 4;

impl Redactor {
    /// For the values of headers, as they are and as JSON, HTML and addresses spell them.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<String> = values
            .into_iter()
            .flat_map(parts)
            .filter(|part| part.chars().count() >= SHORTEST)
            .flat_map(spellings)
            .collect();
        secrets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Self { secrets }
    }

    /// The text with each secret masked. A secret that the end of the text cuts off is masked as well.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), MASK));
            }
        }
        match self.cut_off(&text) {
            Some(start) => Cow::Owned(format!("{}{MASK}", &text[..start])),
            None => text,
        }
    }

    /// Everything that a reply quotes.
    #[must_use]
    pub fn redact_reply(&self, reply: Reply) -> Reply {
        let redact = |text: String| match self.redact(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(redacted) => redacted,
        };
        Reply {
            answer: reply.answer,
            text: redact(reply.text),
            content_type: reply.content_type.map(redact),
            provider_code: reply.provider_code.map(redact),
            message_id: reply.message_id.map(redact),
        }
    }

    /// Where the start of a secret begins that the text ends with.
    fn cut_off(&self, text: &str) -> Option<usize> {
        let begins = |secret: &String| {
            let lengths = SHORTEST..secret.len();
            let starts = lengths.rev().filter_map(|length| secret.get(..length));
            starts.filter_map(|start| text.strip_suffix(start)).map(str::len).next()
        };
        self.secrets.iter().filter_map(begins).min()
    }
}

/// The whole value, what follows its first word, which may be a scheme that is not known here, and the single values of a cookie.
fn parts(value: &str) -> Vec<&str> {
    let value = value.trim();
    let mut parts = vec![value];
    parts.extend(value.split_once(' ').map(|(_, token)| token.trim()));
    let pairs = value.split(';').filter_map(|pair| pair.split_once('='));
    // An `=` at the end belongs to base64.
    parts.extend(
        pairs.map(|(_, value)| value.trim().trim_matches('"')).filter(|value| !value.starts_with('=')),
    );
    parts
}

/// How a text may be spelled in an answer.
fn spellings(text: &str) -> Vec<String> {
    let json = serde_json::to_string(text).expect("a text can be written");
    let json = json[1..json.len() - 1].to_owned();
    let html = |apostrophe: &str, quote: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        text.replace('\'', apostrophe).replace('"', quote)
    };
    let percent: String = text
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let slashes = json.replace('/', "\\/");
    vec![text.to_owned(), json, slashes, html("&#39;", "&quot;"), html("&#x27;", "&#34;"), percent]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::notification::Body;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_names_do_not_differ_by_case() {
        let sensitive = SensitiveHeaders::with(["X-Hub-Token".to_owned()]);
        for name in
            ["authorization", "Authorization", "COOKIE", "x-api-key", "x-hub-TOKEN", "Proxy-Authorization"]
        {
            assert!(sensitive.contains(name), "{name}");
        }
        for name in ["", "x-a", "authorization2"] {
            assert!(!sensitive.contains(name), "{name}");
        }
    }

    #[test]
    fn only_a_known_scheme_is_shown() {
        for (value, shown) in [
            ("Bearer abc", "Bearer ***"),
            ("basic dTpw", "basic ***"),
            (" Bearer  a b ", "Bearer ***"),
            ("hunter2 is the word", "***"),
            ("abc", "***"),
            ("Bearer", "***"),
            ("", "***"),
        ] {
            assert_eq!(mask(value), shown);
        }
    }

    #[test]
    fn sensitive_headers_are_taken_out_and_shown_masked() {
        let sensitive = SensitiveHeaders::default();
        let mut content = Content::of(Body::Text(String::new()));
        content.headers = map(&[("Authorization", "Bearer abc"), ("x-a", "1"), ("X-Api-Key", "k")]);
        let shown = map(&[("Authorization", "Bearer ***"), ("x-a", "1"), ("X-Api-Key", "***")]);
        assert_eq!(sensitive.shown(&content), shown);
        let secret = sensitive.split(&mut content.headers);
        assert_eq!(content.headers, map(&[("x-a", "1")]));
        assert_eq!(SecretHeaders::from_json(secret.to_json().as_bytes()), Some(secret.clone()));
        assert!(!format!("{secret:?}").contains("abc"));
        content.sealed_headers = Some(SealedHeaders { shown: secret.shown(), text: "v1.".to_owned() });
        assert_eq!(sensitive.shown(&content), shown);
    }

    #[test]
    fn what_a_receiver_sends_back_is_masked() {
        let redactor = Redactor::of(["Bearer s3cr3t/t0ken=", "sid=abcdef; theme=\"dark\"", "no"]);
        for (text, shown) in [
            ("you sent Bearer s3cr3t/t0ken= today", "you sent *** today"),
            ("bad token s3cr3t/t0ken=.", "bad token ***."),
            (r#"{"authorization":"Bearer s3cr3t\/t0ken="}"#, r#"{"authorization":"***"}"#),
            ("?t=s3cr3t%2Ft0ken%3D&x", "?t=***&x"),
            ("unknown session abcdef", "unknown session ***"),
            ("it is s3cr3t/t0k", "it is ***"),
            ("it is s3cr", "it is ***"),
            ("it is s3c", "it is s3c"),
            ("no", "no"),
            ("", ""),
        ] {
            assert_eq!(redactor.redact(text), shown, "{text}");
        }
        let unknown_scheme = Redactor::of(["GenieKey s3cr3t-t0ken"]);
        assert_eq!(unknown_scheme.redact("no such key: s3cr3t-t0ken"), "no such key: ***");
        let html = Redactor::of(["a<b>&'c\""]);
        assert_eq!(html.redact("<p>a&lt;b&gt;&amp;&#39;c&quot;</p>"), "<p>***</p>");
        assert_eq!(html.redact(r#"{"h":"a<b>&'c\""}"#), r#"{"h":"***"}"#);
    }

    proptest! {
        #[test]
        fn no_text_keeps_a_secret(secret in "[!-~]{4,40}", before in ".{0,20}", after in ".{0,20}") {
            prop_assume!(!MASK.contains(&secret) && !secret.contains(MASK));
            let redactor = Redactor::of([secret.as_str()]);
            let text = format!("{before}{secret}{after}");
            prop_assert!(!redactor.redact(&text).contains(&secret));
        }
    }
}
