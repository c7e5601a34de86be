//! Destinations: compare-and-swap, pages, histories, what changed since a version, and what waits.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::destination::{
    Block, Destination, DestinationChange, DestinationEvent, DestinationKey, DestinationKind, DestinationPut,
    EVENTS_KEPT, EventKind, MAX_EVENTS, REMOVED_AT_ONCE, REMOVED_KEPT, StoredDestination,
};
use posthaste_core::filter::AuditFilter;
use posthaste_core::flow::FlowKey;
use posthaste_core::notification::{Notification, Priority};
use posthaste_core::rate::Share;
use posthaste_core::time::Timestamp;

use super::scene::{Scene, TICK, at, audit, retry_at, tenant};
use super::{Kept, Promise, list, same};
use crate::store::{AuditRow, FlowsTo, Pulse, Result};

pub(super) const PROMISES: &[Promise] = list![
    a_destination_is_put_only_where_it_is_as_expected,
    destinations_are_found_by_their_keys_and_ids,
    pages_of_destinations_are_in_the_order_of_their_keys,
    what_changed_of_destinations_is_told_with_what_was_removed,
    a_removed_destination_is_forgotten_after_a_while,
    a_heartbeat_tells_the_place_of_the_node_and_the_last_change,
    the_history_of_a_destination_is_short,
    histories_of_several_destinations_are_read_together,
    changes_of_destinations_are_audited_together,
    every_destination_of_a_flow_is_known,
    what_is_parked_is_counted_up_to_a_limit,
];

const ORIGIN: &str = "https://a.example:443";

fn key(owner: &str, name: &str) -> DestinationKey {
    let kind = match (owner, name) {
        ("", _) => DestinationKind::Provider,
        (_, name) if name.starts_with("sub_") => DestinationKind::Subscription,
        _ => DestinationKind::Webhook,
    };
    DestinationKey { tenant: (!owner.is_empty()).then(|| tenant(owner)), kind, name: name.into() }
}

/// Recognised by its last error.
fn known_as(error: &str) -> Destination {
    Destination { last_error: Some(error.to_owned()), ..Destination::default() }
}

fn change(key: DestinationKey, expected: i64, value: Option<&str>) -> DestinationChange {
    DestinationChange { key, expected, value: value.map(known_as), events: vec![] }
}

fn put(owner: &str, name: &str) -> DestinationChange {
    change(key(owner, name), 0, Some("e"))
}

fn event(at: Timestamp, by: &str) -> DestinationEvent {
    DestinationEvent { at, event: EventKind::Blocked, by: Some(by.to_owned()), until: None }
}

fn keys(rows: Vec<StoredDestination>) -> Vec<DestinationKey> {
    rows.into_iter().map(|row| row.key).collect()
}

async fn a_destination_is_put_only_where_it_is_as_expected(scene: Scene) -> Kept {
    let put = async |expected, value: Option<&str>| -> Result<DestinationPut> {
        let changes = vec![change(key("acme", ORIGIN), expected, value)];
        Ok(scene.store.put_destinations(changes, None, at(1)).await?.remove(0))
    };
    let found = |version, value: Option<&str>, changed| {
        let value = value.map(known_as);
        let row = StoredDestination { key: key("acme", ORIGIN), version, value, changed };
        DestinationPut::Conflict(Box::new(row))
    };
    same("version 9 of none", put(9, Some("0")).await?, found(0, None, Timestamp::MIN))?;
    same("a new one", put(0, Some("1")).await?, DestinationPut::Made(1))?;
    same("a new one again", put(0, Some("2")).await?, found(1, Some("1"), at(1)))?;
    same("the version that it has", put(1, Some("ü \u{1f980}")).await?, DestinationPut::Made(2))?;
    same("a version that it had", put(1, Some("4")).await?, found(2, Some("ü \u{1f980}"), at(1)))?;
    same("a removal", put(2, None).await?, DestinationPut::Made(3))?;
    same("the version of what is gone", put(3, Some("5")).await?, found(3, None, at(1)))?;
    same("the same name again", put(0, Some("6")).await?, DestinationPut::Made(4))?;
    let whole = Destination {
        block: Some(Block { by: "ada".to_owned(), reason: Some("r".to_owned()), at: at(1) }),
        paused_until: Some(at(9)),
        last_status_code: Some(503),
        ..known_as("e")
    };
    let changes = vec![
        DestinationChange {
            key: key("acme", "sub_1"),
            expected: 0,
            value: Some(whole.clone()),
            events: vec![],
        },
        change(key("acme", "sub_1"), 0, Some("twice")),
        change(key("acme", "sub_2"), 0, None),
    ];
    let row = StoredDestination { key: key("acme", "sub_1"), version: 5, value: Some(whole), changed: at(2) };
    let conflict = DestinationPut::Conflict(Box::new(row.clone()));
    let wanted = [DestinationPut::Made(5), conflict, DestinationPut::Made(6)];
    same("several", scene.store.put_destinations(changes, None, at(2)).await?, wanted)?;
    same("what is kept", scene.store.destinations(vec![key("acme", "sub_1")]).await?, [row])
}

async fn destinations_are_found_by_their_keys_and_ids(scene: Scene) -> Kept {
    let gone = change(key("acme", "sub_gone"), 4, None);
    let changes =
        vec![put("acme", "sub_b"), put("", "mail"), put("acme", ORIGIN), put("acme", "sub_gone"), gone];
    scene.store.put_destinations(changes, None, at(1)).await?;
    let of = |name| key("acme", name);
    let asked = vec![of("sub_b"), of("sub_gone"), key("globex", ORIGIN), of("sub_b"), of(ORIGIN)];
    let found = scene.store.destinations(asked).await?;
    same("each once, in order", keys(found), [of(ORIGIN), of("sub_b")])?;
    same("nothing asked", scene.store.destinations(vec![]).await?, vec![])?;
    let found = async |key: &DestinationKey| -> Result<Option<DestinationKey>> {
        Ok(scene.store.destination(key.id()).await?.map(|row| row.key))
    };
    same("a provider", found(&key("", "mail")).await?, Some(key("", "mail")))?;
    same("what is gone", found(&of("sub_gone")).await?, None)?;
    same("what never was", found(&of("sub_c")).await?, None)
}

async fn pages_of_destinations_are_in_the_order_of_their_keys(scene: Scene) -> Kept {
    let (a, b) = ("https://a.example:443", "https://b.example:443");
    let names = [("globex", a), ("acme", "sub_1"), ("acme", b), ("", "x"), ("acme", a), ("acme", "sub_0")];
    let mut changes: Vec<DestinationChange> = names.map(|(owner, name)| put(owner, name)).into();
    changes.push(change(key("acme", "sub_0"), 6, None));
    scene.store.put_destinations(changes, None, at(1)).await?;
    let walk = async |owner: Option<&str>, limit| -> Result<Vec<DestinationKey>> {
        let (mut found, mut after) = (vec![], None);
        loop {
            let page = scene.store.destination_page(owner.map(tenant), after, limit).await?;
            found.extend(keys(page.rows));
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    };
    for limit in 1..8 {
        let acme = [key("acme", a), key("acme", b), key("acme", "sub_1")];
        let all = [vec![key("", "x")], acme.to_vec(), vec![key("globex", a)]].concat();
        same("all tenants", walk(None, limit).await?, all)?;
        same("one tenant", walk(Some("acme"), limit).await?, acme)?;
        same("no destinations", walk(Some("none"), limit).await?, vec![])?;
    }
    Ok(())
}

async fn what_changed_of_destinations_is_told_with_what_was_removed(scene: Scene) -> Kept {
    let changes = vec![put("acme", ORIGIN), put("", "mail"), put("globex", ORIGIN)];
    scene.store.put_destinations(changes, None, at(1)).await?;
    let changes = vec![change(key("acme", ORIGIN), 1, Some("f")), change(key("globex", ORIGIN), 3, None)];
    scene.store.put_destinations(changes, None, at(2)).await?;
    let since = async |version, limit| -> Result<Vec<(i64, DestinationKey, bool)>> {
        let found = scene.store.destinations_since(version, limit).await?;
        Ok(found.into_iter().map(|row| (row.version, row.key, row.value.is_some())).collect())
    };
    let all = [(2, key("", "mail"), true), (4, key("acme", ORIGIN), true), (5, key("globex", ORIGIN), false)];
    same("from the start", since(0, 9).await?, all.clone())?;
    same("two", since(0, 2).await?, &all[..2])?;
    same("the rest", since(4, 2).await?, &all[2..])?;
    same("nothing new", since(5, 9).await?, vec![])
}

async fn a_removed_destination_is_forgotten_after_a_while(scene: Scene) -> Kept {
    let name = |number: usize| format!("sub_{number}");
    let count = REMOVED_AT_ONCE + 2;
    let removals = (0..count).map(|number| change(key("acme", &name(number)), 0, None)).collect();
    scene.store.put_destinations(removals, None, at(1)).await?;
    let kept = async |now: Timestamp, name: &str| -> Result<Vec<i64>> {
        scene.store.put_destinations(vec![put("acme", name)], None, now).await?;
        let rows = scene.store.destinations_since(0, count * 2).await?;
        Ok(rows.into_iter().filter(|row| row.value.is_none()).map(|row| row.version).collect())
    };
    let last = at(1).later(REMOVED_KEPT);
    same("in time", kept(last, "sub_a").await?.len(), count)?;
    let (count, kept_from) = (count as i64, REMOVED_AT_ONCE as i64);
    let rest: Vec<i64> = (kept_from + 1..=count).collect();
    same("the oldest go first", kept(last.later(TICK), "sub_b").await?, rest)?;
    same("all of them", kept(last.later(TICK), "sub_c").await?, Vec::<i64>::new())?;
    let again = scene.store.put_destinations(vec![put("acme", &name(0))], None, last.later(TICK)).await?;
    same("the next version", again, [DestinationPut::Made(count + 4)])
}

async fn a_heartbeat_tells_the_place_of_the_node_and_the_last_change(scene: Scene) -> Kept {
    const HOLD: Duration = Duration::from_secs(30);
    let mut nodes = vec![];
    for name in ["a", "b", "c"] {
        nodes.push(scene.store.join(name.to_owned(), HOLD, at(0)).await?.node);
    }
    let beat = async |place: usize, now: Timestamp| -> Result<(Share, i64)> {
        match scene.store.heartbeat(nodes[place], HOLD, now).await? {
            Pulse::Alive { share, destinations, .. } => Ok((share, destinations)),
            Pulse::Lost => Ok((Share::WHOLE, -1)),
        }
    };
    same("the last of three", beat(2, at(1)).await?, (Share::new(2, 3), 0))?;
    scene.store.put_destinations(vec![put("acme", ORIGIN), put("", "mail")], None, at(1)).await?;
    same("the first of three", beat(0, at(29)).await?, (Share::new(0, 3), 2))?;
    let refused = change(key("", "mail"), 9, None);
    scene.store.put_destinations(vec![refused], None, at(1)).await?;
    same("without the dead one", beat(2, at(30)).await?, (Share::new(1, 2), 2))?;
    scene.store.leave(nodes[0]).await?;
    same("alone", beat(2, at(30)).await?, (Share::WHOLE, 2))
}

async fn the_history_of_a_destination_is_short(scene: Scene) -> Kept {
    let of = key("acme", ORIGIN);
    let add = async |expected, events: Vec<DestinationEvent>, now| -> Result<Vec<DestinationPut>> {
        let value = Some(known_as("e"));
        let change = DestinationChange { key: of.clone(), expected, value, events };
        scene.store.put_destinations(vec![change, put("globex", ORIGIN)], None, now).await
    };
    let by = async |limit, now: Timestamp| -> Result<Vec<String>> {
        let since = now.earlier(EVENTS_KEPT);
        let found = scene.store.destination_events(vec![of.id()], since, limit).await?.concat();
        Ok(found.into_iter().filter_map(|event| event.by).collect())
    };
    let opened = DestinationEvent { at: at(1), event: EventKind::Opened, by: None, until: Some(at(9)) };
    add(0, vec![opened.clone(), event(at(1), "ada")], at(1)).await?;
    add(9, vec![event(at(1), "not made")], at(1)).await?;
    let found = scene.store.destination_events(vec![of.id()], at(1), 9).await?;
    same("the last one first", found, [vec![event(at(1), "ada"), opened]])?;
    let other = key("globex", ORIGIN).id();
    same("of another", scene.store.destination_events(vec![other], at(1), 9).await?, [vec![]])?;
    let many = (0..MAX_EVENTS).map(|number| event(at(2), &number.to_string())).collect();
    add(1, many, at(2)).await?;
    let newest: Vec<String> = (0..MAX_EVENTS).rev().map(|number| number.to_string()).collect();
    same("as many as are kept", by(MAX_EVENTS * 2, at(2)).await?, newest)?;
    add(3, vec![event(at(3), "eve")], at(3)).await?;
    same("two", by(2, at(3)).await?, ["eve".to_owned(), (MAX_EVENTS - 1).to_string()])?;
    same("all", by(MAX_EVENTS * 2, at(3)).await?.len(), MAX_EVENTS)?;
    let last = at(3).later(EVENTS_KEPT);
    same("the last day", by(9, last).await?, ["eve"])?;
    same("later", by(9, last.later(TICK)).await?.len(), 0)?;
    add(4, vec![event(last.later(TICK), "ida")], last.later(TICK)).await?;
    same("a new one", by(9, last.later(TICK)).await?, ["ida"])
}

async fn histories_of_several_destinations_are_read_together(scene: Scene) -> Kept {
    let (a, b, c) = (key("acme", ORIGIN), key("globex", ORIGIN), key("", "mail"));
    let with =
        |key: &DestinationKey, events| DestinationChange { events, ..change(key.clone(), 0, Some("e")) };
    let (first, second) = (vec![event(at(1), "ada"), event(at(2), "bob")], vec![event(at(3), "eve")]);
    let changes = vec![with(&a, first), with(&b, second)];
    scene.store.put_destinations(changes, None, at(3)).await?;
    let by = async |of: &[&DestinationKey], since, limit| -> Result<Vec<Vec<String>>> {
        let of = of.iter().map(|key| key.id()).collect();
        let found = scene.store.destination_events(of, since, limit).await?;
        let actors =
            |events: Vec<DestinationEvent>| events.into_iter().filter_map(|event| event.by).collect();
        Ok(found.into_iter().map(actors).collect())
    };
    let told = |all: &[&[&str]]| -> Vec<Vec<String>> {
        all.iter().map(|one| one.iter().map(|by| (*by).to_owned()).collect()).collect()
    };
    let asked = by(&[&c, &b, &a, &b], at(1), 9).await?;
    same("in the order that was asked", asked, told(&[&[], &["eve"], &["bob", "ada"], &["eve"]]))?;
    same("so many of each", by(&[&a, &b], at(1), 1).await?, told(&[&["bob"], &["eve"]]))?;
    same("since then", by(&[&a, &b], at(2), 9).await?, told(&[&["bob"], &["eve"]]))?;
    same("of later", by(&[&a, &b], at(2).later(TICK), 9).await?, told(&[&[], &["eve"]]))?;
    same("of none", by(&[], at(1), 9).await?, told(&[]))
}

async fn changes_of_destinations_are_audited_together(scene: Scene) -> Kept {
    let refused = change(key("acme", ORIGIN), 9, None);
    let changes = vec![put("acme", ORIGIN), put("acme", "sub_1"), refused.clone()];
    scene.store.put_destinations(changes, Some(audit("block")), at(1)).await?;
    scene.store.put_destinations(vec![refused], Some(audit("block")), at(1)).await?;
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    same("the audit", rows, [AuditRow { number: 1, audit: audit("block"), asked: 3, count: 2 }])
}

async fn every_destination_of_a_flow_is_known(scene: Scene) -> Kept {
    let (a, b) = ("https://a.example:443", "https://b.example:443");
    let flow = |owner: &str, channel, destination: &str| FlowKey {
        tenant: tenant(owner),
        channel,
        destination: destination.into(),
    };
    let webhooks = [("globex", a), ("acme", "sub_1"), ("acme", b), ("acme", a), ("beta", b)];
    let mut flows: Vec<FlowKey> = webhooks.map(|(of, name)| flow(of, Channel::Webhook, name)).into();
    flows.push(flow("acme", Channel::Email, "pool:email"));
    flows.push(flow("acme", Channel::Inapp, a));
    flows.push(flow("zeta", Channel::Sms, "provider:texts"));
    scene.store.intern(flows).await?;
    let walk = async |owner: Option<&str>, name: Option<&str>, limit| -> Result<Vec<DestinationKey>> {
        let (mut found, mut after) = (vec![], None);
        loop {
            let (owner, name) = (owner.map(tenant), name.map(Arc::from));
            let page = scene.store.known_destinations(owner, name, after, limit).await?;
            found.extend(page.rows);
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    };
    for limit in 1..8 {
        let acme = [key("acme", a), key("acme", b), key("acme", "sub_1")];
        let all = [acme.to_vec(), vec![key("beta", b), key("globex", a)]].concat();
        same("all tenants", walk(None, None, limit).await?, all)?;
        same("one tenant", walk(Some("acme"), None, limit).await?, acme)?;
        let named = [key("acme", a), key("globex", a)];
        same("one name", walk(None, Some(a), limit).await?, named)?;
        same("one name of a tenant", walk(Some("acme"), Some(b), limit).await?, [key("acme", b)])?;
        same("of nobody", walk(Some("zeta"), None, limit).await?, vec![])?;
        same("a name that is not known", walk(None, Some("sub_2"), limit).await?, vec![])?;
    }
    Ok(())
}

async fn what_is_parked_is_counted_up_to_a_limit(mut scene: Scene) -> Kept {
    let lease = scene.lease().await?;
    let rows = [
        ("acme", Priority::Normal, 5, None),
        ("acme", Priority::High, 5, None),
        ("acme", Priority::Low, 5, None),
        ("acme", Priority::Normal, 6, None),
        ("acme", Priority::Normal, 5, Some(lease)),
        ("globex", Priority::Normal, 5, None),
    ];
    for (owner, priority, due, lease) in rows {
        let draft = scene.draft();
        let notification =
            Notification { tenant: tenant(owner), destination: ORIGIN.into(), priority, ..draft };
        scene.accept(&notification, at(due), lease).await?;
    }
    let other = scene.draft();
    scene.accept(&other, at(5), None).await?;
    let (retried, held) = scene.held().await?;
    scene.fail(&retried, held, retry_at(at(5))).await?;
    let of =
        |owner: Option<&str>, name: &str| FlowsTo { tenant: owner.map(tenant), destination: name.into() };
    let asked = vec![
        of(Some("acme"), ORIGIN),
        of(Some("nobody"), ORIGIN),
        of(None, ORIGIN),
        of(Some("acme"), &retried.destination),
        of(None, "https://none.example"),
    ];
    let parked = async |most, now| scene.store.parked(asked.clone(), most, now).await;
    same("before they are due", parked(9, at(5).earlier(TICK)).await?, [0, 0, 0, 0, 0])?;
    same("what is due", parked(9, at(5)).await?, [3, 0, 4, 1, 0])?;
    same("later", parked(9, at(6)).await?, [4, 0, 5, 1, 0])?;
    same("at most", parked(2, at(6)).await?, [2, 0, 2, 1, 0])?;
    same("nothing asked", scene.store.parked(vec![], 9, at(6)).await?, Vec::<u64>::new())
}
