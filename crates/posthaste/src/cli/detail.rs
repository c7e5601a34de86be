//! One notification or dead letter in full: fields, attempts and events.

use std::io;

use serde_json::Value;

use super::Exit;
use super::listing::field;
use super::output::{Table, line};
use super::reach::Session;
use super::watch;
use crate::client::encode;

/// Fields that are shown in their own place, or that repeat another field as a number.
const SHOWN_APART: [&str; 8] =
    ["attempts", "events", "history", "stateCode", "statusNumber", "words", "id", "notificationId"];

pub(crate) async fn print(session: &Session, resource: &str, id: &str) -> anyhow::Result<Exit> {
    let answer = session.get(&format!("/v1/{resource}/{}", encode(id))).await?;
    session.print(&answer, show)?;
    Ok(Exit::Done)
}

fn show(thing: &Value) -> io::Result<()> {
    fields(thing).print()?;
    if let Some(attempts) = thing["attempts"].as_array().filter(|attempts| !attempts.is_empty()) {
        line("\nAttempts")?;
        for attempt in attempts {
            for text in watch::attempt(attempt).into_iter().chain(watch::response(attempt)) {
                line(&format!("  {text}"))?;
            }
        }
    }
    if let Some(events) = thing["events"].as_array().filter(|events| !events.is_empty()) {
        line("\nEvents")?;
        let mut table = Table::untitled();
        for event in events {
            let actor = field(event, "actor");
            let by = if actor.is_empty() { String::new() } else { format!("by {actor}") };
            table.row([format!("  {}", field(event, "at")), field(event, "event"), by]);
        }
        table.print()?;
    }
    Ok(())
}

pub(super) fn fields(thing: &Value) -> Table {
    let mut table = Table::untitled();
    for name in ["id", "notificationId"].into_iter().filter(|name| thing[name].is_string()) {
        table.row([name.to_owned(), field(thing, name)]);
    }
    if thing["stateCode"].is_number() {
        table.row(["words".to_owned(), watch::words(thing)]);
    }
    for (name, value) in thing.as_object().into_iter().flatten() {
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !empty && !SHOWN_APART.contains(&name.as_str()) {
            table.row([name.clone(), field(thing, name)]);
        }
    }
    table
}
