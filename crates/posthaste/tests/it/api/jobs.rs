//! `/v1/jobs`: what runs by itself, its history, run now and pause.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind};
use crate::program::eventually;

async fn job(caller: &Caller, id: &str) -> Value {
    let page = caller.get("/v1/jobs").await;
    let found = page["data"].as_array().unwrap().iter().find(|job| job["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {page}")).clone()
}

async fn act(caller: &Caller, path: &str) -> super::running::Told {
    caller.ask(Method::POST, path, &[], "").await
}

async fn a_job_is_listed_run_paused_and_resumed(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let page = admin.get("/v1/jobs").await;
    let names: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "dead-letter-cleanup",
            "expire-failed",
            "failure-groups",
            "retention",
            "retry-expire",
            "retry-processor"
        ]
    );
    let never = job(admin, "expire-failed").await;
    assert_eq!(
        (&never["cron"], &never["nextRunAt"], &never["lastRun"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let hourly = job(admin, "retry-expire").await;
    assert_eq!((&hourly["cron"], &hourly["paused"]), (&json!("0 * * * *"), &json!(false)));
    assert!(hourly["nextRunAt"].as_str().unwrap().contains(":00:00.000Z"), "{hourly}");
    let started = act(admin, "/v1/jobs/expire-failed/run").await.is(202);
    assert_eq!(started["id"], "expire-failed");
    // It has nothing to do and ends at once; the end is recorded a moment later.
    let ended =
        async || Some(job(admin, "expire-failed").await["lastRun"].clone()).filter(|run| !run.is_null());
    let last = eventually(ended).await.expect("the run ends");
    assert_eq!(
        (&last["number"], &last["outcome"], &last["count"]),
        (&started["run"], &json!("done"), &json!(0)),
        "{last}"
    );
    assert_eq!((&last["startedBy"], &last["error"]), (&json!("admin"), &Value::Null));
    let runs = admin.get("/v1/jobs/expire-failed/runs").await;
    assert_eq!((runs["data"].as_array().unwrap().len(), &runs["data"][0]), (1, &last));
    let paused = act(admin, "/v1/jobs/retry-expire/pause").await.is(202);
    assert_eq!((&paused["paused"], &paused["nextRunAt"]), (&json!(true), &Value::Null));
    let running = running.restart().await;
    let admin = &running.admin;
    assert_eq!(job(admin, "retry-expire").await["paused"], true, "a pause outlasts a restart");
    let resumed = act(admin, "/v1/jobs/retry-expire/resume").await.is(202);
    assert_eq!(resumed["paused"], false);
    assert!(resumed["nextRunAt"].is_string());
    let audit = admin.all("/v1/audit?action=run-job,pause-job,resume-job").await;
    let shown: Vec<_> =
        audit.iter().map(|row| (row["action"].as_str().unwrap(), row["target"].as_str().unwrap())).collect();
    assert_eq!(
        shown,
        [("resume-job", "retry-expire"), ("pause-job", "retry-expire"), ("run-job", "expire-failed")]
    );
    running.stop().await;
}

async fn what_is_wrong_with_a_job_is_said_and_changes_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    for path in ["run", "pause", "resume"] {
        act(admin, &format!("/v1/jobs/cleanup/{path}")).await.problem(404, "not-found");
        let told =
            admin.ask(Method::POST, &format!("/v1/jobs/retry-expire/{path}"), &[], r#"{"x": 1}"#).await;
        told.problem(422, "VALIDATION_FAILED");
    }
    admin.ask(Method::GET, "/v1/jobs/cleanup/runs", &[], "").await.problem(404, "not-found");
    admin
        .ask(Method::GET, "/v1/jobs/retry-expire/runs?limit=501", &[], "")
        .await
        .problem(422, "VALIDATION_FAILED");
    admin.ask(Method::GET, "/v1/jobs/retry-expire/runs?cursor=x", &[], "").await.problem(422, "BAD_CURSOR");
    // A run that is under way, of a node that lives.
    running
        .change_store(
            "insert into job_run (job, started_at, node, node_name)
             select 'expire-failed', 0, max(id), 'this' from node",
        )
        .await;
    act(admin, "/v1/jobs/expire-failed/run").await.problem(409, "JOB_RUNNING");
    assert_eq!(job(admin, "expire-failed").await["running"], true);
    assert_eq!(admin.all("/v1/audit?action=run-job").await.len(), 0);
    let acme = running.tenant("acme").await;
    acme.ask(Method::GET, "/v1/jobs", &[], "").await.problem(403, "FORBIDDEN");
    act(&acme, "/v1/jobs/retry-expire/run").await.problem(403, "FORBIDDEN");
    running.stop().await;
}

on_each_store! {
    a_job_is_listed_run_paused_and_resumed;
    what_is_wrong_with_a_job_is_said_and_changes_nothing;
}
