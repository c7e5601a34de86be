//! Nodes of the version before write into the same tables while a cluster is upgraded.

use posthaste_engine::store::{Queue, Reads};
use posthaste_store::postgres::{PostgresStore, migrate};

use super::server::{Server, callers_time};
use crate::older::{
    ATTEMPTS, LETTER, are_told_without_their_content, dies, is_read_before, is_sent_where_it_waits, is_shown,
    level_is_the_lowest, node, rows,
};
use crate::scene::{fill, id, key};

fn quoted(bytes: [u8; 16]) -> String {
    format!("'{}'", uuid::Uuid::from_bytes(bytes))
}

/// The statement by which the version before makes a dead letter.
fn buries() -> String {
    let (dead, letter) = (quoted(id(0).to_bytes()), quoted(LETTER.to_bytes()));
    format!(
        "insert into dead_letter (id, notification, flow, priority, not_before, expires, recipient, template, subject,
            event_key, correlation_id, content, reason, text, attempts, failure, status, created_at)
        select e.dead_letter, e.id, n.flow, n.priority, n.not_before, n.expires, n.recipient, n.template, n.subject,
            n.event_key, n.correlation_id, n.content, e.reason, e.text, coalesce(made.attempts, '[]'), made.failure, 0,
            u.died
        from unnest(array[{dead}::uuid], array[{letter}::uuid], array[9::bigint]) as u (id, letter, died)
        join ended e on e.id = any(array[u.id])
        left join notification n on n.id = any(array[u.id])
        left join lateral (
            select json_agg(
                    json_build_array(generation, number, started_at, duration, failure, status_code, error,
                        coalesce(quick_tries::json, '[]'::json))
                    order by number)::text as attempts,
                (array_agg(failure order by number desc))[1] as failure
            from attempt
            where attempt.notification = u.id
            and attempt.generation = e.generation) as made on true
        where e.dead_letter is not distinct from u.letter
        and not exists (
            select
            from dead_letter d
            where d.id = any(array[u.letter])
            and d.notification is not distinct from u.id)"
    )
}

/// A dead letter that a node of the version before made.
pub(super) fn buries_as_before(server: &Server, database: &str) {
    server.sql(database, &rows(quoted));
    server.sql(database, &buries());
}

const TENANTS: &str = "select string_agg(coalesce(tenant, '-'), ',' order by id) from ended";

#[tokio::test]
async fn what_a_node_of_the_version_before_writes_has_its_tenant() {
    let server = Server::shared();
    let database = server.database();
    // An end of the hot path is inserted by a statement that also takes it from the queue.
    let settles = rows(quoted).replace(
        "insert into ended",
        "insert into queue (id, flow, due, first_due, delay, attempt, base, generation, interruptions, lane, priority, cancel)
         select id, flow, 0, 0, 0, 1, 0, 1, 0, 0, 2, false from notification;
         with gone as (delete from queue returning id)
         insert into ended",
    );
    server.sql(&database, &settles);
    server.sql(&database, &buries());
    assert_eq!(server.sql(&database, TENANTS), "acme,-,acme");
    assert_eq!(server.sql(&database, "select tenant, status_code from dead_letter"), "acme|404");
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    let dead = store.dead_letter(LETTER).await.unwrap().unwrap();
    assert_eq!(dead.attempts, store.history(id(0)).await.unwrap().attempts);
}

#[tokio::test]
async fn rows_from_before_are_filled_by_the_step() {
    let server = Server::shared();
    let database = server.database();
    let page = include_str!("../../../../../docs/migrations.md");
    server.sql(&database, page.split("```sql").nth(1).unwrap().split("```").next().unwrap());
    server.sql(&database, &rows(quoted));
    server.sql(&database, &buries());
    assert_eq!(server.sql(&database, "select attempts from dead_letter").replace(' ', ""), ATTEMPTS);
    let url = server.url(&database);
    migrate::up(&url, &callers_time()).await.unwrap();
    is_shown(&PostgresStore::connect(&url, callers_time()).await.unwrap()).await;
    assert_eq!(server.sql(&database, TENANTS), "acme,-,acme");
    assert_eq!(server.sql(&database, "select tenant from dead_letter"), "acme");
}

#[tokio::test]
async fn attempts_of_a_dead_letter_can_be_read_by_the_version_before() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    let dead = dies(&store).await;
    is_read_before(&server.sql(&database, "select attempts from dead_letter"), &dead);
}

#[tokio::test]
async fn a_claimed_row_has_the_destination_of_the_flow_that_it_waits_in() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    fill(&store, &key("acme", "d"), 0, 1).await;
    let other = store.intern(vec![key("acme", "other")]).await.unwrap()[0];
    server.sql(&database, &format!("update queue set flow = {}", other.0));
    is_sent_where_it_waits(&store, other).await;
}

#[tokio::test]
async fn a_cluster_has_the_level_of_its_lowest_node() {
    let server = Server::shared();
    let database = server.database();
    server.sql(&database, &node("false"));
    level_is_the_lowest(&PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap()).await;
}

#[tokio::test]
async fn what_is_overdue_without_a_policy_of_its_own_costs_no_look_at_its_content() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    fill(&store, &key("acme", "d"), 0, 1_000).await;
    server.sql(&database, "delete from notification");
    are_told_without_their_content(&store).await;
}
