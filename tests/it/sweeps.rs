//! The sweeper rests what nobody needs, and never what works, is watched, or was just spoken to.

use futures::future::join;
use serde_json::{Value, json};

use crate::harness::{
    driver::Driver,
    eventually,
    model::Model,
    server::{Options, Server},
    socket::Socket,
};

const RACES: usize = 150;

/// So impatient that every moment of idleness is a reason.
fn impatient(model: &Model) -> Options {
    Options::anthropic(Driver::Process, model)
        .env("GREENROOM_SWEEPER__PAUSE_AFTER", "1ms")
        .env("GREENROOM_SWEEPER__STOP_AFTER", "15ms")
}

#[tokio::test]
async fn a_sweep_and_a_message_race_and_the_message_wins() {
    let model = Model::play("work");
    let server = Server::start(impatient(&model)).await;
    let session = server.rest.create(json!({})).await;
    let message = format!("/api/sessions/{session}/messages");
    for race in 0..RACES {
        let said = server.rest.post(&message, json!({ "content": format!("turn left {race}") }));
        let swept = server.rest.post("/api/admin/sweep", json!({}));
        let (said, swept) = join(said, swept).await;
        said.expect(202);
        swept.expect(200);
        let turns = |events: &[Value]| events.iter().filter(|event| event["content"] == "Turning left.").count();
        eventually("an answer", || async {
            server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
            turns(&server.rest.events(&session).await) == race + 1
        })
        .await;
    }
    let events = server.rest.events(&session).await;
    let mut works = false;
    let mut rested = 0;
    for event in &events {
        match event["extras"]["agent_state"].as_str() {
            Some("running") => works = true,
            Some("idle") => works = false,
            Some(state @ ("paused" | "stopped")) => {
                assert!(!works, "it was {state} in the middle of its work: {event}");
                rested += 1;
            }
            _ => {}
        }
    }
    assert!(rested > RACES / 4, "the sweeper had its turns: {rested}");
}

#[tokio::test]
async fn what_is_watched_is_left_alone() {
    let model = Model::play("work");
    let server = Server::start(impatient(&model)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut watches = Socket::attach(&server.rest, &session).await;
    watches.status("synced").await;
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
    }
    assert_eq!(server.rest.session(&session).await["state"], "idle");
    drop(watches);
    eventually("it to be stopped", || async {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        server.rest.session(&session).await["state"] == "stopped"
    })
    .await;
}
