//! Tests of failing effects, and of links whose session's actor is gone. The sandbox is a fake that
//! executes each call. The agent is a socket that is dialed and sends nothing.

mod full_disk;
mod harness;
mod unresponsive;

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use greenroom_protocol::{
    link::{AgentCommand, AgentHello, CommandFrame, FromAgent, LINK_VERSION, ORPHANED_EXIT_CODE, ToAgent},
    observation::AgentState,
};
use tokio::{net::UnixStream, runtime::Builder, time::timeout};
use tokio_tungstenite::{accept_async, tungstenite::Message};

use self::harness::{
    LinkTestHarness, START_PERMITS, drain, inconclusive, no_image, overdue, start_sandbox, start_sandbox_from,
    stop_effect,
};
use super::{
    connection::{ConnectionProgress, LivenessMonitor, serve_connection},
    *,
};
use crate::{sandbox::SandboxPresence, session::messages::GetView};

#[actix::test]
async fn failed_pause_keeps_dialing() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    let connection = harness.accept_dial().await;
    harness.sandbox.fail_next(overdue());
    link.effects.send(Effect::PauseSandbox).await.expect("the actor is alive");
    drain(&link).await;
    drop(connection);
    harness.accept_dial().await;
}

#[actix::test]
async fn failed_unpause_stops_dialing_until_unpaused() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    let connection = harness.accept_dial().await;
    link.effects.send(Effect::PauseSandbox).await.expect("the actor is alive");
    harness.sandbox.wait_for_calls(&["start", "pause"]).await;
    harness.sandbox.fail_next(overdue());
    link.effects.send(Effect::UnpauseSandbox).await.expect("the actor is alive");
    drain(&link).await;
    drop(connection);
    harness.assert_not_dialled().await;
    link.effects.send(Effect::UnpauseSandbox).await.expect("the actor is alive");
    harness.accept_dial().await;
}

/// Covers the time between an agent's exit and its next start, which would pause the sandbox
/// otherwise.
#[actix::test]
async fn unpause_of_missing_sandbox_leaves_nothing_paused() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    let connection = harness.accept_dial().await;
    link.effects.send(Effect::PauseSandbox).await.expect("the actor is alive");
    drain(&link).await;
    harness.sandbox.fail_next(SandboxError::NotFound { session: harness.id });
    link.effects.send(Effect::UnpauseSandbox).await.expect("the actor is alive");
    drain(&link).await;
    drop(connection);
    harness.accept_dial().await;
}

/// A reported failure would let the sweep stop the sandbox once the driver is back.
#[actix::test]
async fn running_sandbox_is_retried_while_driver_is_inconclusive() {
    for error in [overdue(), inconclusive()] {
        let harness = LinkTestHarness::new().await;
        harness.sandbox.set_presence_error(Some(error));
        harness.sandbox.set_presence(SandboxPresence::Running);
        let link = harness.link();
        start_sandbox_from(RecordedSandbox::Up, &link).await;
        harness.assert_not_dialled().await;
        assert_eq!(harness.session.send(GetView).await.expect("the actor is alive").state, AgentState::Starting);
        harness.sandbox.set_presence_error(None);
        let _connection = harness.accept_dial().await;
        assert_eq!(harness.sandbox.calls(), [] as [&str; 0], "the sandbox was not started");
    }
}

/// The sandbox is known to be down, so a reported failure stops nothing.
#[actix::test]
async fn failed_start_of_vanished_sandbox_fails_session() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.fail_next(overdue());
    let link = harness.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    harness.sandbox.wait_for_calls(&["start"]).await;
    let failed = async {
        while harness.session.send(GetView).await.expect("the actor is alive").state != AgentState::Failed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), failed).await.expect("the session fails");
    assert_eq!(harness.sandbox.calls(), ["start"], "the start is not retried");
}

#[actix::test]
async fn restart_of_gone_session_is_dropped() {
    let harness = LinkTestHarness::new().await;
    let old = harness.link();
    harness.sandbox.blocked_call.send_replace(Some("start"));
    start_sandbox(&old).await;
    harness.sandbox.wait_for_calls(&["start"]).await;
    old.effects.send(stop_effect(AfterStop::Restart)).await.expect("the actor is alive");
    drop(old);
    let new = harness.link();
    start_sandbox(&new).await;
    harness.sandbox.blocked_call.send_replace(None);
    let _connection = harness.accept_dial().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(harness.sandbox.calls(), ["start", "start"]);
}

#[actix::test]
async fn next_actor_starts_after_stop_in_flight() {
    let harness = LinkTestHarness::new().await;
    let old = harness.link();
    start_sandbox(&old).await;
    drop(harness.accept_dial().await);
    harness.sandbox.blocked_call.send_replace(Some("stop"));
    old.effects.send(stop_effect(AfterStop::Restart)).await.expect("the actor is alive");
    harness.sandbox.wait_for_calls(&["start", "stop"]).await;
    drop(old);
    let new = harness.link();
    start_sandbox(&new).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(harness.sandbox.calls(), ["start", "stop"]);
    harness.sandbox.blocked_call.send_replace(None);
    harness.sandbox.wait_for_calls(&["start", "stop", "start"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(harness.sandbox.calls(), ["start", "stop", "start"], "the old link starts no further sandbox");
}

#[actix::test]
async fn stop_during_restart_keeps_sandbox_down() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    drop(harness.accept_dial().await);
    harness.sandbox.blocked_call.send_replace(Some("stop"));
    link.effects.do_send(stop_effect(AfterStop::Restart));
    link.effects.do_send(stop_effect(AfterStop::KeepFiles));
    harness.sandbox.wait_for_calls(&["start", "stop"]).await;
    harness.sandbox.blocked_call.send_replace(None);
    drain(&link).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(harness.sandbox.calls(), ["start", "stop", "stop"]);
}

/// The session's next actor reads from the journal whether the session is paused.
#[actix::test]
async fn pause_of_gone_session_is_dropped() {
    let harness = LinkTestHarness::new().await;
    let old = harness.link();
    start_sandbox(&old).await;
    drop(harness.accept_dial().await);
    harness.sandbox.blocked_call.send_replace(Some("pause"));
    for _ in 0..2 {
        old.effects.do_send(Effect::PauseSandbox);
    }
    harness.sandbox.wait_for_calls(&["start", "pause"]).await;
    drop(old);
    harness.sandbox.blocked_call.send_replace(None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(harness.sandbox.calls(), ["start", "pause"]);
}

#[actix::test]
async fn exit_without_server_is_reported_like_observed_exit() {
    for was in [RecordedSandbox::Up, RecordedSandbox::Paused] {
        let harness = LinkTestHarness::new().await;
        harness.sandbox.set_presence(SandboxPresence::Exited);
        harness.sandbox.exit();
        let link = harness.link();
        start_sandbox_from(was, &link).await;
        assert_eq!(harness.failure().await, "the sandbox died with exit code 3");
        assert!(!harness.sandbox.calls().contains(&"start"), "only the user's next message starts another sandbox");
    }
}

/// The next start of the agent delivers the reports that no server has received.
#[actix::test]
async fn orphaned_sandbox_is_started_again() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.set_presence(SandboxPresence::Exited);
    harness.sandbox.exit_with(ORPHANED_EXIT_CODE.into());
    harness.sandbox.blocked_call.send_replace(Some("start"));
    let link = harness.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    harness.sandbox.wait_for_calls(&["start"]).await;
    harness.sandbox.forget_exit();
    harness.sandbox.blocked_call.send_replace(None);
    let _connection = harness.accept_dial().await;
    harness.sandbox.exit_with(ORPHANED_EXIT_CODE.into());
    harness.sandbox.wait_for_calls(&["start", "start"]).await;
}

/// Covers a sandbox that a new server has found, before its agent sent anything.
#[actix::test]
async fn exit_right_after_takeover_is_reported() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.set_presence(SandboxPresence::Running);
    let link = harness.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let _connection = harness.accept_dial().await;
    harness.sandbox.exit();
    assert_eq!(harness.failure().await, "the sandbox died with exit code 3");
    assert!(harness.sandbox.calls().is_empty());
}

/// Covers another machine, or another driver.
#[actix::test]
async fn missing_sandbox_is_started() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let _connection = harness.accept_dial().await;
    assert_eq!(harness.sandbox.calls(), ["start"]);
}

/// Covers a server that died between the recorded stop and the stop itself, and a stop that failed.
#[actix::test]
async fn sandbox_recorded_as_down_is_stopped_before_start() {
    for left in [SandboxPresence::Running, SandboxPresence::Paused] {
        let harness = LinkTestHarness::new().await;
        harness.sandbox.set_presence(left);
        harness.sandbox.blocked_call.send_replace(Some("stop"));
        let link = harness.link();
        start_sandbox(&link).await;
        harness.sandbox.wait_for_calls(&["stop"]).await;
        harness.assert_not_dialled().await;
        harness.sandbox.blocked_call.send_replace(None);
        let _connection = harness.accept_dial().await;
        assert_eq!(harness.sandbox.calls(), ["stop", "start"]);
    }
    let harness = LinkTestHarness::new().await;
    harness.sandbox.set_presence(SandboxPresence::Exited);
    let link = harness.link();
    start_sandbox(&link).await;
    let _connection = harness.accept_dial().await;
    assert_eq!(harness.sandbox.calls(), ["start"], "an exited sandbox needs no stop");
}

#[actix::test]
async fn failed_stop_fails_the_start() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.set_presence(SandboxPresence::Running);
    harness.sandbox.fail_next(overdue());
    let link = harness.link();
    start_sandbox(&link).await;
    assert_eq!(harness.failure().await, overdue().to_string());
    assert_eq!(harness.sandbox.calls(), ["stop"]);
}

#[test]
fn dial_backoff_grows() {
    let mut waited = Duration::ZERO;
    let mut dials_until = |limit| {
        let mut dials = 0;
        while waited < limit {
            waited += sandbox_lifecycle::dial_backoff(waited);
            dials += 1;
        }
        dials
    };
    assert_eq!(dials_until(Duration::from_millis(60)), 15, "a starting agent is found at once");
    assert!(dials_until(Duration::from_secs(30)) < 120);
    assert_eq!(dials_until(Duration::from_secs(60)), 30, "a slow agent is dialed once a second");
}

#[actix::test]
async fn prepare_error_names_the_path() {
    let harness = LinkTestHarness::new().await;
    let run = harness.run().root().to_owned();
    std::fs::remove_dir_all(&run).expect("the run directory exists");
    std::fs::write(&run, "in the way").expect("the file is written");
    let link = harness.link();
    start_sandbox(&link).await;
    let reason = harness.failure().await;
    assert!(reason.contains(&format!("`{}`", run.display())), "{reason}");
    assert!(harness.sandbox.calls().is_empty());
}

/// Covers a slow disk while the directories of a removed session are created.
#[test]
fn removal_during_start_leaves_no_directory() {
    let one_blocking_thread = || Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    System::with_tokio_rt(|| one_blocking_thread().expect("a runtime")).block_on(async {
        let harness = LinkTestHarness::new().await;
        let (resume_disk, hang) = std::sync::mpsc::channel::<()>();
        let disk = tokio::task::spawn_blocking(move || hang.recv());
        let link = harness.link();
        start_sandbox(&link).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        link.effects.do_send(stop_effect(AfterStop::Remove));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(harness.sandbox.calls().is_empty(), "the removal blocks until the directories are created");
        drop(resume_disk);
        drain(&link).await;
        assert!(disk.await.expect("the blocked task ends").is_err());
        assert_eq!(harness.sandbox.calls().last(), Some(&"remove"));
        assert!(!harness.run().root().exists());
    });
}

/// Covers a session that has handled the exit of a sandbox while an earlier start runs.
#[actix::test]
async fn second_start_replaces_unreported_sandbox() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link();
    start_sandbox(&link).await;
    let orphaned = harness.accept_dial().await;
    harness.sandbox.set_presence(SandboxPresence::Running);
    start_sandbox(&link).await;
    harness.sandbox.wait_for_calls(&["start", "stop", "start"]).await;
    drop(orphaned);
    let _connection = harness.accept_dial().await;
}

/// Without the failure, the session would wait for its link forever.
#[actix::test]
async fn panicked_link_fails_session_and_restart_works() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.is_faulty.store(true, Ordering::Relaxed);
    let link = harness.link();
    start_sandbox(&link).await;
    assert!(harness.failure().await.contains("a fault in the server"));
    harness.sandbox.is_faulty.store(false, Ordering::Relaxed);
    start_sandbox(&link).await;
    harness.accept_dial().await;
}

/// Covers an agent that sends a second `hello` before the commands for the first are delivered.
#[actix::test]
async fn commands_for_earlier_boot_are_dropped() {
    let harness = LinkTestHarness::new().await;
    let (delivery_tx, mut deliveries) = mpsc::unbounded_channel();
    for (boot, id) in [("a", "late"), ("b", "due")] {
        let command = Box::new(CommandFrame { id: id.to_owned(), command: AgentCommand::Cancel {} });
        for delivery in [AgentDelivery::AgentConnected { boot: boot.to_owned() }, AgentDelivery::Command(command)] {
            delivery_tx.send(delivery).expect("the receiver is open");
        }
    }
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let agent = async {
        let mut socket = accept_async(theirs).await.expect("a handshake");
        let hello = AgentHello {
            link_version: LINK_VERSION,
            boot: "b".into(),
            agent_version: "1".into(),
            last_n: 0,
            turn: None,
            reads_cancel_hints: true,
        };
        let hello = serde_json::to_string(&FromAgent::Hello(hello)).expect("the frame serializes");
        socket.send(Message::text(hello)).await.expect("the frame is sent");
        loop {
            let frame = socket.next().await.expect("a frame").expect("the frame is valid");
            if let Ok(ToAgent::Command(command)) = serde_json::from_str(frame.to_text().expect("a text")) {
                return command.id;
            }
        }
    };
    let (session, progress) = (harness.session.downgrade(), ConnectionProgress::default());
    let mut liveness = LivenessMonitor::new(Arc::default(), Box::new(|| false));
    tokio::select! {
        _reason = serve_connection(
            harness.id, ours, &session, &harness.parts.store, &mut deliveries, &progress, &mut liveness,
        ) => {
            panic!("the connection ended");
        }
        id = agent => assert_eq!(id, "due"),
    }
}

/// A fetch may take an hour, so it must hold no start permit.
#[actix::test]
async fn image_fetch_holds_no_start_permit() {
    let harness = LinkTestHarness::new().await;
    let _link = harness.link_fetching_image().await;
    harness.parts.start_limiter.admit(START_PERMITS).expect_err("a fetch counts as waiting");
    drop(harness.take_all_permits().await);
    harness.sandbox.blocked_call.send_replace(None);
    let _connection = harness.accept_dial().await;
    assert_eq!(harness.sandbox.calls(), ["start", "fetch", "start"]);
}

/// Many sessions that need one image cause one fetch.
#[actix::test]
async fn image_fetch_in_progress_is_shared() {
    let harness = LinkTestHarness::new().await;
    let image_lock = harness.parts.start_limiter.image_lock(&harness.parts.config.sandbox.image);
    let fetch_guard = image_lock.lock().await;
    harness.sandbox.fail_next(no_image());
    let link = harness.link();
    start_sandbox(&link).await;
    harness.sandbox.wait_for_calls(&["start"]).await;
    harness.assert_not_dialled().await;
    drop(fetch_guard);
    let _connection = harness.accept_dial().await;
    assert_eq!(harness.sandbox.calls(), ["start", "start"]);
}

#[actix::test]
async fn removal_aborts_image_fetch() {
    let harness = LinkTestHarness::new().await;
    let link = harness.link_fetching_image().await;
    link.effects.send(stop_effect(AfterStop::Remove)).await.expect("the actor is alive");
    harness.sandbox.wait_for_calls(&["start", "fetch", "remove"]).await;
    harness.parts.start_limiter.admit(START_PERMITS).expect("no start is waiting");
}

#[actix::test]
async fn failed_fetch_names_the_image() {
    let harness = LinkTestHarness::new().await;
    let _link = harness.link_fetching_image().await;
    harness.sandbox.fail_next(no_image());
    harness.sandbox.blocked_call.send_replace(None);
    assert_eq!(harness.failure().await, no_image().to_string());
    assert_eq!(harness.sandbox.calls(), ["start", "fetch"]);
}

/// Covers a restarted server with other sessions that were starting.
#[actix::test]
async fn running_sandbox_is_dialed_without_start_permit() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.set_presence(SandboxPresence::Running);
    let _permits = harness.take_all_permits().await;
    let link = harness.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let _connection = harness.accept_dial().await;
    assert!(harness.sandbox.calls().is_empty());
}

/// The running agent may call its model meanwhile.
#[actix::test]
async fn running_sandbox_reaches_gateway_without_start_permit() {
    let harness = LinkTestHarness::new().await;
    let _permits = harness.take_all_permits().await;
    let link = harness.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let reached = timeout(Duration::from_secs(10), async {
        while UnixStream::connect(harness.run().gateway().join("gateway.sock")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    reached.await.expect("the gateway listens");
    assert!(harness.sandbox.calls().is_empty(), "the sandbox is not started yet");
}

/// A running sandbox has clients and needs no core to start.
#[actix::test]
async fn running_sandbox_does_not_wait_for_burst() {
    let harness = LinkTestHarness::new().await;
    harness.sandbox.set_presence(SandboxPresence::Running);
    let limiter = harness.parts.start_limiter.clone();
    let reject_one = move || assert!(limiter.admit(START_PERMITS + 1).is_err());
    reject_one();
    actix::spawn(async move {
        loop {
            reject_one();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let link = harness.link();
    tokio::select! {
        biased;
        () = harness.parts.start_limiter.until_burst_over() => panic!("the start waited for the burst"),
        _ = async { start_sandbox_from(RecordedSandbox::Up, &link).await; harness.accept_dial().await } => {}
    }
}
