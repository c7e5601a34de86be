//! Lookups of names: shared between tenants, one at a time for a name, with answers that are kept for a
//! moment.
//!
//! Time is paused and the resolver answers when a test says so. Its answers are addresses that the guard
//! forbids, so that no socket is opened.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::notification::Notification;
use posthaste_core::reply::{Fault, Reply};
use posthaste_engine::channel::Channel;
use posthaste_wire::http::{HttpOptions, Resolve};
use posthaste_wire::webhook::WebhookChannel;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::rig::{LOCALHOST, Names, channel, delivery, fault, notification, options, sink, status};

/// How many lookups one tenant has at a time while no other tenant needs one.
const SHARE: usize = 64;
/// How long a try waits for a place, and how long an answer counts.
const PATIENCE: Duration = Duration::from_secs(5);
const KEPT: Duration = Duration::from_secs(3);

/// A name that is being looked up, and where its answer goes.
type Asked = (String, oneshot::Sender<io::Result<Vec<IpAddr>>>);

/// A resolver that passes each lookup to the test. A lookup whose answer the test drops panics.
struct Told(mpsc::UnboundedSender<Asked>);

#[async_trait]
impl Resolve for Told {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let (answer, answered) = oneshot::channel();
        self.0.send((name.to_owned(), answer)).unwrap();
        answered.await.expect("the test answers")
    }
}

fn told() -> (Arc<WebhookChannel>, mpsc::UnboundedReceiver<Asked>) {
    let (ask, asked) = mpsc::unbounded_channel();
    let options = HttpOptions { resolver: Arc::new(Told(ask)), ..HttpOptions::default() };
    (Arc::new(channel(options)), asked)
}

fn of(tenant: &str, name: &str) -> Notification {
    let mut notification = notification(&format!("http://{name}.test/"));
    notification.tenant = tenant.parse().unwrap();
    notification
}

/// Waits for readiness, and sends.
async fn send(channel: Arc<WebhookChannel>, notification: Notification) -> Reply {
    match channel.ready(&notification).await {
        Ok(()) => channel.send(delivery(notification, Duration::from_secs(1))).await,
        Err(reply) => reply,
    }
}

/// Makes a tenant ask for more names than it has places for; answers the lookups that began.
async fn occupied(
    channel: &Arc<WebhookChannel>,
    asked: &mut mpsc::UnboundedReceiver<Asked>,
    tenant: &'static str,
    senders: &mut JoinSet<Reply>,
) -> Vec<Asked> {
    for number in 0..200 {
        senders.spawn(send(channel.clone(), of(tenant, &format!("{tenant}{number}"))));
    }
    let mut under_way = Vec::new();
    for _ in 0..SHARE {
        under_way.push(asked.recv().await.unwrap());
    }
    tokio::task::yield_now().await;
    assert!(asked.is_empty());
    under_way
}

#[track_caller]
fn assert_forbidden(reply: &Reply) {
    assert_eq!(fault(reply).0, Fault::Forbidden, "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn the_dead_names_of_one_tenant_keep_no_other_tenant_waiting() {
    let (channel, mut asked) = told();
    let (mut senders, began) = (JoinSet::new(), Instant::now());
    let _dead = occupied(&channel, &mut asked, "a", &mut senders).await;
    for name in ["b0", "b1", "b2"] {
        let answered = async {
            let (name, answer) = asked.recv().await.unwrap();
            answer.send(Ok(vec![LOCALHOST])).unwrap();
            name
        };
        let (reply, looked_up) = tokio::join!(send(channel.clone(), of("b", name)), answered);
        assert_eq!(looked_up, format!("{name}.test"));
        assert_forbidden(&reply);
    }
    assert_eq!(Instant::now(), began, "no time passes while time is paused and something can go on");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_place_is_no_part_of_the_time_of_a_try() {
    let (channel, mut asked) = told();
    let mut senders = JoinSet::new();
    let mut dead = occupied(&channel, &mut asked, "a", &mut senders).await;
    // Longer than the try may take, and less than it waits for a place.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (_, answer) = dead.remove(0);
    answer.send(Ok(vec![LOCALHOST])).unwrap();
    let (next, answer) = asked.recv().await.unwrap();
    assert_eq!(next, format!("a{SHARE}.test"));
    // The lookup itself is a part of it.
    tokio::time::sleep(Duration::from_millis(900)).await;
    answer.send(Ok(vec![LOCALHOST])).unwrap();
    let mut replies = Vec::new();
    for _ in 0..SHARE + 1 {
        replies.push(senders.join_next().await.unwrap().unwrap());
    }
    replies.retain(|reply| fault(reply).0 != Fault::Timeout);
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_forbidden(&replies[0]);
}

#[tokio::test(start_paused = true)]
async fn without_a_place_for_too_long_the_try_is_a_fault_of_dns_that_says_so() {
    let (channel, mut asked) = told();
    let mut senders = JoinSet::new();
    let _dead = occupied(&channel, &mut asked, "a", &mut senders).await;
    let told = "cannot resolve x.test: too many lookups are under way, and none ended within 5s";
    let unready = channel.ready(&of("a", "x")).await.unwrap_err();
    assert_eq!(fault(&unready), (Fault::Dns, told));
    // A try that turns out to need a lookup waits for its place too.
    let reply = channel.send(delivery(of("a", "x"), PATIENCE * 2)).await;
    assert_eq!(fault(&reply), (Fault::Dns, told));
    assert!(asked.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lookup_holds_its_place_until_it_ends_whoever_gave_up() {
    let (channel, mut asked) = told();
    let mut senders = JoinSet::new();
    let dead = occupied(&channel, &mut asked, "a", &mut senders).await;
    let replies = senders.join_all().await;
    let timeouts = replies.iter().filter(|reply| fault(reply).0 == Fault::Timeout).count();
    assert_eq!((timeouts, replies.len()), (SHARE, 200));
    assert!(channel.ready(&of("a", "x")).await.is_err());
    assert!(asked.is_empty());
    for (_, answer) in dead {
        answer.send(Err(io::Error::other("no such name"))).unwrap();
    }
    let wanted = of("a", "y");
    let (reply, (name, answer)) = tokio::join!(channel.ready(&wanted), async { asked.recv().await.unwrap() });
    assert_eq!((reply, name.as_str()), (Ok(()), "y.test"), "what nobody waits for any more is not looked up");
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn one_name_is_looked_up_once_at_a_time_for_everybody() {
    let (channel, mut asked) = told();
    let mut senders = JoinSet::new();
    for tenant in ["a", "b", "c"].repeat(50) {
        senders.spawn(send(channel.clone(), of(tenant, "same")));
    }
    let (name, answer) = asked.recv().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((name.as_str(), asked.is_empty()), ("same.test", true));
    answer.send(Ok(vec![LOCALHOST])).unwrap();
    let replies = senders.join_all().await;
    assert_eq!(replies.len(), 150);
    replies.iter().for_each(assert_forbidden);
    assert!(asked.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_waits_behind_others_of_its_tenant_is_looked_up_for_another_tenant() {
    let (channel, mut asked) = told();
    let mut senders = JoinSet::new();
    let _dead = occupied(&channel, &mut asked, "a", &mut senders).await;
    let shared = [of("a", "shared"), of("b", "shared")].map(|shared| send(channel.clone(), shared));
    let [first, second] = shared;
    let answered = async {
        let (name, answer) = asked.recv().await.unwrap();
        answer.send(Ok(vec![LOCALHOST])).unwrap();
        name
    };
    let (first, second, name) = tokio::join!(first, second, answered);
    assert_eq!(name, "shared.test");
    assert_forbidden(&first);
    assert_forbidden(&second);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_failed_is_asked_for_again_only_after_a_moment() {
    let (channel, mut asked) = told();
    let failed = (Fault::Dns, "cannot resolve x.test: no such name");
    let (reply, ()) = tokio::join!(send(channel.clone(), of("a", "x")), async {
        let (_, answer) = asked.recv().await.unwrap();
        answer.send(Err(io::Error::other("no such name"))).unwrap();
    });
    assert_eq!(fault(&reply), failed);
    tokio::time::sleep(KEPT - Duration::from_millis(1)).await;
    for tenant in ["a", "b"] {
        assert_eq!(fault(&send(channel.clone(), of(tenant, "x")).await), failed);
    }
    assert!(asked.is_empty());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (reply, ()) = tokio::join!(send(channel.clone(), of("a", "x")), async {
        let (_, answer) = asked.recv().await.unwrap();
        answer.send(Ok(vec![LOCALHOST])).unwrap();
    });
    assert_forbidden(&reply);
}

#[tokio::test(start_paused = true)]
async fn the_answers_that_are_kept_are_bounded() {
    let (channel, mut asked) = told();
    for number in 0..3_000 {
        let name = format!("n{number}");
        let (reply, ()) = tokio::join!(send(channel.clone(), of("a", &name)), async {
            let (_, answer) = asked.recv().await.unwrap();
            answer.send(Err(io::Error::other("no such name"))).unwrap();
        });
        assert_eq!(fault(&reply).0, Fault::Dns);
    }
    let asks_again = |number| {
        let (channel, asked) = (channel.clone(), &asked);
        async move {
            let _ =
                tokio::time::timeout(Duration::ZERO, channel.ready(&of("a", &format!("n{number}")))).await;
            tokio::task::yield_now().await;
            asked.len()
        }
    };
    assert_eq!(asks_again(2_999).await, 0);
    assert_eq!(asks_again(0).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_breaks_down_is_a_fault_and_frees_its_place() {
    let (channel, mut asked) = told();
    for number in 0..3 * SHARE {
        let name = format!("n{number}");
        let (reply, ()) = tokio::join!(send(channel.clone(), of("a", &name)), async {
            drop(asked.recv().await.unwrap());
        });
        assert_eq!(fault(&reply).0, Fault::Dns);
        assert!(fault(&reply).1.ends_with("the lookup broke down"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_try_over_a_kept_connection_needs_no_lookup() {
    struct Counting(Names, Arc<AtomicUsize>);
    #[async_trait]
    impl Resolve for Counting {
        async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.resolve(name).await
        }
    }
    let (sink, count) = (sink().await, Arc::default());
    let names = Names([("hooks.test", vec![LOCALHOST])].into());
    let channel =
        channel(HttpOptions { resolver: Arc::new(Counting(names, Arc::clone(&count))), ..options() });
    let to = notification(&format!("http://hooks.test:{}/ok", sink.address().port()));
    assert_eq!(status(&channel.send(delivery(to.clone(), PATIENCE)).await), 200);
    tokio::time::pause();
    tokio::time::advance(KEPT).await;
    assert_eq!(channel.ready(&to).await, Ok(()));
    tokio::time::resume();
    assert_eq!(status(&channel.send(delivery(to, PATIENCE)).await), 200);
    assert_eq!((count.load(Ordering::SeqCst), sink.accepted()), (1, 1));
}
