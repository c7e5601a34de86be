//! The flags about one notification, for `send` and for `dead-letters edit-and-retry`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::super::input;

/// What is to be sent.
#[derive(Args)]
pub(crate) struct Fields {
    /// The recipient: a URL, an address, a phone number or a token, depending on the channel
    #[arg(long, value_name = "RECIPIENT")]
    to: Option<String>,
    /// Your id of the user that it is for
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// The message as text; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "TEXT|@FILE|-", conflicts_with = "json", allow_hyphen_values = true)]
    body: Option<String>,
    /// The message as JSON; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    json: Option<String>,
    /// The message as HTML, for channels that have it; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "TEXT|@FILE|-")]
    html: Option<String>,
    /// The subject line
    #[arg(long)]
    subject: Option<String>,
    /// The template whose policy counts
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// The provider that is to carry it
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// How urgent it is
    #[arg(long, value_enum)]
    priority: Option<PriorityArg>,
    /// Your name of the event type
    #[arg(long, value_name = "NAME")]
    event_key: Option<String>,
    /// Your id for related notifications
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Your name of the part of your program that sends it
    #[arg(long, value_name = "NAME")]
    module: Option<String>,
    /// Your own data as a JSON object; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    metadata: Option<String>,
    /// A header of the webhook; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// No attempt before: a time, or a duration such as 15m from when it is accepted
    #[arg(long, value_name = "TIME", value_parser = input::future)]
    not_before: Option<String>,
    /// No attempt at or after: a time, or a duration such as 1d from when it is accepted
    #[arg(long, value_name = "TIME", value_parser = input::future, conflicts_with = "ttl")]
    expires_at: Option<String>,
    /// No attempt after this long, such as 1h, from when it is accepted
    #[arg(long, value_name = "DURATION", value_parser = input::whole_seconds)]
    ttl: Option<u64>,
    /// Its own retry policy; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    policy: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PriorityArg {
    Critical,
    High,
    Normal,
    Low,
}

impl Fields {
    /// The fields that are given, as the API takes them.
    pub(crate) fn json(&self) -> anyhow::Result<BTreeMap<&str, Box<RawValue>>> {
        let mut fields: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
        let mut set = |name: &'static str, value: Option<Value>| -> anyhow::Result<()> {
            if let Some(value) = value {
                fields.insert(name, to_raw_value(&value)?);
            }
            Ok(())
        };
        let priority = self.priority.and_then(|priority| priority.to_possible_value());
        set("priority", priority.map(|priority| json!(priority.get_name())))?;
        for (name, text) in [
            ("to", &self.to),
            ("userId", &self.user_id),
            ("subject", &self.subject),
            ("template", &self.template),
            ("provider", &self.provider),
            ("eventKey", &self.event_key),
            ("correlationId", &self.correlation_id),
            ("module", &self.module),
            ("notBefore", &self.not_before),
            ("expiresAt", &self.expires_at),
        ] {
            set(name, text.as_ref().map(|text| json!(text)))?;
        }
        let headers: Map<String, Value> =
            self.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        set("headers", (!headers.is_empty()).then_some(Value::Object(headers)))?;
        set("ttlSeconds", self.ttl.map(|seconds| json!(seconds)))?;
        for (name, given) in [("body", &self.body), ("html", &self.html)] {
            set(name, given.as_deref().map(input::text).transpose()?.map(Value::String))?;
        }
        for (name, flag, given) in [
            ("body", "--json", &self.json),
            ("metadata", "--metadata", &self.metadata),
            ("policy", "--policy", &self.policy),
        ] {
            if let Some(given) = given {
                fields.insert(name, input::json(flag, given)?);
            }
        }
        Ok(fields)
    }
}

fn header(given: &str) -> Result<(String, String), String> {
    let (name, value) = given.split_once(':').ok_or("write it as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
