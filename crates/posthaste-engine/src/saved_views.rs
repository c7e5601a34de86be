//! Saved views: filters of lists that people gave names.

use std::sync::Arc;

use posthaste_core::notification::Tenant;
use posthaste_core::record::{Expected, RecordChange};
use posthaste_core::time::Timestamp;
use posthaste_core::view::{NotSaved, SavedView, ViewName, Viewer, Views};

use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::journal;
use crate::reads::{ReadError, Reads};
use crate::store::{Audit, Result, StoreError};

/// How often a change is made anew because somebody else was faster.
const MAX_TRIES: usize = 5;

/// Why the views of a tenant were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("there is no view `{}`", .0.as_str())]
    Missing(ViewName),
    #[error(transparent)]
    NotSaved(#[from] NotSaved),
    #[error("the views keep changing; ask again")]
    Busy,
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
}

impl Reads {
    /// The views of the caller's tenant, or of those who see all tenants.
    pub async fn saved_views(&self) -> std::result::Result<Views, ReadError> {
        let tenant = self.tenant(None)?;
        Ok(kept(self.shared(), tenant).await?.0)
    }
}

impl Engine {
    /// Saves a view of the actor's tenant in place of the one of its name.
    pub async fn put_saved_view(
        &self,
        view: SavedView,
        viewer: Viewer,
        actor: &Actor,
    ) -> std::result::Result<(), ViewError> {
        let name = view.name.clone();
        let put = move |views: &mut Views| Ok(views.put(view.clone(), &viewer)?);
        self.change_saved_views("put-view", &name, actor, put).await
    }

    /// Deletes a view of the actor's tenant.
    pub async fn delete_saved_view(
        &self,
        name: ViewName,
        viewer: Viewer,
        actor: &Actor,
    ) -> std::result::Result<(), ViewError> {
        let removed = name.clone();
        let remove = move |views: &mut Views| {
            let was_there = views.remove(&removed, &viewer);
            was_there.then_some(()).ok_or_else(|| ViewError::Missing(removed.clone()))
        };
        self.change_saved_views("delete-view", &name, actor, remove).await
    }

    async fn change_saved_views(
        &self,
        action: &'static str,
        name: &ViewName,
        actor: &Actor,
        change: impl Fn(&mut Views) -> std::result::Result<(), ViewError> + Send + 'static,
    ) -> std::result::Result<(), ViewError> {
        let (shared, audit, now) =
            (self.shared.clone(), self.audit(actor, action, name.as_str()), self.now());
        self.to_its_end(async move { Ok(changed(&shared, audit, now, change).await) }).await??;
        journal::set(action, name.as_str(), actor);
        Ok(())
    }
}

/// Reads, changes and writes the views, again if somebody else was faster.
async fn changed(
    shared: &Arc<Shared>,
    audit: Audit,
    now: Timestamp,
    change: impl Fn(&mut Views) -> std::result::Result<(), ViewError>,
) -> std::result::Result<(), ViewError> {
    for _ in 0..MAX_TRIES {
        let (mut views, expected) = kept(shared, audit.tenant.clone()).await?;
        change(&mut views)?;
        let key = Views::key(audit.tenant.clone());
        let put = RecordChange { key, number: 0, value: views.to_json(), expected };
        let made = shared.store.put_records(vec![put], Some(audit.clone()), now).await?;
        if made.iter().any(Option::is_some) {
            return Ok(());
        }
    }
    Err(ViewError::Busy)
}

/// The views as they are kept, and what a change expects.
async fn kept(shared: &Shared, tenant: Option<Tenant>) -> Result<(Views, Expected)> {
    let found = shared.store.records(vec![Views::key(tenant)]).await?;
    let Some(record) = found.into_iter().next() else { return Ok((Views::default(), Expected::Absent)) };
    let views = record.value.as_deref().and_then(Views::from_json);
    let unreadable = || StoreError::Corrupt { what: "saved views that cannot be read".to_owned() };
    Ok((views.ok_or_else(unreadable)?, Expected::Version(record.version)))
}
