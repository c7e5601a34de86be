//! TLS: what is preferred is used, what is required is checked.

use posthaste_store::postgres::{ConnectError, PostgresOptions, PostgresStore};

use super::server::Server;

#[tokio::test]
async fn tls_is_used_where_the_server_has_it_and_checked_where_it_is_required() {
    let mut server = Server::start();
    let database = server.database();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, secret) = (made.cert.pem(), made.signing_key.serialize_pem());
    // The server writes its own files, so that they belong to it.
    for (name, text) in [("server.crt", &certificate), ("server.key", &secret)] {
        let lines: Vec<String> = text.lines().map(|line| format!("('{line}')")).collect();
        let put = format!(
            "copy (select * from (values {}) as lines) to program 'umask 077; cat > {name}'",
            lines.join(", ")
        );
        server.sql("postgres", &put);
    }
    server.sql("postgres", "alter system set ssl = on");
    server.order("restart");
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), &certificate).unwrap();
    let url = |mode: &str| {
        format!(
            "postgres://postgres@localhost:{}/{database}?hostaddr=127.0.0.1&sslmode={mode}",
            server.port()
        )
    };
    let options = |name: &str| PostgresOptions {
        connections: 1,
        application_name: name.to_owned(),
        ..PostgresOptions::default()
    };
    let encrypted = |name: &str| {
        let of = "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name";
        server.sql("postgres", &format!("{of} = '{name}'"))
    };
    let _plain = PostgresStore::connect(&url("disable"), options("plain")).await.unwrap();
    assert_eq!(encrypted("plain"), "f");
    // Nobody vouches for the certificate, which keeps listeners out all the same.
    let _preferred = PostgresStore::connect(&url("prefer"), options("preferred")).await.unwrap();
    assert_eq!(encrypted("preferred"), "t");
    for mode in ["require", "verify-full"] {
        let error = PostgresStore::connect(&url(mode), options("required")).await.err().unwrap();
        let said = error.to_string();
        assert!(matches!(error, ConnectError::NoTls { .. }) && said.contains("certificate"), "{said}");
        let root_certificates = Some(trusted.path().to_owned());
        let options = PostgresOptions { root_certificates, ..options(mode) };
        let _required = PostgresStore::connect(&url(mode), options).await.unwrap();
        assert_eq!(encrypted(mode), "t");
    }
    let options = PostgresOptions { root_certificates: Some("/no/such/file".into()), ..options("none") };
    let said = PostgresStore::connect(&url("require"), options).await.err().unwrap().to_string();
    assert!(said.contains("/no/such/file"), "{said}");
}

/// Whoever stands in between could say that the server has no TLS, and then read everything.
#[tokio::test]
async fn a_server_without_tls_is_refused_where_its_certificate_is_to_be_checked() {
    let server = Server::shared();
    let database = server.database();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), made.cert.pem()).unwrap();
    let connect = async |mode: &str| {
        let root_certificates = Some(trusted.path().to_owned());
        let options = PostgresOptions { connections: 1, root_certificates, ..PostgresOptions::default() };
        PostgresStore::connect(&format!("{}{mode}", server.url(&database)), options).await
    };
    for mode in ["", "?sslmode=prefer"] {
        let error = connect(mode).await.err().unwrap();
        assert!(matches!(error, ConnectError::NoTls { .. }), "{mode}: {error}");
    }
    connect("?sslmode=disable").await.unwrap();
}
