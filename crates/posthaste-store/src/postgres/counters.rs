//! Kept counters: deltas are summed in memory and written once per transaction, each transaction into its own
//! rows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::fault::Result;
use super::flows::Flows;
#[cfg(feature = "planted")]
use super::rows::Columns;
use super::rows::known;
#[cfg(feature = "planted")]
use super::tx::Mode;
use super::tx::Tx;
use crate::kept::counters::{ALL, Delta, Deltas};

/// Maximum number of rows of one counter.
const WRITERS: usize = 64;

/// Distance between the first writers of two processes.
const STRIDE: i64 = 4;

/// The counter writers of one process. Each running transaction has its own, because two transactions that
/// change the same row wait for each other. With so many processes that they share writers, counting is
/// slower but still correct.
pub(super) struct CounterWriters {
    first: usize,
    taken: Mutex<Vec<bool>>,
}

impl CounterWriters {
    pub(super) fn of(process: i64) -> Arc<Self> {
        let first = usize::try_from((process * STRIDE).rem_euclid(WRITERS as i64)).unwrap_or(0);
        Arc::new(Self { first, taken: Mutex::new(vec![]) })
    }

    /// Takes the lowest free writer, so that as few as possible are used.
    pub(super) fn take(self: &Arc<Self>) -> CounterWriter {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        if slot == taken.len() {
            taken.push(true);
        } else {
            taken[slot] = true;
        }
        CounterWriter { of: self.clone(), slot }
    }
}

/// Free again when it is dropped.
pub(super) struct CounterWriter {
    of: Arc<CounterWriters>,
    slot: usize,
}

impl CounterWriter {
    /// The value of the column `writer`.
    pub(super) fn number(&self) -> i16 {
        i16::try_from((self.of.first + self.slot) % WRITERS).unwrap_or(0)
    }
}

impl Drop for CounterWriter {
    fn drop(&mut self) {
        self.of.taken.lock().unwrap_or_else(PoisonError::into_inner)[self.slot] = false;
    }
}

#[derive(Default)]
pub(super) struct Sums {
    pub(super) tenants: Vec<String>,
    pub(super) hours: Vec<i64>,
    pub(super) kinds: Vec<i16>,
    pub(super) channels: Vec<i16>,
    pub(super) by: Vec<i64>,
    pub(super) writer: i16,
}

/// Adds to an existing counter.
macro_rules! or_add {
    () => {
        "on conflict (tenant, hour, kind, channel, writer) do update
    set n = counter.n + excluded.n"
    };
}
pub(super) use or_add;

/// Adds sums to the counters; the arguments are the parameters of their columns.
macro_rules! add_sums {
    ($tenants:literal, $hours:literal, $kinds:literal, $channels:literal, $by:literal, $writer:literal) => {
        concat!(
            "
    insert into counter (tenant, hour, kind, channel, writer, n)
    select tenant, hour, kind, channel, ",
            $writer,
            ", n
    from unnest(",
            $tenants,
            "::text[], ",
            $hours,
            "::bigint[], ",
            $kinds,
            "::smallint[], ",
            $channels,
            "::smallint[], ",
            $by,
            "::bigint[])
        as u (tenant, hour, kind, channel, n)
    ",
            $crate::postgres::counters::or_add!()
        )
    };
}
pub(super) use add_sums;

impl Sums {
    /// The deltas by tenant and channel, in key order.
    pub(super) async fn of(mut deltas: Deltas, tx: &Tx, flows: &Flows) -> Result<Self> {
        let deltas = deltas.take();
        let keys = flows.keys(tx, deltas.iter().map(|delta| delta.flow)).await?;
        let mut sums: BTreeMap<(&str, i64, u8, u8), i64> = BTreeMap::new();
        for Delta { flow, kind, hour, by } in deltas {
            let key = known(&keys, flow)?;
            let channel = key.channel.code();
            *sums.entry((ALL, hour, kind as u8, channel)).or_default() += by;
            *sums.entry((key.tenant.as_str(), hour, kind as u8, channel)).or_default() += by;
        }
        let mut ready = Self { writer: tx.writer(), ..Self::default() };
        for ((tenant, hour, kind, channel), n) in sums.into_iter().filter(|(_, n)| *n != 0) {
            ready.tenants.push(tenant.to_owned());
            ready.hours.push(hour);
            ready.kinds.push(i16::from(kind));
            ready.channels.push(i16::from(channel));
            ready.by.push(n);
        }
        Ok(ready)
    }

    pub(super) const ADD: &str = add_sums!("$1", "$2", "$3", "$4", "$5", "$6");
}

macro_rules! bind_sums {
    ($sums:expr) => {
        $crate::postgres::tx::bind![
            $sums.tenants => TEXT_ARRAY,
            $sums.hours => INT8_ARRAY,
            $sums.kinds => INT2_ARRAY,
            $sums.channels => INT2_ARRAY,
            $sums.by => INT8_ARRAY,
            $sums.writer => INT2,
        ]
    };
}
pub(super) use bind_sums;

/// Compares the counters with the rows. Describes the first difference; `None` if there is none.
#[cfg(feature = "planted")]
pub(super) async fn recount(tx: &Tx) -> Result<Option<String>> {
    let sql = "
        with fact (flow, kind, hour) as (
            select flow, lane, 0::bigint
            from queue
            union all
            select flow, 2::smallint, 0
            from ended
            join notification using (id)
            where state = 6
            union all
            select flow, 3::smallint, at / 3600000000
            from ended
            join notification using (id)
            where state = 2
            union all
            select flow, 4::smallint, at / 3600000000
            from ended
            join notification using (id)),
        counted as (
            select coalesce(tenant, '') as tenant, channel, kind, hour, count(*) as n
            from fact
            join flow on flow.id = fact.flow
            group by grouping sets ((tenant, channel, kind, hour), (channel, kind, hour))),
        kept as (
            select tenant, channel, kind, hour, sum(n)::bigint as n
            from counter
            group by tenant, channel, kind, hour
            having sum(n) <> 0)
        select format('%s channel %s kind %s hour %s: kept %s, counted %s', tenant, channel, kind, hour, kept.n, counted.n)
        from kept
        full join counted using (tenant, channel, kind, hour)
        where kept.n is distinct from counted.n
        -- The counters of earlier hours were removed by retention. Hour 0 stands for what has no hour.
        and (hour = 0 or int8send(hour) >= coalesce(
            (select after from retention where retention.kind = 'counters'), '\\x'::bytea))
        limit 1";
    let rows = tx.alone(Mode::Read, sql, &[]).await?;
    rows.first().map(|row| Columns::of(row).take()).transpose()
}
