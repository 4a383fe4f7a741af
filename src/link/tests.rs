//! Orders that fail, and links whose sessions fell: over a sandbox that does as it is told, and an agent that is dialled and
//! never says a word.

mod stage;

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use greenroom_protocol::{
    link::{Command, FromAgent, Hello, LINK_VERSION, Numbered, ToAgent},
    observation::State,
};
use tokio::{net::UnixStream, runtime::Builder, time::timeout};
use tokio_tungstenite::{accept_async, tungstenite::Message};

use self::stage::{House, PLACES, kill, no_image, overdue, raise, raise_what_was, settled, unclear};
use super::{
    conversation::{Progress, converse},
    *,
};
use crate::{sandbox::Presence, session::messages::Look};

#[actix::test]
async fn an_agent_that_could_not_be_frozen_is_dialled_still() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let connection = house.dialled().await;
    house.sandbox.fail(overdue());
    link.freeze.send(Freeze).await.expect("it lives");
    settled(&link).await;
    drop(connection);
    house.dialled().await;
}

#[actix::test]
async fn an_agent_that_could_not_be_thawed_is_left_alone_until_it_is() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let connection = house.dialled().await;
    link.freeze.send(Freeze).await.expect("it lives");
    house.sandbox.until(&["start", "freeze"]).await;
    house.sandbox.fail(overdue());
    link.thaw.send(Thaw).await.expect("it lives");
    settled(&link).await;
    drop(connection);
    house.is_not_dialled().await;
    link.thaw.send(Thaw).await.expect("it lives");
    house.dialled().await;
}

/// As between an agent's death and its next start, which would freeze it otherwise.
#[actix::test]
async fn where_there_is_nothing_to_thaw_nothing_is_frozen() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let connection = house.dialled().await;
    link.freeze.send(Freeze).await.expect("it lives");
    settled(&link).await;
    house.sandbox.fail(SandboxError::Gone { session: house.id });
    link.thaw.send(Thaw).await.expect("it lives");
    settled(&link).await;
    drop(connection);
    house.dialled().await;
}

/// To call it failed would have the sweep end it, once the driver is back.
#[actix::test]
async fn what_is_up_is_waited_for_while_its_driver_does_not_answer() {
    for why in [overdue(), unclear()] {
        let house = House::new().await;
        house.sandbox.is_silent(Some(why));
        house.sandbox.stands(Presence::Running);
        let link = house.link();
        raise_what_was(Was::Up, &link).await;
        house.is_not_dialled().await;
        assert_eq!(house.session.send(Look).await.expect("it lives").state, State::Starting);
        house.sandbox.is_silent(None);
        let _connection = house.dialled().await;
        assert_eq!(house.sandbox.told(), [] as [&str; 0], "it was not started");
    }
}

/// That it is not up is known, so nothing is ended by saying so.
#[actix::test]
async fn what_was_up_and_is_gone_and_cannot_be_started_has_failed() {
    let house = House::new().await;
    house.sandbox.fail(overdue());
    let link = house.link();
    link.raise.send(Raise { image: None, was: Was::Up }).await.expect("it lives");
    house.sandbox.until(&["start"]).await;
    let failed = async {
        while house.session.send(Look).await.expect("it lives").state != State::Failed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), failed).await.expect("it says so");
    assert_eq!(house.sandbox.told(), ["start"], "it is not tried again");
}

#[actix::test]
async fn a_restart_that_its_session_did_not_live_to_see_is_not_for_its_next_life() {
    let house = House::new().await;
    let old = house.link();
    house.sandbox.held.send_replace(Some("start"));
    raise(&old).await;
    house.sandbox.until(&["start"]).await;
    old.kill.send(kill(Then::Restart)).await.expect("it lives");
    drop(old);
    let new = house.link();
    raise(&new).await;
    house.sandbox.held.send_replace(None);
    let _connection = house.dialled().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "start"]);
}

#[actix::test]
async fn the_next_life_of_a_session_starts_behind_a_stop_that_is_under_way() {
    let house = House::new().await;
    let old = house.link();
    raise(&old).await;
    drop(house.dialled().await);
    house.sandbox.held.send_replace(Some("stop"));
    old.kill.send(kill(Then::Restart)).await.expect("it lives");
    house.sandbox.until(&["start", "stop"]).await;
    drop(old);
    let new = house.link();
    raise(&new).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "stop"]);
    house.sandbox.held.send_replace(None);
    house.sandbox.until(&["start", "stop", "start"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "stop", "start"], "the old link starts nothing any more");
}

#[actix::test]
async fn what_is_put_to_rest_while_it_is_restarted_stays_down() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    drop(house.dialled().await);
    house.sandbox.held.send_replace(Some("stop"));
    link.kill.do_send(kill(Then::Restart));
    link.kill.do_send(kill(Then::Rest));
    house.sandbox.until(&["start", "stop"]).await;
    house.sandbox.held.send_replace(None);
    settled(&link).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "stop", "stop"]);
}

/// Whether the session is paused, its next life learns from the journal.
#[actix::test]
async fn a_freeze_that_its_session_did_not_live_to_see_is_not_for_its_next_life() {
    let house = House::new().await;
    let old = house.link();
    raise(&old).await;
    drop(house.dialled().await);
    house.sandbox.held.send_replace(Some("freeze"));
    for _ in 0..2 {
        old.freeze.do_send(Freeze);
    }
    house.sandbox.until(&["start", "freeze"]).await;
    drop(old);
    house.sandbox.held.send_replace(None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "freeze"]);
}

#[actix::test]
async fn one_that_died_while_no_server_was_there_is_told_as_one_that_was_watched() {
    for was in [Was::Up, Was::Frozen] {
        let house = House::new().await;
        house.sandbox.stands(Presence::Exited);
        house.sandbox.end();
        let link = house.link();
        raise_what_was(was, &link).await;
        assert_eq!(house.failure().await, "the sandbox died with exit code 3");
        assert!(!house.sandbox.told().contains(&"start"), "and only a person's next word starts another");
    }
}

/// The next server has found it, and its agent has not said a word yet.
#[actix::test]
async fn one_that_dies_as_soon_as_it_is_found_is_told_too() {
    let house = House::new().await;
    house.sandbox.stands(Presence::Running);
    let link = house.link();
    raise_what_was(Was::Up, &link).await;
    let _connection = house.dialled().await;
    house.sandbox.end();
    assert_eq!(house.failure().await, "the sandbox died with exit code 3");
    assert!(house.sandbox.told().is_empty());
}

/// As on another machine, or with another driver.
#[actix::test]
async fn one_of_which_nothing_is_there_is_started() {
    let house = House::new().await;
    let link = house.link();
    raise_what_was(Was::Up, &link).await;
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), ["start"]);
}

/// A server died between writing down that it was to be taken away and doing it, or could not.
#[actix::test]
async fn one_that_was_to_be_taken_away_is_not_spoken_with_any_more() {
    for left in [Presence::Running, Presence::Frozen] {
        let house = House::new().await;
        house.sandbox.stands(left);
        house.sandbox.held.send_replace(Some("stop"));
        let link = house.link();
        raise(&link).await;
        house.sandbox.until(&["stop"]).await;
        house.is_not_dialled().await;
        house.sandbox.held.send_replace(None);
        let _connection = house.dialled().await;
        assert_eq!(house.sandbox.told(), ["stop", "start"]);
    }
    let house = House::new().await;
    house.sandbox.stands(Presence::Exited);
    let link = house.link();
    raise(&link).await;
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), ["start"], "there is nothing to stop");
}

#[actix::test]
async fn one_that_cannot_be_taken_away_is_not_taken_for_a_fresh_one() {
    let house = House::new().await;
    house.sandbox.stands(Presence::Running);
    house.sandbox.fail(overdue());
    let link = house.link();
    raise(&link).await;
    assert_eq!(house.failure().await, overdue().to_string());
    assert_eq!(house.sandbox.told(), ["stop"]);
}

#[test]
fn an_agent_that_does_not_listen_is_dialled_ever_less_often() {
    let mut waited = Duration::ZERO;
    let mut dials_until = |limit| {
        let mut dials = 0;
        while waited < limit {
            waited += raise::until_dialled_again(waited);
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
    let house = House::new().await;
    let run = house.run().root().to_owned();
    std::fs::remove_dir_all(&run).expect("it was made");
    std::fs::write(&run, "in the way").expect("it is written");
    let link = house.link();
    raise(&link).await;
    let why = house.failure().await;
    assert!(why.contains(&format!("`{}`", run.display())), "{why}");
    assert!(house.sandbox.told().is_empty());
}

/// The disk takes its time over the directories that are about to be removed.
#[test]
fn what_is_removed_as_it_begins_to_start_leaves_no_directory() {
    let one_for_the_disk = || Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    System::with_tokio_rt(|| one_for_the_disk().expect("a runtime")).block_on(async {
        let house = House::new().await;
        let (work_on, hang) = std::sync::mpsc::channel::<()>();
        let disk = tokio::task::spawn_blocking(move || hang.recv());
        let link = house.link();
        raise(&link).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        link.kill.do_send(kill(Then::Remove));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(house.sandbox.told().is_empty(), "the removal waits");
        drop(work_on);
        settled(&link).await;
        assert!(disk.await.expect("it goes on").is_err());
        assert_eq!(house.sandbox.told().last(), Some(&"remove"));
        assert!(!house.run().root().exists());
    });
}

/// It had heard of its death, and what was ordered before began another.
#[actix::test]
async fn a_session_that_starts_anew_has_a_sandbox_of_its_own() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let unheard_of = house.dialled().await;
    house.sandbox.stands(Presence::Running);
    raise(&link).await;
    house.sandbox.until(&["start", "stop", "start"]).await;
    drop(unheard_of);
    let _connection = house.dialled().await;
}

/// Without that it would wait for its link for ever.
#[actix::test]
async fn a_session_whose_link_has_a_fault_fails_and_can_start_anew() {
    let house = House::new().await;
    house.sandbox.is_faulty.store(true, Ordering::Relaxed);
    let link = house.link();
    raise(&link).await;
    assert!(house.failure().await.contains("a fault of the server's"));
    house.sandbox.is_faulty.store(false, Ordering::Relaxed);
    raise(&link).await;
    house.dialled().await;
}

/// It introduced itself once more before anything of that was given.
#[actix::test]
async fn what_was_ordered_for_an_earlier_start_of_an_agent_is_not_for_the_next() {
    let house = House::new().await;
    let (order, mut commands) = mpsc::unbounded_channel();
    for (boot, id) in [("a", "late"), ("b", "due")] {
        let command = Box::new(Numbered { id: id.to_owned(), command: Command::Cancel {} });
        for deliver in [Deliver::Anew { boot: boot.to_owned() }, Deliver::Command(command)] {
            order.send(deliver).expect("it is heard");
        }
    }
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let agent = async {
        let mut socket = accept_async(theirs).await.expect("a handshake");
        let hello =
            Hello { link_version: LINK_VERSION, boot: "b".into(), agent_version: "1".into(), last_n: 0, turn: None };
        let hello = serde_json::to_string(&FromAgent::Hello(hello)).expect("it is JSON");
        socket.send(Message::text(hello)).await.expect("it is sent");
        loop {
            let frame = socket.next().await.expect("a frame").expect("it is whole");
            if let Ok(ToAgent::Command(command)) = serde_json::from_str(frame.to_text().expect("a text")) {
                return command.id;
            }
        }
    };
    let (session, progress, frozen) = (house.session.downgrade(), Progress::default(), Frozen::default());
    tokio::select! {
        _broken = converse(house.id, ours, &session, &house.parts.store, &mut commands, &progress, &frozen) => {
            panic!("it is cut");
        }
        id = agent => assert_eq!(id, "due"),
    }
}

/// Which may take an hour.
#[actix::test]
async fn an_image_is_fetched_beside_the_places() {
    let house = House::new().await;
    let _link = house.fetching().await;
    house.parts.starting.let_in(PLACES).expect_err("it counts as one who waits");
    drop(house.take_all_places().await);
    house.sandbox.held.send_replace(None);
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), ["start", "fetch", "start"]);
}

/// A registry is not asked once for each session.
#[actix::test]
async fn an_image_that_somebody_fetches_is_waited_for() {
    let house = House::new().await;
    let turn = house.parts.starting.turn_of_image(&house.parts.image);
    let fetched = turn.lock().await;
    house.sandbox.fail(no_image());
    let link = house.link();
    raise(&link).await;
    house.sandbox.until(&["start"]).await;
    house.is_not_dialled().await;
    drop(fetched);
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), ["start", "start"]);
}

#[actix::test]
async fn a_fetch_is_broken_off_by_whoever_takes_the_sandbox_away() {
    let house = House::new().await;
    let link = house.fetching().await;
    link.kill.send(kill(Then::Remove)).await.expect("it lives");
    house.sandbox.until(&["start", "fetch", "remove"]).await;
    house.parts.starting.let_in(PLACES).expect("nobody waits any more");
}

#[actix::test]
async fn an_image_that_cannot_be_fetched_is_named() {
    let house = House::new().await;
    let _link = house.fetching().await;
    house.sandbox.fail(no_image());
    house.sandbox.held.send_replace(None);
    assert_eq!(house.failure().await, no_image().to_string());
    assert_eq!(house.sandbox.told(), ["start", "fetch"]);
}

/// After a server's death, beside sessions that were on their way up.
#[actix::test]
async fn what_is_up_is_spoken_with_though_others_take_all_places() {
    let house = House::new().await;
    house.sandbox.stands(Presence::Running);
    let _places = house.take_all_places().await;
    let link = house.link();
    raise_what_was(Was::Up, &link).await;
    let _connection = house.dialled().await;
    assert!(house.sandbox.told().is_empty());
}

/// Its own model is asked meanwhile.
#[actix::test]
async fn what_is_up_reaches_the_gateway_though_others_take_all_places() {
    let house = House::new().await;
    let _places = house.take_all_places().await;
    let link = house.link();
    raise_what_was(Was::Up, &link).await;
    let reached = timeout(Duration::from_secs(10), async {
        while UnixStream::connect(house.run().gateway().join("gateway.sock")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    reached.await.expect("it listens");
    assert!(house.sandbox.told().is_empty(), "it is not started yet");
}

/// Its clients are there, and it needs no core to start.
#[actix::test]
async fn what_is_up_does_not_wait_until_a_crowd_is_turned_away() {
    let house = House::new().await;
    house.sandbox.stands(Presence::Running);
    let starts = house.parts.starting.clone();
    let turn_away = move || assert!(starts.let_in(PLACES + 1).is_err());
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
        () = house.parts.starting.until_quiet() => panic!("it waited"),
        _ = async { raise_what_was(Was::Up, &link).await; house.dialled().await } => {}
    }
}
