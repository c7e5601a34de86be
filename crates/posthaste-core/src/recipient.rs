//! What a recipient's address looks like on each channel.

use crate::channel::Channel;

/// The text does not repeat the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRecipient(&'static str);

/// Digits of a phone number with its country code (E.164). No country has shorter ones than the lower bound.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;

/// Checks the form of an address. Whether somebody is there, only a send can tell. The URL of a webhook is checked by its own
/// rules; tokens and the ids of chats are known to their providers alone.
pub fn check(channel: Channel, to: &str) -> Result<(), BadRecipient> {
    let (is_good, expected) = match channel {
        Channel::Sms | Channel::Whatsapp => (
            is_phone(to),
            "must be a phone number with its country code and without spaces, such as +15550100 (E.164)",
        ),
        Channel::Email => (is_email(to), "must be an e-mail address such as someone@example.com"),
        Channel::Webhook
        | Channel::Telegram
        | Channel::Slack
        | Channel::Discord
        | Channel::Teams
        | Channel::Push
        | Channel::Inapp => (true, ""),
    };
    if is_good { Ok(()) } else { Err(BadRecipient(expected)) }
}

fn is_phone(to: &str) -> bool {
    let Some(digits) = to.strip_prefix('+') else { return false };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    is_number && PHONE_DIGITS.contains(&digits.len())
}

/// Lenient: one `@` with something on both sides, and nothing that could end a line or a list of addresses.
fn is_email(to: &str) -> bool {
    let parts = to.rsplit_once('@');
    let unfit = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '@');
    parts.is_some_and(|(user, host)| {
        !user.is_empty() && !host.is_empty() && !user.contains(unfit) && !host.contains(unfit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phone_number_has_its_country_code_and_no_spaces() {
        for good in ["+15550100", "+4915112345678", "+6834000", "+123456789012345"] {
            assert_eq!(check(Channel::Sms, good), Ok(()), "{good}");
            assert_eq!(check(Channel::Whatsapp, good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "+",
            "15550100",
            "0015550100",
            "+0155501000",
            "+1 555 0100",
            "+1-555-0100",
            "+123456",
            "+1234567890123456",
            "+1555010O",
            "+١٥٥٥٠١٠٠",
            "tel:+15550100",
            "+15550100\n",
        ] {
            let refused = check(Channel::Sms, bad).unwrap_err().to_string();
            assert!(refused.contains("E.164"), "{bad}: {refused}");
        }
    }

    #[test]
    fn an_e_mail_address_has_one_at_sign_and_both_sides() {
        for good in ["a@b", "first.last+tag@mail.example.com", "üser@exämple.com"] {
            assert_eq!(check(Channel::Email, good), Ok(()), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b,c@d", "A <a@b>", "a@b\r\n"] {
            assert!(check(Channel::Email, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_only_a_provider_knows_is_not_checked() {
        for channel in [Channel::Telegram, Channel::Slack, Channel::Push] {
            assert_eq!(check(channel, "anything"), Ok(()));
        }
    }
}
