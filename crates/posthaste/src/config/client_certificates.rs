//! `[destinations.*] client_certificate`: what webhooks show to one origin (mTLS).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use posthaste_core::destination::{DestinationKind, DestinationName};
use posthaste_core::time::Timestamp;
use posthaste_wire::http::ClientCertificate;

use super::layers::ConfigValue;
use super::read::ConfigReader;
use super::secret_text::{pem, pem_file};
use super::values;

pub(super) const CERTIFICATE: &str = "client_certificate";
pub(super) const KEY: &str = "client_key";

/// How long before its end a certificate is warned of.
const END_IS_NEAR: Duration = Duration::from_hours(14 * 24);

/// The client certificates, by origin (`https://host:port`).
pub type ClientCertificates = BTreeMap<String, CertificateSource>;

/// Where a client certificate and its key stand, and what was read there. They are read again while the server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSource {
    /// A path, with `file:` before it or without, or `env:NAME`.
    certificate: String,
    /// The same for the key; none if it stands with the certificate.
    key: Option<String>,
    /// What stood there when the configuration was read.
    pub read: ClientCertificate,
}

/// The field that is at fault, and why.
pub(crate) type Fault = (&'static str, String);

impl CertificateSource {
    /// Reads a certificate and its key for the first time.
    pub(crate) fn load(certificate: String, key: Option<String>) -> Result<Self, Fault> {
        let read = load(&certificate, key.as_deref())?;
        Ok(Self { certificate, key, read })
    }

    /// Reads it again.
    pub fn reload(&self) -> Result<ClientCertificate, String> {
        load(&self.certificate, self.key.as_deref()).map_err(|(field, reason)| format!("{field} {reason}"))
    }

    /// What to say of a certificate that has ended, or will within 14 days.
    pub fn end_is_near(&self, now: Timestamp) -> Option<String> {
        let end = self.read.expires_at()?;
        if end <= now {
            return Some(format!(
                "expired at {end}: the receiver may refuse all connections; replace the file"
            ));
        }
        (now.later(END_IS_NEAR) >= end)
            .then(|| format!("expires at {end}: replace the file, it is read again within a minute"))
    }

    /// The file with the private key.
    pub fn key_file(&self) -> Option<PathBuf> {
        pem_file(self.key.as_ref().unwrap_or(&self.certificate))
    }
}

fn load(certificate: &str, key: Option<&str>) -> Result<ClientCertificate, Fault> {
    let chain = pem(certificate).map_err(|reason| (CERTIFICATE, reason))?;
    let key_text = key.map(pem).transpose().map_err(|reason| (KEY, reason))?;
    let secret = key_text.as_ref().unwrap_or(&chain);
    ClientCertificate::read(chain.as_bytes(), secret.as_bytes()).map_err(|bad| match key {
        Some(key) if bad.is_of_key() => (KEY, format!("names {key}, which {bad}")),
        _ => (CERTIFICATE, format!("names {certificate}, which {bad}")),
    })
}

/// Reads the certificate of one destination, if it has one.
pub(super) fn read(
    name: &DestinationName,
    at: &str,
    certificate: Option<&ConfigValue>,
    key: Option<&ConfigValue>,
    reader: &mut ConfigReader<'_>,
) -> Option<CertificateSource> {
    let mut text = |given: Option<&ConfigValue>, field: &str| {
        let read = given.map(values::optional_text)?;
        read.map_err(|reason| {
            given.map(|given| reader.report_value(given, &format!("{at}.{field}"), &reason))
        })
        .ok()
        .flatten()
    };
    let (certificate_text, key_text) = (text(certificate, CERTIFICATE), text(key, KEY));
    let (Some(given), Some(certificate_text)) = (certificate, certificate_text) else {
        if let (Some(given), Some(_)) = (key, key_text) {
            let reason = format!("is the key of a certificate: set {CERTIFICATE} as well");
            reader.report_value(given, &format!("{at}.{KEY}"), &reason);
        }
        return None;
    };
    if name.kind != DestinationKind::Webhook || !name.name.starts_with("https://") {
        let reason = "is for webhooks over TLS: the destination must be a URL that starts with https://";
        reader.report_value(given, &format!("{at}.{CERTIFICATE}"), reason);
        return None;
    }
    match CertificateSource::load(certificate_text, key_text) {
        Ok(source) => Some(source),
        Err((field, reason)) => {
            let given = key.filter(|_| field == KEY).unwrap_or(given);
            reader.report_value(given, &format!("{at}.{field}"), &reason);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_told_from_two_weeks_before_it() {
        let key = KeyPair::generate().unwrap();
        let mut certificate = CertificateParams::new(vec!["posthaste.test".to_owned()]).unwrap();
        certificate.not_after = date_time_ymd(2030, 1, 15);
        let pem = certificate.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        let source = CertificateSource::load(file.path().display().to_string(), None).unwrap();
        for (now, said) in [
            ("2029-12-31T23:59:59Z", None),
            ("2030-01-01T00:00:00Z", Some("expires at 2030-01-15T00:00:00.000Z")),
            ("2030-01-14T23:59:59Z", Some("expires at ")),
            ("2030-01-15T00:00:00Z", Some("expired at 2030-01-15T00:00:00.000Z")),
        ] {
            let text = source.end_is_near(now.parse().unwrap());
            assert_eq!(text.is_some(), said.is_some(), "{now}: {text:?}");
            assert!(text.unwrap_or_default().starts_with(said.unwrap_or_default()), "{now}");
        }
    }
}
