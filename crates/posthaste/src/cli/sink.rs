//! `posthaste sink`: a test receiver that fails on request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use posthaste_wire::sink::{PATHS, ReceivedRequest, Sink, SinkOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::Exit;
use super::output::{harmless, line, note};
use crate::clock::SystemClock;
use crate::listen::ListenAddr;

/// How long requests are collected before they are printed, so that many at once are cheap.
const COLLECT_FOR: Duration = Duration::from_millis(20);
/// Interval of checks without new requests: the list may have been cleared.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  posthaste sink
  posthaste sink --listen localhost:9000 --quiet
  posthaste send --to http://127.0.0.1:7790/sequence/503,reset,200 --body Hi --watch
  curl http://127.0.0.1:7790/arrivals

Exit codes: 0 stopped by a signal, 1 failed, 2 wrong use";

/// Run a test receiver; the path of a request selects the response
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SinkArgs {
    /// Where it listens; every client that can connect can read the received requests
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7790")]
    listen: ListenAddr,
    /// Do not print received requests
    #[arg(long, short)]
    quiet: bool,
}

/// Runs until a signal.
pub(crate) async fn run(args: SinkArgs) -> anyhow::Result<Exit> {
    let options = SinkOptions::new(Arc::new(SystemClock));
    // Before the first output, so that an early signal is not lost.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let cannot = || format!("cannot listen on {}; choose another address with --listen", args.listen);
    let address = args.listen.resolve().await.with_context(cannot)?;
    let sink = Sink::start(address, options).await.with_context(cannot)?;
    line(&format!("listening on http://{}", sink.address()))?;
    line(PATHS)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = print_arrivals(&sink), if !args.quiet => ended?,
    }
    sink.stop().await;
    Ok(Exit::Done)
}

/// Prints received requests, for ever.
async fn print_arrivals(sink: &Sink) -> anyhow::Result<()> {
    let (mut seen, mut last) = (0, None);
    loop {
        // After a timeout the list is checked too.
        let _ = timeout(CHECK_INTERVAL, sink.wait_for(seen + 1)).await;
        let total = sink.received();
        if total == seen {
            continue;
        }
        let list = sink.arrivals();
        let new = unseen(&list, last.as_ref());
        // The list keeps the latest requests. If even its oldest is new, earlier ones may have been dropped.
        let missed = total.saturating_sub(seen).saturating_sub(list.len() as u64);
        if missed > 0 && new.len() == list.len() {
            note(&format!("{missed} arrivals came too fast to be shown"));
        }
        for arrival in new {
            line(&shown(arrival))?;
        }
        last = list.last().cloned().or(last);
        seen = total;
        sleep(COLLECT_FOR).await;
    }
}

/// The requests after the last one that was printed.
fn unseen<'l>(list: &'l [ReceivedRequest], last: Option<&ReceivedRequest>) -> &'l [ReceivedRequest] {
    let shown = last.and_then(|last| list.iter().rposition(|arrival| arrival == last));
    &list[shown.map_or(0, |at| at + 1)..]
}

fn shown(arrival: &ReceivedRequest) -> String {
    let id = arrival.id.as_deref().unwrap_or("(no webhook-id)");
    let attempt = arrival.attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
    let status = arrival.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    let text = format!("{}  {id}  attempt {attempt}  {}  -> {status}", arrival.at, arrival.path);
    harmless(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::time::Timestamp;

    fn arrival(number: i64) -> ReceivedRequest {
        ReceivedRequest {
            id: Some("ntf_1\u{1b}".to_owned()),
            attempt: Some(1),
            timestamp: None,
            method: "POST".to_owned(),
            path: "/ok".to_owned(),
            headers: vec![],
            status: Some(200),
            at: Timestamp::from_millis(number),
            body: String::new(),
        }
    }

    #[test]
    fn each_arrival_is_shown_once() {
        let list: Vec<ReceivedRequest> = (0..5).map(arrival).collect();
        assert_eq!(unseen(&list, None).len(), 5);
        assert_eq!(unseen(&list, Some(&arrival(2))), &list[3..]);
        assert_eq!(unseen(&list, Some(&arrival(4))).len(), 0);
        assert_eq!(unseen(&list, Some(&arrival(9))).len(), 5);
    }

    #[test]
    fn an_arrival_is_a_harmless_line() {
        assert_eq!(shown(&arrival(0)), "1970-01-01T00:00:00.000Z  ntf_1\\u{1b}  attempt 1  /ok  -> 200");
    }
}
