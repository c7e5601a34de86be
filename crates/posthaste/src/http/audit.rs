//! `/v1/audit`: who did what.

use http::StatusCode;
use serde_json::json;

use super::problem::Result;
use super::query::{Paging, Query};
use super::{Api, Ask, json};

/// `GET /v1/audit`
pub(super) async fn list(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let paging: Paging<i64> = Paging::take(api, ask, &mut query)?;
    let tenant = query.tenant(ask)?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(ask, |store| async move { store.audit(tenant, from, limit).await }).await?;
    let shown = paging.show(api, page, |row| {
        json!({
            "number": row.number,
            "at": row.audit.at,
            "actor": row.audit.actor,
            "action": row.audit.action,
            "target": row.audit.target,
            "tenant": row.audit.tenant,
            "keyId": row.audit.key_id,
            "address": row.audit.address,
            "asked": row.asked,
            "count": row.count,
            "outcome": row.outcome(),
        })
    });
    Ok(json(StatusCode::OK, &shown))
}
