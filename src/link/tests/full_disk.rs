//! Reports wait at their agent while the disk has space for small events only.

use std::sync::atomic::Ordering::SeqCst;

use greenroom_protocol::{
    Observation, ObservationKind,
    link::{AgentReport, FromAgent},
};
use tokio::time::{Duration, sleep};

use super::harness::{LinkTestHarness, send_frame, start_sandbox};
use crate::{
    session::messages::GetView,
    store::{ReadLimit, Store},
};

fn first_report() -> FromAgent {
    let thought = Observation { kind: ObservationKind::Think { partial: false }, content: "hm".to_owned() };
    FromAgent::Report { n: 1, report: AgentReport::Event { item: None, body: thought.into() } }
}

#[actix::test]
async fn reports_wait_for_space() {
    let harness = LinkTestHarness::new().await;
    harness.store.lacks_room_for_content.store(true, SeqCst);
    let link = harness.link();
    start_sandbox(&link).await;
    let mut socket = harness.greeted_agent().await;
    send_frame(&mut socket, &first_report()).await;
    let view = async || harness.session.send(GetView).await.expect("the actor is alive");
    tokio::time::pause();
    let before = view().await.last_seq;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(view().await.last_seq, before, "the report is not read, and the agent is not blamed");
    harness.store.lacks_room_for_content.store(false, SeqCst);
    while view().await.last_seq == before {
        sleep(Duration::from_millis(100)).await;
    }
}

#[actix::test]
async fn working_session_is_informed_once() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    let mut socket = harness.agent_with_turn().await;
    harness.store.lacks_room_for_content.store(true, SeqCst);
    // The link was reading when the space ended, so it reads one more frame.
    send_frame(&mut socket, &first_report()).await;
    let notices = async || {
        let limit = ReadLimit { events: 100, bytes: 1 << 20 };
        let events = harness.store.read(harness.id, 0, limit).await.expect("the store is readable");
        events.iter().filter(|(_, event)| String::from_utf8_lossy(&event.json).contains("\"disk_full\"")).count()
    };
    while notices().await == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    tokio::time::pause();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(notices().await, 1);
}
