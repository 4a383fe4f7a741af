//! Orders that fail, and links whose sessions fell: over a sandbox that does as it is told, and an agent that is dialled and
//! never says a word.

mod harness;

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use greenroom_protocol::{
    link::{AgentCommand, AgentHello, CommandFrame, FromAgent, LINK_VERSION, ToAgent},
    observation::AgentState,
};
use tokio::{net::UnixStream, runtime::Builder, time::timeout};
use tokio_tungstenite::{accept_async, tungstenite::Message};

use self::harness::{
    LinkTestHarness, START_PERMITS, drain, inconclusive, no_image, overdue, start_sandbox, start_sandbox_from,
    stop_order,
};
use super::{
    connection::{ConnectionProgress, serve_connection},
    *,
};
use crate::{sandbox::SandboxPresence, session::messages::GetView};

#[actix::test]
async fn an_agent_that_could_not_be_frozen_is_dialled_still() {
    let house = LinkTestHarness::new().await;
    let link = house.link();
    start_sandbox(&link).await;
    let connection = house.accept_dial().await;
    house.sandbox.fail_next(overdue());
    link.pause_sandbox.send(PauseSandbox).await.expect("it lives");
    drain(&link).await;
    drop(connection);
    house.accept_dial().await;
}

#[actix::test]
async fn an_agent_that_could_not_be_thawed_is_left_alone_until_it_is() {
    let house = LinkTestHarness::new().await;
    let link = house.link();
    start_sandbox(&link).await;
    let connection = house.accept_dial().await;
    link.pause_sandbox.send(PauseSandbox).await.expect("it lives");
    house.sandbox.wait_for_orders(&["start", "freeze"]).await;
    house.sandbox.fail_next(overdue());
    link.unpause_sandbox.send(UnpauseSandbox).await.expect("it lives");
    drain(&link).await;
    drop(connection);
    house.assert_not_dialled().await;
    link.unpause_sandbox.send(UnpauseSandbox).await.expect("it lives");
    house.accept_dial().await;
}

/// As between an agent's death and its next start, which would freeze it otherwise.
#[actix::test]
async fn where_there_is_nothing_to_thaw_nothing_is_frozen() {
    let house = LinkTestHarness::new().await;
    let link = house.link();
    start_sandbox(&link).await;
    let connection = house.accept_dial().await;
    link.pause_sandbox.send(PauseSandbox).await.expect("it lives");
    drain(&link).await;
    house.sandbox.fail_next(SandboxError::NotFound { session: house.id });
    link.unpause_sandbox.send(UnpauseSandbox).await.expect("it lives");
    drain(&link).await;
    drop(connection);
    house.accept_dial().await;
}

/// To call it failed would have the sweep end it, once the driver is back.
#[actix::test]
async fn what_is_up_is_waited_for_while_its_driver_does_not_answer() {
    for why in [overdue(), inconclusive()] {
        let house = LinkTestHarness::new().await;
        house.sandbox.set_presence_error(Some(why));
        house.sandbox.set_presence(SandboxPresence::Running);
        let link = house.link();
        start_sandbox_from(RecordedSandbox::Up, &link).await;
        house.assert_not_dialled().await;
        assert_eq!(house.session.send(GetView).await.expect("it lives").state, AgentState::Starting);
        house.sandbox.set_presence_error(None);
        let _connection = house.accept_dial().await;
        assert_eq!(house.sandbox.orders(), [] as [&str; 0], "it was not started");
    }
}

/// That it is not up is known, so nothing is ended by saying so.
#[actix::test]
async fn what_was_up_and_is_gone_and_cannot_be_started_has_failed() {
    let house = LinkTestHarness::new().await;
    house.sandbox.fail_next(overdue());
    let link = house.link();
    link.start_sandbox.send(StartSandbox { image: None, recorded: RecordedSandbox::Up }).await.expect("it lives");
    house.sandbox.wait_for_orders(&["start"]).await;
    let failed = async {
        while house.session.send(GetView).await.expect("it lives").state != AgentState::Failed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), failed).await.expect("it says so");
    assert_eq!(house.sandbox.orders(), ["start"], "it is not tried again");
}

#[actix::test]
async fn a_restart_that_its_session_did_not_live_to_see_is_not_for_its_next_life() {
    let house = LinkTestHarness::new().await;
    let old = house.link();
    house.sandbox.blocked_order.send_replace(Some("start"));
    start_sandbox(&old).await;
    house.sandbox.wait_for_orders(&["start"]).await;
    old.stop_sandbox.send(stop_order(AfterStop::Restart)).await.expect("it lives");
    drop(old);
    let new = house.link();
    start_sandbox(&new).await;
    house.sandbox.blocked_order.send_replace(None);
    let _connection = house.accept_dial().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.orders(), ["start", "start"]);
}

#[actix::test]
async fn the_next_life_of_a_session_starts_behind_a_stop_that_is_under_way() {
    let house = LinkTestHarness::new().await;
    let old = house.link();
    start_sandbox(&old).await;
    drop(house.accept_dial().await);
    house.sandbox.blocked_order.send_replace(Some("stop"));
    old.stop_sandbox.send(stop_order(AfterStop::Restart)).await.expect("it lives");
    house.sandbox.wait_for_orders(&["start", "stop"]).await;
    drop(old);
    let new = house.link();
    start_sandbox(&new).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.orders(), ["start", "stop"]);
    house.sandbox.blocked_order.send_replace(None);
    house.sandbox.wait_for_orders(&["start", "stop", "start"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.orders(), ["start", "stop", "start"], "the old link starts nothing any more");
}

#[actix::test]
async fn what_is_put_to_rest_while_it_is_restarted_stays_down() {
    let house = LinkTestHarness::new().await;
    let link = house.link();
    start_sandbox(&link).await;
    drop(house.accept_dial().await);
    house.sandbox.blocked_order.send_replace(Some("stop"));
    link.stop_sandbox.do_send(stop_order(AfterStop::Restart));
    link.stop_sandbox.do_send(stop_order(AfterStop::KeepFiles));
    house.sandbox.wait_for_orders(&["start", "stop"]).await;
    house.sandbox.blocked_order.send_replace(None);
    drain(&link).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.orders(), ["start", "stop", "stop"]);
}

/// Whether the session is paused, its next life learns from the journal.
#[actix::test]
async fn a_freeze_that_its_session_did_not_live_to_see_is_not_for_its_next_life() {
    let house = LinkTestHarness::new().await;
    let old = house.link();
    start_sandbox(&old).await;
    drop(house.accept_dial().await);
    house.sandbox.blocked_order.send_replace(Some("freeze"));
    for _ in 0..2 {
        old.pause_sandbox.do_send(PauseSandbox);
    }
    house.sandbox.wait_for_orders(&["start", "freeze"]).await;
    drop(old);
    house.sandbox.blocked_order.send_replace(None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.orders(), ["start", "freeze"]);
}

#[actix::test]
async fn one_that_died_while_no_server_was_there_is_told_as_one_that_was_watched() {
    for was in [RecordedSandbox::Up, RecordedSandbox::Paused] {
        let house = LinkTestHarness::new().await;
        house.sandbox.set_presence(SandboxPresence::Exited);
        house.sandbox.exit();
        let link = house.link();
        start_sandbox_from(was, &link).await;
        assert_eq!(house.failure().await, "the sandbox died with exit code 3");
        assert!(!house.sandbox.orders().contains(&"start"), "and only a person's next word starts another");
    }
}

/// The next server has found it, and its agent has not said a word yet.
#[actix::test]
async fn one_that_dies_as_soon_as_it_is_found_is_told_too() {
    let house = LinkTestHarness::new().await;
    house.sandbox.set_presence(SandboxPresence::Running);
    let link = house.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let _connection = house.accept_dial().await;
    house.sandbox.exit();
    assert_eq!(house.failure().await, "the sandbox died with exit code 3");
    assert!(house.sandbox.orders().is_empty());
}

/// As on another machine, or with another driver.
#[actix::test]
async fn one_of_which_nothing_is_there_is_started() {
    let house = LinkTestHarness::new().await;
    let link = house.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let _connection = house.accept_dial().await;
    assert_eq!(house.sandbox.orders(), ["start"]);
}

/// A server died between writing down that it was to be taken away and doing it, or could not.
#[actix::test]
async fn one_that_was_to_be_taken_away_is_not_spoken_with_any_more() {
    for left in [SandboxPresence::Running, SandboxPresence::Paused] {
        let house = LinkTestHarness::new().await;
        house.sandbox.set_presence(left);
        house.sandbox.blocked_order.send_replace(Some("stop"));
        let link = house.link();
        start_sandbox(&link).await;
        house.sandbox.wait_for_orders(&["stop"]).await;
        house.assert_not_dialled().await;
        house.sandbox.blocked_order.send_replace(None);
        let _connection = house.accept_dial().await;
        assert_eq!(house.sandbox.orders(), ["stop", "start"]);
    }
    let house = LinkTestHarness::new().await;
    house.sandbox.set_presence(SandboxPresence::Exited);
    let link = house.link();
    start_sandbox(&link).await;
    let _connection = house.accept_dial().await;
    assert_eq!(house.sandbox.orders(), ["start"], "there is nothing to stop");
}

#[actix::test]
async fn one_that_cannot_be_taken_away_is_not_taken_for_a_fresh_one() {
    let house = LinkTestHarness::new().await;
    house.sandbox.set_presence(SandboxPresence::Running);
    house.sandbox.fail_next(overdue());
    let link = house.link();
    start_sandbox(&link).await;
    assert_eq!(house.failure().await, overdue().to_string());
    assert_eq!(house.sandbox.orders(), ["stop"]);
}

#[test]
fn an_agent_that_does_not_listen_is_dialled_ever_less_often() {
    let mut waited = Duration::ZERO;
    let mut dials_until = |limit| {
        let mut dials = 0;
        while waited < limit {
            waited += sandbox_lifecycle::dial_backoff(waited);
            dials += 1;
        }
        dials
    };
    assert_eq!(dials_until(Duration::from_millis(60)), 15, "one that comes up has not long to wait");
    assert!(dials_until(Duration::from_secs(30)) < 120);
    assert_eq!(dials_until(Duration::from_secs(60)), 30, "and one that takes its time not much longer");
}

#[actix::test]
async fn a_place_on_disk_that_cannot_be_made_is_named() {
    let house = LinkTestHarness::new().await;
    let run = house.run().root().to_owned();
    std::fs::remove_dir_all(&run).expect("it was made");
    std::fs::write(&run, "in the way").expect("it is written");
    let link = house.link();
    start_sandbox(&link).await;
    let why = house.failure().await;
    assert!(why.contains(&format!("`{}`", run.display())), "{why}");
    assert!(house.sandbox.orders().is_empty());
}

/// The disk takes its time over the directories that are about to be removed.
#[test]
fn what_is_removed_as_it_begins_to_start_leaves_no_directory() {
    let one_for_the_disk = || Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    System::with_tokio_rt(|| one_for_the_disk().expect("a runtime")).block_on(async {
        let house = LinkTestHarness::new().await;
        let (work_on, hang) = std::sync::mpsc::channel::<()>();
        let disk = tokio::task::spawn_blocking(move || hang.recv());
        let link = house.link();
        start_sandbox(&link).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        link.stop_sandbox.do_send(stop_order(AfterStop::Remove));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(house.sandbox.orders().is_empty(), "the removal waits");
        drop(work_on);
        drain(&link).await;
        assert!(disk.await.expect("it goes on").is_err());
        assert_eq!(house.sandbox.orders().last(), Some(&"remove"));
        assert!(!house.run().root().exists());
    });
}

/// It had heard of its death, and what was ordered before began another.
#[actix::test]
async fn a_session_that_starts_anew_has_a_sandbox_of_its_own() {
    let house = LinkTestHarness::new().await;
    let link = house.link();
    start_sandbox(&link).await;
    let unheard_of = house.accept_dial().await;
    house.sandbox.set_presence(SandboxPresence::Running);
    start_sandbox(&link).await;
    house.sandbox.wait_for_orders(&["start", "stop", "start"]).await;
    drop(unheard_of);
    let _connection = house.accept_dial().await;
}

/// Without that it would wait for its link for ever.
#[actix::test]
async fn a_session_whose_link_has_a_fault_fails_and_can_start_anew() {
    let house = LinkTestHarness::new().await;
    house.sandbox.is_faulty.store(true, Ordering::Relaxed);
    let link = house.link();
    start_sandbox(&link).await;
    assert!(house.failure().await.contains("a fault of the server's"));
    house.sandbox.is_faulty.store(false, Ordering::Relaxed);
    start_sandbox(&link).await;
    house.accept_dial().await;
}

/// It introduced itself once more before anything of that was given.
#[actix::test]
async fn what_was_ordered_for_an_earlier_start_of_an_agent_is_not_for_the_next() {
    let house = LinkTestHarness::new().await;
    let (order, mut commands) = mpsc::unbounded_channel();
    for (boot, id) in [("a", "late"), ("b", "due")] {
        let command = Box::new(CommandFrame { id: id.to_owned(), command: AgentCommand::Cancel {} });
        for deliver in [DeliverToAgent::AgentConnected { boot: boot.to_owned() }, DeliverToAgent::Command(command)] {
            order.send(deliver).expect("it is heard");
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
        };
        let hello = serde_json::to_string(&FromAgent::Hello(hello)).expect("it is JSON");
        socket.send(Message::text(hello)).await.expect("it is sent");
        loop {
            let frame = socket.next().await.expect("a frame").expect("it is whole");
            if let Ok(ToAgent::Command(command)) = serde_json::from_str(frame.to_text().expect("a text")) {
                return command.id;
            }
        }
    };
    let (session, progress, frozen) = (house.session.downgrade(), ConnectionProgress::default(), PauseFlag::default());
    tokio::select! {
        _broken = serve_connection(house.id, ours, &session, &house.parts.store, &mut commands, &progress, &frozen) => {
            panic!("it is cut");
        }
        id = agent => assert_eq!(id, "due"),
    }
}

/// Which may take an hour.
#[actix::test]
async fn an_image_is_fetched_beside_the_places() {
    let house = LinkTestHarness::new().await;
    let _link = house.link_fetching_image().await;
    house.parts.start_limiter.admit(START_PERMITS).expect_err("it counts as one who waits");
    drop(house.take_all_permits().await);
    house.sandbox.blocked_order.send_replace(None);
    let _connection = house.accept_dial().await;
    assert_eq!(house.sandbox.orders(), ["start", "fetch", "start"]);
}

/// A registry is not asked once for each session.
#[actix::test]
async fn an_image_that_somebody_fetches_is_waited_for() {
    let house = LinkTestHarness::new().await;
    let turn = house.parts.start_limiter.image_lock(&house.parts.image);
    let fetched = turn.lock().await;
    house.sandbox.fail_next(no_image());
    let link = house.link();
    start_sandbox(&link).await;
    house.sandbox.wait_for_orders(&["start"]).await;
    house.assert_not_dialled().await;
    drop(fetched);
    let _connection = house.accept_dial().await;
    assert_eq!(house.sandbox.orders(), ["start", "start"]);
}

#[actix::test]
async fn a_fetch_is_broken_off_by_whoever_takes_the_sandbox_away() {
    let house = LinkTestHarness::new().await;
    let link = house.link_fetching_image().await;
    link.stop_sandbox.send(stop_order(AfterStop::Remove)).await.expect("it lives");
    house.sandbox.wait_for_orders(&["start", "fetch", "remove"]).await;
    house.parts.start_limiter.admit(START_PERMITS).expect("nobody waits any more");
}

#[actix::test]
async fn an_image_that_cannot_be_fetched_is_named() {
    let house = LinkTestHarness::new().await;
    let _link = house.link_fetching_image().await;
    house.sandbox.fail_next(no_image());
    house.sandbox.blocked_order.send_replace(None);
    assert_eq!(house.failure().await, no_image().to_string());
    assert_eq!(house.sandbox.orders(), ["start", "fetch"]);
}

/// After a server's death, beside sessions that were on their way up.
#[actix::test]
async fn what_is_up_is_spoken_with_though_others_take_all_places() {
    let house = LinkTestHarness::new().await;
    house.sandbox.set_presence(SandboxPresence::Running);
    let _places = house.take_all_permits().await;
    let link = house.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let _connection = house.accept_dial().await;
    assert!(house.sandbox.orders().is_empty());
}

/// Its own model is asked meanwhile.
#[actix::test]
async fn what_is_up_reaches_the_gateway_though_others_take_all_places() {
    let house = LinkTestHarness::new().await;
    let _places = house.take_all_permits().await;
    let link = house.link();
    start_sandbox_from(RecordedSandbox::Up, &link).await;
    let reached = timeout(Duration::from_secs(10), async {
        while UnixStream::connect(house.run().gateway().join("gateway.sock")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    reached.await.expect("it listens");
    assert!(house.sandbox.orders().is_empty(), "it is not started yet");
}

/// Its clients are there, and it needs no core to start.
#[actix::test]
async fn what_is_up_does_not_wait_until_a_crowd_is_turned_away() {
    let house = LinkTestHarness::new().await;
    house.sandbox.set_presence(SandboxPresence::Running);
    let starts = house.parts.start_limiter.clone();
    let turn_away = move || assert!(starts.admit(START_PERMITS + 1).is_err());
    turn_away();
    actix::spawn(async move {
        loop {
            turn_away();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let link = house.link();
    tokio::select! {
        biased;
        () = house.parts.start_limiter.until_burst_over() => panic!("it waited"),
        _ = async { start_sandbox_from(RecordedSandbox::Up, &link).await; house.accept_dial().await } => {}
    }
}
