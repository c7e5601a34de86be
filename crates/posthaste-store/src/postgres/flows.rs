//! Cache of flows and their numbers.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::notification::Tenant;
use posthaste_core::recent::Recent;
use posthaste_engine::store::KnownFlow;

use super::fault::{Fault, Result, unless_damaged};
use super::rows::{Columns, Keys, bigint};
use super::tx::{Mode, Tx, bind};

const MAX_CACHED: usize = 100_000;

/// A bounded cache of flows. A flow never changes, so cached entries stay valid. A flow is cached after the
/// commit of the transaction that created it.
#[derive(Default)]
pub(super) struct Flows(Mutex<Known>);

struct Known {
    keys: Recent<FlowId, Arc<FlowKey>>,
    numbers: Recent<Arc<FlowKey>, FlowId>,
}

impl Default for Known {
    fn default() -> Self {
        Self { keys: Recent::new(MAX_CACHED), numbers: Recent::new(MAX_CACHED) }
    }
}

impl Flows {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the flows, each once, ordered by number, if all of them are cached.
    pub(super) fn remembered(&self, flows: &[FlowId]) -> Option<Vec<KnownFlow>> {
        let wanted: BTreeSet<FlowId> = flows.iter().copied().collect();
        let mut known = self.lock();
        wanted
            .into_iter()
            .map(|id| Some(KnownFlow { id, key: FlowKey::clone(known.keys.get(&id)?) }))
            .collect()
    }

    fn remember(&self, found: Vec<(FlowId, FlowKey)>) -> Vec<(FlowId, Arc<FlowKey>)> {
        let mut known = self.lock();
        let mut remembered = Vec::with_capacity(found.len());
        for (flow, key) in found {
            let key = Arc::new(key);
            known.keys.insert(flow, key.clone());
            known.numbers.insert(key.clone(), flow);
            remembered.push((flow, key));
        }
        remembered
    }

    /// The flows that exist and are readable. Queries the server only for those that are not cached; inside a
    /// transaction the query is part of it.
    pub(super) async fn keys(&self, tx: &Tx, flows: impl IntoIterator<Item = FlowId>) -> Result<Keys> {
        let flows: BTreeSet<FlowId> = flows.into_iter().collect();
        let mut found = Keys::with_capacity(flows.len());
        let mut missing = vec![];
        {
            let mut known = self.lock();
            for flow in flows {
                match known.keys.get(&flow) {
                    Some(key) => {
                        found.insert(flow, key.clone());
                    }
                    None => missing.push(flow.0),
                }
            }
        }
        if !missing.is_empty() {
            let sql = "select id, tenant, channel, destination from flow where id = any($1)";
            let rows = tx.rows(sql, bind![missing => INT8_ARRAY]).await?;
            let mut read = Vec::with_capacity(rows.len());
            for row in &rows {
                let flow = FlowId(row.try_get(0)?);
                read.extend(unless_damaged(&flow, numbered(&mut Columns::of(row)))?);
            }
            found.extend(self.remember(read));
        }
        Ok(found)
    }

    /// Returns the numbers in the order of the keys, if all of them are cached.
    pub(super) fn numbers(&self, keys: &[FlowKey]) -> Option<Vec<FlowId>> {
        let mut known = self.lock();
        keys.iter().map(|key| known.numbers.get(key).copied()).collect()
    }

    /// Returns the numbers of flows, and inserts those that are new, in a transaction of its own. The keys
    /// are sorted, so that two callers that insert the same flows cannot deadlock. A flow that another
    /// transaction inserted meanwhile is found by the second select.
    pub(super) async fn intern(&self, tx: &Tx, keys: &[FlowKey]) -> Result<Vec<FlowId>> {
        let wanted: BTreeSet<&FlowKey> = keys.iter().collect();
        let tenants: Vec<&str> = wanted.iter().map(|key| key.tenant.as_str()).collect();
        let channels: Vec<i16> = wanted.iter().map(|key| i16::from(key.channel.code())).collect();
        let destinations: Vec<&str> = wanted.iter().map(|key| &*key.destination).collect();
        let bound = bind![tenants => TEXT_ARRAY, channels => INT2_ARRAY, destinations => TEXT_ARRAY];
        let mut read = vec![];
        for sql in [FIND, MAKE, FIND] {
            if read.len() == wanted.len() {
                break;
            }
            let rows = tx.alone(Mode::Write, sql, bound).await?;
            if sql == FIND {
                read.clear();
            }
            for row in &rows {
                read.push(numbered(&mut Columns::of(row))?);
            }
        }
        self.remember(read.clone());
        let numbers: HashMap<&FlowKey, FlowId> = read.iter().map(|(flow, key)| (key, *flow)).collect();
        let number = |key| numbers.get(key).copied().ok_or_else(|| Fault::damaged("a flow got no number"));
        keys.iter().map(number).collect()
    }
}

const FIND: &str = "
    select f.id, f.tenant, f.channel, f.destination
    from unnest($1::text[], $2::smallint[], $3::text[]) as u (tenant, channel, destination)
    join flow f on f.tenant = any(array[u.tenant])
        and f.channel = any(array[u.channel])
        and f.destination = any(array[u.destination])";

/// Takes a number from the sequence only for new flows, so that numbers stay small.
const MAKE: &str = "
    insert into flow (tenant, channel, destination)
    select u.tenant, u.channel, u.destination
    from unnest($1::text[], $2::smallint[], $3::text[]) as u (tenant, channel, destination)
    where not exists (
        select
        from flow f
        where f.tenant = u.tenant and f.channel = u.channel and f.destination = u.destination)
    on conflict do nothing
    returning id, tenant, channel, destination";

fn numbered(columns: &mut Columns<'_>) -> Result<(FlowId, FlowKey)> {
    let flow = FlowId(columns.take()?);
    let tenant = columns.maybe_tenant()?.ok_or_else(|| Fault::damaged("a flow without a tenant"))?;
    let channel = columns.channel()?;
    let destination: String = columns.take()?;
    Ok((flow, FlowKey { tenant, channel, destination: destination.into() }))
}

/// The tenants of all flows by name, from this one on. Each is one look into the index of flows. A name that cannot be read is
/// left out.
pub(super) async fn tenants(tx: &Tx, from: Option<&Tenant>, limit: usize) -> Result<Vec<Tenant>> {
    let sql = "
        with recursive listed (tenant) as (
            (select tenant from flow where tenant >= $1 order by tenant limit 1)
            union all
            select (select f.tenant from flow f where f.tenant > l.tenant order by f.tenant limit 1)
            from listed l
            where l.tenant is not null)
        select tenant
        from listed
        where tenant is not null
        limit $2";
    let (from, limit) = (from.map_or("", Tenant::as_str), bigint(limit));
    let rows = tx.alone(Mode::Read, sql, bind![from => TEXT, limit => INT8]).await?;
    let names = rows.iter().map(|row| Columns::of(row).take::<String>());
    let names: Vec<String> = names.collect::<Result<_>>()?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}
