//! `posthaste policy import`: the configuration of another system in our form.

use clap::Args;
use http::Method;
use posthaste_core::import::{self, Imported};
use serde_json::Value;

use super::super::output::{harmless, json as print_json, line, note};
use super::super::reach::ServerArgs;
use super::super::{Exit, WrongUse, input};
use super::{path, pretty, scope};

const EXAMPLES: &str = "\
Examples:
  posthaste policy import appsettings.json             sections PollyConfig, Hangfire, CircuitBreaker
  posthaste policy import notify.env                   lines such as NOTIFY_MAX_RETRIES=5
  posthaste policy import retry-policy.json            retryStrategy, initialDelaySeconds, ..
  posthaste policy import - < retry-policy.json
  posthaste policy import appsettings.json --toml >> posthaste.toml
  posthaste policy import appsettings.json --apply channel:webhook

Without --apply it needs no server and changes nothing: it prints {policy, breaker, jobs}, and warnings on stderr.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ImportArgs {
    /// A file, or - for stdin; @FILE is taken as well
    #[arg(value_name = "FILE|-")]
    file: String,
    /// Put the policy at this scope of the server
    #[arg(long, value_name = "SCOPE", value_parser = scope, conflicts_with = "toml")]
    apply: Option<String>,
    /// Print what belongs into the configuration file
    #[arg(long)]
    toml: bool,
}

pub(super) async fn run(args: ImportArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let text = input::file(args.file.strip_prefix('@').unwrap_or(&args.file))?;
    let imported =
        import::import(&text).map_err(|error| WrongUse(harmless(&error.to_string()).into_owned()))?;
    for warning in &imported.warnings {
        note(&format!("warning: {}", harmless(warning)));
    }
    match args.apply {
        Some(scope) => return apply(&imported, &scope, reach).await,
        None if args.toml => line(&toml(&imported)?)?,
        None => {
            if let Some(channel) = imported.channel {
                note(&format!("the policy is for one channel: posthaste policy set channel:{channel} .."));
            }
            print_json(serde_json::to_string_pretty(&imported)?.as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

async fn apply(imported: &Imported, scope: &str, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let policy = serde_json::to_string(&imported.policy)?;
    let answer = session.call(Method::PUT, &path(scope), &[], Some(policy)).await?;
    session.print(&answer, pretty)?;
    let rest = [("breaker", imported.breaker.is_some()), ("jobs", imported.jobs.is_some())];
    let rest: Vec<&str> = rest.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
    if !rest.is_empty() {
        let rest = rest.join(" and ");
        note(&format!(
            "{rest}: not applied, they belong into the configuration file of the server; --toml prints them"
        ));
    }
    Ok(Exit::Done)
}

/// The sections of the configuration file.
fn toml(imported: &Imported) -> anyhow::Result<String> {
    let all = serde_json::to_value(imported)?;
    let policy = imported
        .channel
        .map_or_else(|| "policies.global".to_owned(), |channel| format!("policies.{channel}"));
    let sections = [(policy.as_str(), "policy"), ("breaker", "breaker"), ("jobs", "jobs")];
    let mut text = Vec::new();
    for (section, part) in sections {
        let Some(fields) = all[part].as_object() else { continue };
        let lines = fields.iter().map(|(name, value)| format!("{} = {}\n", snake(name), toml_value(value)));
        text.push(format!("[{section}]\n{}", lines.collect::<String>()));
    }
    Ok(text.join("\n").trim_end().to_owned())
}

/// A value in TOML, on one line. Only the time of a job is null: the job is off. A text holds names and figures, which
/// JSON and TOML write alike.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Null => "\"never\"".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(toml_value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| format!("{} = {}", snake(name), toml_value(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use posthaste_core::policy::{PolicyLayer, Scope};
    use serde_json::json;

    use super::*;
    use crate::config::{Config, Sources};

    fn configured(text: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(crate::config::FILE_NAME), text).unwrap();
        Config::load(Sources { directory: directory.path().into(), ..Sources::default() }).unwrap()
    }

    #[test]
    fn what_is_printed_for_the_file_means_what_was_imported() {
        let zgw = json!({
            "PollyConfig": {"NotificatiesSender": {
                "Retry": {"ShouldRetryAfterHeader": true, "MaxRetryAttempts": 4, "BackoffType": "Exponential",
                    "UseJitter": false, "Delay": "00:00:00.500"},
                "AddRetryOnHttpStatusCodes": "404"
            }},
            "Hangfire": {"RetrySchedule": "0.00:15;0.00:30", "ExpireFailedJobsScanAt": "05:00"},
            "CircuitBreaker": {"FailureThreshold": 7, "BreakDuration": "00:06:00", "CacheExpirationMinutes": 20}
        });
        let shumoul = json!({"channel": 1, "maxRetries": 5, "retryStrategy": 2, "initialDelaySeconds": 60,
            "maximumDelaySeconds": 3600, "backoffMultiplier": 1.5});
        let notify = json!({"NOTIFY_MAX_RETRIES": 5, "NOTIFY_BACKOFF_JITTER_PERCENT": 12.5});
        for (source, scope) in [(zgw, "global"), (shumoul, "channel:email"), (notify, "global")] {
            let imported = import::import_json(&source).unwrap();
            let config = configured(&toml(&imported).unwrap());
            let scope: Scope = scope.parse().unwrap();
            assert_eq!(config.policies.layer(&scope), Some(&imported.policy));
            let Some(breaker) = &imported.breaker else { continue };
            let read = &config.breaker;
            assert_eq!(
                (read.failure_threshold, read.first_break, read.break_duration, read.forget_after),
                (
                    breaker.failure_threshold,
                    breaker.first_break,
                    breaker.break_duration,
                    breaker.forget_after
                )
            );
            let cron = imported.jobs.as_ref().and_then(|jobs| jobs.expire_failed.cron.clone());
            assert_eq!(config.jobs.expire_failed.as_ref().map(|cron| cron.as_str().to_owned()), cron);
        }
    }

    #[test]
    fn a_job_that_is_off_is_printed_as_never() {
        let off = json!({"Hangfire": {"ExpireFailedJobsScanAt": "never", "ExpireFailedJobAfter": "3.00:00"}});
        let imported = import::import_json(&off).unwrap();
        assert_eq!(imported.policy, PolicyLayer::default());
        let text = toml(&imported).unwrap();
        assert!(text.contains("expire_failed = { after = \"3d\", cron = \"never\" }"), "{text}");
        assert_eq!(configured(&text).jobs.expire_failed, None);
    }
}
