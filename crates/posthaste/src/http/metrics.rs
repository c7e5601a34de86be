//! `/metrics`: figures for Prometheus. docs/metrics.md says what each means.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use posthaste_core::attempt::Outcome;
use posthaste_core::group::GroupBy;
use posthaste_core::time::Timestamp;
use posthaste_engine::metrics::{Histogram, Metrics, SendTimes};
use posthaste_engine::reads::Reads;
use posthaste_engine::store::{self, NodeView, Stats, Store};
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::openapi::document;
use super::problem::Result;
use super::read_slots::Reader;
use super::{Api, Shared};
use crate::tokens::Tokens;

mod destinations;
mod process;

/// How many classes of answers there are: 1xx to 5xx.
const CLASSES: usize = 5;

/// Maximum age of the figures of the store.
const MAX_AGE: Duration = Duration::from_millis(500);

/// Limit on a read of the figures that the store keeps.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(get))
}

/// What an answer is counted as.
#[derive(Debug, Clone, Copy)]
pub(super) enum Row {
    Route(usize),
    /// A page of the dashboard.
    Page,
    /// Neither.
    None,
}

/// What was asked of this process since its start, for each route; the last two rows are for pages of the
/// dashboard and for requests to no route.
pub(super) struct Requests {
    counts: Vec<[AtomicU64; CLASSES]>,
    times: [AtomicU64; Histogram::BOUNDS.len() + 1],
    micros: AtomicU64,
    /// The routes whose times are counted.
    sends: [Option<usize>; 2],
}

impl Requests {
    pub(super) fn new(routes: usize) -> Self {
        let find = |path| document().routes.find(&Method::POST, path);
        Self {
            counts: (0..routes + 2).map(|_| Default::default()).collect(),
            times: Default::default(),
            micros: AtomicU64::new(0),
            sends: [find("/v1/notifications"), find("/v1/notifications/batch")],
        }
    }

    /// Counts an answer.
    pub(super) fn note(&self, row: Row, status: StatusCode, took: Duration) {
        let (row, route) = match row {
            Row::Route(route) => (route, Some(route)),
            Row::Page => (self.counts.len() - 2, None),
            Row::None => (self.counts.len() - 1, None),
        };
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES) - 1;
        self.counts[row][class].fetch_add(1, Ordering::Relaxed);
        if self.is_send(route) {
            let place = Histogram::BOUNDS.partition_point(|bound| *bound < took);
            self.times[place].fetch_add(1, Ordering::Relaxed);
            self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Whether a route accepts notifications.
    pub(super) fn is_send(&self, route: Option<usize>) -> bool {
        route.is_some() && self.sends.contains(&route)
    }

    fn accept_times(&self) -> Histogram {
        let counts = std::array::from_fn(|place| self.times[place].load(Ordering::Relaxed));
        Histogram { counts, sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)) }
    }
}

/// What the store keeps, as it was read last. Without a key anyone may ask for it, as often as they like.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<Option<(Instant, Kept)>>);

/// The figures of all tenants, the nodes, the numbers of failure groups, and how many are parked.
type Kept = Arc<(Stats, Vec<NodeView>, Vec<(GroupBy, u64)>, u64)>;

impl Figures {
    async fn read(&self, store: &dyn Store, reads: &Reads, now: Timestamp) -> store::Result<Kept> {
        // Held while the store is asked, so that concurrent requests share one answer.
        let mut last = self.0.lock().await;
        if let Some((at, kept)) = &*last
            && at.elapsed() < MAX_AGE
        {
            return Ok(kept.clone());
        }
        let stats = store.stats(None, now).await?;
        let (nodes, groups) = (store.nodes(now).await?, store.group_numbers().await?);
        let kept: Kept = Arc::new((stats, nodes, groups, reads.parked().await?));
        *last = Some((Instant::now(), kept.clone()));
        Ok(kept)
    }
}

/// Figures for Prometheus; open unless `metrics.require_key` is set.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "server", security((), ("key" = ["reader", "all"])),
    responses((status = 200, description = "The figures", body = String, content_type = "text/plain")))]
async fn get(State(api): State<Shared>) -> Result<Response> {
    let now = api.engine.now();
    let (figures, store, reads) = (api.figures.clone(), api.store.clone(), api.engine.reads(None));
    let kept = async move { figures.read(&*store, &reads, now).await };
    let kept = api.read_slots.run(Reader::Metrics, kept);
    // What this process counts is shown even if the store does not answer: that is when it is looked at.
    let kept = tokio::time::timeout(STORE_TIMEOUT, kept).await.ok().and_then(std::result::Result::ok);
    let mut page = Page::default();
    page.process(&api);
    page.requests(&api.requests);
    page.engine(&api.engine.metrics());
    page.destinations(&api.engine);
    page.sends(&api.engine.send_times());
    page.system();
    let up = u8::from(kept.is_some());
    page.one("posthaste_store_up", "gauge", "1 if the store answered, else what it keeps is left out", up);
    if let Some(kept) = kept {
        let (stats, nodes, groups, parked) = &*kept;
        page.stats(stats);
        page.groups(groups);
        page.nodes(nodes);
        let help = "Due notifications that wait because nothing is sent to their destination, up to 100,000";
        page.one("posthaste_parked", "gauge", help, parked);
        let oldest = stats.oldest_due.map_or(0.0, |due| now.since(due).as_secs_f64());
        let help = "How long the longest waiting due row waits";
        page.one("posthaste_oldest_due_seconds", "gauge", help, oldest);
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.0).into_response())
}

/// The text that Prometheus reads.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.line(name, "", value);
    }

    fn histogram(&mut self, name: &str, labels: &str, of: &Histogram) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in Histogram::BOUNDS.iter().zip(of.counts) {
            below += count;
            let labels = format!("{labels}{comma}le=\"{}\"", bound.as_secs_f64());
            self.line(&format!("{name}_bucket"), &labels, below);
        }
        self.line(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"+Inf\""), of.count());
        self.line(&format!("{name}_sum"), labels, of.sum.as_secs_f64());
        self.line(&format!("{name}_count"), labels, of.count());
    }

    fn process(&mut self, api: &Api) {
        self.head("posthaste_build_info", "gauge", "The version that runs, as a label");
        self.line("posthaste_build_info", &format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1);
        let busy = api.engine.busy();
        self.one("posthaste_in_hand", "gauge", "Notifications that this node works on", busy);
        let streams = api.open_streams();
        self.one("posthaste_streams_open", "gauge", "Streams of events that are open", streams);
        let (name, help) =
            ("posthaste_failed_authentications_total", "Wrong keys and tokens, by when they were answered");
        self.head(name, "counter", help);
        for (answer, count) in api.wrong_keys.counts() {
            self.line(name, &format!("answer=\"{answer}\""), count);
        }
        let unknown = api.engine.unknown_leases();
        let help =
            "Leases that the store has for this node and that it did not know of at the last comparison";
        self.one("posthaste_leases_unknown", "gauge", help, unknown);
        self.tokens(api.tokens.as_deref());
        let recording = u8::from(api.engine.is_recording());
        self.one("posthaste_recording", "gauge", "1 while outcomes can be recorded", recording);
    }

    fn tokens(&mut self, tokens: Option<&Tokens>) {
        let keys = tokens.map_or(0, Tokens::key_count);
        self.one("posthaste_token_keys", "gauge", "Keys that verify access tokens", keys);
        let name = "posthaste_token_key_reads_total";
        self.head(name, "counter", "Readings of the set of keys, by outcome");
        if let Some([done, failed]) = tokens.and_then(Tokens::readings) {
            self.line(name, "outcome=\"done\"", done);
            self.line(name, "outcome=\"failed\"", failed);
        }
        let name = "posthaste_tokens_refused_total";
        self.head(name, "counter", "Access tokens that were refused, by reason");
        for (refusal, count) in tokens.into_iter().flat_map(Tokens::refusals) {
            self.line(name, &format!("reason=\"{}\"", refusal.name()), count);
        }
    }

    fn requests(&mut self, requests: &Requests) {
        let name = "posthaste_http_requests_total";
        self.head(name, "counter", "Answers of the API by route and class of status");
        let routes = document().routes.all().iter().map(|route| (route.method.as_str(), route.path.as_str()));
        for (row, (method, path)) in routes.chain([("any", "page"), ("any", "none")]).enumerate() {
            for class in 0..CLASSES {
                let count = requests.counts[row][class].load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("method=\"{method}\",route=\"{path}\",status=\"{}xx\"", class + 1);
                    self.line(name, &labels, count);
                }
            }
        }
        let name = "posthaste_accept_seconds";
        self.head(name, "histogram", "Time from the head of a send to its answer");
        self.histogram(name, "", &requests.accept_times());
    }

    fn engine(&mut self, metrics: &Metrics) {
        let counters = [
            ("posthaste_accepted_total", "Notifications that were stored as new", metrics.accepted),
            ("posthaste_deferred_total", "Notifications that a rate limit deferred", metrics.deferred),
            (
                "posthaste_quick_tries_total",
                "Tries that were repeated within an attempt",
                metrics.quick_tries,
            ),
            ("posthaste_retries_scheduled_total", "Retries that were scheduled", metrics.retries_scheduled),
            ("posthaste_leases_lost_total", "Outcomes whose lease was no longer held", metrics.leases_lost),
            (
                "posthaste_leases_taken_back_total",
                "Leases taken back from dead nodes",
                metrics.leases_taken_back,
            ),
            (
                "posthaste_leases_given_back_total",
                "Leases of calls that were answered as an error and happened later",
                metrics.leases_given_back,
            ),
            ("posthaste_store_errors_total", "Calls that the store did not serve", metrics.store_errors),
            (
                "posthaste_stream_missed_total",
                "How often a stream was told that it missed changes",
                metrics.changes_missed,
            ),
        ];
        for (name, help, value) in counters {
            self.one(name, "counter", help, value);
        }
        let name = "posthaste_refused_total";
        self.head(name, "counter", "Notifications that were refused, by reason");
        self.line(name, "reason=\"queue_full\"", metrics.refused_queue_full);
        let name = "posthaste_attempts_total";
        self.head(name, "counter", "Attempts by outcome");
        self.line(name, "outcome=\"delivered\"", metrics.attempts_delivered);
        for (failure, count) in metrics.attempts_failed {
            self.line(name, &format!("outcome=\"{}\"", failure.name()), count);
        }
        let name = "posthaste_ended_total";
        self.head(name, "counter", "Notifications that ended, by state");
        for (state, count) in metrics.ends {
            self.line(name, &format!("state=\"{state}\""), count);
        }
        let name = "posthaste_retention_removed_total";
        self.head(name, "counter", "Rows that retention removed or soft-deleted on this node, by kind");
        for (kind, removed) in metrics.removed {
            self.line(name, &format!("kind=\"{kind}\""), removed);
        }
        let name = "posthaste_job_runs_total";
        self.head(name, "counter", "Runs of jobs that ended on this node, by name and outcome");
        for (job, done, failed) in metrics.job_runs {
            self.line(name, &format!("name=\"{job}\",outcome=\"done\""), done);
            self.line(name, &format!("name=\"{job}\",outcome=\"failed\""), failed);
        }
        let name = "posthaste_operation_items_total";
        self.head(name, "counter", "Items that retry operations of this node have acted on");
        self.line(name, "", metrics.operation_items);
        let name = "posthaste_operations_total";
        self.head(name, "counter", "Retry operations that ended on this node, by state");
        for (state, count) in metrics.operations_ended {
            self.line(name, &format!("state=\"{}\"", state.name()), count);
        }
        let name = "posthaste_lateness_seconds";
        self.head(name, "histogram", "From the due time of an attempt to its start");
        self.histogram(name, "lane=\"main\"", &metrics.lateness_main);
        self.histogram(name, "lane=\"retry\"", &metrics.lateness_retry);
    }

    fn sends(&mut self, sends: &[SendTimes]) {
        let name = "posthaste_send_seconds";
        self.head(name, "histogram", "Time of one try, by channel and outcome");
        for SendTimes { channel, outcome, times } in sends {
            let outcome = match outcome {
                Outcome::Delivered => "delivered",
                Outcome::Failed(failure) => failure.name(),
            };
            self.histogram(name, &format!("channel=\"{channel}\",outcome=\"{outcome}\""), times);
        }
    }

    /// What the system says of this process, under the names that Prometheus gives it in every program.
    fn system(&mut self) {
        for process::Figure { name, kind, help, value } in process::figures() {
            self.one(name, kind, help, value);
        }
    }

    fn nodes(&mut self, nodes: &[NodeView]) {
        let labels = |node: &NodeView| format!("node=\"{}\",name=\"{}\"", node.id.0, escaped(&node.name));
        let name = "posthaste_node_alive";
        self.head(name, "gauge", "1 for a node that lives, 0 for one whose leases are taken back");
        for node in nodes {
            self.line(name, &labels(node), u8::from(node.alive));
        }
        let name = "posthaste_node_held";
        self.head(name, "gauge", "Notifications that are leased to a node");
        for node in nodes {
            self.line(name, &labels(node), node.held);
        }
    }

    fn groups(&mut self, groups: &[(GroupBy, u64)]) {
        let name = "posthaste_failure_groups";
        self.head(name, "gauge", "Failure groups that have pending dead letters");
        for (by, number) in groups {
            self.line(name, &format!("by=\"{}\"", by.name()), number);
        }
    }

    fn stats(&mut self, stats: &Stats) {
        type Pick = fn(&posthaste_engine::store::ChannelStats) -> u64;
        let gauges: [(&str, &str, Pick); 4] = [
            ("posthaste_queued", "Notifications that wait for their first attempt", |one| one.queued),
            ("posthaste_sending", "Notifications that nodes hold", |one| one.sending),
            ("posthaste_in_retry", "Notifications that wait for a retry or are retried", |one| one.in_retry),
            ("posthaste_in_dead_letter", "Dead letters that nobody has acted on", |one| one.in_dead_letter),
        ];
        for (name, help, pick) in gauges {
            self.head(name, "gauge", help);
            for (channel, one) in &stats.channels {
                self.line(name, &format!("channel=\"{channel}\""), pick(one));
            }
        }
    }
}

/// A text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_no_label_and_no_line() {
        assert_eq!(escaped("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
    }
}
