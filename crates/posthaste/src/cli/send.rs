//! `posthaste send`: sends one notification, or many from a file (`batch`).

mod batch;
mod fields;

pub(crate) use self::fields::Fields;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use posthaste_core::channel::Channel;
use serde_json::value::to_raw_value;

use super::listing::field;
use super::output::{Output, harmless, json as print_json, line, note};
use super::reach::ServerArgs;
use super::{Exit, WrongUse, watch};

const EXAMPLES: &str = "\
Examples:
  posthaste send --to http://127.0.0.1:7790/ok --body 'Hello'
  posthaste send --to http://127.0.0.1:7790/sequence/503,503,200 --json '{\"order\": 17}' --watch
  posthaste send --to https://hooks.example.com/orders --json @order.json --header 'X-Shop: 4' --event-key order.paid
  echo 'Hello' | posthaste send --to https://hooks.example.com/ --body - --idempotency-key order-17
  posthaste send --to https://hooks.example.com/ --body Hi --ttl 1h --policy '{\"preset\": \"notify\"}'
  posthaste send --channel sms --to +15550100 --body 'Hello'
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
    #[command(flatten)]
    fields: Fields,
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
const ONE_ONLY: [&str; 21] = [
    "tenant",
    "channel",
    "to",
    "user_id",
    "body",
    "json",
    "html",
    "subject",
    "template",
    "provider",
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
pub(crate) fn idempotency(key: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(key)
        .map_err(|_| WrongUse("--idempotency-key contains characters that no header can carry".to_owned()))?;
    Ok((HeaderName::from_static("idempotency-key"), value))
}

fn request(args: &SendArgs) -> anyhow::Result<String> {
    let mut fields = args.fields.json()?;
    fields.insert("channel", to_raw_value(&args.channel)?);
    if let Some(tenant) = &args.tenant {
        fields.insert("tenant", to_raw_value(tenant)?);
    }
    Ok(serde_json::to_string(&fields)?)
}
