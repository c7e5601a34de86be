//! Commits that a crash does not take back, on whichever server answers.
//!
//! A server that never waits for its disk (`fsync`, `full_page_writes`) is refused. `synchronous_commit` belongs to the session,
//! so `off`, which a role or a database may have as its default, is replaced by `on`. Every other value waits for the server's
//! own disk at least, and is left as it is: some wait for standbys too, and `local` is how to say that they are not waited for.

use posthaste_engine::store::DurabilityLevel as Level;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::refusal::ConnectError;

/// How the text begins by which the server says that it is refused.
const MARK: &str = "not durable: ";

/// What is read of a server.
pub(super) const SETTINGS: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

/// How long a setting that is replaced lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Until the session ends.
    Session,
    /// Until the transaction ends.
    Transaction,
}

/// A statement that fails on a server which is refused, and sets what can be set. The server itself refuses: whoever sends
/// statements ahead need not wait for an answer before the commit. The text that is no boolean depends on a setting, so
/// that it is not evaluated before the condition is.
pub(super) fn demand(scope: Scope) -> String {
    let local = scope == Scope::Transaction;
    format!(
        "select
             case when current_setting('fsync') = 'off' or current_setting('full_page_writes') = 'off'
             then cast('{MARK}fsync=' || current_setting('fsync') || ' full_page_writes='
                 || current_setting('full_page_writes') as boolean) end,
             case when current_setting('synchronous_commit') = 'off'
             then set_config('synchronous_commit', 'on', {local}) end;"
    )
}

/// What the server says of each of the settings.
pub(super) async fn settings(client: &Client) -> Result<[String; 3], Error> {
    let columns = SETTINGS.map(|name| format!("current_setting('{name}')")).join(", ");
    let mut found = [const { String::new() }; 3];
    for message in client.simple_query(&format!("select {columns}")).await? {
        if let SimpleQueryMessage::Row(row) = message {
            found = std::array::from_fn(|at| row.get(at).unwrap_or_default().to_owned());
        }
    }
    Ok(found)
}

/// The level of a server that is used whatever its settings are.
pub(super) fn level(settings: &[String; 3]) -> Level {
    if settings.iter().any(|value| value == "off") { Level::Unsafe } else { Level::Full }
}

/// What the server was refused for, if this is that.
pub(super) fn refusal(error: &Error) -> Option<ConnectError> {
    let said = error.as_db_error()?.message();
    let (_, values) = said.split_once(MARK)?;
    let setting = if values.contains("fsync=off") { SETTINGS[0] } else { SETTINGS[1] };
    Some(ConnectError::NotDurable { setting, value: "off".to_owned() })
}
