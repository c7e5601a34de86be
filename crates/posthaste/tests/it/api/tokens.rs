//! Access tokens: what they may do, whose they are, and who acted.

mod attacks;
pub(crate) mod issuer;
mod keys;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use posthaste::config::{Config, Jwt, JwtKeys, Secret};
use posthaste::tokens::{Algorithm, Rules};
use posthaste_core::role::Role;
use serde_json::{Value, json};

use self::issuer::{AUDIENCE, ISSUER, Signer, claims, seconds};
use super::roles::walk::{Holder, Scene};
use super::running::{Caller, Running, StoreKind};

/// Settings under which the tokens of a signer are accepted.
fn jwt(algorithm: Algorithm, keys: JwtKeys) -> Jwt {
    let rules = Rules {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        tenant: "tenant".to_owned(),
        role: "role".to_owned(),
        module: "module".to_owned(),
    };
    Jwt { algorithm, keys, rules }
}

/// Settings with the key of the signer in them.
pub(crate) fn accepting(signer: &Signer) -> impl FnOnce(&mut Config) + use<> {
    let keys = match signer.algorithm() {
        Algorithm::Hs256 => {
            JwtKeys::Secret(Secret::new(String::from_utf8(signer.secret().to_vec()).unwrap()))
        }
        Algorithm::Rs256 | Algorithm::Es256 | Algorithm::EdDsa => {
            JwtKeys::PublicKey(signer.pem().into_bytes())
        }
    };
    let jwt = jwt(signer.algorithm(), keys);
    |config| accept(config, jwt)
}

/// Callers say where they are, so that wrong tokens can come from many addresses: those from one are answered slower and slower.
fn accept(config: &mut Config, jwt: Jwt) {
    config.jwt = Some(jwt);
    config.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
}

/// An address that nobody else has.
fn elsewhere() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0x0b00_0000);
    Ipv4Addr::from(LAST.fetch_add(1, Ordering::Relaxed)).to_string()
}

/// One token of each role.
fn holders(running: &Running, signer: &Signer, tenant: &'static str) -> Vec<Holder> {
    let holder = |role: Role| {
        let caller = running.caller(Some(&signer.token(&claims(tenant, role.name()))));
        Holder { role: Some(role), tenant, caller }
    };
    Role::NAMED.map(holder).into()
}

async fn a_token_may_do_what_a_key_of_its_role_may(on: StoreKind) {
    let signer = Signer::new(Algorithm::Es256, "k");
    let scene = Scene::of(Running::with(on, accepting(&signer)).await).await;
    scene.asks_each_for_its_role(&holders(&scene.running, &signer, "a")).await;
    scene.running.stop().await;
}

async fn no_token_reaches_what_is_another_tenants(on: StoreKind) {
    let signer = Signer::new(Algorithm::EdDsa, "k");
    let scene = Scene::of(Running::with(on, accepting(&signer)).await).await;
    scene.keeps_out(&holders(&scene.running, &signer, "b")).await;
    scene.running.stop().await;
}

async fn each_algorithm_is_accepted_where_it_is_configured(on: StoreKind) {
    for algorithm in Algorithm::ALL {
        let signers = Algorithm::ALL.map(|algorithm| Signer::new(algorithm, "k"));
        let own = signers.iter().find(|signer| signer.algorithm() == algorithm).unwrap();
        let running = Running::with(on, accepting(own)).await;
        for signer in &signers {
            let caller = running.caller(Some(&signer.token(&claims("a", "reader"))));
            let wanted = if signer.algorithm() == algorithm { 200 } else { 401 };
            caller.ask(Method::GET, "/v1/stats", &[], "").await.is(wanted);
        }
        // Keys go on as before.
        running.tenant("a").await.get("/v1/stats").await;
        running.stop().await;
    }
}

/// Asks until the token is no longer accepted: the time of the server passes by itself.
async fn until_refused(caller: &Caller) {
    let refused = async { while caller.ask(Method::GET, "/v1/stats", &[], "").await.status != 401 {} };
    tokio::time::timeout(Duration::from_secs(20), refused).await.expect("the token is refused in the end");
}

async fn a_token_is_accepted_until_half_a_minute_after_it_expired(on: StoreKind) {
    let signer = Signer::new(Algorithm::Rs256, "k");
    let running = Running::with(on, accepting(&signer)).await;
    let mut said = claims("a", "reader");
    said["exp"] = json!(seconds() - 26);
    let caller = running.caller(Some(&signer.token(&said)));
    caller.get("/v1/stats").await;
    let mut events = caller.stream("/v1/stream", None).await;
    until_refused(&caller).await;
    let ended = async { while events.next().await.is_ok_and(|event| event.is_some()) {} };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("a stream ends with its token");
    running.stop().await;
}

async fn a_token_for_a_module_sends_for_no_other_one(on: StoreKind) {
    let signer = Signer::new(Algorithm::Hs256, "k");
    let running = Running::with(on, accepting(&signer)).await;
    let with = |role: &str, module: Option<&str>| {
        let mut said = claims("a", role);
        if let Some(module) = module {
            said["module"] = json!(module);
        }
        running.caller(Some(&signer.token(&said)))
    };
    let (billing, any) = (with("admin", Some("billing")), with("admin", None));
    let sent = |module: Option<&str>, path: &str| {
        let mut sent = running.webhook(path);
        if let Some(module) = module {
            sent["module"] = json!(module);
        }
        sent
    };
    for (caller, named, wanted) in [
        (&billing, None, json!("billing")),
        (&billing, Some("billing"), json!("billing")),
        (&any, Some("shop"), json!("shop")),
        (&any, None, Value::Null),
    ] {
        let shown = caller.send_until(&sent(named, "/ok"), "succeeded").await;
        assert_eq!(shown["module"], wanted, "{named:?}");
    }
    let refused = billing.post("/v1/notifications", &sent(Some("shop"), "/ok")).await;
    let problem = refused.problem(403, "FORBIDDEN");
    assert_eq!(problem["pointer"], "/module");
    assert!(problem["detail"].as_str().unwrap().contains("`billing`"), "{problem}");
    let batch = json!({"notifications": [sent(Some("shop"), "/ok"), sent(None, "/ok")]});
    let told = billing.post("/v1/notifications/batch", &batch).await.is(202);
    assert_eq!(told["rejected"][0]["problem"]["code"], "FORBIDDEN");
    assert_eq!(told["rejected"][0]["problem"]["pointer"], "/notifications/0/module");
    // An edit keeps the module of another sender, and names none but the own one.
    for (body, wanted) in [
        (json!({}), Ok("shop")),
        (json!({"module": null}), Ok("billing")),
        (json!({"module": "billing"}), Ok("billing")),
        (json!({"module": "shop"}), Err("/module")),
    ] {
        let dead = any.send_until(&sent(Some("shop"), "/status/400"), "deadLetter").await;
        let path = format!("/v1/dead-letters/{}/edit-and-retry", dead["deadLetterId"].as_str().unwrap());
        let told = billing.post(&path, &body).await;
        match wanted {
            Ok(module) => {
                let copy = told.is(202)["notificationId"].as_str().unwrap().to_owned();
                let shown = any.get(&format!("/v1/notifications/{copy}")).await;
                assert_eq!(shown["module"], module, "{body}");
            }
            Err(pointer) => assert_eq!(told.problem(403, "FORBIDDEN")["pointer"], pointer),
        }
    }
    running.stop().await;
}

async fn the_subject_of_a_token_acts_and_has_views_of_its_own(on: StoreKind) {
    let signer = Signer::new(Algorithm::Hs256, "k");
    let running = Running::with(on, accepting(&signer)).await;
    let of = |subject: &str| {
        let mut said = claims("a", "operator");
        said["sub"] = json!(subject);
        running.caller(Some(&signer.token(&said)))
    };
    let (ada, bob) = (of("Ada Łovelace"), of("auth0|bob"));
    let admin = running.caller(Some(&signer.token(&claims("a", "admin"))));
    let view = json!({"list": "notifications", "query": "status=failed", "shared": false}).to_string();
    ada.ask(Method::PUT, "/v1/views/mine", &[], view.clone()).await.is(200);
    assert_eq!(ada.get("/v1/views").await["data"].as_array().unwrap().len(), 1);
    assert_eq!(bob.get("/v1/views").await["data"], json!([]));
    bob.ask(Method::PUT, "/v1/views/mine", &[], view).await.is(422);
    let made =
        admin.post("/v1/keys", &json!({"name": "made", "tenant": "a", "role": "sender"})).await.is(201);
    let audit = admin.get("/v1/audit").await["data"].clone();
    let row = audit.as_array().unwrap().iter().find(|row| row["action"] == "create-key").unwrap();
    assert_eq!((&row["actor"], &row["target"]), (&json!("admin of a"), &made["id"]));
    assert_eq!((&row["keyId"], &row["address"]), (&Value::Null, &json!("127.0.0.1")));
    let views = bob.get("/v1/audit?actor=Ada%20%C5%81ovelace").await["data"].clone();
    assert_eq!(views.as_array().unwrap().len(), 1, "{views}");
    running.stop().await;
}

async fn a_token_brings_no_tenant_about_that_a_new_key_could_not_be_for(on: StoreKind) {
    let signer = Signer::new(Algorithm::Hs256, "k");
    let running = Running::with(on, accepting(&signer)).await;
    let ask = async |tenant: &str| {
        let caller = running.caller(Some(&signer.token(&claims(tenant, "operator"))));
        let from = [("x-forwarded-for", &*elsewhere())];
        caller.ask(Method::GET, "/v1/stats", &from, "").await.status.as_u16()
    };
    for tenant in ["Acme", "system", "posthaste", "*", "a b", "", "a/b", "ä"] {
        assert_eq!(ask(tenant).await, 401, "{tenant}");
    }
    assert_eq!(ask("new-one").await, 200);
    // `Old` is from before.
    running
        .change_store("insert into flow (tenant, channel, destination) values ('Old', 0, 'http://x:80')")
        .await;
    assert_eq!(ask("Old").await, 200);
    running.stop().await;
}

on_each_store! {
    a_token_may_do_what_a_key_of_its_role_may;
    no_token_reaches_what_is_another_tenants;
    each_algorithm_is_accepted_where_it_is_configured;
    a_token_is_accepted_until_half_a_minute_after_it_expired;
    a_token_for_a_module_sends_for_no_other_one;
    the_subject_of_a_token_acts_and_has_views_of_its_own;
    a_token_brings_no_tenant_about_that_a_new_key_could_not_be_for;
}
