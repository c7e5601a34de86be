//! Client certificates: one origin sees its own, and nobody else sees any.

use std::sync::{Arc, Mutex};

use posthaste_core::reply::Fault;
use posthaste_wire::http::{BadCertificate, ClientCertificate, HttpOptions};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

use crate::proxy::{proxy, through};
use crate::rig::{LOCALHOST, Names, Peer, channel, fault, options, read_request, send, status};

/// An authority for servers and clients.
struct Authority {
    root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = root.self_signed(&key).unwrap().der().clone();
        Self { root: der, issuer: Issuer::new(root, key) }
    }

    fn issue(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        leaf.not_after = date_time_ymd(2040, 1, 2);
        (leaf.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn client(&self, name: &str) -> ClientCertificate {
        let (certificate, key) = self.issue(name);
        let both = certificate.pem() + &key.serialize_pem();
        ClientCertificate::read(both.as_bytes(), both.as_bytes()).unwrap()
    }
}

/// What the server saw of each connection that began a request: the certificate of the other side, or none.
type Seen = Arc<Mutex<Vec<Option<CertificateDer<'static>>>>>;

struct Receiver {
    peer: Peer,
    seen: Seen,
}

impl Receiver {
    /// A server that wants a certificate of this authority, or takes connections without one as well.
    async fn start(
        authority: &Authority,
        is_required: bool,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.root.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
        let (certificate, key) = authority.issue("hooks.test");
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let (acceptor, seen) = (TlsAcceptor::from(Arc::new(config)), Seen::default());
        let kept = seen.clone();
        let peer = Peer::start(move |stream| {
            let (acceptor, kept) = (acceptor.clone(), kept.clone());
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let shown = stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone().into_owned());
                kept.lock().unwrap().push(shown);
                while read_request(&mut stream).await.is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                }
            }
        });
        Self { peer: peer.await, seen }
    }

    fn origin(&self) -> String {
        format!("https://hooks.test:{}", self.peer.address.port())
    }

    fn seen(&self) -> Vec<Option<CertificateDer<'static>>> {
        self.seen.lock().unwrap().clone()
    }
}

fn trusting(authority: &Authority) -> HttpOptions {
    let names = Names([("hooks.test", vec![LOCALHOST])].into());
    HttpOptions { roots: vec![authority.root.clone()], resolver: Arc::new(names), ..options() }
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test]
async fn the_origin_of_a_certificate_sees_it_and_other_origins_see_none() {
    let authority = Authority::new();
    let certificate = authority.client("posthaste.test");
    for version in VERSIONS {
        let wants = Receiver::start(&authority, true, version).await;
        let other = Receiver::start(&authority, false, version).await;
        let mut options = trusting(&authority);
        options.certificates.insert(wants.origin(), certificate.clone());
        let channel = channel(options);
        for _ in 0..3 {
            assert_eq!(status(&send(&channel, &format!("{}/in", wants.origin())).await), 200);
            // The same host and authority on another port is another origin.
            assert_eq!(status(&send(&channel, &format!("{}/in", other.origin())).await), 200);
        }
        let seen = wants.seen();
        assert!(matches!(&seen[..], [Some(_)]), "one connection serves all: {seen:?}");
        assert_eq!(other.seen(), [None]);
    }
}

/// A whole handshake costs the receiver a signature for each connection.
#[tokio::test]
async fn a_new_connection_resumes_the_session_of_the_last_one() {
    let authority = Authority::new();
    for version in VERSIONS {
        let (certificate, key) = authority.issue("hooks.test");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let (acceptor, kinds) = (TlsAcceptor::from(Arc::new(config)), Arc::new(Mutex::new(vec![])));
        let kept = kinds.clone();
        let peer = Peer::start(move |stream| {
            let (acceptor, kept) = (acceptor.clone(), kept.clone());
            async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                kept.lock().unwrap().push(stream.get_ref().1.handshake_kind());
                read_request(&mut stream).await.unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        })
        .await;
        let channel = channel(trusting(&authority));
        for _ in 0..2 {
            let url = format!("https://hooks.test:{}/in", peer.address.port());
            assert_eq!(status(&send(&channel, &url).await), 200);
        }
        let kinds = kinds.lock().unwrap().clone();
        assert_eq!(kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_and_gets_none_is_a_fault_that_says_so() {
    let authority = Authority::new();
    for version in VERSIONS {
        let wants = Receiver::start(&authority, true, version).await;
        let reply = send(&channel(trusting(&authority)), &format!("{}/in", wants.origin())).await;
        let (kind, text) = fault(&reply);
        // The alert may be lost when the server closes with our request unread.
        assert!(matches!(kind, Fault::Tls | Fault::Reset), "{reply:?}");
        assert!(text.contains("asks for a client certificate"), "{text}");
        assert_eq!(wants.seen(), []);
    }
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_the_server_does_not_know_is_a_fault() {
    let authority = Authority::new();
    for version in VERSIONS {
        let wants = Receiver::start(&authority, true, version).await;
        let mut options = trusting(&authority);
        options.certificates.insert(wants.origin(), Authority::new().client("posthaste.test"));
        let reply = send(&channel(options), &format!("{}/in", wants.origin())).await;
        let (kind, text) = fault(&reply);
        assert!(matches!(kind, Fault::Tls | Fault::Reset), "{reply:?}");
        assert!(text.contains("a client certificate was shown"), "{text}");
        assert_eq!(wants.seen(), []);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_sees_no_certificate() {
    let authority = Authority::new();
    for version in VERSIONS {
        let wants = Receiver::start(&authority, false, version).await;
        let mut options = trusting(&authority);
        options.roots.clear();
        options.certificates.insert(wants.origin(), authority.client("posthaste.test"));
        let reply = send(&channel(options), &format!("{}/in", wants.origin())).await;
        let (kind, text) = fault(&reply);
        assert_eq!(kind, Fault::Tls);
        assert!(text.contains("UnknownIssuer"), "{text}");
        assert_eq!((wants.peer.accepted(), wants.seen()), (1, vec![]));
    }
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_to_new_connections() {
    let authority = Authority::new();
    let wants = Receiver::start(&authority, true, &rustls::version::TLS13).await;
    let mut options = trusting(&authority);
    // Nothing is kept, so that each send opens a connection.
    options.pool.total = 0;
    options.certificates.insert(wants.origin(), authority.client("old.test"));
    let channel = channel(options);
    let url = format!("{}/in", wants.origin());
    assert_eq!(status(&send(&channel, &url).await), 200);
    channel.show_certificate(wants.origin(), &authority.client("new.test")).unwrap();
    assert_eq!(status(&send(&channel, &url).await), 200);
    let seen = wants.seen();
    let holds = |at: usize, name: &str| {
        let der = seen[at].as_deref().unwrap();
        der.windows(name.len()).any(|part| part == name.as_bytes())
    };
    assert_eq!(seen.len(), 2);
    assert!(holds(0, "old.test") && !holds(0, "new.test") && holds(1, "new.test"));
}

#[tokio::test]
async fn a_certificate_is_shown_through_a_proxy() {
    let authority = Authority::new();
    let wants = Receiver::start(&authority, true, &rustls::version::TLS13).await;
    let (proxy, heads) = proxy(wants.peer.address).await;
    let mut options = through(&format!("http://{}", proxy.address));
    options.roots = vec![authority.root.clone()];
    options.certificates.insert("https://hooks.test:443".to_owned(), authority.client("posthaste.test"));
    let reply = send(&channel(options), "https://hooks.test/in").await;
    assert_eq!(status(&reply), 200);
    assert!(heads.lock().unwrap()[0].starts_with("CONNECT hooks.test:443 "));
    assert!(matches!(&wants.seen()[..], [Some(_)]));
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_with_its_reason() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("posthaste.test");
    let (chain, key) = (certificate.pem(), key.serialize_pem());
    let other = KeyPair::generate().unwrap().serialize_pem();
    let read = |chain: &str, key: &str| ClientCertificate::read(chain.as_bytes(), key.as_bytes());
    let good = read(&chain, &key).unwrap();
    let (chain, key, other) = (&*chain, &*key, &*other);
    assert_eq!(good.expires_at(), Some("2040-01-02T00:00:00Z".parse().unwrap()));
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let unusable = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (chain, key, wanted) in [
        ("", key, BadCertificate::NoCertificate),
        (key, key, BadCertificate::NoCertificate),
        (damaged, key, BadCertificate::Unreadable),
        (chain, "", BadCertificate::NoKey),
        (chain, chain, BadCertificate::NoKey),
        (chain, encrypted, BadCertificate::NoKey),
        (chain, unusable, BadCertificate::UnusableKey),
        (chain, other, BadCertificate::OtherKey),
    ] {
        assert_eq!(read(chain, key), Err(wanted));
    }
}
