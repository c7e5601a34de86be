//! Saved views: whoever saves at the same time, nothing is lost.

use posthaste_core::view::{SavedView, ViewList, ViewName, Viewer};
use posthaste_engine::engine::Engine;
use posthaste_engine::saved_views::ViewError;

use crate::rig::{Rig, ada};

fn viewer() -> Viewer {
    Viewer { key: "key_1".to_owned(), is_admin: false }
}

fn view(name: &str) -> SavedView {
    SavedView {
        name: ViewName::new(name).unwrap(),
        list: ViewList::Notifications,
        query: "status=failed".to_owned(),
        shared: true,
        owner: "key_1".to_owned(),
        by: "ada".to_owned(),
        at: posthaste_core::time::Timestamp::from_millis(1),
    }
}

#[tokio::test(start_paused = true)]
async fn views_that_two_nodes_save_at_once_are_all_kept() {
    let rig = Rig::new();
    let (one, other) = (rig.start().await, rig.start().await);
    let actor = ada();
    let put = async |engine: &Engine, name: &str| engine.put_saved_view(view(name), viewer(), &actor).await;
    let (a, b, c) = tokio::join!(put(&one, "a"), put(&other, "b"), put(&one, "c"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    let names = async || -> Vec<String> {
        let kept = other.reads(actor.tenant.clone()).saved_views().await.unwrap();
        kept.seen_by(&viewer()).map(|view| view.name.as_str().to_owned()).collect()
    };
    assert_eq!(names().await, ["a", "b", "c"]);
    let b = ViewName::new("b").unwrap();
    one.delete_saved_view(b.clone(), viewer(), &actor).await.unwrap();
    let again = one.delete_saved_view(b, viewer(), &actor).await;
    assert!(matches!(again, Err(ViewError::Missing(_))));
    assert_eq!(names().await, ["a", "c"]);
    let actions: Vec<String> = rig.audit().into_iter().map(|row| row.audit.action).collect();
    assert_eq!(actions.iter().filter(|action| *action == "put-view").count(), 3);
    assert_eq!(actions.iter().filter(|action| *action == "delete-view").count(), 1);
}
