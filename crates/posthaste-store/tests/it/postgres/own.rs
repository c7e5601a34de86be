//! The server of one's own: its directory is its own, and nothing of it stays behind.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use posthaste_store::postgres::own::OwnServer;

/// A directory that whoever runs the server can go through.
fn below() -> tempfile::TempDir {
    let open = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().permissions(open).tempdir().unwrap()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn a_link_that_somebody_put_there_before_is_not_followed() {
    let (below, elsewhere) = (below(), below());
    for number in 0..100 {
        let name = format!("posthaste-pg-{}-{number}", std::process::id());
        symlink(elsewhere.path(), below.path().join(name)).unwrap();
    }
    let server = OwnServer::start(below.path(), "").unwrap();
    assert!(server.directory().join("data/PG_VERSION").exists() && is_empty(elsewhere.path()));
    let mode = server.directory().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn nothing_stays_behind_of_a_server_that_did_not_do_as_it_was_told() {
    let below = below();
    let mut server = OwnServer::start(below.path(), "").unwrap();
    let port = server.port();
    assert!(server.order("nonsense").is_err());
    drop(server);
    assert!(is_empty(below.path()), "its directory is gone");
    std::net::TcpListener::bind(("127.0.0.1", port)).expect("nobody listens any more");
    assert!(OwnServer::start(below.path(), "no_such_setting = on").is_err());
    assert!(is_empty(below.path()), "the directory of one that did not start is gone too");
}
