//! What failure groups cost with many dead letters: to fill them in, to list them, and to bury.
//!
//! ```text
//! cargo run --release -p posthaste-store --example groups -- 1000000 /tmp/groups.db
//! cargo run --release -p posthaste-store --example groups -- 1000000 postgres://localhost/groups
//! ```
//!
//! The database must be empty. The program prints SQL that fills it, for psql or for sqlite3 3.41 or later, and waits for enter.
#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::Filter;
use posthaste_core::flow::{Bucket, FlowKey, Quota};
use posthaste_core::group::GroupBy;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease};
use posthaste_core::notification::{Body, Content, Notification, Priority};
use posthaste_core::reason::Reason;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Arrival, Ending, Next, Request, Settlement, Store};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};
use posthaste_store::sqlite::{Options, SqliteStore};

/// Destinations of the dead letters from before; their causes are 520.
const DESTINATIONS: u64 = 12_000;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// Dead letters of one settlement, and how many settlements are measured.
const BATCH: u64 = 1_000;
const BATCHES: u64 = 20;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [count, place] = arguments.as_slice() else { panic!("give a number and a file or URL") };
    let count: u64 = count.parse().expect("a number of dead letters");
    let store: Arc<dyn Store> = if place.starts_with("postgres") {
        let patient =
            PostgresOptions { statement_timeout: Duration::from_secs(600), ..PostgresOptions::default() };
        Arc::new(PostgresStore::connect(place, patient).await.expect("an empty database"))
    } else {
        Arc::new(SqliteStore::open(place, Options::default()).expect("a new file"))
    };
    let begun = Instant::now();
    let tool = if place.starts_with("postgres") { "psql" } else { "sqlite3" };
    println!("fill {count} rows by {tool} with the SQL on standard error, then press enter");
    eprintln!("{}", if place.starts_with("postgres") { of_server(count) } else { of_file(count) });
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    println!("waited {:?}", begun.elapsed());
    fill(&*store).await;
    lists(&*store).await;
    bury(&*store).await;
}

/// Dead letters as a version before wrote them.
fn of_server(count: u64) -> String {
    format!(
        "insert into flow (tenant, channel, destination)
         select 't' || n % 20, 0, 'https://d' || n || '.example:443' from generate_series(0, {DESTINATIONS} - 1) n;
         insert into dead_letter (id, notification, flow, priority, recipient, template, content, reason, text, attempts,
             failure, status_code, status, created_at, tenant)
         select (lpad(to_hex(1799950000000 + n / 20), 12, '0') || '7' || lpad(to_hex(n), 19, '0'))::uuid, gen_random_uuid(), f.id, 2, 'r',
             't' || n % 30, '{{\"body\":{{\"text\":\"hello\"}}}}', 'MAX_ATTEMPTS_EXCEEDED',
             'answered 503: upstream ' || chr(97 + (n % 26)::int) || chr(97 + (n / 26 % 20)::int) || ' said no to ' || n, '[]', 1, 503, 0,
             (1799950000000 + n / 20) * 1000, f.tenant
         from generate_series(0, {count} - 1) n join flow f on f.id = 1 + n % {DESTINATIONS};"
    )
}

fn of_file(count: u64) -> String {
    format!(
        "with recursive s (n) as (select 0 union all select n + 1 from s where n < {DESTINATIONS} - 1)
         insert into flow (tenant, channel, destination) select 't' || n % 20, 0, 'https://d' || n || '.example:443' from s;
         with recursive s (n) as (select 0 union all select n + 1 from s where n < {count} - 1)
         insert into dead_letter (id, notification, flow, priority, recipient, template, content, reason, text, attempts,
             failure, status_code, status, created_at, tenant)
         select unhex(printf('%012x7%019x', 1799950000000 + n / 20, n)), randomblob(16), f.id, 2, 'r', 't' || n % 30,
             '{{\"body\":{{\"text\":\"hello\"}}}}', 'MAX_ATTEMPTS_EXCEEDED',
             'answered 503: upstream ' || char(97 + n % 26) || char(97 + n / 26 % 20) || ' said no to ' || n, '[]', 1, 503, 0,
             (1799950000000 + n / 20) * 1000, f.tenant
         from s join flow f on f.id = 1 + n % {DESTINATIONS};"
    )
}

async fn fill(store: &dyn Store) {
    let (begun, mut longest, mut filled) = (Instant::now(), Duration::ZERO, 0);
    loop {
        let chunk = Instant::now();
        let done = store.fill_groups(50).await.expect("filled");
        longest = longest.max(chunk.elapsed());
        filled += done;
        if done < 50 {
            break;
        }
    }
    println!("filled {filled} in {:?}, chunks of 50, the longest took {longest:?}", begun.elapsed());
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn lists(store: &dyn Store) {
    for by in GroupBy::ALL {
        for tenant in [None, Some("t7".parse().expect("a name"))] {
            let (mut times, mut rows) = (vec![], 0);
            for _ in 0..15 {
                let begun = Instant::now();
                let page = store.failure_groups(by, tenant.clone(), None, 50, NOW).await.expect("a page");
                times.push(begun.elapsed());
                rows = page.rows.len();
            }
            let worst = times.iter().max().copied().unwrap_or_default();
            println!(
                "list by {} of {tenant:?}: {rows} groups, median {:?}, longest {worst:?}",
                by.name(),
                median(times)
            );
        }
    }
    let page = store.failure_groups(GroupBy::Fingerprint, None, None, 1, NOW).await.expect("a page");
    let group = Some(page.rows[0].id);
    for tenant in [None, Some("t7".parse().expect("a name"))] {
        let filter = Filter { group, tenant: tenant.clone(), ..Filter::default() };
        let begun = Instant::now();
        let rows = store.dead_letters(filter, None, 50).await.expect("a page").rows.len();
        println!("dead letters of one group of {tenant:?}: {rows}, {:?}", begun.elapsed());
    }
    println!("numbers of groups: {:?}", store.group_numbers().await.expect("numbers"));
}

async fn bury(store: &dyn Store) {
    let node = store.join("bench".to_owned(), Duration::from_secs(86_400), NOW).await.expect("joined").node;
    let mut times = vec![];
    for round in 0..BATCHES {
        let key = |number: u64| FlowKey {
            tenant: "t1".parse().expect("a name"),
            channel: Channel::Webhook,
            destination: format!("https://b{}.example:443", number % 4).into(),
        };
        let flows = store.intern((0..4).map(key).collect()).await.expect("flows");
        let lease = Lease { node, fence: Fence(i64::try_from(round).expect("few") + 1) };
        let arrival = |number: u64| {
            let id = NotificationId::new(NOW, u128::from(round * BATCH + number) + 1);
            let content = Content::of(Body::Text("hello".to_owned()));
            let notification = Notification::new(id, key(number), "https://b.example/".to_owned(), content);
            let flow = flows[usize::try_from(number % 4).expect("small")];
            Arrival { notification: Arc::new(notification), flow, due: NOW, lease: Some(lease) }
        };
        let arrivals: Vec<Arrival> = (0..BATCH).map(arrival).collect();
        let ids: Vec<NotificationId> = arrivals.iter().map(|arrival| arrival.notification.id).collect();
        store.accept(vec![Request { idempotency: None, arrivals }], NOW).await.expect("accepted");
        let batch: Vec<Settlement> = ids.iter().map(|id| settlement(*id, lease)).collect();
        let begun = Instant::now();
        store.settle(batch, NOW).await.expect("settled");
        times.push(begun.elapsed());
        let bucket = Bucket { flow: flows[0], lane: Lane::Main, priority: Priority::Normal };
        store.claim(vec![Quota { bucket, limit: 1 }], lease, NOW).await.expect("claimed");
    }
    println!("settle that buries {BATCH}: median {:?} of {BATCHES}", median(times));
}

fn settlement(id: NotificationId, lease: Lease) -> Settlement {
    let number = u128::from_be_bytes(id.to_bytes());
    let text = format!("answered 503: upstream connect error {}", number % 1_000);
    let attempt = Attempt {
        generation: 1,
        number: 1,
        started_at: NOW,
        duration: Duration::from_millis(5),
        outcome: Outcome::Failed(FailureType::Temporary),
        status_code: Some(503),
        error: Some(text.clone()),
        quick_tries: vec![],
        last_try_at: None,
        provider: None,
        message_id: None,
        response: None,
    };
    let dead_letter = DeadLetterId::new(NOW, number);
    let ending = Ending::Buried { dead_letter, reason: Reason::MaxAttemptsExceeded, text };
    Settlement { id, lease, cancel_seen: false, attempt: Some(attempt), next: Next::End(ending) }
}
