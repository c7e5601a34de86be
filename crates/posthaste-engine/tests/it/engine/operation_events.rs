//! Those who listen are told how operations get on, on every node, and of their own tenant only.

use posthaste_core::filter::Filter;
use posthaste_core::id::OperationId;
use posthaste_core::operation::{Action, OperationState, Selection};
use posthaste_engine::engine::Engine;
use posthaste_engine::live::{Event, Heard, Listener, Progressed, Start, Topic};
use posthaste_engine::operations::NewOperation;

use crate::rig::{Rig, Script, ada, http, notification, pass, secs, send, someone_of};

/// One attempt.
const ONCE: &str = r#"{"strategy": "none", "maxAttempts": 1, "timeout": "10s", "quick": {"tries": 0}}"#;

/// So many dead letters of a tenant.
async fn dead(rig: &Rig, engine: &Engine, tenant: &str, count: usize) -> Vec<String> {
    rig.always("a", Script::Answer(http(503)));
    let mut ids = vec![];
    for _ in 0..count {
        let mut new = notification(engine, "a", ONCE);
        new.tenant = tenant.parse().unwrap();
        ids.push(send(engine, new).await.to_string());
    }
    pass(secs(5)).await;
    rig.always("a", Script::Answer(http(200)));
    ids
}

async fn start(
    engine: &Engine,
    tenant: Option<&str>,
    selection: Selection,
    rate: Option<u32>,
) -> OperationId {
    let actor = tenant.map_or_else(ada, someone_of);
    let asked = NewOperation { action: Action::Requeue, selection, rate, canary: None };
    let operation = engine.new_operation(asked, &actor).await.unwrap();
    let id = operation.id;
    engine.start_operation(operation, None, &actor).await.unwrap();
    id
}

fn listen(engine: &Engine, tenant: Option<&str>) -> Listener {
    let reads = engine.reads(tenant.map(|tenant| tenant.parse().unwrap()));
    reads.listen(&[Topic::Operations], Filter::default(), Start::Now).unwrap()
}

fn told(listener: &mut Listener) -> Vec<Progressed> {
    let progressed = |heard: Heard| match heard {
        Heard::Event(_, event) => match &*event {
            Event::Operation(progressed) => progressed.clone(),
            Event::Notification(change) => panic!("{change:?}"),
        },
        Heard::Missed { since, .. } => panic!("missed since {since:?}"),
    };
    listener.take().into_iter().map(progressed).collect()
}

fn states(told: &[Progressed]) -> Vec<OperationState> {
    let mut states: Vec<_> = told.iter().map(|one| one.operation.standing.state).collect();
    states.dedup();
    states
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_told_from_its_start_to_its_end_and_its_counts_once_a_second() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let ids = dead(&rig, &engine, "default", 300).await;
    let mut listener = listen(&engine, None);
    let id = start(&engine, None, Selection::Ids(ids.into()), Some(50)).await;
    pass(secs(20)).await;
    let told = told(&mut listener);
    use OperationState::{Completed, Forwarding, Preparing, Waiting};
    assert_eq!(states(&told), [Waiting, Preparing, Forwarding, Completed]);
    assert!(told.iter().all(|one| one.operation.id == id));
    // At 50 a second it takes six seconds.
    assert!((6..=12).contains(&told.len()), "{}", told.len());
    let counts: Vec<u64> = told.iter().map(|one| one.operation.standing.forwarded).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&300), "{counts:?}");
    let counted = told.iter().filter(|one| one.operation.standing.state == Forwarding);
    let times: Vec<_> = counted.map(|one| one.at).collect();
    assert!(times.windows(2).all(|two| two[1].since(two[0]) >= secs(1)), "{times:?}");
    let last = &told.last().unwrap().operation;
    assert!(last.is_finished());
    assert_eq!(last.selection, Selection::Ids([].into()), "a ring does not hold 10,000 ids for each event");
}

#[tokio::test(start_paused = true)]
async fn pauses_and_cancels_are_told_and_nothing_while_nothing_changes() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, "default", 20).await;
    let mut listener = listen(&engine, None);
    let id = start(&engine, None, Selection::All, Some(1)).await;
    pass(secs(3)).await;
    engine.pause_operation(id, &ada()).await.unwrap();
    pass(secs(1)).await;
    let last = told(&mut listener).pop().unwrap();
    assert_eq!(last.operation.standing.paused_by.as_deref(), Some("ada"));
    pass(secs(60)).await;
    assert_eq!(told(&mut listener), []);
    engine.resume_operation(id, &ada()).await.unwrap();
    engine.cancel_operation(id, &ada()).await.unwrap();
    pass(secs(1)).await;
    let told = told(&mut listener);
    assert_eq!(states(&told).last(), Some(&OperationState::Cancelled));
    assert!(told.last().unwrap().operation.is_finished(), "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_told_of_its_own_operations_only() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, "acme", 2).await;
    let (mut acme, mut other, mut all) =
        (listen(&engine, Some("acme")), listen(&engine, Some("other")), listen(&engine, None));
    let own = start(&engine, Some("acme"), Selection::All, None).await;
    pass(secs(1)).await;
    let of_all = start(&engine, None, Selection::All, None).await;
    pass(secs(1)).await;
    let ids = |listener: &mut Listener| {
        let mut ids: Vec<_> = told(listener).iter().map(|one| one.operation.id).collect();
        ids.dedup();
        ids
    };
    assert_eq!((ids(&mut acme), ids(&mut other), ids(&mut all)), (vec![own], vec![], vec![own, of_all]));
}

#[tokio::test(start_paused = true)]
async fn another_node_tells_it_too() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, "default", 100).await;
    let other = rig.start().await;
    let mut listener = listen(&other, None);
    let id = start(&engine, None, Selection::All, Some(10)).await;
    pass(secs(30)).await;
    let told = told(&mut listener);
    assert!(told.len() >= 4 && told.iter().all(|one| one.operation.id == id), "{told:?}");
    assert_eq!(states(&told).last(), Some(&OperationState::Completed));
    assert_eq!(told.last().unwrap().operation.standing.forwarded, 100);
}

#[tokio::test(start_paused = true)]
async fn who_wants_notifications_only_hears_of_no_operation_and_the_other_way_round() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, "default", 3).await;
    let reads = engine.reads(None);
    let mut of_notifications = reads.listen(&[Topic::Notifications], Filter::default(), Start::Now).unwrap();
    let mut both =
        reads.listen(&[Topic::Operations, Topic::Notifications], Filter::default(), Start::Now).unwrap();
    let mut of_operations = listen(&engine, None);
    start(&engine, None, Selection::All, None).await;
    pass(secs(2)).await;
    let kinds = |listener: &mut Listener| {
        let (mut notifications, mut operations) = (0, 0);
        for heard in listener.take() {
            match heard {
                Heard::Event(_, event) if matches!(*event, Event::Operation(_)) => operations += 1,
                Heard::Event(..) => notifications += 1,
                Heard::Missed { .. } => panic!("missed"),
            }
        }
        (notifications, operations)
    };
    let (notifications, operations) = kinds(&mut both);
    assert!(notifications >= 9 && operations >= 3, "{notifications} {operations}");
    assert_eq!(kinds(&mut of_notifications), (notifications, 0));
    assert_eq!(kinds(&mut of_operations), (0, operations));
}
