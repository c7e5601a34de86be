//! Checks that commits survive a crash of the server, for each server that is connected.
//!
//! A server with `fsync` or `full_page_writes` off is refused. `synchronous_commit` belongs to the session,
//! so `off`, which may be the default of a role or a database, is replaced by `on`. Every other value waits
//! at least for the server's own disk and is kept: some wait for standbys too, and `local` is a deliberate
//! choice not to.

use posthaste_engine::store::DurabilityLevel as Level;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::refusal::ConnectError;

/// Prefix of the error text of a refused server.
const MARK: &str = "not durable: ";

pub(super) const SETTINGS: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

/// How long a replaced setting lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Session,
    Transaction,
}

/// Returns a statement that fails on a refused server, and otherwise sets `synchronous_commit`. The error
/// comes from the server, so pipelined statements need not wait for a result before the commit. The text that
/// is cast to boolean depends on a setting, so that it is not evaluated before the condition.
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

/// For a server that is used with any settings.
pub(super) fn level(settings: &[String; 3]) -> Level {
    if settings.iter().any(|value| value == "off") { Level::Unsafe } else { Level::Full }
}

/// The refused setting, if `error` comes from `demand`.
pub(super) fn refusal(error: &Error) -> Option<ConnectError> {
    let said = error.as_db_error()?.message();
    let (_, values) = said.split_once(MARK)?;
    let setting = if values.contains("fsync=off") { SETTINGS[0] } else { SETTINGS[1] };
    Some(ConnectError::NotDurable { setting, value: "off".to_owned() })
}
