//! Upgrades: stores of the schema before this one, kept as fixtures, are migrated by the built program and delivered from.
//!
//! A fixture is a store as SQL and what the program that made it answered about its rows. `scripts/upgrade-test --fixtures` makes them
//! again. Before one is loaded, the address of its receiver is replaced by that of the test's, and every path there by one
//! that takes everything: a free port is another one each time, and receivers forget how often something failed.

mod make;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_core::state::State;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::{Sink, SinkOptions};
use serde_json::{Value, json};

use self::make::{Fixture, Told, acme};
use self::place::{Kind, Place};
use super::program::{eventually, get, post, sink};

/// Where fixtures that are made are to be kept.
const DIRECTORY: &str = "POSTHASTE_FIXTURES";
/// The program that makes fixtures, or that runs beside the one under test; the latter itself without it.
const OLD: &str = "POSTHASTE_OLD";
/// The receiver of fixtures that are kept. The requests whose idempotency keys are kept name it.
const RECEIVER: &str = "127.0.0.1:18410";

/// The kinds of rows that no fixture may lack: a condition on its tables for each.
const KINDS: &[(&str, &str)] = &[
    ("pending, due", "from queue where lane = 0 and node is null and due < 2000000000000000"),
    ("pending, not due", "from queue where lane = 0 and node is null and due > 4000000000000000"),
    ("with notBefore", "from queue join notification using (id) where not_before is not null"),
    ("with expiresAt", "from queue where expires is not null and lane = 0"),
    ("a retry with expiresAt", "from queue where expires is not null and lane = 1"),
    ("a scheduled retry", "from queue where lane = 1 and node is null and due > 4000000000000000"),
    ("a retry that is due", "from queue where lane = 1 and node is null and due < 2000000000000000"),
    ("held by a dead node", "from queue join node on node.id = queue.node where lane = 0"),
    ("a retry held by a dead node", "from queue where lane = 1 and node is not null"),
    ("a cancel requested", "from queue where cancel and node is not null"),
    ("waiting in a later generation", "from queue where generation > 1"),
    ("delivered", "from ended where state = 2"),
    ("failed", "from ended where state = 5 and dead_letter is null"),
    ("discarded", "from ended where state = 5 and dead_letter is not null"),
    ("dead", "from ended where state = 6"),
    ("cancelled", "from ended where state = 7"),
    ("expired", "from ended where state = 8"),
    ("a dead letter, pending", "from dead_letter where status = 0"),
    ("a dead letter, requeued", "from dead_letter where status = 1"),
    ("a dead letter, discarded", "from dead_letter where status = 2"),
    ("a dead letter, restored", "from event where word = 'restore'"),
    (
        "two dead letters of one",
        "from (select 1 from dead_letter group by notification having count(*) > 1) as two",
    ),
    (
        "an own policy that waits",
        "from queue join notification using (id) where content like '%\"policy\":{%'",
    ),
    ("a template that waits", "from queue join notification using (id) where template is not null"),
    (
        "headers, html and metadata",
        "from notification where content like '%<p>%' and content like '%x-order%'",
    ),
    ("a subject and an event key", "from notification where subject is not null and event_key is not null"),
    ("four priorities that wait", "from (select 1 from queue group by priority) as p having count(*) = 4"),
    ("quick tries", "from attempt where quick_tries is not null and quick_tries <> '[]'"),
    ("an attempt without a status", "from attempt where failure is not null and status_code is null"),
    ("attempts of a later generation", "from attempt where generation > 1 and number = 1"),
    ("numbers that go on", "from attempt where generation > 1 and number > 1"),
    ("an interrupted event", "from event where word = 'interrupted'"),
    ("acts of people", "from event where actor is not null"),
    ("the audit of a tenant", "from audit where tenant = 'acme'"),
    ("the audit of settings", "from audit where action like '%polic%'"),
    ("a policy of a template", "from setting where name like '%template:welcome%'"),
    ("a key", "from setting where name like 'key%'"),
    (
        "idempotency keys",
        "from (select 1 from idempotency_even union all select 1 from idempotency_odd) as k having count(*) > 1",
    ),
    ("counters of two tenants", "from (select 1 from counter group by tenant) as t having count(*) > 2"),
    ("a node", "from node"),
];

/// A fixture that is kept.
fn kept(kind: Kind) -> Fixture {
    let (dump, told) = match kind {
        Kind::Sqlite => {
            (include_str!("upgrade/fixtures/sqlite.sql"), include_str!("upgrade/fixtures/sqlite.json"))
        }
        Kind::Postgres => {
            (include_str!("upgrade/fixtures/postgres.sql"), include_str!("upgrade/fixtures/postgres.json"))
        }
    };
    Fixture { dump: dump.to_owned(), told: serde_json::from_str(told).unwrap() }
}

/// The kinds that a store lacks.
fn lacking(place: &Place) -> Vec<&'static str> {
    let lacks = |sql: &str| {
        let rows = place.rows(&format!("select count(*) {sql}"));
        rows.first().is_none_or(|row| row[0] == "0")
    };
    KINDS.iter().filter(|(_, sql)| lacks(sql)).map(|(name, _)| *name).collect()
}

/// The same text with another receiver, which takes everything.
fn redirected(text: &str, old: &str, new: &str) -> String {
    let mut parts = text.split(old);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(new);
        // A flow names the receiver without a path.
        let rest =
            part.trim_start_matches(|next: char| next == '/' || next == ',' || next.is_ascii_alphanumeric());
        if part.starts_with('/') {
            out.push_str("/ok");
        }
        out.push_str(rest);
    }
    out
}

/// A store with the rows of a fixture, as if it had been used until just now, and what was told about it.
fn load(fixture: &Fixture, kind: Kind, sink: &Sink) -> (Place, Told) {
    let place = Place::new(kind, None);
    let old = fixture.told.sink.as_str();
    place.run(&redirected(&fixture.dump, old, &sink.url("")));
    // Idempotency keys live for a day, in two tables that take turns.
    let now = SystemClock.now().as_micros();
    let today = now / 86_400_000_000;
    place.run(&format!(
        "update idempotency_even set at = {now};
         update idempotency_odd set at = {now};
         update idempotency_day set day = {today} - abs(({today} - turn) % 2);"
    ));
    let mut told: Told =
        serde_json::from_str(&redirected(&serde_json::to_string(&fixture.told).unwrap(), old, &sink.url("")))
            .unwrap();
    // Their bodies are what was hashed.
    told.repeats = serde_json::from_value(serde_json::to_value(&fixture.told.repeats).unwrap()).unwrap();
    (place, told)
}

/// What an answer lacks of an older one, by its place: new fields may have come.
fn differences(old: &Value, new: &Value, at: &str, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                differences(value, new.get(name).unwrap_or(&Value::Null), &format!("{at}/{name}"), found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (place, (old, new)) in old.iter().zip(new).enumerate() {
                differences(old, new, &format!("{at}/{place}"), found);
            }
        }
        _ if old == new => {}
        _ => found.push(format!("{at}: {old} became {new}")),
    }
}

/// An older answer as it is told today: the number of a dead letter's status has another name, and what expired says its
/// last error.
fn retold(path: &str, old: &Value) -> Value {
    let mut old = old.clone();
    let fields = old.as_object_mut().unwrap();
    if path.starts_with("/v1/dead-letters/")
        && let Some(number) = fields.remove("statusCode")
    {
        fields.insert("statusNumber".to_owned(), number);
    }
    if fields.get("state").is_some_and(|state| state == "expired") {
        let attempts = fields["attempts"].as_array().and_then(|made| made.last());
        let error = attempts.map_or(Value::Null, |last| last["error"].clone());
        fields.insert("reason".to_owned(), error);
    }
    old
}

/// Everything that a list shows, page by page.
async fn listed(client: &Client, path: &str, id: &str) -> BTreeSet<String> {
    let (mut all, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = get(client, &format!("{path}limit=7{cursor}")).await;
        for one in page["data"].as_array().unwrap() {
            assert!(all.insert(one[id].as_str().unwrap().to_owned()), "{one} twice in {path}");
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

impl Told {
    /// The ids in the paths of answers below that one, of one tenant or of all.
    fn ids_of(&self, tenant: Option<&str>, path: &str) -> BTreeSet<String> {
        let of = |one: &Value| tenant.is_none_or(|tenant| one["tenant"] == tenant);
        let seen =
            self.answers.iter().filter(|(_, one)| of(one)).filter_map(|(key, _)| key.strip_prefix(path));
        seen.map(str::to_owned).collect()
    }

    /// The notifications in these states.
    fn ids_in(&self, states: &[&str]) -> BTreeSet<String> {
        let live = self.answers.values().filter(|one| states.iter().any(|state| one["state"] == *state));
        live.map(|one| one["notificationId"].as_str().unwrap().to_owned()).collect()
    }
}

async fn a_store_from_before_is_migrated_and_delivered_from(kind: Kind) {
    let sink = sink().await;
    let (place, told) = load(&kept(kind), kind, &sink);
    let program = place.home.start().await;
    let (admin, acme) = (program.client(), acme(&program, &told.key));
    let mut arrive = what_was_due_or_held_ends(&admin, &told).await;
    everything_else_is_as_it_was(&admin, &acme, &told).await;
    for repeat in &told.repeats {
        assert_eq!(repeat.again(&acme).await, repeat.answer);
    }
    let pending = listed(&admin, "/v1/dead-letters?", "id").await;
    assert!(pending.len() > 4, "{pending:?}");
    for letter in &pending {
        let answer = post(&admin, &format!("/v1/dead-letters/{letter}/requeue"), &json!({})).await;
        arrive.insert(answer["notificationId"].as_str().unwrap().to_owned());
    }
    let wait = told.ids_in(&["pending", "retryScheduled"]);
    let waiting = listed(&admin, "/v1/notifications?state=pending,retryScheduled&", "notificationId").await;
    assert!(waiting.is_superset(&wait), "{waiting:?}");
    program.stop().await;

    // The time of what waits comes.
    place.run("update queue set due = 1;");
    let program = place.home.start().await;
    program.rest().await;
    assert_eq!(get(&program.client(), "/v1/stats").await["inDeadLetter"], 0);
    program.stop().await;
    arrive.extend(wait);
    let mut arrived: BTreeMap<String, u32> = BTreeMap::new();
    for arrival in sink.arrivals() {
        *arrived.entry(arrival.id.unwrap()).or_default() += 1;
    }
    assert_eq!(
        arrived,
        arrive.into_iter().map(|id| (id, 1)).collect(),
        "each arrives once, and nothing else"
    );
    let kept = place.kept();
    assert_eq!(kept.miscounted, Vec::<String>::new(), "I17");
    for (id, one) in &kept.all {
        assert!(!one.live && one.end.is_some(), "I2: {id}: {one:?}");
        assert_ne!(one.end, Some(State::DeadLetter), "{id}: {one:?}");
    }
    sink.stop().await;
}

/// What was due or held moves by itself. Returns what was delivered.
async fn what_was_due_or_held_ends(admin: &Client, told: &Told) -> BTreeSet<String> {
    let mut delivered = BTreeSet::new();
    for (name, before) in &told.moving {
        let id = before["notificationId"].as_str().unwrap();
        let path = format!("/v1/notifications/{id}");
        let wanted = if name == "cancel-requested" { "cancelled" } else { "succeeded" };
        let ended = eventually(async || Some(get(admin, &path).await).filter(|now| now["state"] == wanted));
        let now = ended.await.unwrap_or_else(|| panic!("{name} does not become {wanted}"));
        for field in ["to", "tenant", "body", "policy", "priority", "createdAt", "correlationId", "headers"] {
            assert_eq!(before[field], now[field], "{field} of {name}");
        }
        if wanted == "succeeded" {
            delivered.insert(id.to_owned());
        }
    }
    delivered
}

/// Every answer is the old one, and the lists show all of it.
async fn everything_else_is_as_it_was(admin: &Client, acme: &Client, told: &Told) {
    let mut found = vec![];
    for (path, old) in &told.answers {
        differences(&retold(path, old), &get(admin, path).await, path, &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
    let moving = told.moving.values().map(|one| one["notificationId"].as_str().unwrap().to_owned());
    let all: BTreeSet<String> = told.ids_of(None, "/v1/notifications/").into_iter().chain(moving).collect();
    assert_eq!(listed(admin, "/v1/notifications?", "notificationId").await, all);
    let letters = "/v1/dead-letters?status=all&";
    assert_eq!(listed(admin, letters, "id").await, told.ids_of(None, "/v1/dead-letters/"));
    let own = told.ids_of(Some("acme"), "/v1/notifications/");
    assert_eq!(listed(acme, "/v1/notifications?", "notificationId").await, own);
    assert_eq!(listed(acme, letters, "id").await, told.ids_of(Some("acme"), "/v1/dead-letters/"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_from_before_is_migrated_and_delivered_from() {
    a_store_from_before_is_migrated_and_delivered_from(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_database_from_before_is_migrated_and_delivered_from() {
    a_store_from_before_is_migrated_and_delivered_from(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixture_has_rows_of_every_kind_and_the_schema_from_before() {
    let sink = sink().await;
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let (place, told) = load(&kept(kind), kind, &sink);
        assert_eq!(lacking(&place), Vec::<&str>::new(), "{kind:?}");
        let steps = match kind {
            Kind::Sqlite => "select user_version from pragma_user_version",
            Kind::Postgres => "select max(version) from schema_migration",
        };
        assert_eq!(place.rows(steps), [["2"]], "{kind:?}");
        assert!(told.answers.len() > 40, "{}", told.answers.len());
    }
    sink.stop().await;
}

/// What made the fixtures still can, and makes rows of every kind in stores of today.
async fn fixtures_can_be_made(kind: Kind) {
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
    let receiver = directory.as_ref().map_or("127.0.0.1:0", |_| RECEIVER);
    let options = SinkOptions { keep: 0, ..SinkOptions::new(std::sync::Arc::new(SystemClock)) };
    let maker = Sink::start(receiver.parse().unwrap(), options).await.unwrap();
    let old = std::env::var_os(OLD).map(PathBuf::from);
    let fixture = make::make(kind, old.as_ref(), &maker).await;
    let place = Place::new(kind, None);
    place.run(&fixture.dump);
    assert_eq!(lacking(&place), Vec::<&str>::new(), "{kind:?}");
    if let Some(directory) = directory {
        let file = |ending: &str| directory.join(format!("{}.{ending}", kind.name()));
        std::fs::write(file("sql"), &fixture.dump).unwrap();
        // A line for each answer.
        let told = serde_json::to_string(&fixture.told).unwrap().replace(",\"/v1/", ",\n\"/v1/");
        std::fs::write(file("json"), told + "\n").unwrap();
    }
    maker.stop().await;
}

/// One after the other: the receiver of kept fixtures is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixture_can_be_made_in_a_postgres_database_and_in_a_file() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        fixtures_can_be_made(kind).await;
    }
}
