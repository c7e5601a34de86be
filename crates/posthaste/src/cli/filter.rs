//! The filter flags that the lists share.

use clap::Args;
use clap::builder::PossibleValuesParser;
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::time::Timestamp;

use super::input;
use super::listing::Query;

/// The filters of `notifications list` and `dead-letters list`.
#[derive(Args)]
pub(crate) struct Filter {
    #[command(flatten)]
    common: ShortFilter,
    /// Made from this template
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// To this destination
    #[arg(long)]
    destination: Option<String>,
    /// Whose last attempt failed like this
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FailureType::ALL.map(FailureType::name)))]
    failure_type: Option<String>,
    /// With this text in recipient, subject, event key or correlation id
    #[arg(short = 'q', long, value_name = "TEXT")]
    search: Option<String>,
}

/// The filters that `notifications failed` has too.
#[derive(Args)]
pub(crate) struct ShortFilter {
    #[command(flatten)]
    tenant: TenantFilter,
    /// Over this channel
    #[arg(long, value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)))]
    channel: Option<String>,
    /// Since then: a time, or how long ago
    #[arg(long, value_name = "TIME", value_parser = input::past)]
    since: Option<Timestamp>,
    /// Until then: a time, or how long ago
    #[arg(long, value_name = "TIME", value_parser = input::past)]
    until: Option<Timestamp>,
}

/// Every list has it.
#[derive(Args)]
pub(crate) struct TenantFilter {
    /// Of this tenant; the default is all tenants of the key
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl Filter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        self.common.add_to(query);
        query.set("template", self.template.as_ref());
        query.set("destination", self.destination.as_ref());
        query.set("failureType", self.failure_type.as_ref());
        query.set("q", self.search.as_ref());
    }
}

impl ShortFilter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        self.tenant.add_to(query);
        query.set("channel", self.channel.as_ref());
        query.set("since", self.since);
        query.set("until", self.until);
    }
}

impl TenantFilter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        query.set("tenant", self.tenant.as_ref());
    }
}
