//! The order of turns: parts by weight, tenants in turn, the flows of each tenant in turn.

use std::collections::BTreeMap;

use crate::flow::FlowId;
use crate::notification::Tenant;

/// Parts that share by weight.
#[derive(Debug)]
pub(super) struct Rota<T, const N: usize> {
    pub(super) parts: [T; N],
    pub(super) credit: [i64; N],
}

impl<T: Default, const N: usize> Default for Rota<T, N> {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| T::default()), credit: [0; N] }
    }
}

impl<const N: usize> Rota<Ring, N> {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(Ring::is_empty)
    }
}

/// Smooth weighted turns: each open part earns its weight, the richest goes and pays for all. Shares are exact over
/// a round and no open part waits longer than one; a part that is not open keeps no credit.
pub(super) fn weighted<const N: usize>(
    credit: &mut [i64; N],
    weights: [i64; N],
    open: [bool; N],
) -> Option<usize> {
    let mut total = 0;
    for index in 0..N {
        if open[index] {
            credit[index] += weights[index];
            total += weights[index];
        } else {
            credit[index] = 0;
        }
    }
    let winner = (0..N).filter(|index| open[*index]).max_by_key(|index| (credit[*index], N - index))?;
    credit[winner] -= total;
    Some(winner)
}

/// Tenants in turn, and the flows of each tenant in turn.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) tenants: Line<Tenant>,
    pub(super) lines: BTreeMap<Tenant, Line<FlowId>>,
    pub(super) owners: BTreeMap<FlowId, Tenant>,
}

impl Ring {
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(super) fn push(&mut self, tenant: &Tenant, flow: FlowId) {
        if self.owners.contains_key(&flow) {
            return;
        }
        self.owners.insert(flow, tenant.clone());
        self.lines.entry(tenant.clone()).or_default().push(flow);
        self.tenants.push(tenant.clone());
    }

    /// Takes the flow out; returns whose it was.
    pub(super) fn remove(&mut self, flow: FlowId) -> Option<Tenant> {
        let tenant = self.owners.remove(&flow)?;
        let line = self.lines.get_mut(&tenant).expect("the owner of a flow has a line");
        line.remove(&flow);
        if line.is_empty() {
            self.lines.remove(&tenant);
            self.tenants.remove(&tenant);
        }
        Some(tenant)
    }

    pub(super) fn turn(&mut self) -> Option<(Tenant, FlowId)> {
        let tenant = self.tenants.turn()?;
        let flow = self.lines.get_mut(&tenant)?.turn()?;
        Some((tenant, flow))
    }
}

/// A queue: an entry that had a turn goes to the end, and any entry can be removed.
#[derive(Debug)]
pub(super) struct Line<K> {
    next: u64,
    by_position: BTreeMap<u64, K>,
    pub(super) positions: BTreeMap<K, u64>,
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self { next: 0, by_position: BTreeMap::new(), positions: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Line<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn push(&mut self, who: K) {
        if self.positions.contains_key(&who) {
            return;
        }
        self.by_position.insert(self.next, who.clone());
        self.positions.insert(who, self.next);
        self.next += 1;
    }

    pub(super) fn remove(&mut self, who: &K) {
        if let Some(position) = self.positions.remove(who) {
            self.by_position.remove(&position);
        }
    }

    pub(super) fn turn(&mut self) -> Option<K> {
        let (_, who) = self.by_position.pop_first()?;
        self.positions.remove(&who);
        self.push(who.clone());
        Some(who)
    }
}
