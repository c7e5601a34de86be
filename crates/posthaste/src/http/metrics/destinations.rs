//! Figures of destinations. Their names are no labels: there may be many, and tenants choose them.

use posthaste_engine::engine::Engine;

use super::{Page, escaped};

impl Page {
    pub(super) fn destinations(&mut self, engine: &Engine) {
        let figures = engine.destination_figures();
        let name = "posthaste_destination_state";
        self.head(name, "gauge", "Destinations that are not at their full speed, by what keeps them from it");
        for (hindrance, count) in figures.hindered {
            self.line(name, &format!("state=\"{}\"", hindrance.name()), count);
        }
        let name = "posthaste_provider_blocked";
        self.head(name, "gauge", "1 for a provider that nothing but probes is sent to");
        for (provider, is_shut) in figures.providers {
            self.line(name, &format!("provider=\"{}\"", escaped(&provider)), u8::from(is_shut));
        }
        let name = "posthaste_destination_events_total";
        self.head(name, "counter", "What happened to destinations by itself, as this node recorded it");
        for (event, count) in engine.metrics().destination_events {
            self.line(name, &format!("event=\"{}\"", event.name()), count);
        }
    }
}
