//! Lists whose pages are short: the command line goes on until it has what was asked for, or the list ends.

use std::time::Duration;

use axum::Router;
use http::Uri;
use posthaste::http::server::{Limits, serve};
use posthaste_wire::listener;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::served::Scene;
use super::{Ended, finish, posthaste};

/// A server whose list of notifications has a row on every third page of ten, and whose other lists have none.
async fn sparse(uri: Uri) -> String {
    let query = uri.query().unwrap_or("");
    let number = |name: &str| {
        let given = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        given.map(|given| given.parse::<u32>().unwrap())
    };
    assert!((1..=500).contains(&number("limit").unwrap()), "{query}");
    let page = number("cursor").unwrap_or(0);
    let has_row = uri.path() == "/v1/notifications" && page % 3 == 2;
    let data = if has_row { vec![json!({"notificationId": format!("ntf_{page}")})] } else { vec![] };
    let next = (page < 9).then(|| (page + 1).to_string());
    json!({"data": data, "nextCursor": next}).to_string()
}

async fn ask(args: &[&str]) -> Ended {
    let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let long = Duration::from_secs(60);
    let limits = Limits { connections: 10, head: long, answer: long, idle: long };
    let (stop, stopped) = watch::channel(false);
    let served = serve(listener, Router::new().fallback(sparse), limits, stopped, Duration::ZERO);
    let mut command = posthaste(args);
    command.env("POSTHASTE_URL", url).env("POSTHASTE_KEY", "a-key");
    let asked = async {
        let ended = finish(command, "").await;
        stop.send(true).unwrap();
        ended
    };
    tokio::join!(served, asked).1
}

fn ids(ended: &Ended) -> (Vec<String>, Value) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut list: Value = serde_json::from_str(&ended.out).unwrap();
    let rows = list["data"].as_array().unwrap();
    let ids = rows.iter().map(|row| row["notificationId"].as_str().unwrap().to_owned()).collect();
    (ids, list["nextCursor"].take())
}

#[tokio::test]
async fn a_list_goes_on_over_short_pages_until_it_has_what_was_asked_for() {
    let two = ask(&["notifications", "list", "--limit", "2", "--output", "json"]).await;
    assert_eq!(ids(&two), (vec!["ntf_2".to_owned(), "ntf_5".to_owned()], json!("6")));
    assert!(two.err.contains("--cursor 6"), "{}", two.err);
    for flag in [&["--all"][..], &["--limit", "500"], &[]] {
        let all = ask(&[&["notifications", "list", "--output", "json"], flag].concat()).await;
        assert_eq!(ids(&all).0.len(), 3, "{flag:?}: {all:?}");
        assert_eq!(ids(&all).1, Value::Null);
    }
}

#[tokio::test]
async fn nothing_is_found_only_at_the_end_of_the_list() {
    let none = ask(&["dead-letters", "list"]).await;
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(0), "", "nothing found\n"));
    let both = ask(&["dead-letters", "list", "--all", "--limit", "5"]).await;
    assert_eq!(both.code, Some(2), "{both:?}");
    assert!(both.err.contains("--limit"), "{}", both.err);
}

#[tokio::test]
async fn the_audit_is_filtered_by_flags() {
    let scene = Scene::start().await;
    for scope in ["tenant:acme", "global"] {
        assert_eq!(scene.run(&["policy", "set", scope, "{}"]).await.code, Some(0), "{scope}");
    }
    assert_eq!(scene.run(&["policy", "remove", "global"]).await.code, Some(0));
    let rows = async |flags: &[&str]| -> usize {
        let list = scene.json(&[&["audit"], flags].concat()).await;
        list["data"].as_array().unwrap().len()
    };
    for (flags, count) in [
        (&["--action", "put-policy"][..], 2),
        (&["--action", "put-policy,remove-policy", "--target", "global"], 2),
        (&["--action", "put-policy", "--actor", "admin", "--since", "1h"], 2),
        (&["--actor", "nobody"], 0),
        (&["--until", "1h"], 0),
        (&["--since", "2999-01-01"], 0),
    ] {
        assert_eq!(rows(flags).await, count, "{flags:?}");
    }
    let wrong = scene.run(&["audit", "--since", "soon"]).await;
    assert!(wrong.code == Some(2) && wrong.err.contains("--since"), "{wrong:?}");
}
