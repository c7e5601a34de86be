//! Tables whose oldest rows go first, and in which nothing is passed over.

use posthaste_engine::store::Prune;

use super::super::fault::Result;
use super::super::rows::bigint;
use super::super::tx::{Tx, bind};

pub(super) const AUDIT: &str = "
    delete from audit
    where number = any(array(
        select w.number
        from (
            select number, at
            from audit
            order by number
            limit $2) as w
        where w.at < $1))
    returning 1";

pub(super) const RUNS: &str = "
    delete from job_run
    where number = any(array(
        select w.number
        from (
            select number, outcome, finished_at
            from job_run
            order by number
            limit $2) as w
        where w.outcome is not null
        and w.finished_at < $1))
    returning 1";

/// Hour 0 stands for what has no hour.
pub(super) const COUNTERS: &str = "
    delete from counter
    where ctid = any(array(
        select ctid
        from counter
        where hour > 0
        and hour < $1
        limit $2))
    returning 1";

/// Removes the oldest rows of a table that nothing is passed over in.
pub(super) async fn oldest(tx: &Tx, prune: &Prune, sql: &str, before: i64) -> Result<(i64, Option<Vec<u8>>)> {
    let removed = tx.rows(sql, bind![before => INT8, bigint(prune.limit) => INT8]).await?.len();
    Ok((bigint(removed), (removed >= prune.limit).then(Vec::new)))
}
