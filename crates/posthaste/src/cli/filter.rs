//! Which notifications or dead letters are meant: the flags that the lists share.
//!
//! The server reads the values, so that a command and a request take the same; names and times are checked here too,
//! so that help and completions show what there is.

use clap::Args;
use clap::builder::PossibleValuesParser;
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_engine::clock::Clock as _;

use super::listing::Query;
use crate::clock::SystemClock;

const STATUSES: [&str; 7] = ["queued", "sending", "retrying", "delivered", "failed", "cancelled", "expired"];

/// The filters of notifications in any state.
#[derive(Args)]
pub(crate) struct NotificationFilter {
    /// In this state, or in one of these
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(State::ALL.map(State::name)))]
    state: Vec<String>,
    /// With this status, or one of these
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(STATUSES))]
    status: Vec<String>,
    #[command(flatten)]
    filter: Filter,
}

/// The filters of a list.
#[derive(Args)]
pub(crate) struct Filter {
    #[command(flatten)]
    waiting: RetryFilter,
    /// That ended for this reason, or one of these
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = PossibleValuesParser::new(Reason::ALL.map(Reason::code)))]
    reason_code: Vec<String>,
}

/// The filters that the retry queue has as well.
#[derive(Args)]
pub(crate) struct RetryFilter {
    #[command(flatten)]
    tenant: TenantFilter,
    /// Over this channel, or one of these
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)))]
    channel: Vec<String>,
    /// Made from this template, or one of these
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// To this destination, or one of these; a URL stands for its origin
    #[arg(long)]
    destination: Option<String>,
    /// Whose last attempt failed like this, or in one of these ways
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = PossibleValuesParser::new(FailureType::ALL.map(FailureType::name)))]
    failure_type: Vec<String>,
    /// Whose last attempt failed with this status code, or one of these
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    status_code: Vec<u16>,
    /// Since then: a time, a date, or how long ago
    #[arg(long, value_name = "TIME", value_parser = past)]
    since: Option<String>,
    /// Until then: a time, a date, or how long ago
    #[arg(long, value_name = "TIME", value_parser = past)]
    until: Option<String>,
    /// With this text in recipient, subject, event key or correlation id
    #[arg(short = 'q', long, value_name = "TEXT")]
    search: Option<String>,
}

/// A time that the server will understand.
pub(crate) fn past(given: &str) -> Result<String, String> {
    let wrong =
        "give a time such as 2026-04-15T10:45:30Z, a date such as 2026-04-15, or a duration such as 15m";
    let known = posthaste_core::filter::time(given, SystemClock.now());
    known.map(|_| given.to_owned()).ok_or_else(|| wrong.to_owned())
}

/// Every list has it.
#[derive(Args)]
pub(crate) struct TenantFilter {
    /// Of this tenant; the default is all tenants of the key
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl NotificationFilter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        query.set_several("state", &self.state);
        query.set_several("status", &self.status);
        self.filter.add_to(query);
    }
}

impl Filter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        self.waiting.add_to(query);
        query.set_several("reasonCode", &self.reason_code);
    }
}

impl RetryFilter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        self.tenant.add_to(query);
        query.set_several("channel", &self.channel);
        query.set("template", self.template.as_ref());
        query.set("destination", self.destination.as_ref());
        query.set_several("failureType", &self.failure_type);
        query.set_several("statusCode", &self.status_code);
        query.set("since", self.since.as_ref());
        query.set("until", self.until.as_ref());
        query.set("q", self.search.as_ref());
    }
}

impl TenantFilter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        query.set("tenant", self.tenant.as_ref());
    }
}
