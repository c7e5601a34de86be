//! A receiver that wants a client certificate: the configuration names it, the webhook shows it.

use std::sync::Arc;

use posthaste::config::{Config, Sources};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::running::{Running, StoreKind, quick};

/// A receiver that takes webhooks of callers with a certificate alone, and the settings that they need.
struct Receiver {
    origin: String,
    /// The sections `[webhooks]` and `[destinations]`.
    settings: Vec<(String, String)>,
    _files: tempfile::TempDir,
    _running: JoinSet<()>,
}

impl Receiver {
    async fn start() -> Self {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_certificate = root.self_signed(&root_key).unwrap();
        let issuer = Issuer::new(root, root_key);
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (leaf.signed_by(&key, &issuer).unwrap(), key)
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(root_certificate.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let (own, key) = issue("127.0.0.1");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![own.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("https://{}", listener.local_addr().unwrap());
        let mut running = JoinSet::new();
        running.spawn(serve(listener, TlsAcceptor::from(Arc::new(config))));
        let files = tempfile::tempdir().unwrap();
        let (client, key) = issue("posthaste.test");
        let write = |name: &str, text: String| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let root = write("root.pem", root_certificate.pem());
        let client = write("client.pem", client.pem() + &key.serialize_pem());
        let settings = vec![
            ("webhooks.root_certificates".to_owned(), root),
            ("POSTHASTE__DESTINATIONS__".to_owned() + &origin + "__CLIENT_CERTIFICATE", client),
        ];
        Self { origin, settings, _files: files, _running: running }
    }

    /// What the configuration says with the certificate, or without.
    fn configured(&self, has_certificate: bool) -> Config {
        let mut sources = Sources { directory: "/nowhere".into(), ..Sources::default() };
        sources.flags.push(self.settings[0].clone());
        if has_certificate {
            let (name, path) = self.settings[1].clone();
            sources.variables.push((name.into(), path.into()));
        }
        Config::load(sources).unwrap()
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut read = [0; 8_192];
        if stream.read(&mut read).await.is_ok_and(|length| length > 0) {
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    }
}

async fn sent(on: StoreKind, has_certificate: bool, state: &str) -> Value {
    let receiver = Receiver::start().await;
    let configured = receiver.configured(has_certificate);
    let running = Running::with(on, |config| {
        config.webhooks = configured.webhooks;
        config.client_certificates = configured.client_certificates;
    })
    .await;
    let to = format!("{}/in", receiver.origin);
    let webhook = json!({"channel": "webhook", "to": to, "body": {"hello": "world"}, "policy": quick(1)});
    let shown = running.admin.send_until(&webhook, state).await;
    running.stop().await;
    shown["attempts"][0].clone()
}

async fn a_receiver_sees_the_certificate_that_the_configuration_names(on: StoreKind) {
    let attempt = sent(on, true, "succeeded").await;
    assert_eq!(attempt["statusCode"], 204, "{attempt}");
}

async fn without_one_the_attempt_says_what_the_receiver_wants(on: StoreKind) {
    let attempt = sent(on, false, "deadLetter").await;
    assert_eq!(attempt["failureType"], "networkFailure", "{attempt}");
    assert!(attempt["error"].as_str().unwrap().contains("asks for a client certificate"), "{attempt}");
}

on_each_store! {
    a_receiver_sees_the_certificate_that_the_configuration_names;
    without_one_the_attempt_says_what_the_receiver_wants;
}
