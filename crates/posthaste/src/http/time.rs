//! Times as the contract has them: RFC 3339 and nothing else. The parser beneath also reads other spellings of ISO 8601,
//! which callers would come to rely on.

use posthaste_core::time::Timestamp;

/// Reads a time; the error says what one looks like.
pub(super) fn read(text: &str) -> Result<Timestamp, String> {
    let bad = || {
        let short: String = text.chars().take(64).flat_map(char::escape_debug).collect();
        format!("`{short}` is not an RFC 3339 time such as 2026-04-15T10:45:30.000Z")
    };
    if !is_rfc_3339(text.as_bytes()) {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}

/// Whether the text has the form; whether there is such a day is for the parser to say.
fn is_rfc_3339(text: &[u8]) -> bool {
    let Some((start, rest)) = text.split_at_checked("2026-04-15T10:45:30".len()) else { return false };
    let rest = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
    };
    let offset = fits(rest, b"+00:00") || fits(rest, b"-00:00");
    // Digits compare as the numbers that they write.
    let zone = matches!(rest, b"Z" | b"z")
        || (offset && &rest[1..3] <= b"23".as_slice() && &rest[4..] <= b"59".as_slice());
    zone && [b'T', b't', b' '].iter().any(|between| {
        let mut form = *b"0000-00-00T00:00:00";
        form[10] = *between;
        fits(start, &form)
    })
}

/// Whether there is a digit for each 0, and the very same byte for any other.
fn fits(text: &[u8], form: &[u8]) -> bool {
    let same =
        |(byte, wanted): (&u8, &u8)| if *wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    text.len() == form.len() && text.iter().zip(form).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_rfc_is_read() {
        for (text, same) in [
            ("2026-04-15T10:45:30Z", "2026-04-15T10:45:30.000Z"),
            ("2026-04-15t10:45:30.5z", "2026-04-15T10:45:30.500Z"),
            ("2026-04-15 12:45:30.123456789+02:00", "2026-04-15T10:45:30.123Z"),
            ("2026-04-15T10:45:30-00:30", "2026-04-15T11:15:30.000Z"),
        ] {
            assert_eq!(read(text).unwrap().to_string(), same);
        }
    }

    #[test]
    fn other_forms_and_days_that_do_not_exist_are_refused() {
        for text in [
            "",
            "2026-04-15",
            "2026-04-15T10:45Z",
            "20260415T104530Z",
            "2026-02-30T10:45:30Z",
            "2026-04-15T10:45:30+24:00",
            "2026-04-15T10:45:30.Z",
        ] {
            assert!(read(text).unwrap_err().contains("RFC 3339"), "{text}");
        }
    }
}
