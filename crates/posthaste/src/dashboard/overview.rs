//! `/`: the overview. One sentence of health, and the figures behind it.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::shell::{Shell, sink_of};
use super::show::{self, count, counted, length, percent};
use super::throughput::{Asked, Throughput, throughput};
use super::visitor::Visitor;
use super::{destinations, failure_groups};
use crate::http::Shared;
use crate::http::extract::{Authenticated, NoQuery};
use crate::http::jobs::{self, JobView};
use crate::http::nodes::{self, NodeView};
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::stats::{self, StatsView};

/// Due work that waits longer than this is late.
const LATE: f64 = 10.0;
/// Of so many groups, the largest ones, those are named that grow most, and how many of them.
const LOOKED_AT: usize = 50;
const GROWING: usize = 3;
/// The most open breakers that are named.
const BREAKERS: usize = 5;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    shell: Shell,
    stats: StatsView,
    chart: Option<Throughput>,
    health: Health,
    needs: Vec<Need>,
    nodes: Vec<NodeView>,
    alive: usize,
    /// Nothing was ever sent, as far as the counters know.
    is_new: bool,
    base: String,
    /// The test receiver of `posthaste dev`.
    sink: Option<String>,
    may_read_keys: bool,
}

/// What a person would say on the phone.
struct Health {
    first: String,
    second: String,
}

/// Something that waits for a person.
struct Need {
    /// The state whose shape it has.
    state: &'static str,
    what: String,
    href: String,
    then: String,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let caller = || Authenticated(visitor.caller.clone());
    let asked = Asked::read(&visitor.query)?;
    let query = Query::parse("/v1/stats", &asked.rest)?;
    let stats = stats::get(State(api.clone()), caller(), query).await?.0;
    let nodes = if visitor.may("listNodes") {
        nodes::list(State(api.clone()), caller(), NoQuery).await?.0.data
    } else {
        vec![]
    };
    let jobs = if visitor.may("listJobs") {
        jobs::list(State(api.clone()), caller(), NoQuery).await?.0.data
    } else {
        vec![]
    };
    let is_new = stats.channels.is_empty();
    let chart = if is_new { None } else { Some(throughput(&api, &visitor, &asked).await?) };
    let mut needs = needs(&stats, &nodes, &jobs);
    if stats.total.in_dead_letter > 0 {
        let groups = failure_groups::largest(&api, &visitor, LOOKED_AT, None).await;
        // The health is about the whole, so it comes first.
        needs.splice(1..1, growing(groups));
    }
    let down = destinations::down(&api, &visitor).await;
    let place = needs.iter().take_while(|need| need.state == "deadLetter").count();
    needs.splice(place..place, open_breakers(&down));
    let shell = Shell::of(&api, &visitor, "Overview", "/").await;
    let page = OverviewPage {
        shell,
        health: health(&stats, &needs, down.len()),
        needs,
        alive: nodes.iter().filter(|node| node.alive).count(),
        nodes,
        is_new,
        chart,
        base: visitor.base.clone(),
        sink: sink_of(&api, &visitor).map(|inbox| inbox.url("")),
        may_read_keys: visitor.may("listKeys"),
        stats,
    };
    Ok(page.shell.answer(&page))
}

fn late(stats: &StatsView) -> Option<Duration> {
    stats.oldest_due_seconds.filter(|seconds| *seconds >= LATE).map(Duration::from_secs_f64)
}

/// What waits for a person, worst first.
fn needs(stats: &StatsView, nodes: &[NodeView], jobs: &[JobView]) -> Vec<Need> {
    let mut needs = vec![];
    let dead = stats.total.in_dead_letter;
    if dead > 0 {
        needs.push(Need {
            state: "deadLetter",
            what: counted(dead, "dead letter waits", "dead letters wait"),
            href: "/dead-letters".to_owned(),
            then: "They stay until you retry or discard them.".to_owned(),
        });
    }
    if let Some(late) = late(stats) {
        needs.push(Need {
            state: "open",
            what: format!("Due work waits for {}", length(&late)),
            href: "/retry-queue".to_owned(),
            then: "It is sent as soon as there is room: look at the nodes and at what is being sent."
                .to_owned(),
        });
    }
    for node in nodes.iter().filter(|node| !node.alive) {
        needs.push(Need {
            state: "failed",
            what: format!("Node {} does not answer", node.name),
            href: "/nodes".to_owned(),
            then: "The other nodes take back what it held. Its notifications are sent again.".to_owned(),
        });
    }
    for job in jobs {
        let Some(error) = job.last_run.as_ref().and_then(|run| run.error.as_deref()) else { continue };
        needs.push(Need {
            state: "failed",
            what: format!("The last run of {} failed", job.id),
            href: "/jobs".to_owned(),
            then: format!("{error}. {}", runs_again(job)),
        });
    }
    needs
}

const fn runs_again(job: &JobView) -> &'static str {
    match (job.paused, job.next_run_at) {
        (true, _) => "It is paused: it runs when it is resumed, or asked for.",
        (false, Some(_)) => "It runs again by itself at its next time.",
        (false, None) => "It runs only when it is asked for.",
    }
}

/// The groups that grow most, of the largest ones.
fn growing(mut groups: Vec<failure_groups::Row>) -> impl Iterator<Item = Need> {
    groups.retain(|group| group.grown() > 0 && group.query.is_some());
    groups.sort_by_key(|group| std::cmp::Reverse(group.grown()));
    groups.into_iter().take(GROWING).map(|group| Need {
        state: "deadLetter",
        href: format!("/failure-groups/{}", group.one.id),
        then: format!(
            "{} in this hour and the one before, {} wait.",
            counted(group.grown(), "death", "deaths"),
            count(&group.one.count)
        ),
        what: group.one.title,
    })
}

/// Destinations to which nothing but probes is sent, those with the most parked first.
fn open_breakers(down: &[destinations::Row]) -> Vec<Need> {
    let mut worst: Vec<&destinations::Row> = down.iter().collect();
    worst.sort_by_key(|row| std::cmp::Reverse(row.one.parked));
    let need = |row: &destinations::Row| Need {
        state: "open",
        what: format!("{} is down", row.one.name),
        href: format!("/destinations/{}", row.one.id),
        then: format!(
            "{}. {} parked; a probe finds out when it is back.",
            row.since(),
            counted(row.one.parked, "notification is", "notifications are")
        ),
    };
    worst.into_iter().take(BREAKERS).map(need).collect()
}

fn health(stats: &StatsView, needs: &[Need], down: usize) -> Health {
    let total = &stats.total;
    let on_time =
        if late(stats).is_some() { "Due work is late." } else { "Everything that is due is on time." };
    let first = match (needs.first(), total.in_retry) {
        (Some(worst), _) => format!("{}.", worst.what),
        (None, 0) => "All is well.".to_owned(),
        (None, retries) => format!(
            "All is well; {}.",
            counted(retries, "notification is in retry", "notifications are in retry")
        ),
    };
    let moving = total.queued + total.sending;
    let moving = match moving {
        0 => "Nothing is being sent right now.".to_owned(),
        some => {
            format!("{} being sent or about to be.", counted(some, "notification is", "notifications are"))
        }
    };
    let rate = total
        .success_rate_24h
        .map(|rate| format!(" {} of what ended in the last 24 hours was delivered.", percent(&rate)));
    let down = match down {
        0 => String::new(),
        some => format!(
            "{} down. ",
            counted(u64::try_from(some).unwrap_or(u64::MAX), "destination is", "destinations are")
        ),
    };
    Health { first, second: format!("{down}{on_time} {moving}{}", rate.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::http::stats::ChannelStats;

    fn stats(in_dead_letter: u64, in_retry: u64, oldest: Option<f64>) -> StatsView {
        let total = ChannelStats {
            queued: 0,
            sending: 0,
            in_retry,
            in_dead_letter,
            success_rate_24h: None,
            first_try_rate_24h: None,
            time_to_deliver_ms: None,
            top_reasons: vec![],
        };
        StatsView { total, oldest_due_seconds: oldest, channels: BTreeMap::new() }
    }

    #[test]
    fn a_failed_job_says_whether_it_runs_again_by_itself() {
        let at = posthaste_core::time::Timestamp::EPOCH;
        let run = || crate::http::jobs::RunView {
            number: 1,
            started_at: at,
            finished_at: Some(at),
            outcome: Some("failed"),
            count: 0,
            error: Some("the disk is full".to_owned()),
            node: "a".to_owned(),
            started_by: None,
        };
        for (paused, next_run_at, said) in [
            (false, Some(at), "by itself"),
            (true, None, "It is paused"),
            (false, None, "only when it is asked"),
        ] {
            let job = JobView {
                id: "retention".to_owned(),
                cron: None,
                paused,
                next_run_at,
                running: false,
                last_run: Some(run()),
            };
            let then = &needs(&stats(0, 0, None), &[], &[job])[0].then;
            assert!(then.starts_with("the disk is full. ") && then.contains(said), "{then}");
        }
    }

    #[test]
    fn the_sentence_names_the_worst_first() {
        let said = |stats: &StatsView| health(stats, &needs(stats, &[], &[]), 0).first;
        assert_eq!(said(&stats(0, 0, None)), "All is well.");
        assert_eq!(said(&stats(0, 2, Some(0.5))), "All is well; 2 notifications are in retry.");
        assert_eq!(said(&stats(0, 2, Some(90.0))), "Due work waits for 1m 30s.");
        assert_eq!(said(&stats(1, 2, Some(90.0))), "1 dead letter waits.");
        assert_eq!(said(&stats(200_012, 0, None)), "200,012 dead letters wait.");
    }
}
