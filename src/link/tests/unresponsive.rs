//! An agent that owes a report is given up after a minute, however it stopped.

use greenroom_protocol::observation::AgentState;
use tokio::{io::AsyncWriteExt, net::UnixStream, time::Instant};
use tokio_tungstenite::WebSocketStream;

use super::harness::{LinkTestHarness, start_sandbox};

/// Checks that the agent is given up a minute after `stop`, with a reason that contains `reason`.
async fn check(stop: impl AsyncFnOnce(&LinkTestHarness, &mut WebSocketStream<UnixStream>), reason: &str) {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    let mut socket = harness.agent_with_turn().await;
    stop(&harness, &mut socket).await;
    tokio::time::pause();
    let stopped = Instant::now();
    let why = harness.until_state(AgentState::Failed).await.expect("a failure has a reason");
    assert!(why.contains(reason), "{why}");
    assert!((50..=70).contains(&stopped.elapsed().as_secs()), "given up after {:?}", stopped.elapsed());
    assert_eq!(harness.sandbox.calls().last(), Some(&"stop"));
}

#[actix::test]
async fn silent_agent_owing_report_is_given_up() {
    check(async |_, _| {}, "no frame for 60 s").await;
}

#[actix::test]
async fn agent_with_stalled_write_is_given_up() {
    let half_a_frame = async |_: &LinkTestHarness, socket: &mut WebSocketStream<UnixStream>| {
        socket.get_mut().write_all(b"\x81\x7e\x01\x00{\"frame\":\"rep").await.expect("the bytes are sent");
    };
    check(half_a_frame, "no frame for 60 s").await;
}

#[actix::test]
async fn agent_without_socket_is_given_up() {
    let vanish = async |harness: &LinkTestHarness, socket: &mut WebSocketStream<UnixStream>| {
        std::fs::remove_file(harness.run().agent().join("agent.sock")).expect("the socket exists");
        socket.close(None).await.expect("the connection closes");
    };
    check(vanish, "accepted no connection for 60 s").await;
}
