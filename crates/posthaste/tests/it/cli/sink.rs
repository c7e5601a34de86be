//! `posthaste sink`.

use posthaste::client::Client;
use serde_json::json;

use super::{Talk, posthaste, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_says_where_it_is_what_it_understands_and_what_arrives() {
    for signal in ["INT", "TERM"] {
        let mut sink = Talk::start(posthaste(&["sink", "--listen", "127.0.0.1:0"]));
        let first = sink.line();
        let url = first.strip_prefix("listening on ").unwrap_or_else(|| panic!("{first}")).to_owned();
        let mut paths = String::new();
        while !paths.contains("/arrivals") {
            paths += &sink.line();
        }
        assert!(paths.contains("/sequence/503,reset,200"), "{paths}");
        assert_eq!(sink.line(), "");

        let client = Client::new(&url, None).unwrap();
        for (path, status) in [("/status/418", 418), ("/ok", 200)] {
            assert_eq!(client.post(path, &json!({"hello": 1})).await.unwrap().status.as_u16(), status);
            let said = sink.line();
            assert!(said.ends_with(&format!("(no webhook-id)  attempt -  {path}  -> {status}")), "{said}");
        }
        sink.signal(signal);
        assert_eq!(sink.end(), (Some(0), String::new()));
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(&["sink", "--listen", &address]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains(&address) && ended.err.contains("--listen"), "{}", ended.err);
}
