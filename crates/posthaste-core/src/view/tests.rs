//! Tests of saved views.

use std::sync::LazyLock;

use super::*;

static ADA: LazyLock<Viewer> = LazyLock::new(|| Viewer { key: "key_ada".to_owned(), is_admin: false });
static BOB: LazyLock<Viewer> = LazyLock::new(|| Viewer { key: "key_bob".to_owned(), is_admin: false });
static ADMIN: LazyLock<Viewer> = LazyLock::new(|| Viewer { key: "key_root".to_owned(), is_admin: true });

fn view(name: &str, list: ViewList, owner: &Viewer, shared: bool) -> SavedView {
    SavedView {
        name: ViewName::new(name).unwrap(),
        list,
        query: "status=failed&since=1d".to_owned(),
        shared,
        owner: owner.key.clone(),
        by: "somebody".to_owned(),
        at: Timestamp::from_millis(7),
    }
}

fn seen(views: &Views, viewer: &Viewer) -> Vec<String> {
    views.seen_by(viewer).map(|view| view.name.as_str().to_owned()).collect()
}

#[test]
fn a_name_is_short_and_fits_into_an_address() {
    let longest = "ü".repeat(ViewName::MAX);
    for good in ["a", "Failed today", "Überfällig: 3 %", "...", longest.as_str()] {
        assert_eq!(ViewName::new(good).unwrap().as_str(), good);
    }
    for (bad, why) in [
        (String::new(), BadViewName::Length),
        (format!("{longest}u"), BadViewName::Length),
        ("a\nb".to_owned(), BadViewName::Control),
        (" a".to_owned(), BadViewName::Space),
        ("a ".to_owned(), BadViewName::Space),
        ("a/b".to_owned(), BadViewName::Path),
        ("a\\b".to_owned(), BadViewName::Path),
        ("..".to_owned(), BadViewName::Path),
    ] {
        assert_eq!(ViewName::new(&bad), Err(why), "{bad:?}");
    }
}

#[test]
fn the_name_of_a_list_names_it() {
    for list in ViewList::ALL {
        assert_eq!(ViewList::from_name(list.name()), Some(list));
        assert_eq!(serde_json::to_value(list).unwrap(), list.name());
    }
    assert_eq!(ViewList::from_name("audit"), None);
}

#[test]
fn views_are_kept_in_the_order_of_their_lists_and_names() {
    let mut views = Views::default();
    assert_eq!(views.to_json(), None);
    for (name, list) in [
        ("b", ViewList::DeadLetters),
        ("z", ViewList::Notifications),
        ("a", ViewList::DeadLetters),
        ("y", ViewList::Notifications),
    ] {
        views.put(view(name, list, &ADA, true), &ADA).unwrap();
    }
    assert_eq!(seen(&views, &BOB), ["y", "z", "a", "b"]);
    assert_eq!(Views::from_json(&views.to_json().unwrap()), Some(views));
    assert_eq!(Views::from_json("{}"), None);
}

#[test]
fn what_is_not_shared_is_seen_with_its_key_and_by_admins() {
    let mut views = Views::default();
    views.put(view("mine", ViewList::Notifications, &ADA, false), &ADA).unwrap();
    views.put(view("ours", ViewList::Notifications, &ADA, true), &ADA).unwrap();
    assert_eq!(seen(&views, &ADA), ["mine", "ours"]);
    assert_eq!(seen(&views, &BOB), ["ours"]);
    assert_eq!(seen(&views, &ADMIN), ["mine", "ours"]);
    let mine = ViewName::new("mine").unwrap();
    assert!(!views.remove(&mine, &BOB));
    let taken = views.put(view("mine", ViewList::RetryQueue, &BOB, true), &BOB);
    assert_eq!(taken, Err(NotSaved::Taken));
    assert!(views.clone().remove(&mine, &ADMIN));
    assert!(views.remove(&mine, &ADA) && !views.remove(&mine, &ADA));
    assert_eq!(seen(&views, &ADMIN), ["ours"]);
}

#[test]
fn a_view_replaces_the_one_of_its_name_and_the_number_is_bounded() {
    let mut views = Views::default();
    for number in 0..Views::MAX {
        views.put(view(&number.to_string(), ViewList::Notifications, &ADA, true), &ADA).unwrap();
    }
    let one_more = view("more", ViewList::Notifications, &ADA, true);
    assert_eq!(views.put(one_more.clone(), &ADA), Err(NotSaved::Full));
    views.put(view("7", ViewList::RetryQueue, &BOB, true), &BOB).unwrap();
    assert_eq!(views.seen_by(&ADA).count(), Views::MAX);
    assert_eq!(views.seen_by(&ADA).last().unwrap().list, ViewList::RetryQueue);
    assert!(views.remove(&ViewName::new("7").unwrap(), &ADA));
    views.put(one_more, &ADA).unwrap();
}
