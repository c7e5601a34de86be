//! `[destinations.*]`: limits and client certificates, under the URLs of destinations or the names of providers.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::destination::{DestinationKind, DestinationName, MAX_CONCURRENCY, SendLimits};
use posthaste_core::rate::Rate;
use posthaste_wire::guard::Target;
use serde_json::Value;

use super::client_certificates::{self, CERTIFICATE, ClientCertificates, KEY};
use super::layers::{ConfigValue, Layers, dotted, is_empty_table};
use super::nearest::nearest;
use super::policies::named;
use super::read::{ConfigReader, unknown};
use super::sections::Provider;
use super::settings::without_user;
use super::values::{self, Read};
use crate::destination_name;

const FIELDS: &[&str] = &["rate", "concurrency", CERTIFICATE, KEY];

/// What the configuration says of destinations.
#[derive(Default)]
pub(super) struct Destinations {
    pub(super) limits: BTreeMap<DestinationName, SendLimits>,
    pub(super) certificates: ClientCertificates,
}

/// Reads all of them. A limit of a URL holds for each tenant by itself, a certificate is shown for every tenant.
pub(super) fn read(
    layers: &Layers,
    providers: &BTreeMap<String, Provider>,
    reader: &mut ConfigReader<'_>,
) -> Destinations {
    let (mut all, mut names) = (Destinations::default(), BTreeSet::new());
    for (given_name, fields) in named(layers, "destinations") {
        let Some((_, any)) = fields.first() else { continue };
        let at = dotted(&["destinations".to_owned(), without_user(given_name.to_owned())]);
        let name = match name(given_name, providers) {
            Ok(name) => name,
            Err(reason) => {
                reader.report_value(any, &at, &reason);
                continue;
            }
        };
        let mut limits = SendLimits::default();
        let (mut certificate, mut key) = (None, None);
        for (path, given) in &fields {
            match path {
                [] if is_empty_table(&given.value) => {}
                [] => reader.report_value(given, &at, values::SECTION),
                [field] if field == "rate" => limits.rate = take(given, &at, field, rate, reader),
                [field] if field == "concurrency" => {
                    limits.concurrency = take(given, &at, field, values::whole(1..=MAX_CONCURRENCY), reader);
                }
                [field] if field == CERTIFICATE => certificate = Some(*given),
                [field] if field == KEY => key = Some(*given),
                [field, ..] => {
                    let reason = match FIELDS.contains(&field.as_str()) {
                        true => "must be a value, not a section".to_owned(),
                        false => unknown(field, FIELDS, None),
                    };
                    reader.report_value(given, &format!("{at}.{}", dotted(path)), &reason);
                }
            }
        }
        let only_certificate = limits == SendLimits::default() && (certificate.is_some() || key.is_some());
        if let Some(source) = client_certificates::read(&name, &at, certificate, key, reader) {
            all.certificates.insert(name.name.to_string(), source);
        }
        if !names.insert(name.clone()) {
            reader.report_value(any, &at, "is given twice: another section is for the same destination");
        }
        if !only_certificate {
            all.limits.insert(name, limits);
        }
    }
    all
}

fn take<T>(
    given: &ConfigValue,
    at: &str,
    field: &str,
    read: impl Fn(&ConfigValue) -> Read<T>,
    reader: &mut ConfigReader<'_>,
) -> Option<T> {
    read(given).map_err(|reason| reader.report_value(given, &format!("{at}.{field}"), &reason)).ok()
}

fn name(given: &str, providers: &BTreeMap<String, Provider>) -> Read<DestinationName> {
    let what =
        "is no destination: use a URL such as \"https://api.example.com:443\", or the name of a provider";
    let is_url = given.contains("://");
    if let Some(bad) = is_url.then(|| Target::parse(given).err()).flatten() {
        return Err(format!("is no destination: {bad}"));
    }
    let name = destination_name::parse(given).map_err(|_| what.to_owned())?;
    match name.kind {
        DestinationKind::Webhook => Ok(name),
        DestinationKind::Subscription => {
            Err("is a subscription: its limits are set by PUT /v1/destinations/{id}".to_owned())
        }
        DestinationKind::Provider if providers.contains_key(&*name.name) => Ok(name),
        DestinationKind::Provider => Err(match nearest(given, providers.keys().map(String::as_str)) {
            Some(meant) => format!("is no provider of this configuration; did you mean `{meant}`?"),
            None => what.to_owned(),
        }),
    }
}

fn rate(given: &ConfigValue) -> Read<Rate> {
    let number = match &given.value {
        Value::String(text) if given.origin.is_text() => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    let rate = number.map(Rate::per_second);
    let what = || posthaste_core::rate::BadRate.to_string();
    rate.and_then(Result::ok).ok_or_else(|| format!("{}, not {}", what(), values::excerpt(&given.value)))
}
