//! `posthaste send`: sends one notification, or many from a file (`batch`).

mod batch;

use std::collections::BTreeMap;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, ValueEnum};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use posthaste_core::channel::Channel;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::listing::field;
use super::output::{Output, harmless, json as print_json, line, note};
use super::reach::ServerArgs;
use super::{Exit, WrongUse, input, watch};

const EXAMPLES: &str = "\
Examples:
  posthaste send --to http://127.0.0.1:7790/ok --body 'Hello'
  posthaste send --to http://127.0.0.1:7790/sequence/503,503,200 --json '{\"order\": 17}' --watch
  posthaste send --to https://hooks.example.com/orders --json @order.json --header 'X-Shop: 4' --event-key order.paid
  echo 'Hello' | posthaste send --to https://hooks.example.com/ --body - --idempotency-key order-17
  posthaste send --to https://hooks.example.com/ --body Hi --ttl 1h --policy '{\"preset\": \"notify\"}'
  posthaste send --batch orders.jsonl                  a notification per line, as the API takes it

Prints the id of the notification. With --watch: exit code 0 if it was delivered, 1 if it ended otherwise.
With --batch: prints how many were accepted; exit code 1 if one was rejected, with its line number on stderr.
Exit codes: 0 done, 1 failed, 2 wrong use";

/// Send a notification, or many from a file
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("recipient").required(true).multiple(true).args(["to", "user_id", "batch"])))]
pub(crate) struct SendArgs {
    /// Send for this tenant; only with a key for all tenants
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The channel
    #[arg(long, default_value = "webhook", value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)))]
    channel: String,
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
    /// Send many: a file with one notification as JSON per line, or - for stdin
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ONE_ONLY)]
    batch: Option<String>,
    /// Send it only once, even if this is repeated: the same key gives the same notification
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Watch until it ends, and print every change
    #[arg(long)]
    watch: bool,
}

/// The flags about one notification. In a batch each line says these things itself.
const ONE_ONLY: [&str; 20] = [
    "tenant",
    "channel",
    "to",
    "user_id",
    "body",
    "json",
    "html",
    "subject",
    "template",
    "priority",
    "event_key",
    "correlation_id",
    "module",
    "metadata",
    "headers",
    "not_before",
    "expires_at",
    "ttl",
    "policy",
    "watch",
];

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PriorityArg {
    Critical,
    High,
    Normal,
    Low,
}

pub(crate) async fn run(args: SendArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    if let Some(file) = &args.batch {
        return batch::run(&session, file, args.idempotency_key.as_deref()).await;
    }
    let body = request(&args)?;
    let headers = args.idempotency_key.as_deref().map(idempotency).transpose()?;
    let answer = session.try_call(Method::POST, "/v1/notifications", headers.as_slice(), Some(body)).await?;
    let answer = match answer.clone().ok() {
        Ok(answer) => answer,
        // Over a rate limit the server may answer 429 although it has accepted: the response then has an id.
        Err(problem) if problem.status == 429 && problem.notification_id.is_some() => {
            note(&format!("accepted, to be sent later: {}", session.refused(&problem)));
            answer
        }
        Err(problem) => return Err(session.refused(&problem).into()),
    };
    let accepted = session.value(&answer)?;
    let id = field(&accepted, "notificationId");
    let deferred = field(&accepted, "deferredUntil");
    if !deferred.is_empty() {
        note(&format!("over the rate limit: not before {}", harmless(&deferred)));
    }
    match session.output {
        Output::Table => line(&harmless(&id))?,
        Output::Json if !args.watch => print_json(&answer.body)?,
        Output::Json => {}
    }
    if args.watch { watch::watch(&session, &id).await } else { Ok(Exit::Done) }
}

/// The header of an idempotency key.
fn idempotency(key: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(key)
        .map_err(|_| WrongUse("--idempotency-key contains characters that no header can carry".to_owned()))?;
    Ok((HeaderName::from_static("idempotency-key"), value))
}

fn request(args: &SendArgs) -> anyhow::Result<String> {
    let mut fields: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    let mut set = |name: &'static str, value: Option<Value>| -> anyhow::Result<()> {
        if let Some(value) = value {
            fields.insert(name, to_raw_value(&value)?);
        }
        Ok(())
    };
    let priority = args.priority.and_then(|priority| priority.to_possible_value());
    set("channel", Some(json!(args.channel)))?;
    set("priority", priority.map(|priority| json!(priority.get_name())))?;
    for (name, text) in [
        ("tenant", &args.tenant),
        ("to", &args.to),
        ("userId", &args.user_id),
        ("subject", &args.subject),
        ("template", &args.template),
        ("eventKey", &args.event_key),
        ("correlationId", &args.correlation_id),
        ("module", &args.module),
        ("notBefore", &args.not_before),
        ("expiresAt", &args.expires_at),
    ] {
        set(name, text.as_ref().map(|text| json!(text)))?;
    }
    let headers: Map<String, Value> =
        args.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    set("headers", (!headers.is_empty()).then_some(Value::Object(headers)))?;
    set("ttlSeconds", args.ttl.map(|seconds| json!(seconds)))?;
    for (name, given) in [("body", &args.body), ("html", &args.html)] {
        set(name, given.as_deref().map(input::text).transpose()?.map(Value::String))?;
    }
    for (name, flag, given) in [
        ("body", "--json", &args.json),
        ("metadata", "--metadata", &args.metadata),
        ("policy", "--policy", &args.policy),
    ] {
        if let Some(given) = given {
            fields.insert(name, input::json(flag, given)?);
        }
    }
    Ok(serde_json::to_string(&fields)?)
}

fn header(given: &str) -> Result<(String, String), String> {
    let (name, value) = given.split_once(':').ok_or("write it as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
