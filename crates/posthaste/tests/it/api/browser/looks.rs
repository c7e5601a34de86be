//! How every page looks: rules of accessibility by axe-core, in light, in dark and on a phone; nothing sticks out, nothing is blank.
//!
//! `POSTHASTE_SHOTS` names a directory in which the pictures stay.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use miniz_oxide::inflate::{decompress_to_vec, decompress_to_vec_zlib};
use serde_json::{Value, json};

use super::super::running::{quick, slow};
use super::super::tenants::populate;
use super::Scene;

const AXE: &[u8] = include_bytes!("../../../axe/axe.min.js.gz");
const NOTE: &str = include_str!("../../../axe/README.md");
const RUN: &str = "const done = arguments[0]; \
    const told = (one) => ({ impact: one.impact, rule: one.id, help: one.help, at: one.nodes.map((node) => node.html) }); \
    axe.run(document).then((found) => done({ rules: found.passes.length, broken: found.violations.map(told) }), \
        (error) => done(String(error)))";
/// How far the page is wider than the screen, and what sticks out.
const WIDE: &str = "const root = document.documentElement, most = root.clientWidth; \
    const out = [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > most + 1); \
    return { over: root.scrollWidth - most, out: out.slice(0, 3).map((one) => one.outerHTML.slice(0, 200)) }";

/// The share of a picture that is not even, below which there is nothing to see. A line of text is 0.4 %.
const BLANK: f64 = 0.001;

#[derive(Debug, Clone, Copy)]
enum Look {
    Light,
    Dark,
    Phone,
}

/// The script of axe-core.
fn axe() -> String {
    // Ten bytes of head without a name, and eight bytes of sums.
    String::from_utf8(decompress_to_vec(&AXE[10..AXE.len() - 8]).unwrap()).unwrap()
}

#[test]
fn the_vendored_rules_are_those_of_the_note() {
    let sum: String =
        digest(&SHA256, axe().as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(NOTE.contains(&format!("| SHA-256 of `axe.min.js` | {sum} |")), "{sum}");
}

impl Scene {
    /// Something in every state, with texts that are long, and addresses of it.
    async fn populated(&self) -> Vec<String> {
        let admin = &self.running.admin;
        populate(&self.running, admin).await;
        let mut sent = self.running.webhook(&format!("/status/503?{}", "a-long-address".repeat(12)));
        sent["subject"] =
            json!(format!("Your invoice of November is ready {}", "Donaudampfschiff".repeat(6)));
        sent["body"] = json!({"text": "word ".repeat(200), "one": "w".repeat(400)});
        for name in ["eventKey", "correlationId", "template", "userId", "module"] {
            sent[name] = json!(format!("{name}.{}", "w".repeat(200)));
        }
        sent["policy"] = quick(5);
        sent["policy"]["quick"] = json!({"tries": 2, "delay": "1ms"});
        let dead = admin.send_until(&sent, "deadLetter").await;
        sent["policy"] = slow();
        let waits = admin.send_until(&sent, "retryScheduled").await;
        let wanted =
            json!({"name": format!("the key of {}", "w".repeat(80)), "tenant": "acme", "role": "reader"});
        admin.post("/v1/keys", &wanted).await.is(201);
        let policy = json!({"maxAttempts": 20, "initialDelay": "1m"}).to_string();
        admin.ask(http::Method::PUT, "/v1/policies/tenant:acme", &[], policy).await.is(200);
        admin.act("/v1/jobs/retry-expire/run").await;
        for group in admin.all("/v1/failure-groups").await {
            let path = format!("/v1/failure-groups/{}/note", group["id"].as_str().unwrap());
            let note = json!({"text": "The provider was down until three."}).to_string();
            admin.ask(http::Method::PUT, &path, &[], note).await.is(200);
        }
        let nothing = json!({"filter": {"q": "nothing"}});
        admin.post("/v1/retry-operations", &nothing).await.is(202);
        let id = |of: &Value, name: &str| of[name].as_str().unwrap().to_owned();
        let known = admin.all("/v1/destinations?all=true").await;
        let destination = format!("/destinations/{}", id(&known[0], "id"));
        let reason = json!({"reason": format!("maintenance until noon {}", "w".repeat(200))});
        admin.post(&format!("/v1{destination}/block"), &reason).await.is(200);
        vec![
            destination,
            "/policies/tenant:acme/simulate?rate=5&script=ok+for+5m%2C+503+for+10m%2C+ok+for+15m".to_owned(),
            format!("/notifications/{}", id(&dead, "notificationId")),
            format!("/notifications/{}", id(&waits, "notificationId")),
            format!("/dead-letters/{}", id(&dead, "deadLetterId")),
            format!("/dead-letters/{}/edit-and-retry", id(&dead, "deadLetterId")),
            "/notifications?nonsense=1".to_owned(),
            "/notifications?q=nothing-has-this".to_owned(),
            "/dead-letters?status=all".to_owned(),
            "/dead-letters/none".to_owned(),
            "/policies/tenant:acme".to_owned(),
            "/signing-secret?tenant=acme".to_owned(),
        ]
    }

    async fn take(&self, look: Look) {
        let scheme = if matches!(look, Look::Dark) { "dark" } else { "light" };
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.browser.devtools("Emulation.setEmulatedMedia", scheme).await;
        let is_phone = matches!(look, Look::Phone);
        let (width, height) = if is_phone { (390, 844) } else { (1280, 900) };
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.browser.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        self.browser.devtools("Emulation.setTouchEmulationEnabled", json!({"enabled": is_phone})).await;
    }

    /// Looks at the open page in every way; returns what is wrong with it.
    async fn looked_at(&self, path: &str, axe: &str, shots: &Path) -> Vec<String> {
        let mut wrong = vec![];
        self.browser.script(axe, json!([])).await;
        for look in [Look::Light, Look::Dark, Look::Phone] {
            self.take(look).await;
            let found = self.browser.promised(RUN, json!([])).await;
            let broken = found["broken"].as_array().unwrap_or_else(|| panic!("axe: {found}"));
            assert!(
                found["rules"].as_u64().unwrap() + broken.len() as u64 > 3,
                "{path}: axe looked at nothing: {found}"
            );
            wrong.extend(broken.iter().map(|rule| format!("{path} {look:?}: {rule:#}")));
            let wide = self.browser.script(WIDE, json!([])).await;
            if wide["over"].as_i64().unwrap() > 0 {
                wrong.push(format!("{path} {look:?} is too wide: {wide:#}"));
            }
            let picture = decoded(&self.browser.picture().await);
            if shades(&picture) < BLANK {
                wrong.push(format!("{path} {look:?} is blank"));
            }
            std::fs::write(
                shots.join(format!("{}-{look:?}.png", path.replace(['/', '?', ':'], "_"))),
                picture,
            )
            .unwrap();
        }
        wrong
    }
}

/// Bytes that are written in base64.
fn decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut held, mut bits) = (vec![], 0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        (held, bits) = ((held << 6) | u32::from(value), bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    bytes
}

/// How much of a picture is not even: the share of bytes that differ from the most frequent, after PNG's filters, which make
/// even areas zero.
fn shades(png: &[u8]) -> f64 {
    let (mut at, mut packed) = (8, vec![]);
    while at + 8 <= png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        if &png[at + 4..at + 8] == b"IDAT" {
            packed.extend_from_slice(&png[at + 8..at + 8 + length]);
        }
        at += 12 + length;
    }
    let bytes = decompress_to_vec_zlib(&packed).unwrap();
    let mut counts = [0_usize; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    1.0 - *counts.iter().max().unwrap() as f64 / bytes.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_can_be_read_in_light_in_dark_and_on_a_phone() {
    let scene = Scene::of_admin().await;
    let (axe, directory) = (axe(), tempfile::tempdir().unwrap());
    let shots =
        std::env::var_os("POSTHASTE_SHOTS").map_or_else(|| directory.path().to_owned(), PathBuf::from);
    // Pages that must not pass.
    scene.browser.open("about:blank").await;
    let wrong = scene.looked_at("an empty page", &axe, &shots).await.join("\n");
    assert!(wrong.contains("Dark is blank") && wrong.contains("Phone is blank"), "{wrong}");
    let bad = "document.body.innerHTML = '<p style=\"color: #aaa; width: 2000px\">grey<img src=\"\">'";
    scene.browser.script(bad, json!([])).await;
    let wrong = scene.looked_at("a bad page", &axe, &shots).await.join("\n");
    for words in ["image-alt", "color-contrast", "is too wide"] {
        assert!(wrong.contains(words), "{words}: {wrong}");
    }
    // An installation on which nothing was sent yet teaches the first steps.
    scene.open("/").await;
    scene.browser.wait_for("h2", "Nothing has been sent yet").await;
    let mut wrong = scene.looked_at("welcome", &axe, &shots).await;
    let also = scene.populated().await;
    scene.tour(&also, 1, async |path, _| wrong.extend(scene.looked_at(path, &axe, &shots).await)).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    scene.end_after(&["status of 404", "status of 422"]).await;
}
