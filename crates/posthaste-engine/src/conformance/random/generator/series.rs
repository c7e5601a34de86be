//! Rows of figures: few keys, so that they meet.

use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::lease::NodeId;
use posthaste_core::reason::Reason;
use posthaste_core::series::{Figures, Happened, Points, Span};
use posthaste_core::time::Timestamp;

use super::{DESTINATIONS, Generator, TENANTS, tenant};
use crate::store::{DestinationHour, SeriesRow, series};

impl Generator {
    pub(super) fn series_call(&mut self) -> series::Call {
        match self.rng.u32(0..6) {
            0..2 => {
                let count = self.rng.usize(0..6);
                series::Call::Put { rows: (0..count).map(|_| self.series_row()).collect() }
            }
            2 => {
                let (from, until) = (self.period(Span::Minute), self.now);
                series::Call::Get { tenant: self.series_tenant(), span: self.span(), from, until }
            }
            3 => {
                let count = self.rng.usize(0..6);
                let rows = (0..count).map(|_| self.destination_hour()).collect();
                series::Call::PutDestinations { rows }
            }
            4 => series::Call::GetDestination {
                tenant: self.series_tenant(),
                destination: DESTINATIONS[self.rng.usize(..DESTINATIONS.len())].into(),
                from: self.period(Span::Hour),
                until: self.now,
            },
            _ => {
                let length = Duration::from_secs([60, 300][self.rng.usize(0..2)]);
                let until = self.now.later(Duration::from_secs(self.rng.u64(1..7_200)));
                let points = Points::new(self.now, until, length).expect("fewer than 200 points");
                series::Call::Load { tenant: self.series_tenant(), points, limit: 1_000_000 }
            }
        }
    }

    fn figures(&mut self) -> Figures {
        let mut figures = Figures { accepted: self.rng.u64(0..4), ..Figures::default() };
        for _ in 0..self.rng.usize(0..4) {
            let reason = Reason::ALL[self.rng.usize(..Reason::ALL.len())];
            let took = Duration::from_millis(self.rng.u64(0..200_000));
            figures.add(match self.rng.u32(0..4) {
                0 => Happened::Delivered { first_try: self.rng.bool(), took },
                1 => Happened::DeadLettered(reason),
                2 => Happened::Failed(reason),
                _ => Happened::Retried,
            });
        }
        figures
    }

    fn series_row(&mut self) -> SeriesRow {
        let span = self.span();
        SeriesRow {
            tenant: self.series_tenant(),
            span,
            at: self.period(span),
            channel: self.series_channel(),
            node: NodeId(self.rng.i64(1..3)),
            figures: self.figures(),
        }
    }

    /// Few places, so that destinations take them over.
    fn destination_hour(&mut self) -> DestinationHour {
        DestinationHour {
            tenant: self.series_tenant(),
            at: self.period(Span::Hour),
            node: NodeId(self.rng.i64(1..3)),
            place: self.rng.u16(0..3),
            channel: self.series_channel(),
            destination: DESTINATIONS[self.rng.usize(..DESTINATIONS.len())].into(),
            count: self.rng.u64(0..9),
            figures: self.figures(),
        }
    }

    fn series_channel(&mut self) -> Channel {
        [Channel::Webhook, Channel::Email][self.rng.usize(0..2)]
    }

    fn series_tenant(&mut self) -> Option<posthaste_core::notification::Tenant> {
        self.rng.bool().then(|| tenant(TENANTS[self.rng.usize(..TENANTS.len())]))
    }

    fn span(&mut self) -> Span {
        Span::ALL[self.rng.usize(0..2)]
    }

    /// The running period, or one of those before.
    fn period(&mut self, span: Span) -> Timestamp {
        span.start(self.now.earlier(span.length() * self.rng.u32(0..3)))
    }
}
