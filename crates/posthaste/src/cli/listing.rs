//! Lists: the flags that page through them, and their printing.

use std::fmt::Write;

use clap::Args;
use posthaste_core::duration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Exit;
use super::output::{Output, Table, cut, harmless, json, note};
use super::reach::Session;
use crate::client::encode;

/// The most rows that `--all` fetches.
const MOST: usize = 10_000;
/// The most rows that a server sends at once.
const LARGEST_PAGE: usize = 500;
/// The most characters of a free text in a table.
const WIDEST: usize = 60;

/// Left out of a page if all its rows show the same: the caller sees one tenant.
const IF_SEVERAL: [&str; 1] = ["TENANT"];
/// Left out of a page if none of its rows has one.
const IF_ANY: [&str; 3] = ["EVENT KEY", "NEXT ATTEMPT", "CODE"];

/// The flags that page through a list.
#[derive(Args)]
pub(crate) struct Paging {
    /// The most rows to show
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500), default_value_t = 50)]
    limit: u32,
    /// Where to go on: the nextCursor of the list before
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Show the list to its end, up to 10,000 rows
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A page of a list as the server sends it; the rows stay as they were written.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    data: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// A column: its title, and what it shows of a row.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// The query of a list.
#[derive(Default)]
pub(crate) struct Query(String);

impl Query {
    /// Adds a parameter if there is a value.
    pub(crate) fn set(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { '?' } else { '&' };
            let value = encode(&value.to_string());
            write!(self.0, "{mark}{name}={value}").expect("writing to a String does not fail");
        }
    }

    /// Adds a parameter unless it is there.
    pub(crate) fn set_if_free(&mut self, name: &str, value: &str) {
        let is_set = |part: &str| part.split_once('=').is_some_and(|(known, _)| known == name);
        if !self.0.trim_start_matches('?').split('&').any(is_set) {
            self.set(name, Some(value));
        }
    }

    /// Adds a parameter with its values, if there are any.
    pub(crate) fn set_several(&mut self, name: &str, values: &[impl ToString]) {
        let all: Vec<String> = values.iter().map(ToString::to_string).collect();
        self.set(name, (!all.is_empty()).then(|| all.join(",")));
    }

    /// Whether it has no parameter.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path with the query after it.
    pub(crate) fn after(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// Fetches a list and prints it.
pub(crate) async fn print(
    session: &Session,
    path: &str,
    query: &Query,
    paging: &Paging,
    columns: &[Column],
) -> anyhow::Result<Exit> {
    let mut list = Page { data: Vec::new(), next_cursor: paging.cursor.clone() };
    let wanted = if paging.all { MOST } else { paging.limit as usize };
    // A page may be short, or empty, and still have a next one: only the cursor says where the list ends.
    loop {
        let mut page_query = Query(query.0.clone());
        page_query.set("limit", Some((wanted - list.data.len()).min(LARGEST_PAGE)));
        page_query.set("cursor", list.next_cursor.take());
        let mut page = fetch(session, &page_query.after(path)).await?;
        list.data.append(&mut page.data);
        list.next_cursor = page.next_cursor;
        if list.next_cursor.is_none() || list.data.len() >= wanted {
            break;
        }
    }
    put(session, &list, columns, is_shown)?;
    if let Some(cursor) = &list.next_cursor {
        let all = if paging.all { "" } else { ", or --all" };
        note(&format!(
            "{} rows so far, there may be more: --cursor {}{all}",
            list.data.len(),
            harmless(cursor)
        ));
    }
    Ok(Exit::Done)
}

/// Fetches a list that comes as a whole and prints it.
pub(crate) async fn print_whole(session: &Session, path: &str, columns: &[Column]) -> anyhow::Result<Exit> {
    let list = fetch(session, path).await?;
    put(session, &list, columns, |_, _| true)?;
    Ok(Exit::Done)
}

async fn fetch(session: &Session, path: &str) -> anyhow::Result<Page> {
    let answer = session.get(path).await?;
    session.read(&answer)
}

/// Whether a column is in the table, by its title and what the rows show in it.
type IsShown = fn(&str, &[String]) -> bool;

fn is_shown(title: &str, cells: &[String]) -> bool {
    if IF_SEVERAL.contains(&title) {
        return cells.iter().any(|cell| Some(cell) != cells.first());
    }
    !IF_ANY.contains(&title) || cells.iter().any(|cell| !cell.is_empty())
}

fn put(session: &Session, list: &Page, columns: &[Column], is_shown: IsShown) -> anyhow::Result<()> {
    match session.output {
        Output::Json => Ok(json(serde_json::to_string(list)?.as_bytes())?),
        Output::Table if list.data.is_empty() => {
            note("nothing found");
            Ok(())
        }
        Output::Table => {
            let rows = list.data.iter().map(|row| serde_json::from_str(row.get()));
            Ok(table(&rows.collect::<Result<Vec<Value>, _>>()?, columns, is_shown).print()?)
        }
    }
}

fn table(rows: &[Value], columns: &[Column], is_shown: IsShown) -> Table {
    let mut shown: Vec<(&str, Vec<String>)> = Vec::with_capacity(columns.len());
    for (title, show) in columns {
        let cells: Vec<String> = rows.iter().map(show).collect();
        if is_shown(title, &cells) {
            shown.push((*title, cells));
        }
    }
    let titles: Vec<&str> = shown.iter().map(|(title, _)| *title).collect();
    let mut table = Table::new(&titles);
    for row in 0..rows.len() {
        table.row(shown.iter().map(|(_, cells)| &cells[row]));
    }
    table
}

/// A field of a row as text; nothing where it is missing or null.
pub(crate) fn field(row: &Value, name: &str) -> String {
    match &row[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A duration as people read it, such as `3d 11h 8m`.
pub(crate) fn duration_field(row: &Value, name: &str) -> String {
    let text = field(row, name);
    // The server may show durations that are longer than those it reads.
    duration::parse(&text).map_or(text, duration::words)
}

/// A field that may be long, cut to fit a table.
pub(crate) fn short(row: &Value, name: &str) -> String {
    cut(field(row, name).trim(), WIDEST).into_owned()
}

/// How many attempts were made, of how many.
pub(crate) fn attempts(row: &Value) -> String {
    match (field(row, "attemptsMade"), field(row, "maxAttempts")) {
        // A server of an older version says less.
        (made, _) if made.is_empty() => String::new(),
        (made, of) => format!("{made} of {of}"),
    }
}

/// The last error; where there is none, why it ended.
pub(crate) fn last_error(row: &Value) -> String {
    let error = short(row, "lastError");
    if error.is_empty() { short(row, "reason") } else { error }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: [Column; 5] = [
        ("ID", |row| field(row, "id")),
        ("TENANT", |row| field(row, "tenant")),
        ("ATTEMPTS", attempts),
        ("EVENT KEY", |row| field(row, "eventKey")),
        ("LAST ERROR", last_error),
    ];

    #[test]
    fn what_is_given_comes_before_what_a_view_says() {
        let mut query = Query::default();
        query.set_if_free("q", "a b");
        query.set("status", Some("failed"));
        query.set_if_free("status", "queued");
        query.set_if_free("stat", "1");
        assert_eq!(query.after("/x"), "/x?q=a%20b&status=failed&stat=1");
    }

    fn shown(rows: &Value) -> String {
        table(rows.as_array().unwrap(), &COLUMNS, is_shown).render()
    }

    #[test]
    fn the_tenant_is_shown_if_there_are_several_and_an_event_key_if_there_is_any() {
        let one = json!([{"id": "a", "tenant": "acme", "attemptsMade": 1, "maxAttempts": 3, "eventKey": null,
            "lastError": "answered 503", "reason": "discarded"},
            {"id": "b", "tenant": "acme", "reason": "discarded"}]);
        assert_eq!(
            shown(&one),
            "ID  ATTEMPTS  LAST ERROR\na   1 of 3    answered 503\nb             discarded\n"
        );
        let two = json!([{"id": "a", "tenant": "acme", "eventKey": "paid"}, {"id": "b", "tenant": "globex"}]);
        assert_eq!(
            shown(&two),
            "ID  TENANT  ATTEMPTS  EVENT KEY  LAST ERROR\na   acme              paid\nb   globex\n"
        );
    }
}
