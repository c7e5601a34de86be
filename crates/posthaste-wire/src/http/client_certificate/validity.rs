//! The end of a certificate's validity (X.509, RFC 5280, 4.1). Everything else in a certificate is read by rustls.

use posthaste_core::time::Timestamp;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// `notAfter`.
pub(super) fn end(certificate: &[u8]) -> Option<Timestamp> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(whole, SEQUENCE)?;
    // The version is left out by certificates of version 1.
    if let Some((_, rest)) = element(fields, VERSION) {
        fields = rest;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        // The serial number, the algorithm of the signature, the issuer.
        (_, fields) = element(fields, tag)?;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    let (_, not_after) = time(validity)?;
    let ((tag, text), _) = time(not_after)?;
    read(tag, std::str::from_utf8(text).ok()?)
}

type Time<'d> = (u8, &'d [u8]);

fn time(der: &[u8]) -> Option<(Time<'_>, &[u8])> {
    let tag = *der.first()?;
    let (text, rest) = element(der, tag).filter(|_| matches!(tag, UTC_TIME | GENERALIZED_TIME))?;
    Some(((tag, text), rest))
}

/// The content of the element at the start, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = der else { return None };
    if *first != tag {
        return None;
    }
    let (length, rest) = match length {
        short @ 0..=0x7f => (usize::from(*short), rest),
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// `YYMMDDHHMMSSZ`, of the years 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn read(tag: u8, text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (short, rest) = digits.split_at(2);
            let century = if short < "50" { "20" } else { "19" };
            (format!("{century}{short}"), rest)
        }
        (GENERALIZED_TIME, 14) => (digits[..4].to_owned(), &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| &rest[at..at + 2];
    let time = format!("{year}-{}-{}T{}:{}:{}Z", part(0), part(2), part(4), part(6), part(8));
    time.parse().ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        for (year, wanted) in [(2031, "2031-02-03T00:00:00Z"), (2055, "2055-02-03T00:00:00Z")] {
            let mut certificate = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
            certificate.not_after = date_time_ymd(year, 2, 3);
            let key = KeyPair::generate().unwrap();
            let der = certificate.self_signed(&key).unwrap().der().to_vec();
            assert_eq!(end(&der), Some(wanted.parse().unwrap()));
            for length in 0..der.len() {
                // Whatever is cut off, nothing is read past its end.
                let _ = end(&der[..length]);
            }
            assert_eq!(end(&der[..40]), None);
        }
    }

    #[test]
    fn a_time_has_digits_and_is_one_of_the_calendar() {
        for (tag, text) in [
            (UTC_TIME, "310203000000"),
            (UTC_TIME, "31020300000Z"),
            (UTC_TIME, "31130300000xZ"),
            (UTC_TIME, "311303000000Z"),
            (GENERALIZED_TIME, "20310203000000.5Z"),
            (GENERALIZED_TIME, "310203000000Z"),
        ] {
            assert_eq!(read(tag, text), None, "{text}");
        }
        assert_eq!(read(UTC_TIME, "991231235959Z"), Some("1999-12-31T23:59:59Z".parse().unwrap()));
    }
}
