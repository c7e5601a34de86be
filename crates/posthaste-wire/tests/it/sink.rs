//! The receiver does as it is told, remembers what came, and stops.

use std::time::{Duration, Instant};

use posthaste_core::reply::Fault;
use posthaste_engine::channel::Channel;
use posthaste_wire::sink::Dial;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{LONG, channel, delivery, fault, notification, options, send, sink, sink_with, status};

/// One request on a connection of its own, written by hand; the whole answer.
async fn ask(sink: &posthaste_wire::sink::Sink, request: &str) -> String {
    let mut stream = TcpStream::connect(sink.address()).await.unwrap();
    stream
        .write_all(format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_sequence_is_answered_step_by_step_for_each_notification() {
    let sink = sink().await;
    let channel = channel(options());
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(status(&send(&channel, &sink.url("/sequence/503,429,200")).await));
    }
    assert_eq!(codes, [503, 429, 200, 200]);
    let mut other = notification(&sink.url("/sequence/503,429,200"));
    other.id = posthaste_core::id::NotificationId::new(other.id.made_at(), 8);
    assert_eq!(status(&channel.send(delivery(other, LONG)).await), 503);
}

#[tokio::test]
async fn a_delay_is_waited_and_a_reset_inside_a_sequence_is_one() {
    let sink = sink().await;
    let channel = channel(options());
    let began = Instant::now();
    assert_eq!(status(&send(&channel, &sink.url("/delay/50ms")).await), 200);
    assert!(began.elapsed() >= Duration::from_millis(50));
    let url = sink.url("/sequence/reset,200");
    assert_eq!(fault(&send(&channel, &url).await).0, Fault::Reset);
    assert_eq!(status(&send(&channel, &url).await), 200);
}

#[tokio::test]
async fn what_arrived_is_told_by_the_library_and_as_json() {
    let sink = sink().await;
    send(&channel(options()), &sink.url("/status/503?x=y")).await;
    let arrivals = sink.arrivals();
    assert_eq!(arrivals.len(), 1);
    assert_eq!((arrivals[0].attempt, arrivals[0].status), (Some(3), Some(503)));
    assert_eq!((arrivals[0].path.as_str(), arrivals[0].body.as_str()), ("/status/503", "{\"a\": 1.0}"));
    let id = notification("").id.to_string();
    assert_eq!(arrivals[0].id, Some(id.clone()));
    let shown = ask(&sink, "GET /arrivals").await;
    let json = shown.split_once("\r\n\r\n").unwrap().1;
    let expected = format!(
        "{{\"total\":1,\"arrivals\":[{{\"id\":\"{id}\",\"attempt\":3,\"timestamp\":1700000000,\"method\":\"POST\",\"path\":\"/status/503\",\"status\":503,\
         \"at\":\"2023-11-14T22:13:20.999Z\",\"body\":\"{{\\\"a\\\": 1.0}}\"}}]}}"
    );
    assert_eq!(json, expected);
    assert!(ask(&sink, "DELETE /arrivals").await.starts_with("HTTP/1.1 204 "));
    assert_eq!((sink.received(), sink.arrivals()), (0, vec![]));
    assert!(ask(&sink, "PUT /arrivals").await.starts_with("HTTP/1.1 405 "));
}

#[tokio::test]
async fn the_list_of_arrivals_is_bounded_and_the_latest_stay() {
    let few = sink_with(|options| (options.keep, options.excerpt) = (2, 4)).await;
    let none = sink_with(|options| options.keep = 0).await;
    let channel = channel(options());
    for path in ["/ok", "/status/201", "/status/202"] {
        send(&channel, &few.url(path)).await;
        send(&channel, &none.url(path)).await;
    }
    let kept = few.arrivals();
    assert_eq!(kept.iter().map(|arrival| arrival.status).collect::<Vec<_>>(), [Some(201), Some(202)]);
    assert_eq!(kept[0].body, "{\"a\"");
    assert_eq!((few.received(), none.received(), none.arrivals().len()), (3, 3, 0));
}

#[tokio::test]
async fn a_dial_counts_before_the_path_for_as_long_as_it_is_set() {
    let sink = sink_with(|options| (options.keep, options.headers) = (3, 64)).await;
    let channel = channel(options());
    let (inbox, path) = (sink.inbox(), sink.url("/sequence/429,200"));
    inbox.turn(Some(Dial::read("503", None, Some("2")).unwrap()));
    let mut codes = vec![];
    for _ in 0..4 {
        codes.push(status(&send(&channel, &path).await));
    }
    // The path goes on where it was.
    assert_eq!((codes, inbox.dial()), (vec![503, 503, 429, 200], None));
    inbox.turn(Some(Dial::read("reset", None, None).unwrap()));
    assert_eq!(fault(&send(&channel, &path).await).0, Fault::Reset);
    inbox.turn(Some(Dial::read("path", Some("50ms"), None).unwrap()));
    let began = Instant::now();
    assert_eq!(status(&send(&channel, &path).await), 200);
    assert!(began.elapsed() >= Duration::from_millis(50));
    let (total, kept) = inbox.numbered();
    let kept: Vec<_> = kept.iter().map(|(number, one)| (*number, one.status)).collect();
    assert_eq!((total, kept), (6, vec![(4, Some(200)), (5, None), (6, Some(200))]));
    let headers = &inbox.numbered().1[0].1.headers;
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(!headers.is_empty() && bytes <= 64, "{headers:?}");
    inbox.clear();
    assert_eq!(inbox.numbered(), (0, vec![]));
}

#[tokio::test]
async fn an_unknown_path_is_answered_with_the_paths_there_are() {
    let sink = sink().await;
    for path in ["/", "/nothing", "/status/99"] {
        let answer = ask(&sink, &format!("POST {path}")).await;
        assert!(
            answer.starts_with("HTTP/1.1 404 ") && answer.contains("/sequence/503,reset,200"),
            "{answer}"
        );
    }
    assert_eq!(sink.received(), 0);
}

#[tokio::test]
async fn a_caller_can_wait_for_what_is_to_arrive() {
    let sink = sink().await;
    let channel = channel(options());
    let url = sink.url("/ok");
    tokio::join!(sink.wait_for(2), async {
        send(&channel, &url).await;
        send(&channel, &url).await;
    });
    assert_eq!(sink.received(), 2);
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_place() {
    let sink = sink_with(|options| options.connections = 1).await;
    let first = TcpStream::connect(sink.address()).await.unwrap();
    let mut asked = Box::pin(ask(&sink, "POST /ok"));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "{early:?}");
    drop(first);
    assert!(asked.await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_client_that_sends_no_request_is_cut_off() {
    let sink = sink_with(|options| options.idle = Duration::from_millis(20)).await;
    for start in ["", "POST /ok HTT"] {
        let mut stream = TcpStream::connect(sink.address()).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_stop_ends_open_exchanges_well_and_hanging_ones_in_the_end() {
    let sink = sink().await;
    let address = sink.address();
    let channel = channel(options());
    let (slow, hanging) = (sink.url("/delay/100ms"), sink.url("/hang"));
    let sends = async { tokio::join!(send(&channel, &slow), send(&channel, &hanging)) };
    let stop = async {
        sink.wait_for(2).await;
        sink.stop().await;
    };
    let ((slow, hanging), ()) = tokio::join!(sends, stop);
    assert_eq!(status(&slow), 200);
    assert_eq!(fault(&hanging).0, Fault::Reset);
    assert!(TcpStream::connect(address).await.is_err());
}
