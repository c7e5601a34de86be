//! `/policies/{scope}/simulate`: what an outage would do to the policy of a scope. The form is the query of the address.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::duration;
use posthaste_core::simulate::{LoadStep, Simulation};
use posthaste_core::time::Timestamp;
use serde_json::{Map, Value, json};
use url::form_urlencoded::{Serializer, parse};

use super::chart::{Axis, panel};
use super::drawing::ratio;
use super::policies::address;
use super::shell::Shell;
use super::show::{self, Markup, count, counted, length};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::body::Text;
use crate::http::extract::{Authenticated, InPath};
use crate::http::policies::{self as policies_api, simulation};
use crate::http::problem::Result;
use crate::http::query::Query;

/// What the form begins with.
const SCRIPT: &str = "ok for 10m, 503 for 20m, ok for 1h";
/// The most rows of the table.
const ROWS: usize = 24;

#[derive(Template)]
#[template(path = "simulation.html")]
struct SimulationPage {
    shell: Shell,
    scope: String,
    typed: Typed,
    problem: Option<String>,
    told: Option<Told>,
}

/// The form as it was sent.
#[derive(Default)]
struct Typed {
    rate: String,
    script: String,
    channel: String,
    most: String,
    at_once: String,
}

/// What came of it.
struct Told {
    said: Vec<String>,
    drawing: Markup,
    /// The same figures for the script.
    load: String,
    /// The drawing in words.
    most: String,
    rows: Vec<LoadStep>,
}

impl Typed {
    fn read(query: &str) -> Self {
        let mut typed = Self::default();
        for (name, value) in parse(query.as_bytes()) {
            let value = value.trim().to_owned();
            match &*name {
                "rate" => typed.rate = value,
                "script" => typed.script = value,
                "channel" => typed.channel = value,
                "most" => typed.most = value,
                "atOnce" => typed.at_once = value,
                _ => {}
            }
        }
        typed
    }

    /// In the form of the API. None if nothing is asked.
    fn asked(&self) -> Option<Value> {
        if self.rate.is_empty() && self.script.is_empty() {
            return None;
        }
        let mut limits = Map::new();
        for (name, text) in [("rate", &self.most), ("concurrency", &self.at_once)] {
            if !text.is_empty() {
                limits.insert(name.to_owned(), number(text));
            }
        }
        let rate = if self.rate.is_empty() { Value::Null } else { number(&self.rate) };
        Some(json!({"rate": rate, "script": self.script, "limits": limits}))
    }
}

/// A number as a number. What is none is refused by the API in its own words.
fn number(text: &str) -> Value {
    let whole = text.parse::<u64>().map(Value::from);
    whole.or_else(|_| text.parse::<f64>().map(Value::from)).unwrap_or_else(|_| json!(text))
}

/// Where the policy is in force, as the query of the API.
fn place(scope: &str, channel: &str) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("scope", scope);
    if !channel.is_empty() {
        query.append_pair("channel", channel);
    }
    query.finish()
}

async fn simulated(
    api: &Shared,
    visitor: &Visitor,
    scope: &str,
    typed: &Typed,
    asked: &Value,
) -> Result<Simulation> {
    let query = Query::parse("/v1/policies/simulate", &place(scope, &typed.channel))?;
    let caller = Authenticated(visitor.caller.clone());
    let body = Text::of(api, &visitor.caller, asked)?;
    Ok(simulation::simulate(State(api.clone()), caller, query, body).await?.0)
}

pub(super) async fn page(
    State(api): State<Shared>,
    InPath(scope): InPath,
    visitor: Visitor,
) -> Result<Response> {
    let mut typed = Typed::read(&visitor.query);
    let asked = typed.asked();
    // The scope has to be one that the visitor sees, also while nothing is asked.
    let (caller, query) = (Authenticated(visitor.caller.clone()), Query::parse("/v1/policies", "")?);
    let _ = policies_api::get(State(api.clone()), caller, query, InPath(scope.clone())).await?;
    let (mut status, mut problem, mut told) = (StatusCode::OK, None, None);
    if let Some(asked) = &asked {
        match simulated(&api, &visitor, &scope, &typed, asked).await {
            Ok(simulation) => told = Some(Told::of(&simulation)),
            Err(refused) => {
                status = refused.kind.shown().0;
                problem = Some(refused.detail.to_string());
            }
        }
    }
    if asked.is_none() {
        (typed.rate, typed.script) = ("10".to_owned(), SCRIPT.to_owned());
    }
    let shell = Shell::of(&api, &visitor, &format!("Simulate an outage: {scope}"), "/policies").await;
    let page = SimulationPage { shell, scope, typed, problem, told };
    Ok(page.shell.answer_with(status, &page))
}

impl Told {
    fn of(told: &Simulation) -> Self {
        let together = told.load.len().div_ceil(ROWS).max(1);
        Self {
            said: said(told),
            drawing: drawn(told),
            load: load(told).to_string(),
            most: most(told),
            rows: told.load.chunks(together).filter_map(one_row).collect(),
        }
    }
}

/// Several steps as one.
fn one_row(steps: &[LoadStep]) -> Option<LoadStep> {
    let (first, last) = (steps.first()?, steps.last()?);
    let sum = |of: fn(&LoadStep) -> u64| steps.iter().map(of).sum();
    Some(LoadStep {
        at: first.at,
        arrivals: sum(|step| step.arrivals),
        sends: sum(|step| step.sends),
        failures: sum(|step| step.failures),
        parked: last.parked,
        waiting: last.waiting,
    })
}

/// What came of it in sentences.
fn said(told: &Simulation) -> Vec<String> {
    let given_up = told.dead + told.failed;
    let mut said = vec![format!(
        "Of {} that arrived in {}, {} were delivered, {} became dead letters or failed, {} expired and {} were waiting at the end.",
        count(&told.arrived),
        length(&told.duration),
        count(&told.delivered),
        count(&given_up),
        count(&told.expired),
        count(&told.waiting)
    )];
    for (reason, dead) in &told.dead_by_reason {
        said.push(format!("{}: {}.", counted(*dead, "dead letter", "dead letters"), reason.words()));
    }
    said.push(format!(
        "{}, {} of them retries; at most {} in a second.",
        counted(told.attempts, "attempt", "attempts"),
        count(&told.retries),
        counted(told.busiest_second.count, "send", "sends")
    ));
    if told.breaker.opened > 0 {
        said.push(format!(
            "The breaker opened {} and was open for {}, with {}. At most {} parked.",
            counted(told.breaker.opened, "time", "times"),
            length(&told.breaker.open_for),
            counted(told.breaker.probes, "probe", "probes"),
            counted(told.most_parked.count, "notification was", "notifications were")
        ));
    }
    if told.outage_ended_at.is_some() {
        let after = |time: Option<Duration>| time.map(|time| format!("{} after", duration::words(time)));
        said.push(match (after(told.drained_after), after(told.settled_after)) {
            (Some(drained), Some(settled)) => {
                format!("What was due was sent {drained} the end of the outage; all from before had ended {settled} it.")
            }
            (Some(drained), None) => format!("What was due was sent {drained} the end of the outage; not all from before has ended."),
            (None, _) => "What was due was not all sent before the end.".to_owned(),
        });
    }
    if told.stands_for > 1 {
        said.push(format!(
            "The run was thinned: each that was simulated stands for {}.",
            count(&told.stands_for)
        ));
    }
    said
}

/// The load in columns, times in seconds.
fn load(told: &Simulation) -> Value {
    let column = |of: fn(&LoadStep) -> u64| told.load.iter().map(of).collect::<Vec<u64>>();
    json!({
        "at": column(|step| step.at.as_secs()),
        "arrivals": column(|step| step.arrivals),
        "sends": column(|step| step.sends),
        "failures": column(|step| step.failures),
        "parked": column(|step| step.parked),
        "waiting": column(|step| step.waiting),
    })
}

fn most(told: &Simulation) -> String {
    format!(
        "Sends and what is parked, by {}: at most {} parked at {}.",
        length(&told.step),
        count(&told.most_parked.count),
        length(&told.most_parked.at)
    )
}

fn drawn(told: &Simulation) -> Markup {
    let values = |of: fn(&LoadStep) -> u64| told.load.iter().map(of).collect::<Vec<u64>>();
    let (taken, failed, parked) = (
        values(|step| step.sends.saturating_sub(step.failures)),
        values(|step| step.failures),
        values(|step| step.parked),
    );
    let times: Vec<Timestamp> = told.load.iter().map(|step| Timestamp::EPOCH.later(step.at)).collect();
    let axis = Axis { times: &times, every: told.step };
    let label = most(told);
    Markup(format!(
        "<svg class=\"sc\" height=\"324\" role=\"img\" aria-label=\"{label}\">{}{}{}{}{}{}{}</svg>",
        labels(told, 8, 304),
        axis.area(&taken, 8, 118),
        panel("taken", &taken, 8, 118),
        axis.bars(&failed, "f", 130, 200),
        panel("failed", &failed, 130, 200),
        axis.bars(&parked, "q", 212, 304),
        panel("parked", &parked, 212, 304),
    ))
}

/// Lines at a quarter, at half and at three quarters of the time.
fn labels(told: &Simulation, top: u32, bottom: u32) -> String {
    let whole = i64::try_from(told.duration.as_secs()).unwrap_or(i64::MAX);
    let line = |quarter: u32| {
        let at = told.duration * quarter / 4;
        let x = ratio(i64::try_from(at.as_secs()).unwrap_or(i64::MAX), whole) * 100.0;
        format!(
            "<line class=\"gr\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{top}\" y2=\"{bottom}\"/><text class=\"m\" x=\"{x:.2}%\" y=\"{}\">{}</text>",
            bottom + 14,
            length(&at)
        )
    };
    (1..4).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_asked_as_the_api_takes_it() {
        assert!(Typed::read("channel=email").asked().is_none());
        let typed = Typed::read("rate=0.5&script=503+for+20m&most=x&atOnce=4");
        let wanted = json!({"rate": 0.5, "script": "503 for 20m", "limits": {"rate": "x", "concurrency": 4}});
        assert_eq!(typed.asked(), Some(wanted));
    }

    #[test]
    fn rows_are_sums_but_for_what_waits() {
        let step = |at: u64, sends, parked| LoadStep {
            at: Duration::from_secs(at),
            sends,
            parked,
            ..LoadStep::default()
        };
        let row = one_row(&[step(10, 3, 8), step(20, 4, 5)]).unwrap();
        assert_eq!((row.at.as_secs(), row.sends, row.parked), (10, 7, 5));
        assert!(one_row(&[]).is_none());
    }
}
