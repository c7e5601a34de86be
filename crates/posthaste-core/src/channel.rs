//! The channels over which a notification can be delivered.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The codes are stored, the names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Channel {
    /// An HTTP request to the recipient's own URL.
    Webhook = 0,
    /// Mail over SMTP or a provider's API.
    Email = 1,
    Sms = 2,
    Whatsapp = 3,
    Telegram = 4,
    Slack = 5,
    Discord = 6,
    Teams = 7,
    /// Mobile or web push.
    Push = 8,
    /// A message to the user's open WebSocket.
    Inapp = 9,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "channel: `{given}` is none of webhook, email, sms, whatsapp, telegram, slack, discord, teams, push, inapp"
)]
pub struct UnknownChannel {
    given: String,
}

impl Channel {
    /// In the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Webhook,
        Self::Email,
        Self::Sms,
        Self::Whatsapp,
        Self::Telegram,
        Self::Slack,
        Self::Discord,
        Self::Teams,
        Self::Push,
        Self::Inapp,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Email => "email",
            Self::Sms => "sms",
            Self::Whatsapp => "whatsapp",
            Self::Telegram => "telegram",
            Self::Slack => "slack",
            Self::Discord => "discord",
            Self::Teams => "teams",
            Self::Push => "push",
            Self::Inapp => "inapp",
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether providers carry it. The others reach the recipient itself.
    pub const fn has_providers(self) -> bool {
        match self {
            Self::Webhook | Self::Inapp => false,
            Self::Email
            | Self::Sms
            | Self::Whatsapp
            | Self::Telegram
            | Self::Slack
            | Self::Discord
            | Self::Teams
            | Self::Push => true,
        }
    }

    pub fn from_code(code: u8) -> Result<Self, UnknownChannel> {
        let found = Self::ALL.get(usize::from(code)).copied();
        found.ok_or_else(|| UnknownChannel { given: code.to_string() })
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Channel {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, UnknownChannel> {
        let found = Self::ALL.into_iter().find(|channel| channel.name() == text);
        found.ok_or_else(|| UnknownChannel { given: text.chars().take(64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back_to_their_channel() {
        for (number, channel) in Channel::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(channel.code()), number);
            assert_eq!(Channel::from_code(channel.code()), Ok(channel));
            assert_eq!(channel.name().parse(), Ok(channel));
        }
        assert!(Channel::from_code(10).is_err());
        assert!("fax".parse::<Channel>().unwrap_err().to_string().starts_with("channel: `fax`"));
    }
}
