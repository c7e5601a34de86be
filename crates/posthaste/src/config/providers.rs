//! `[providers.*]`: the providers, under names chosen by the user.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::classify::LOG_CODES;
use posthaste_core::provider::ProviderKind;

use super::layers::{ConfigValue, Layers, dotted, is_empty_table};
use super::named::Secret;
use super::policies::named;
use super::read::{ConfigReader, unknown};
use super::sections::Provider;
use super::values::{self, Read};

const FIELDS: &[&str] =
    &["channel", "kind", "priority", "url", "base_url", "from", "account_sid", "auth_token", "token", "fail"];

/// Reads all providers. One of a kind that is not built yet has no effect and causes a warning.
pub(super) fn read(layers: &Layers, reader: &mut ConfigReader<'_>) -> BTreeMap<String, Provider> {
    let mut providers = BTreeMap::new();
    for (name, fields) in named(layers, "providers") {
        let at = dotted(&["providers".to_owned(), name.to_owned()]);
        let mut given = BTreeMap::new();
        let Some((_, any)) = fields.first() else { continue };
        let mut good = is_name(name);
        if !good {
            let reason =
                "is no name for a provider: use 1 to 64 of the letters a-z, A-Z, digits, `-`, `_` and `.`";
            reader.report_value(any, &at, reason);
        }
        for (path, value) in &fields {
            match path {
                [] if is_empty_table(&value.value) => {}
                [] => {
                    reader.report_value(value, &at, values::SECTION);
                    good = false;
                }
                [field] if FIELDS.contains(&field.as_str()) => {
                    given.insert(field.as_str(), *value);
                }
                [field, ..] => {
                    let reason = unknown(field, FIELDS, None);
                    reader.report_value(value, &format!("{at}.{}", dotted(path)), &reason);
                    good = false;
                }
            }
        }
        if good && let Some(provider) = provider(&given, any, name, &at, reader) {
            if provider.built().is_none() {
                let why = format!("the kind `{}` is not built yet", provider.kind);
                reader.without_effect(any, &at, &why);
            }
            providers.insert(name.to_owned(), provider);
        }
    }
    providers
}

/// A name appears in destinations, lists and filters.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

fn provider(
    given: &BTreeMap<&str, &ConfigValue>,
    any: &ConfigValue,
    name: &str,
    at: &str,
    reader: &mut ConfigReader<'_>,
) -> Option<Provider> {
    let mut fields = ProviderFields { given, name, at, reader, good: true };
    let channel = fields.read("channel", channel);
    let kind = fields.read("kind", values::text);
    let priority = fields.read("priority", values::whole(0..=1_000_000)).unwrap_or(1);
    let url = fields.secret("url");
    let base_url = fields.read("base_url", values::optional_text).flatten();
    let from = fields.read("from", values::optional_text).flatten();
    let account_sid = fields.read("account_sid", values::optional_text).flatten();
    let auth_token = fields.secret("auth_token");
    let token = fields.secret("token");
    let fail = fields.read("fail", log_code).flatten();
    if !fields.good {
        return None;
    }
    if channel.is_none() {
        let reason = "is missing: say which channel the provider carries, such as email";
        reader.report_value(any, &format!("{at}.channel"), reason);
    }
    if kind.is_none() {
        reader.report_value(any, &format!("{at}.kind"), "is missing: say what the provider is, such as smtp");
    }
    let (channel, kind) = (channel?, kind?);
    if fail.is_some() && kind != ProviderKind::Log.name() {
        let reason = "is for the kind `log` alone";
        reader.report_value(any, &format!("{at}.fail"), reason);
        return None;
    }
    Some(Provider { channel, kind, priority, url, base_url, from, account_sid, auth_token, token, fail })
}

struct ProviderFields<'f, 'r, 'l> {
    given: &'f BTreeMap<&'f str, &'f ConfigValue>,
    name: &'f str,
    at: &'f str,
    reader: &'r mut ConfigReader<'l>,
    good: bool,
}

impl ProviderFields<'_, '_, '_> {
    fn secret(&mut self, field: &str) -> Option<Secret> {
        self.reader.hide(["providers", self.name, field].map(str::to_owned).into());
        self.read(field, values::secret).flatten()
    }

    fn read<T>(&mut self, field: &str, read: impl Fn(&ConfigValue) -> Read<T>) -> Option<T> {
        let given = self.given.get(field)?;
        match read(given) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.reader.report_value(given, &format!("{}.{field}", self.at), &reason);
                self.good = false;
                None
            }
        }
    }
}

fn channel(given: &ConfigValue) -> Read<Channel> {
    let found = given.value.as_str().and_then(|text| text.parse().ok());
    let found = found.filter(|channel: &Channel| channel.has_providers());
    let names = Channel::ALL.iter().filter(|channel| channel.has_providers()).map(|channel| channel.name());
    let names = names.collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("must be one of {names}, not {}", values::excerpt(&given.value)))
}

/// A code with which a provider of the kind `log` can fail. Empty means none.
fn log_code(given: &ConfigValue) -> Read<Option<String>> {
    let text = values::optional_text(given)?;
    if text.as_ref().is_some_and(|text| LOG_CODES.iter().all(|(code, _)| code != text)) {
        let codes = LOG_CODES.map(|(code, _)| code).join(", ");
        return Err(format!("must be one of {codes}, not {}", values::excerpt(&given.value)));
    }
    Ok(text)
}
