//! Sessions over REST: created, listed, found, changed, ended, removed; each request error in the
//! agreed form.

use reqwest::Method;
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    host,
    rest::send,
    server::{TestServer, TestServerOptions},
};

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

#[tokio::test]
async fn session_is_created_found_changed_and_removed() {
    let server = server().await;
    let rest = &server.rest;
    let made = rest.post("/api/sessions", json!({ "title": "Bake bread", "budget_usd": 2.5 })).await.expect(201);
    let id = made["id"].as_str().expect("an id");
    let fields = [
        "agent",
        "archived",
        "attached",
        "budget_usd",
        "created_at",
        "id",
        "image",
        "last_seq",
        "latest",
        "latest_seq",
        "model",
        "reason",
        "sandbox",
        "state",
        "title",
        "updated_at",
        "usage",
    ];
    for field in fields {
        assert!(made.get(field).is_some(), "no `{field}` in {made}");
    }
    assert_eq!((&made["title"], &made["budget_usd"]), (&json!("Bake bread"), &json!(2.5)));
    assert_eq!(rest.session(id).await["id"], id);

    let changed = rest.patch(&format!("/api/sessions/{id}"), json!({ "title": "Bake cake" })).await.expect(200);
    assert_eq!(changed["title"], "Bake cake");
    let found = rest.get("/api/sessions?q=CAKE").await.expect(200);
    assert_eq!((&found["items"][0]["id"], &found["total"]), (&json!(id), &json!(1)));
    assert_eq!(rest.get("/api/sessions?q=bread").await.expect(200)["total"], 0);

    rest.patch(&format!("/api/sessions/{id}"), json!({ "archived": true })).await.expect(200);
    assert_eq!(rest.get("/api/sessions").await.expect(200)["total"], 0, "archived sessions are not listed");
    assert_eq!(rest.get("/api/sessions?archived=true").await.expect(200)["total"], 1);

    rest.until_state(id, "idle").await;
    rest.delete(&format!("/api/sessions/{id}?purge=true")).await.expect(204);
    rest.get(&format!("/api/sessions/{id}")).await.error(404, "not_found");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn same_key_creates_one_session() {
    let server = server().await;
    let make = || {
        let request = server.rest.request(Method::POST, "/api/sessions").header("idempotency-key", "once");
        send(request.json(&json!({ "title": "one" })))
    };
    let first = make().await.expect(201);
    let again = make().await.expect(200);
    assert_eq!(first["id"], again["id"]);
    assert_eq!(server.rest.get("/api/sessions").await.expect(200)["total"], 1);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn same_key_sends_one_message() {
    let server = server().await;
    let session = server.rest.start("print hello").await;
    server.rest.until_state(&session, "idle").await;
    let say = || {
        let path = format!("/api/sessions/{session}/messages");
        let request = server.rest.request(Method::POST, &path).header("idempotency-key", "once");
        send(request.json(&json!({ "content": "again" })))
    };
    let first = say().await.expect(202);
    let again = say().await.expect(202);
    assert_eq!(first["seq"], again["seq"]);
    server.rest.until_state(&session, "idle").await;
    let events = server.rest.events(&session).await;
    let messages = events.iter().filter(|event| event["action"] == "message" && event["args"]["content"] == "again");
    assert_eq!(messages.count(), 1);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn list_pages_contain_each_session_once() {
    let server = server().await;
    for n in 0..7 {
        // Idle before the next is created: a session that is still starting would overtake it in
        // the list.
        let id = server.rest.create(json!({ "title": format!("session {n}") })).await;
        server.rest.until_state(&id, "idle").await;
    }
    let mut titles = Vec::new();
    let mut path = "/api/sessions?limit=3".to_owned();
    loop {
        let page = server.rest.get(&path).await.expect(200);
        assert_eq!(page["total"], 7);
        let items = page["items"].as_array().expect("items");
        titles.extend(items.iter().map(|item| item["title"].as_str().expect("a title").to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/sessions?limit=3&cursor={cursor}");
    }
    let newest_first: Vec<String> = (0..7).rev().map(|n| format!("session {n}")).collect();
    assert_eq!(titles, newest_first);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn request_errors() {
    let server = server().await;
    let rest = &server.rest;
    let id = rest.start("print hello").await;
    rest.until_state(&id, "idle").await;
    let at = |what: &str| format!("/api/sessions/{id}{what}");

    rest.post(&at("/interrupt"), json!({})).await.error(409, "nothing_to_interrupt");
    rest.post(&at("/messages"), json!({})).await.error(400, "invalid_args");
    rest.post("/api/sessions", json!({ "budget_usd": "much" })).await.error(400, "invalid_args");
    rest.get("/api/sessions?cursor=stolen").await.error(400, "invalid_args");
    rest.get("/api/sessions?state=sleeping").await.expect(400);
    rest.get("/api/nothing").await.error(404, "not_found");
    let wrong_method = rest.delete("/api/options").await;
    assert_eq!(wrong_method.status, 405, "{}", wrong_method.text);
    let broken = send(rest.request(Method::POST, "/api/sessions").header("content-type", "application/json").body("{"));
    broken.await.error(400, "invalid_json");

    rest.post(&at("/pause"), json!({})).await.expect(200);
    rest.post(&at("/pause"), json!({})).await.error(409, "already");
    rest.post(&at("/resume"), json!({})).await.expect(200);
    rest.delete(&at("")).await;
    rest.until_state(&id, "ended").await;
    rest.post(&at("/messages"), json!({ "content": "hello?" })).await.error(409, "ended");
    rest.post(&at("/resume"), json!({})).await.error(409, "ended");
    assert!(!rest.events(&id).await.is_empty(), "an ended session can still be read");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn events_are_filtered_and_paged() {
    let server = server().await;
    let id = server.rest.start("print hello").await;
    server.rest.until_state(&id, "idle").await;
    let all = server.rest.events(&id).await;

    let runs = server.rest.get(&format!("/api/sessions/{id}/events?kind=run")).await.expect(200);
    let runs: Vec<&Value> = runs["items"].as_array().expect("items").iter().collect();
    assert_eq!(runs.len(), 2, "the action and its observation: {runs:?}");
    let page = server.rest.get(&format!("/api/sessions/{id}/events?after=2&limit=2")).await.expect(200);
    assert_eq!(page["items"], json!(all[2..4]));
    server.leaves_nothing().await;
}

#[tokio::test]
async fn purged_session_leaves_no_trace_on_disk() {
    let server = server().await;
    let id = server.rest.start("print hello").await;
    server.rest.until_state(&id, "idle").await;
    server.rest.delete(&format!("/api/sessions/{id}?purge=true")).await;
    greenroom_testkit::eventually("the sandbox to be gone", || async { host::processes(server.home()).is_empty() })
        .await;
    let left = named_after(&server.data(), &id);
    assert!(left.is_empty(), "{left:?}");
    server.leaves_nothing().await;
}

fn named_after(dir: &std::path::Path, id: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for path in entries {
        if path.to_string_lossy().contains(id) {
            found.push(path);
        } else if path.is_dir() {
            found.extend(named_after(&path, id));
        }
    }
    found
}
