//! TLS: whom to trust, and what is said when the handshake fails.

use std::sync::Arc;

use posthaste_core::reply::Fault;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

use crate::rig::{LOCALHOST, Names, Peer, channel, fault, options, read_request, send, sink, status};

/// A server's certificate for a name, and the authority that issued it.
pub(crate) struct Identity {
    pub(crate) root: CertificateDer<'static>,
    pub(crate) acceptor: TlsAcceptor,
}

pub(crate) fn identity(name: &str) -> Identity {
    identity_for(name, &[])
}

/// A server that speaks these protocols (ALPN).
pub(crate) fn identity_for(name: &str, protocols: &[&[u8]]) -> Identity {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_der = root.self_signed(&root_key).unwrap().der().clone();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Identity { root: root_der, acceptor: TlsAcceptor::from(Arc::new(config)) }
}

pub(crate) async fn server(acceptor: TlsAcceptor) -> Peer {
    Peer::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while read_request(&mut stream).await.is_some() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
        }
    })
    .await
}

fn names() -> Arc<Names> {
    Arc::new(Names([("hooks.test", vec![LOCALHOST]), ("other.test", vec![LOCALHOST])].into()))
}

#[tokio::test]
async fn a_certificate_of_a_trusted_authority_is_accepted_and_the_connection_kept() {
    let identity = identity("hooks.test");
    let peer = server(identity.acceptor).await;
    let mut options = options();
    (options.resolver, options.roots) = (names(), vec![identity.root]);
    let channel = channel(options);
    for _ in 0..3 {
        let reply = send(&channel, &format!("https://hooks.test:{}/", peer.address.port())).await;
        assert_eq!(status(&reply), 200);
    }
    assert_eq!(peer.accepted(), 1);
    let reply = send(&channel, &format!("https://other.test:{}/", peer.address.port())).await;
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Tls);
    assert!(text.contains("not valid for name"), "{text}");
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_a_fault_of_tls() {
    let peer = server(identity("hooks.test").acceptor).await;
    let mut options = options();
    options.resolver = names();
    let reply = send(&channel(options), &format!("https://hooks.test:{}/", peer.address.port())).await;
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Tls);
    assert!(text.contains("UnknownIssuer"), "{text}");
}

#[tokio::test]
async fn a_plain_port_is_a_fault_of_tls() {
    let sink = sink().await;
    let reply = send(&channel(options()), &sink.url("/ok").replace("http:", "https:")).await;
    assert_eq!(fault(&reply).0, Fault::Tls, "{reply:?}");
    let closing = Peer::start(|stream| async move { drop(stream) }).await;
    let reply = send(&channel(options()), &closing.url().replace("http:", "https:")).await;
    assert_eq!(fault(&reply).0, Fault::Tls, "{reply:?}");
}

#[test]
fn a_root_that_is_no_certificate_is_refused() {
    let mut options = options();
    options.roots = vec![CertificateDer::from(b"nonsense".to_vec())];
    assert!(posthaste_wire::webhook::WebhookChannel::new(options).is_err());
}
