//! `/retry-operations/new`: what an operation would act on, counted before it starts.
//!
//! The times of a filter are fixed when it is counted, so what is started is what was counted. A form that says something else
//! than its button is counted again, not started.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::header::SET_COOKIE;
use posthaste_core::filter::Filter;
use posthaste_core::operation::{Action, BATCH};
use posthaste_core::time::Timestamp;
use serde_json::{Map, Value, json};
use url::form_urlencoded::{self, Serializer};

use super::edit::answered;
use super::filter_bar::{Token, conditions, quoted};
use super::flash::Flash;
use super::login::see;
use super::shell::Shell;
use super::show::{self, count, counted, length};
use super::visitor::{Form, Visitor};
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, IdempotencyKey, NoQuery};
use crate::http::problem::{Kind, Problem, Result};
use crate::http::retry_operations::{self, LARGEST};
use crate::http::views::{PreviewView, SampleView};
use crate::http::{Shared, hex};
use crate::keys;

/// A discard of more asks for the number to be typed.
const MOST_UNTYPED: u64 = 10_000;
/// The most ids that the command is shown with.
const MOST_IDS: usize = 20;
/// The canary of a form that says nothing of it.
const CANARY: (&str, &str) = ("100", "10");

#[derive(Template)]
#[template(path = "new-operation.html")]
struct NewPage {
    shell: Shell,
    wanted: Wanted,
    action: Action,
    tokens: Vec<Token>,
    /// None while nothing is selected, or where the selection is refused.
    preview: Option<PreviewView>,
    problem: Option<Problem>,
    who: String,
}

/// What a link or a form asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    action: String,
    what: What,
    rate: String,
    canary: String,
    percent: String,
    /// So that a form that is sent twice starts one operation.
    key: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Nothing,
    Ids(Vec<String>),
    Filter(Vec<(String, String)>),
}

/// What belongs to a form, and not to its filter.
const OTHERS: [&str; 6] = ["token", "key", "typed", "counted", "sure", "cursor"];

impl Wanted {
    fn of(pairs: impl Iterator<Item = (String, String)>) -> Self {
        let (mut ids, mut filter, mut typed) = (vec![], vec![], String::new());
        let (mut all, mut scope) = (false, String::new());
        let mut wanted = Self {
            action: Action::Requeue.name().to_owned(),
            what: What::Nothing,
            rate: String::new(),
            canary: CANARY.0.to_owned(),
            percent: CANARY.1.to_owned(),
            key: String::new(),
        };
        for (name, value) in pairs {
            let value = value.trim();
            match name.as_str() {
                "key" => wanted.key = value.to_owned(),
                "rate" => wanted.rate = value.to_owned(),
                "canary" => wanted.canary = value.to_owned(),
                "maxFailurePercent" => wanted.percent = value.to_owned(),
                _ if value.is_empty() || OTHERS.contains(&name.as_str()) => {}
                "action" => wanted.action = value.to_owned(),
                "ids" => ids.extend(value.split(',').map(|id| id.trim().to_owned())),
                "all" => all = value == "true",
                "scope" => scope = value.to_owned(),
                "f" => typed = value.to_owned(),
                "limit" => {}
                _ => set(&mut filter, name, value.to_owned()),
            }
        }
        let known: Vec<&'static str> = wanted.parsed().list().parameters().collect();
        for (name, value) in conditions(&typed, &known) {
            set(&mut filter, name, value);
        }
        wanted.what = match scope.as_str() {
            "filter" => What::Filter(filter),
            _ if !ids.is_empty() => What::Ids(ids),
            "page" => What::Nothing,
            _ if all || !filter.is_empty() => What::Filter(filter),
            _ => What::Nothing,
        };
        wanted
    }

    /// The action, for words. What is not one is refused by the API.
    fn parsed(&self) -> Action {
        Action::from_name(&self.action).unwrap_or(Action::Requeue)
    }

    /// Fixes the times of the filter: durations become times, and what comes later is not part of it.
    fn fix(&mut self, now: Timestamp) {
        let list = self.parsed().list();
        let What::Filter(filter) = &mut self.what else { return };
        let pairs = filter.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        // A filter that is wrong is refused by the API, as it is.
        let Ok(parsed) = Filter::parse(list, pairs, now) else { return };
        let parsed = Filter { until: parsed.until.or(Some(now)), ..parsed };
        for (name, value) in parsed.parameters(list) {
            if name == "since" || name == "until" {
                set(filter, name.to_owned(), value);
            }
        }
    }

    /// What the API takes.
    fn body(&self) -> Value {
        let mut body = Map::from_iter([("action".to_owned(), json!(self.action))]);
        match &self.what {
            What::Nothing => {}
            What::Ids(ids) => {
                body.insert("ids".to_owned(), json!(ids));
            }
            What::Filter(filter) => {
                let filter: Map<_, _> =
                    filter.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                body.insert("filter".to_owned(), Value::Object(filter));
            }
        }
        if !self.rate.is_empty() {
            body.insert("rate".to_owned(), number(&self.rate));
        }
        if self.parsed().sends() && !self.canary.is_empty() && self.canary != "0" {
            let canary = json!({"size": number(&self.canary), "maxFailurePercent": number(&self.percent)});
            body.insert("canary".to_owned(), canary);
        }
        Value::Object(body)
    }

    fn ids(&self) -> &[String] {
        match &self.what {
            What::Ids(ids) => ids,
            What::Nothing | What::Filter(_) => &[],
        }
    }

    fn filter(&self) -> &[(String, String)] {
        match &self.what {
            What::Filter(filter) => filter,
            What::Nothing | What::Ids(_) => &[],
        }
    }

    fn is_nothing(&self) -> bool {
        self.what == What::Nothing
    }

    /// The conditions, each with a link to the page without it.
    fn tokens(&self) -> Vec<Token> {
        let filter = self.filter();
        let without = |left_out: &str| {
            let mut query = Serializer::new(String::new());
            query.append_pair("action", &self.action);
            let rest: Vec<_> = filter.iter().filter(|(name, _)| name != left_out).collect();
            if rest.is_empty() {
                query.append_pair("all", "true");
            }
            query.extend_pairs(rest);
            format!("/retry-operations/new?{}", query.finish())
        };
        let token = |(name, value): &(String, String)| Token {
            name: name.clone(),
            value: value.clone(),
            without: without(name),
        };
        filter.iter().map(token).collect()
    }

    /// The list that the filter is one of.
    fn list_address(&self) -> String {
        let path = if self.parsed().is_about_dead_letters() { "/dead-letters" } else { "/notifications" };
        let filter = self.filter();
        if filter.is_empty() {
            return path.to_owned();
        }
        format!("{path}?{}", Serializer::new(String::new()).extend_pairs(filter).finish())
    }

    fn command(&self) -> String {
        let mut command = format!("posthaste retry-operations start --action {}", quoted(&self.action));
        match &self.what {
            What::Nothing => {}
            What::Ids(ids) if ids.len() <= MOST_IDS => {
                command.push_str(&format!(" --id {}", quoted(&ids.join(","))));
            }
            What::Ids(_) => command.push_str(" --id dl_..,dl_.."),
            What::Filter(filter) => {
                let query = Serializer::new(String::new()).extend_pairs(filter).finish();
                command.push_str(&format!(" --filter {}", quoted(&query)));
            }
        }
        let body = self.body();
        if body.get("rate").is_some() {
            command.push_str(&format!(" --rate {}", quoted(&self.rate)));
        }
        if body.get("canary").is_some() {
            let (size, most) = (quoted(&self.canary), quoted(&self.percent));
            command.push_str(&format!(" --canary {size} --max-failure-percent {most}"));
        }
        command.push_str(" --watch");
        command
    }
}

/// Sets a condition of a filter.
fn set(filter: &mut Vec<(String, String)>, name: String, value: String) {
    match filter.iter_mut().find(|(given, _)| *given == name) {
        Some((_, given)) => *given = value,
        None => filter.push((name, value)),
    }
}

/// A number as JSON; what is none is refused by the API, as it is.
fn number(text: &str) -> Value {
    text.parse::<u32>().map_or_else(|_| json!(text), |number| json!(number))
}

impl NewPage {
    /// The actions that the same selection can have.
    fn actions(&self) -> Vec<(Action, &'static str, &'static str)> {
        let alike = |action: &Action| action.is_about_dead_letters() == self.action.is_about_dead_letters();
        Action::ALL.into_iter().filter(alike).map(|action| (action, verb(action), means(action))).collect()
    }

    fn total(&self) -> u64 {
        self.preview.as_ref().map_or(0, |preview| preview.total)
    }

    /// The count for people: it may be cut short.
    fn counted(&self) -> String {
        let more = self.preview.as_ref().is_some_and(|preview| !preview.exact);
        format!("{}{}", if more { "more than " } else { "" }, count(&self.total()))
    }

    /// The verb inside a sentence.
    fn verb(&self) -> String {
        verb(self.action).to_lowercase()
    }

    fn then(&self) -> &'static str {
        then(self.action)
    }

    /// Whether the act ends something.
    fn is_an_end(&self) -> bool {
        matches!(self.action, Action::Discard | Action::Cancel)
    }

    fn which(&self) -> &'static str {
        match self.action {
            Action::Requeue | Action::Discard => "only pending dead letters",
            Action::Restore => "only discarded and deleted dead letters",
            Action::RetryNow => "only what waits for a retry",
            Action::Cancel => "only what is not over",
        }
    }

    fn expired(&self) -> Option<String> {
        let expired = self.preview.as_ref()?.expired;
        (expired > 0).then(|| counted(expired, "has expired", "have expired"))
    }

    fn asks_for_number(&self) -> bool {
        self.action == Action::Discard && self.total() > MOST_UNTYPED
    }

    fn batches(&self) -> String {
        count(&self.total().div_ceil(u64::from(BATCH)))
    }

    /// How long it takes at the least.
    fn takes(&self) -> Option<String> {
        let rate = self.wanted.rate.parse::<u64>().ok().filter(|rate| *rate > 0 && self.total() > 0)?;
        let took = std::time::Duration::from_secs(self.total().div_ceil(rate));
        Some(format!("{} at {} a second", length(&took), count(&rate)))
    }

    async fn of(api: &Shared, visitor: &Visitor, mut wanted: Wanted, problem: Option<Problem>) -> Self {
        // What the page before showed has died by then, also where the time is only known between two bounds.
        wanted.fix(api.engine.latest());
        wanted.key = hex(&keys::random::<16>());
        let counted = match &wanted.what {
            What::Nothing => Ok(None),
            What::Ids(_) | What::Filter(_) => dry_run(api, visitor, &wanted).await.map(Some),
        };
        let (preview, refused) = match counted {
            Ok(preview) => (preview, None),
            Err(refused) => (None, Some(refused)),
        };
        let action = wanted.parsed();
        Self {
            shell: Shell::of(api, visitor, &format!("{} in bulk", verb(action)), "/retry-operations").await,
            tokens: wanted.tokens(),
            action,
            preview,
            problem: refused.or(problem),
            who: visitor.caller.name.clone(),
            wanted,
        }
    }

    fn answer(&self) -> Response {
        let status = self.problem.as_ref().map_or(StatusCode::OK, |problem| problem.kind.shown().0);
        self.shell.answer_with(status, self)
    }
}

/// What an action is called on a button.
pub(super) const fn verb(action: Action) -> &'static str {
    match action {
        Action::Requeue => "Requeue",
        Action::Discard => "Discard",
        Action::Restore => "Restore",
        Action::RetryNow => "Retry now",
        Action::Cancel => "Cancel",
    }
}

const fn means(action: Action) -> &'static str {
    match action {
        Action::Requeue => "new generation, attempts from 1",
        Action::Discard => "Permanently Failed, nothing is sent; each can be restored",
        Action::Restore => "discarded ones come back among the dead letters, deleted ones as they were",
        Action::RetryNow => "what waits for a retry is made due at once",
        Action::Cancel => "what is not over yet ends, undelivered",
    }
}

/// What the start does, for the sentence below its button.
const fn then(action: Action) -> &'static str {
    match action {
        Action::Requeue => "What is sent is sent; the rest stays a dead letter.",
        Action::Discard => "What is discarded can be restored; the rest stays a dead letter.",
        Action::Restore => "What is restored stays so; the rest stays discarded or deleted.",
        Action::RetryNow => "What is sent is sent; the rest keeps the time of its next attempt.",
        Action::Cancel => "What is cancelled stays so; the rest goes on.",
    }
}

async fn dry_run(api: &Shared, visitor: &Visitor, wanted: &Wanted) -> Result<PreviewView> {
    let body = wanted.body().to_string();
    retry_operations::dry_run(api, &visitor.caller, &visitor.actor, body.as_bytes()).await
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Response {
    let wanted = Wanted::of(form_urlencoded::parse(visitor.query.as_bytes()).into_owned());
    NewPage::of(&api, &visitor, wanted, None).await.answer()
}

/// The same from a form: a selection, or what was changed on the page.
pub(super) async fn count_again(State(api): State<Shared>, form: Form) -> Response {
    let wanted = Wanted::of(form.fields.pairs());
    let nothing = wanted.is_nothing().then(|| {
        Problem::new(Kind::Invalid, "nothing is selected: tick some rows, or choose all that match")
    });
    NewPage::of(&api, &form.visitor, wanted, nothing).await.answer()
}

pub(super) async fn start(State(api): State<Shared>, form: Form) -> Result<Response> {
    let wanted = Wanted::of(form.fields.pairs());
    match started(&api, &form, &wanted).await {
        Ok(id) => {
            let mut response = see(&format!("/retry-operations/{id}"));
            let flash = Flash::done("It has started, and is safe on disk.");
            response.headers_mut().append(SET_COOKIE, flash.cookie());
            Ok(response)
        }
        Err(problem) => Ok(NewPage::of(&api, &form.visitor, wanted, Some(problem)).await.answer()),
    }
}

async fn started(api: &Shared, form: &Form, wanted: &Wanted) -> Result<String> {
    let (visitor, fields) = (&form.visitor, &form.fields);
    // The button says what it starts. Whoever changed the rest of the form has not seen its count.
    if fields.get("sure") != Some(wanted.action.as_str()) || fields.get("f").is_some() {
        return Err(Problem::new(Kind::Invalid, "it was changed: look at the count, then start it"));
    }
    confirmed(api, form, wanted).await?;
    let body = Text::<LARGEST>::of(api, &visitor.caller, &wanted.body())?;
    let key = IdempotencyKey(Some(wanted.key.clone()).filter(|key| !key.is_empty()));
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let answer = retry_operations::start(State(api.clone()), caller, actor, NoQuery, key, body).await?;
    answered(answer, "id").await
}

/// A large discard is asked for by its number, and is no larger than that.
async fn confirmed(api: &Shared, form: &Form, wanted: &Wanted) -> Result<()> {
    if wanted.parsed() != Action::Discard {
        return Ok(());
    }
    let now = dry_run(api, &form.visitor, wanted).await?;
    if now.total <= MOST_UNTYPED {
        return Ok(());
    }
    let digits = |name: &str| {
        let text: String = form.fields.get(name)?.chars().filter(|digit| !", ".contains(*digit)).collect();
        text.parse::<u64>().ok()
    };
    check_number(digits("typed"), digits("counted"), &now)
}

/// Whether the number that was typed is the one that was shown, and covers what is there now. What is not counted to its end
/// has no number that could be compared.
fn check_number(typed: Option<u64>, counted: Option<u64>, now: &PreviewView) -> Result<()> {
    let wrong = match (typed, counted) {
        (Some(typed), Some(counted)) if typed == counted && (!now.exact || now.total <= counted) => {
            return Ok(());
        }
        (Some(typed), Some(counted)) if typed == counted => {
            "there are more now than were counted: look at the number again"
        }
        _ => "the number that was typed is not the number of dead letters: nothing was discarded",
    };
    Err(Problem::new(Kind::Invalid, wrong))
}

#[cfg(test)]
mod tests;
