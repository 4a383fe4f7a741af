//! Reports wait at their agent while the disk has space for small events only.

use std::sync::atomic::Ordering::SeqCst;

use futures::SinkExt;
use greenroom_protocol::{
    Observation, ObservationKind,
    link::{AgentReport, FromAgent},
    observation::AgentState,
};
use tokio::time::{Duration, sleep};
use tokio_tungstenite::{accept_async, tungstenite::Message};

use super::harness::{LinkTestHarness, start_sandbox};
use crate::{session::messages::GetView, session::testkit};

#[actix::test]
async fn reports_wait_for_space() {
    let harness = LinkTestHarness::new().await;
    harness.store.lacks_room_for_content.store(true, SeqCst);
    let link = harness.link();
    start_sandbox(&link).await;
    let mut socket = accept_async(harness.accept_dial().await).await.expect("a handshake");
    let thought = Observation { kind: ObservationKind::Think { partial: false }, content: "hm".to_owned() };
    let report = AgentReport::Event { item: None, body: thought.into() };
    for frame in [FromAgent::Hello(testkit::hello("b").hello), FromAgent::Report { n: 1, report }] {
        let text = serde_json::to_string(&frame).expect("the frame serializes");
        socket.send(Message::text(text)).await.expect("the frame is sent");
    }
    let view = async || harness.session.send(GetView).await.expect("the actor is alive");
    while view().await.state != AgentState::Idle {
        sleep(Duration::from_millis(1)).await;
    }
    tokio::time::pause();
    let before = view().await.last_seq;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(view().await.last_seq, before, "the report is not read, and the agent is not blamed");
    harness.store.lacks_room_for_content.store(false, SeqCst);
    while view().await.last_seq == before {
        sleep(Duration::from_millis(100)).await;
    }
}
