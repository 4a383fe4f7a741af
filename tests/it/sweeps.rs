//! The sweeper stops idle sessions. It never stops a session that works, is watched, waits for a
//! person, or has just received a message. A thousand races.

use futures::future::join;
use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use jiff::Timestamp;
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::ScriptedModel,
    puppet::PuppetAgent,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const MESSAGES: usize = 500;
const ATTACHES: usize = 300;
const QUESTIONS: usize = 200;

/// Returns options with such short idle times that any idle moment is enough.
fn impatient(model: &ScriptedModel) -> TestServerOptions {
    TestServerOptions::anthropic(TestDriver::Process, model)
        .env("GREENROOM_SWEEPER__PAUSE_AFTER", "1ms")
        .env("GREENROOM_SWEEPER__STOP_AFTER", "15ms")
}

async fn sweep(rest: &RestClient) -> Value {
    rest.post("/api/admin/sweep", json!({})).await.expect(200)
}

/// Counts the pauses and stops of a session, and checks that none came in the middle of its work.
fn count_idle_stops(events: &[Value]) -> usize {
    let mut works = false;
    let mut rested = 0;
    for event in events {
        match event["extras"]["agent_state"].as_str() {
            Some("running" | "awaiting_confirmation") => works = true,
            Some("idle") => works = false,
            Some(state @ ("paused" | "stopped")) => {
                assert!(!works, "the session was {state} in the middle of its work: {event}");
                rested += 1;
            }
            _ => {}
        }
    }
    rested
}

#[tokio::test]
async fn message_wins_race_with_sweep() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(impatient(&model)).await;
    let session = server.rest.create(json!({})).await;
    let message = format!("/api/sessions/{session}/messages");
    let mut newest = 0;
    for race in 0..MESSAGES {
        let posted = server.rest.post(&message, json!({ "content": format!("turn left {race}") }));
        let (posted, _) = join(posted, sweep(&server.rest)).await;
        let seq = posted.expect(202)["seq"].as_u64().expect("an accepted message has a number");
        assert!(seq > newest, "each message gets a number of its own");
        newest = seq;
        let after = format!("/api/sessions/{session}/events?after={seq}");
        eventually("an answer", || async {
            sweep(&server.rest).await;
            let page = server.rest.get(&after).await.expect(200);
            page["items"].as_array().expect("items").iter().any(|event| event["content"] == "Turning left.")
        })
        .await;
    }
    let events = server.rest.events(&session).await;
    let answers = events.iter().filter(|event| event["content"] == "Turning left.").count();
    assert_eq!(answers, MESSAGES, "one answer for each");
    let rested = count_idle_stops(&events);
    assert!(rested > MESSAGES / 4, "the sweeper won too few races: {rested}");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn sweeps_run_periodically() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(impatient(&model).env("GREENROOM_SWEEPER__EVERY", "100ms")).await;
    let session = server.rest.create(json!({})).await;
    for _ in 0..3 {
        server.rest.until_state(&session, "stopped").await;
        server.rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await.expect(200);
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn idle_session_is_paused_within_30_s_of_its_time() {
    let model = ScriptedModel::play("work");
    let options = TestServerOptions::anthropic(TestDriver::Process, &model).env("GREENROOM_SWEEPER__PAUSE_AFTER", "2s");
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "paused").await;
    let events = server.rest.events(&session).await;
    let since = |state: &str| -> Timestamp {
        let event = events.iter().find(|event| event["extras"]["agent_state"] == state).expect("it was");
        event["at"].as_str().and_then(|at| at.parse().ok()).expect("a time")
    };
    let idle = since("paused").duration_since(since("idle")).unsigned_abs();
    assert!((1..=2 + 30).contains(&idle.as_secs()), "{idle:?}");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn watched_session_is_not_swept() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(impatient(&model)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let at_rest = || async { count_idle_stops(&server.rest.events(&session).await) };
    let mut rested = 0;
    for _ in 0..ATTACHES {
        let (mut watches, _) =
            join(TestSocket::attach_after(&server.rest, &session, "tail"), sweep(&server.rest)).await;
        watches.status("synced").await;
        let before = at_rest().await;
        for _ in 0..2 {
            sweep(&server.rest).await;
        }
        assert_eq!(at_rest().await, before, "a client is attached");
        rested = before;
        if server.rest.session(&session).await["state"] != "idle" {
            server.rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await.expect(200);
            server.rest.until_state(&session, "idle").await;
        }
    }
    assert!(rested > ATTACHES / 10, "the sweeper won too few races: {rested}");
    eventually("the session to be stopped after its last client left", || async {
        sweep(&server.rest).await;
        server.rest.session(&session).await["state"] == "stopped"
    })
    .await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn session_waiting_for_approval_is_not_swept() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(impatient(&model)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut watches = TestSocket::attach(&server.rest, &session_id).await;
    watches.status("synced").await;
    let mut agent = PuppetAgent::take_over(&server, &session_id).await;
    watches.send_request("message", json!({ "content": "go" })).await;
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    watches.state("running").await;
    drop(watches);
    for question in 0..QUESTIONS {
        let request = format!("q{question}");
        let extras = json!({ "request": request, "action": "ls", "risk": "low", "options": ["allow", "deny"] });
        let confirm = json!({ "observation": "confirm", "content": "", "extras": extras });
        join(agent.event(None, confirm), sweep(&server.rest)).await;
        server.rest.until_state(&session_id, "awaiting_confirmation").await;
        sweep(&server.rest).await;
        let mut person = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
        let answer = json!({ "request": request, "decision": "allow" });
        join(person.send_request("confirm", answer), sweep(&server.rest)).await;
        let AgentCommand::Answer { request: answered, .. } = agent.command().await else { panic!("an answer comes") };
        assert_eq!(answered, request);
    }
    agent.report(AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }).await.expect("the server listens");
    server.rest.until_state(&session_id, "idle").await;
    assert_eq!(
        count_idle_stops(&server.rest.events(&session_id).await),
        0,
        "the session worked or waited all the time"
    );
    server.leaves_nothing().await;
}
