//! Providers: the pool hands a try to the one that its route names, and the kind `log` prints or fails as told.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::notification::{Body, Notification};
use posthaste_core::provider::{Provider, ProviderKind, Route};
use posthaste_core::reply::{Answer, Fault, Reply};
use posthaste_engine::channel::{Channel, Delivery};
use posthaste_wire::log_provider::{LogProvider, Printer};
use posthaste_wire::provider_pool::ProviderPool;

use crate::rig::{LONG, delivery, fault, notification};

/// A writer that keeps what it gets.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that fails.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that says when it is written to, and waits for the other end to be dropped.
struct Stuck {
    tell: Sender<()>,
    wait: Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tell.send(()).unwrap();
        let _ = self.wait.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn text_message(body: &str) -> Notification {
    let mut message = notification("+15550100");
    message.channel = ChannelName::Sms;
    message.content.body = Body::Text(body.to_owned());
    message
}

fn by(name: &str, message: Notification) -> Delivery {
    let provider =
        Provider { name: name.into(), channel: ChannelName::Sms, kind: ProviderKind::Log, priority: 1 };
    Delivery { route: Route::Provider(Arc::new(provider)), ..delivery(message, LONG) }
}

fn pool(providers: impl IntoIterator<Item = (&'static str, Printer, Option<&'static str>)>) -> ProviderPool {
    let mut pool = ProviderPool::default();
    for (name, printer, fail) in providers {
        pool.add(name.into(), LogProvider::new(printer, fail.map(str::to_owned)));
    }
    pool
}

#[tokio::test]
async fn the_provider_that_the_route_names_gets_the_notification() {
    let (first, second) = (Page::default(), Page::default());
    let printer = |page: &Page| Printer::start(page.clone()).unwrap();
    let pool = pool([("first", printer(&first), None), ("second", printer(&second), None)]);
    let message = text_message("hello");
    let id = message.id;
    let reply = pool.send(by("second", message)).await;
    assert_eq!(reply, Reply::taken(format!("log-{id}-3")));
    assert_eq!(first.text(), "");
    assert_eq!(second.text(), format!("[second] sms to +15550100 ({id}, attempt 3)\n  hello\n"));
}

#[tokio::test]
async fn a_route_to_nobody_of_the_pool_is_a_reply_and_nothing_is_printed() {
    let page = Page::default();
    let pool = pool([("first", Printer::start(page.clone()).unwrap(), None)]);
    assert_eq!(fault(&pool.send(by("third", text_message("a"))).await).0, Fault::NoProvider);
    assert_eq!(fault(&pool.send(delivery(text_message("a"), LONG)).await).0, Fault::NoProvider);
    assert_eq!(page.text(), "");
}

#[tokio::test]
async fn a_provider_that_was_told_to_fail_refuses_with_its_code() {
    let page = Page::default();
    let pool = pool([("texts", Printer::start(page.clone()).unwrap(), Some("busy"))]);
    let reply = pool.send(by("texts", text_message("hello"))).await;
    assert_eq!((reply.answer, reply.provider_code.as_deref()), (Answer::Refused, Some("busy")));
    assert_eq!(reply.message_id, None);
    assert!(page.text().contains("attempt 3, refused: busy)\n"), "{}", page.text());
}

#[tokio::test]
async fn no_sender_can_write_to_the_terminal_what_is_not_a_message() {
    let page = Page::default();
    let pool = pool([("texts", Printer::start(page.clone()).unwrap(), None)]);
    let mut message = text_message("a\u{1b}[2J\r\n[texts] sms to +1\rb\0");
    message.subject = Some("s\u{1b}\n[texts] x".to_owned());
    message.to = "+1\n[texts] y".to_owned();
    pool.send(by("texts", message)).await;
    let text = page.text();
    let bad = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(bad), "{text:?}");
    assert_eq!(text.lines().filter(|line| !line.starts_with("  ")).count(), 1, "{text}");
}

#[tokio::test]
async fn what_cannot_be_printed_was_not_delivered() {
    let pool = pool([("texts", Printer::start(Closed).unwrap(), None)]);
    let reply = pool.send(by("texts", text_message("hello"))).await;
    assert_eq!(fault(&reply).0, Fault::Reset, "{reply:?}");
}

/// The writer blocks a thread of its own, and a try that was given up leaves nothing behind that hangs.
#[tokio::test]
async fn a_writer_that_hangs_holds_up_only_those_who_print() {
    let (tell, told) = channel();
    let (release, wait) = channel();
    let pool = pool([("texts", Printer::start(Stuck { tell, wait }).unwrap(), None)]);
    let stuck = pool.send(by("texts", text_message("hello")));
    assert!(tokio::time::timeout(Duration::from_millis(20), stuck).await.is_err());
    told.recv_timeout(LONG).unwrap();
    drop(release);
    assert_eq!(pool.send(by("texts", text_message("again"))).await.answer, Answer::Taken);
}
