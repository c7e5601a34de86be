//! Blocks of a file: the lists of a tenant and of a destination show everything once, in whatever order it was accepted.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::filter::Filter;
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::id::NotificationId;
use posthaste_core::retention::Kind;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Audit, Prune, Queue, Reads, Retention};
use posthaste_store::sqlite::SqliteStore;

use crate::scene::{Scene, at, beside, fill, id, key, request};

/// How many tenants there are; of 1,000 notifications the last has about one.
const TENANTS: usize = 4;

/// What was accepted, by tenant.
type Accepted = BTreeMap<usize, Vec<NotificationId>>;

struct Traffic {
    scene: Scene,
    random: fastrand::Rng,
    flows: Vec<(FlowKey, FlowId)>,
    accepted: Accepted,
    made: i64,
}

impl Traffic {
    async fn new(seed: u64) -> Self {
        let scene = Scene::new();
        let keys: Vec<FlowKey> = (0..TENANTS)
            .flat_map(|tenant| (0..3).map(move |to| key(&format!("t{tenant}"), &format!("d{tenant}-{to}"))))
            .collect();
        let numbers = scene.store.intern(keys.clone()).await.unwrap();
        let flows = keys.into_iter().zip(numbers).collect();
        Self { scene, random: fastrand::Rng::with_seed(seed), flows, accepted: Accepted::new(), made: 0 }
    }

    /// Accepts so many. Ids come nearly in their order, and some much later.
    async fn accept(&mut self, count: usize) {
        let mut requests = vec![];
        for _ in 0..count {
            self.made += 1;
            let late =
                if self.random.u8(..20) == 0 { self.random.i64(0..10_000) } else { self.random.i64(0..50) };
            let id = NotificationId::new(moment(self.made - late), self.random.u128(..));
            let tenant = match self.random.u64(..1_000) {
                0 => 3,
                1..100 => 2,
                100..400 => 1,
                _ => 0,
            };
            let (key, flow) = &self.flows[tenant * 3 + self.random.usize(..3)];
            requests.push(request(id, key, *flow, None));
            self.accepted.entry(tenant).or_default().push(id);
        }
        self.scene.store.accept(requests, at(0)).await.unwrap();
    }

    /// Tries to accept something again, which takes back what was written beside it.
    async fn refuse(&mut self) {
        let (key, flow) = &self.flows[0];
        let known = self.accepted[&0][0];
        let new = NotificationId::new(moment(self.made), self.random.u128(..));
        let requests = [new, known].map(|id| request(id, key, *flow, None)).to_vec();
        self.scene.store.accept(requests, at(0)).await.unwrap_err();
    }

    async fn check(&mut self, limit: usize) {
        for (tenant, accepted) in &mut self.accepted {
            accepted.sort();
            let of_tenant =
                Filter { tenant: Some(format!("t{tenant}").parse().unwrap()), ..Filter::default() };
            let newest_first: Vec<NotificationId> = accepted.iter().rev().copied().collect();
            assert!(all(&self.scene.store, &of_tenant, limit).await == newest_first, "tenant {tenant}");
            let to = (0..3).map(|to| format!("d{tenant}-{to}")).collect();
            let of_destinations = Filter { destinations: to, ..Filter::default() };
            assert!(all(&self.scene.store, &of_destinations, limit).await == newest_first, "to {tenant}");
            // A part in the middle, by time.
            let (since, until) = (moment(self.made / 4), moment(self.made / 2));
            let some = Filter { since: Some(since), until: Some(until), ..of_tenant };
            let (from, before) = (NotificationId::least_at(since), NotificationId::least_at(until));
            let part: Vec<_> = newest_first.into_iter().filter(|id| *id >= from && *id < before).collect();
            assert!(all(&self.scene.store, &some, limit).await == part, "a part of tenant {tenant}");
        }
    }
}

/// A millisecond for each notification.
fn moment(number: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + number)
}

/// Every page of a list, none of them empty.
async fn all(store: &SqliteStore, filter: &Filter, limit: usize) -> Vec<NotificationId> {
    let (mut ids, mut before) = (vec![], None);
    loop {
        let page = store.page(filter.clone(), before, limit).await.unwrap();
        assert!(page.next.is_none() || !page.rows.is_empty(), "an empty page with a cursor");
        ids.extend(page.rows.iter().map(|view| view.notification.id));
        before = page.next;
        if before.is_none() {
            return ids;
        }
    }
}

fn audit() -> Audit {
    Audit {
        tenant: None,
        actor: Audit::ITSELF.to_owned(),
        action: "remove".to_owned(),
        target: "delivered".to_owned(),
        at: moment(0),
        key_id: None,
        address: None,
    }
}

fn blocks(scene: &Scene) -> usize {
    let sql = "select count(*) from block";
    let count: i64 = beside(&scene.path(), |conn| conn.query_row(sql, [], |row| row.get(0)).unwrap());
    usize::try_from(count).unwrap()
}

#[tokio::test]
async fn the_lists_of_a_tenant_and_a_destination_show_everything_once_in_whatever_order_it_came() {
    let mut traffic = Traffic::new(1).await;
    for round in 0..8 {
        for size in [1, 700, 1_300] {
            traffic.accept(size).await;
        }
        if round % 3 == 1 {
            traffic.refuse().await;
        }
        if round % 3 == 2 {
            traffic.scene = traffic.scene.reopen();
            traffic.check(if round == 5 { 50 } else { 500 }).await;
        }
    }
    traffic.check(400).await;
    assert!((4..9).contains(&blocks(&traffic.scene)), "{} blocks", blocks(&traffic.scene));
}

#[tokio::test]
async fn very_many_late_ones_split_their_block() {
    let mut traffic = Traffic::new(2).await;
    traffic.accept(8_000).await;
    assert_eq!(blocks(&traffic.scene), 2);
    // The clock was set back.
    traffic.made = 10;
    traffic.accept(6_000).await;
    assert!(blocks(&traffic.scene) > 2, "a block that is too large is split");
    traffic.check(500).await;
}

/// What was removed leaves its blocks, and what is left of them becomes few blocks: no list shows a row that is gone, none hides
/// one that is not, and no page is empty.
#[tokio::test]
async fn removed_rows_leave_their_blocks_and_small_neighbours_become_one() {
    let mut traffic = Traffic::new(5).await;
    traffic.accept(20_000).await;
    let before = blocks(&traffic.scene);
    assert!(before >= 7, "{before} blocks");
    // All but each tenth of the older ones have ended long ago.
    let mut ids: Vec<NotificationId> = traffic.accepted.values().flatten().copied().collect();
    ids.sort();
    let gone: BTreeSet<NotificationId> =
        ids[..18_000].iter().enumerate().filter(|(at, _)| at % 10 > 0).map(|(_, id)| *id).collect();
    traffic.scene = traffic.scene.reopen_after(|conn| {
        let mut end = conn
            .prepare(
                "insert into ended (id, state, at, generation, base, attempt) values (?1, 2, 0, 1, 0, 1)",
            )
            .unwrap();
        for id in &gone {
            end.execute([id.to_bytes()]).unwrap();
        }
        conn.execute("delete from queue where id in (select id from ended)", []).unwrap();
    });
    let prune = Prune { kind: Kind::Delivered, cut_off: moment(100_000), limit: 700, now: moment(100_000) };
    let mut removed = 0;
    loop {
        let pruned = traffic.scene.store.prune(prune, audit()).await.unwrap();
        removed += pruned.removed;
        if pruned.done {
            break;
        }
        // New ones come in between, some of them late.
        traffic.accept(10).await;
    }
    assert_eq!(removed, gone.len() as u64);
    for accepted in traffic.accepted.values_mut() {
        accepted.retain(|id| !gone.contains(id));
    }
    traffic.check(500).await;
    let after = blocks(&traffic.scene);
    assert!(after <= before / 2, "{after} blocks of {before}");
    traffic.accept(7_000).await;
    traffic.check(500).await;
}

#[tokio::test]
async fn rows_from_before_get_their_blocks_when_the_file_is_opened() {
    let mut traffic = Traffic::new(3).await;
    traffic.accept(9_000).await;
    let deleted = |conn: &rusqlite::Connection| assert!(conn.execute("delete from block", []).unwrap() > 0);
    traffic.scene = traffic.scene.reopen_after(deleted);
    assert_eq!(blocks(&traffic.scene), 2);
    traffic.check(500).await;
    traffic.accept(3_000).await;
    traffic.check(500).await;
}

#[tokio::test]
async fn a_damaged_block_hides_nothing_and_is_mended_by_the_next_late_one() {
    for damage in ["flows = x'00'", "ids = x'00'", "flows = zeroblob(12)", "ids = x''"] {
        let mut traffic = Traffic::new(4).await;
        traffic.accept(8_000).await;
        traffic.scene = traffic.scene.reopen_after(|conn| {
            let sql = format!("update block set {damage} where upto = (select min(upto) from block)");
            assert_eq!(conn.execute(&sql, []).unwrap(), 1);
        });
        // Flows that make sense are believed until the block is read whole.
        if !damage.contains("zeroblob") {
            traffic.check(500).await;
        }
        traffic.made = 10;
        traffic.accept(10).await;
        traffic.made = 8_000;
        traffic.check(500).await;
    }
}

#[tokio::test]
async fn a_list_looks_at_a_bounded_number_of_blocks_and_goes_on_at_the_next_page() {
    let scene = Scene::new();
    let quiet = key("quiet", "q");
    let flow = fill(&scene.store, &quiet, 0, 1).await;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let scene = scene.reopen_after(|conn| {
        let one = format!(
            "insert into block (upto, flows, ids) values (x'{id}', x'{flow}00000001', x'{id}')",
            id = hex(&id(0).to_bytes()),
            flow = hex(&flow.0.to_be_bytes()),
        );
        let others = "
            insert into block (upto, flows, ids)
            with recursive number (n) as (select 1 union all select n + 1 from number where n < 5000)
            select unhex(printf('ff%030x', n)), x'', x''
            from number";
        conn.execute_batch(&format!("{one}; {others}")).unwrap();
    });
    let mine = Filter { tenant: Some(quiet.tenant.clone()), ..Filter::default() };
    let first = scene.store.page(mine.clone(), None, 50).await.unwrap();
    assert_eq!(first.rows.len(), 0);
    let second = scene.store.page(mine, first.next, 50).await.unwrap();
    assert_eq!((second.rows.len(), second.next), (1, None));
}
