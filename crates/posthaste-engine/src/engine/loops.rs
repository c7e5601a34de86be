//! The loops of an engine: how they start, and what happens when one of them ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;
use crate::accept::Incoming;
use crate::catch_panic::CatchPanic;
use crate::inbound::Reservation;
use crate::jobs::Started;
use crate::settle::Report;
use crate::signing::Ask;
use crate::slots::InSlot;
use crate::{
    accept, age, claim, destinations, dispatch, expire, heartbeat, hints, inbound, jobs, leases, operations,
    reclaim, series, settle, signing, sweep, wake,
};

/// What the loops are handed.
pub(super) struct Queues {
    pub(super) arrivals: mpsc::Receiver<Incoming>,
    pub(super) to_reserve: mpsc::Receiver<Reservation>,
    pub(super) to_send: mpsc::UnboundedReceiver<InSlot>,
    pub(super) to_settle: mpsc::UnboundedReceiver<Report>,
    pub(super) to_run: mpsc::UnboundedReceiver<Started>,
    pub(super) to_sign: mpsc::UnboundedReceiver<Ask>,
}

/// Starts every loop, each under the eyes of `watch`.
pub(super) fn start(shared: &Arc<Shared>, loops: &Arc<Mutex<JoinSet<()>>>, queues: Queues) {
    let Queues { arrivals, to_reserve, to_send, to_settle, to_run, to_sign } = queues;
    let all = Arc::downgrade(loops);
    // Locked until all are there: a loop that ends at once still ends the last of them.
    let mut loops = loops.lock().expect("no code panics while it starts the loops");
    let watch = |name, the_loop: Loop| watch(shared.clone(), all.clone(), name, the_loop);
    loops.spawn(watch("accept", Box::pin(accept::run(shared.clone(), arrivals))));
    loops.spawn(watch("claim", Box::pin(claim::run(shared.clone()))));
    loops.spawn(watch("dispatch", Box::pin(dispatch::run(shared.clone(), to_send))));
    loops.spawn(watch("settle", Box::pin(settle::run(shared.clone(), to_settle))));
    loops.spawn(watch("wake", Box::pin(wake::run(shared.clone()))));
    loops.spawn(watch("sweep", Box::pin(sweep::run(shared.clone()))));
    loops.spawn(watch("expire", Box::pin(expire::run(shared.clone()))));
    loops.spawn(watch("age", Box::pin(age::run(shared.clone()))));
    loops.spawn(watch("heartbeat", Box::pin(heartbeat::run(shared.clone()))));
    loops.spawn(watch("reclaim", Box::pin(reclaim::run(shared.clone()))));
    loops.spawn(watch("leases", Box::pin(leases::run(shared.clone()))));
    loops.spawn(watch("jobs", Box::pin(jobs::run(shared.clone(), to_run))));
    loops.spawn(watch("destinations", Box::pin(destinations::run(shared.clone()))));
    loops.spawn(watch("series", Box::pin(series::run(shared.clone()))));
    loops.spawn(watch("operations", Box::pin(operations::run(shared.clone()))));
    loops.spawn(watch("tell", Box::pin(hints::tell(shared.clone()))));
    loops.spawn(watch("listen", Box::pin(hints::listen(shared.clone()))));
    loops.spawn(watch("inbound", Box::pin(inbound::run(shared.clone(), to_reserve))));
    loops.spawn(watch("signing", Box::pin(signing::run(shared.clone(), to_sign))));
    let store = shared.store.clone();
    loops.spawn(watch("store", Box::pin(async move { store.broken().await })));
}

type Loop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a loop. If it ends, by a panic or by itself, all loops end: heartbeats that went on would keep the node alive, and
/// what the node holds would stay with it.
async fn watch(shared: Arc<Shared>, all: Weak<Mutex<JoinSet<()>>>, name: &'static str, the_loop: Loop) {
    // A panic has told its message by now.
    let _ = CatchPanic(the_loop).await;
    shared.ended.change(|first| first.or(Some(name)));
    if let Some(all) = all.upgrade() {
        all.lock().expect("no code panics while it starts the loops").abort_all();
    }
}
