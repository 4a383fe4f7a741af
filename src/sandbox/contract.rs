//! What every driver promises, as tests that each driver runs against itself: [`suite!`] makes one of each promise.
//!
//! ```ignore
//! contract::suite!(bench);                          // in the driver's own tests
//! async fn bench() -> Option<contract::Bench> { … } // `None` skips, where there is nothing to test on
//! ```
//!
//! The agent of these tests is a `sh` script, which is an executable like another; it tells what it saw by files in its
//! workspace. [`walls`] asks what it can reach from inside.

use std::time::Duration;

use futures::future::join_all;

use super::{SandboxError, SandboxPresence};

mod fixture;
mod isolation;

pub(crate) use fixture::DriverFixture;
use fixture::SandboxFixture;
pub(crate) use fixture::eventually;
pub(crate) use isolation::*;

/// One `#[tokio::test]` for each promise, on what `$bench` makes.
macro_rules! suite {
    ($bench:path) => {
        $crate::sandbox::contract::suite!(@ $bench:
            a_started_one_runs_and_is_left_alone
            starts_at_once_make_one
            an_exited_one_is_started_again
            frozen_stands_still_and_thawed_goes_on
            of_freezes_and_thaws_at_once_the_last_holds
            a_frozen_one_is_left_frozen_by_start
            a_frozen_one_can_be_stopped_and_removed
            workspace_and_home_outlive_the_sandbox
            wait_tells_the_code_and_the_last_words
            wait_tells_a_signal
            wait_notices_a_stop_and_a_removal
            what_is_not_there_is_said_so
            another_driver_finds_and_controls_it
            another_driver_tells_how_it_ended
            logs_are_the_newest
            stats_are_of_this_sandbox
            it_holds_no_privileges
            it_reaches_no_network
            its_environment_is_clean
            it_sees_nothing_of_the_host
            it_writes_only_where_it_may
            it_hears_the_gateway
            a_fork_bomb_is_held
            a_memory_hog_is_ended
        );
    };
    (@ $bench:path: $($promise:ident)*) => {$(
        #[tokio::test]
        async fn $promise() {
            if let Some(bench) = $bench().await {
                $crate::sandbox::contract::$promise(&bench).await;
            }
        }
    )*};
}
pub(crate) use suite;

/// Each start of its process leaves a line in `runs`, in the workspace and at home; `up` appears when they are there.
const COUNTS_ITS_STARTS: &str = "echo run >>/workspace/runs; echo run >>$HOME/runs; : >/workspace/up; exec sleep 1000";
const TICKS: &str = "n=0; while :; do n=$((n+1)); echo $n >/workspace/tick; sleep 0.05; done";

pub(crate) async fn a_started_one_runs_and_is_left_alone(bench: &DriverFixture) {
    bench.check().await.expect("sandboxes can be started");
    bench
        .with_sandbox(COUNTS_ITS_STARTS, async |room| {
            room.start().await;
            room.wait_for_file("up").await;
            room.start().await;
            assert_eq!(room.presence().await, Some(SandboxPresence::Running));
            assert_eq!(room.read("runs"), "run\n", "its process is the first one still");
        })
        .await;
}

pub(crate) async fn starts_at_once_make_one(bench: &DriverFixture) {
    bench
        .with_sandbox(COUNTS_ITS_STARTS, async |room| {
            join_all((0..6).map(|_| room.start())).await;
            room.wait_for_file("up").await;
            let found = bench.list().await.expect("they are listed");
            assert_eq!(found.iter().filter(|found| found.session == room.spec.session).count(), 1);
            assert_eq!(room.read("runs"), "run\n");
        })
        .await;
}

pub(crate) async fn an_exited_one_is_started_again(bench: &DriverFixture) {
    bench
        .with_sandbox("echo run >>/workspace/runs; exit 3", async |room| {
            for runs in 1..=3 {
                room.start().await;
                assert_eq!(room.exit().await.code, Some(3));
                assert_eq!(room.presence().await, Some(SandboxPresence::Exited));
                assert_eq!(room.read("runs").lines().count(), runs);
            }
        })
        .await;
}

pub(crate) async fn frozen_stands_still_and_thawed_goes_on(bench: &DriverFixture) {
    bench
        .with_sandbox(TICKS, async |room| {
            room.start().await;
            room.wait_for_file("tick").await;
            bench.pause(room.spec.session).await.expect("it freezes");
            bench.pause(room.spec.session).await.expect("and may be frozen again");
            assert_eq!(room.presence().await, Some(SandboxPresence::Paused));
            let before = room.read("tick");
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert_eq!(room.read("tick"), before, "time stood still");
            bench.unpause(room.spec.session).await.expect("it thaws");
            bench.unpause(room.spec.session).await.expect("and may be thawed again");
            assert_eq!(room.presence().await, Some(SandboxPresence::Running));
            eventually("it goes on", async || room.read("tick") != before).await;
        })
        .await;
}

/// A start ends with a freeze or a thaw, and its session may order one at the same time.
pub(crate) async fn of_freezes_and_thaws_at_once_the_last_holds(bench: &DriverFixture) {
    bench
        .with_sandbox(TICKS, async |room| {
            room.start().await;
            room.wait_for_file("tick").await;
            let session = room.spec.session;
            // Docker notes how a container stands also when it hears of it from beneath, which may be of the order before.
            let stands =
                async |so| eventually("it is told how it stands", async || room.presence().await == Some(so)).await;
            let still = async || {
                let before = room.read("tick");
                tokio::time::sleep(Duration::from_millis(200)).await;
                room.read("tick") == before
            };
            bench.unpause(session).await.expect("one that was never frozen may be thawed");
            for _ in 0..5 {
                let (first, second) = tokio::join!(bench.pause(session), bench.pause(session));
                first.and(second).expect("it freezes");
                bench.unpause(session).await.expect("it thaws");
                stands(SandboxPresence::Running).await;
                let before = room.read("tick");
                eventually("it goes on", async || room.read("tick") != before).await;

                let (first, second) = tokio::join!(bench.pause(session), bench.unpause(session));
                first.and(second).expect("it is as the last says");
                bench.pause(session).await.expect("it freezes");
                stands(SandboxPresence::Paused).await;
                assert!(still().await);
                let (first, second) = tokio::join!(bench.unpause(session), bench.pause(session));
                first.and(second).expect("it is as the last says");
                bench.unpause(session).await.expect("it thaws");
                assert!(!still().await);
            }
        })
        .await;
}

pub(crate) async fn a_frozen_one_is_left_frozen_by_start(bench: &DriverFixture) {
    bench
        .with_sandbox(COUNTS_ITS_STARTS, async |room| {
            room.start().await;
            room.wait_for_file("up").await;
            bench.pause(room.spec.session).await.expect("it freezes");
            room.start().await;
            assert_eq!(room.presence().await, Some(SandboxPresence::Paused));
            assert_eq!(room.read("runs"), "run\n");
        })
        .await;
}

pub(crate) async fn a_frozen_one_can_be_stopped_and_removed(bench: &DriverFixture) {
    bench
        .with_sandbox(TICKS, async |room| {
            room.start().await;
            bench.pause(room.spec.session).await.expect("it freezes");
            bench.stop(room.spec.session).await.expect("it stops");
            assert_eq!(room.presence().await, Some(SandboxPresence::Exited));
            room.start().await;
            assert_eq!(room.presence().await, Some(SandboxPresence::Running));
            bench.pause(room.spec.session).await.expect("it freezes");
            bench.remove(room.spec.session).await.expect("it is removed");
            assert_eq!(room.presence().await, None);
        })
        .await;
}

pub(crate) async fn workspace_and_home_outlive_the_sandbox(bench: &DriverFixture) {
    bench
        .with_sandbox(COUNTS_ITS_STARTS, async |room| {
            for runs in 1..=3 {
                room.start().await;
                room.wait_for_file("up").await;
                room.remove_file("up");
                assert_eq!(room.read("runs").lines().count(), runs);
                assert_eq!(room.read_home("runs").lines().count(), runs);
                bench.stop(room.spec.session).await.expect("it stops");
                bench.stop(room.spec.session).await.expect("and may be stopped again");
                if runs == 2 {
                    bench.remove(room.spec.session).await.expect("it is removed");
                }
            }
        })
        .await;
}

pub(crate) async fn wait_tells_the_code_and_the_last_words(bench: &DriverFixture) {
    let script = "echo unheard; yes nonsense | head -c 100000 >&2; echo 'no model, no agent' >&2; exit 7";
    bench
        .with_sandbox(script, async |room| {
            room.start().await;
            // Asked once while it may still run, and once when it surely does not.
            for _ in 0..2 {
                let exit = room.exit().await;
                assert_eq!(exit.code, Some(7));
                assert!(!exit.out_of_memory);
                assert!(exit.stderr_tail.ends_with("no model, no agent\n"), "{}", exit.stderr_tail);
                assert!(exit.stderr_tail.len() <= 4096);
                assert!(!exit.stderr_tail.contains("unheard"));
            }
        })
        .await;
}

pub(crate) async fn wait_tells_a_signal(bench: &DriverFixture) {
    bench
        .with_sandbox("kill -9 $$", async |room| {
            room.start().await;
            assert_eq!(room.exit().await.code, Some(137));
        })
        .await;
}

pub(crate) async fn wait_notices_a_stop_and_a_removal(bench: &DriverFixture) {
    bench
        .with_sandbox(COUNTS_ITS_STARTS, async |room| {
            room.start().await;
            let (_, stopped) = tokio::join!(room.exit(), bench.stop(room.spec.session));
            stopped.expect("it stops");
            room.start().await;
            let (_, removed) = tokio::join!(room.exit(), bench.remove(room.spec.session));
            removed.expect("it is removed");
            assert_eq!(room.exit().await.code, None, "nobody can tell any more");
        })
        .await;
}

pub(crate) async fn what_is_not_there_is_said_so(bench: &DriverFixture) {
    bench
        .with_sandbox(COUNTS_ITS_STARTS, async |room| {
            let session = room.spec.session;
            bench.stop(session).await.expect("nothing to stop is no error");
            bench.remove(session).await.expect("nothing to remove is no error");
            assert_eq!(room.presence().await, None);
            for told in [
                bench.pause(session).await,
                bench.unpause(session).await,
                bench.logs(session, 100).await.map(drop),
                bench.stats(session).await.map(drop),
            ] {
                assert!(matches!(told, Err(SandboxError::NotFound { session: gone }) if gone == session), "{told:?}");
            }
            room.start().await;
            bench.stop(session).await.expect("it stops");
            for told in [bench.pause(session).await, bench.unpause(session).await] {
                assert!(matches!(told, Err(SandboxError::NotFound { .. })), "an exited one cannot be frozen: {told:?}");
            }
        })
        .await;
}

/// A server that starts anew finds what runs, and its process has not noticed.
pub(crate) async fn another_driver_finds_and_controls_it(bench: &DriverFixture) {
    bench
        .with_sandbox("echo run >>/workspace/runs; : >/workspace/up; sleep 1000; exit 4", async |room| {
            room.start().await;
            room.wait_for_file("up").await;
            let other = &bench.reopened;
            let found = other.list().await.expect("they are listed");
            assert!(found.iter().any(|it| it.session == room.spec.session && it.presence == SandboxPresence::Running));
            assert_eq!(room.presence_after_reopen().await, Some(SandboxPresence::Running));
            other.start(&room.spec, &|_, _| ()).await.expect("it runs already");
            other.pause(room.spec.session).await.expect("it freezes");
            assert_eq!(room.presence_after_reopen().await, Some(SandboxPresence::Paused));
            bench.unpause(room.spec.session).await.expect("it thaws");
            assert_eq!(room.read("runs"), "run\n");
            let (exit, stopped) = tokio::join!(other.wait(room.spec.session), bench.stop(room.spec.session));
            stopped.expect("it stops");
            exit.expect("its end is noticed");
            other.remove(room.spec.session).await.expect("it is removed");
            assert_eq!(room.presence().await, None);
        })
        .await;
}

/// Nobody watched when it died: a server that starts anew tells it as if it had.
pub(crate) async fn another_driver_tells_how_it_ended(bench: &DriverFixture) {
    let script = "echo unheard; echo 'last words' >&2; [ -e /workspace/ran ] && kill -9 $$; : >/workspace/ran; exit 3";
    bench
        .with_sandbox(script, async |room| {
            assert_eq!(room.presence_after_reopen().await, None, "it has never run");
            for code in [3, 137] {
                room.start().await;
                eventually("it ends", async || room.presence().await == Some(SandboxPresence::Exited)).await;
                assert_eq!(room.presence_after_reopen().await, Some(SandboxPresence::Exited));
                for _ in 0..2 {
                    let exit = bench.reopened.wait(room.spec.session).await.expect("its end is told");
                    assert_eq!((exit.code, exit.out_of_memory), (Some(code), false), "as often as it is asked");
                    assert!(exit.stderr_tail.ends_with("last words\n"), "{}", exit.stderr_tail);
                    assert!(!exit.stderr_tail.contains("unheard"));
                }
            }
            bench.remove(room.spec.session).await.expect("it is removed");
            assert_eq!(room.presence_after_reopen().await, None);
        })
        .await;
}

pub(crate) async fn logs_are_the_newest(bench: &DriverFixture) {
    bench
        .with_sandbox("echo first; yes word | head -c 50000; echo 'to stderr' >&2; echo last", async |room| {
            room.start().await;
            room.exit().await;
            let all = bench.logs(room.spec.session, 100_000).await.expect("there are logs");
            assert!(all.contains("first\n") && all.contains("to stderr\n"));
            let newest = bench.logs(room.spec.session, 40).await.expect("there are logs");
            assert!(newest.len() <= 40 && newest.contains("last\n") && !newest.contains("first"), "{newest}");
        })
        .await;
}

pub(crate) async fn stats_are_of_this_sandbox(bench: &DriverFixture) {
    let script = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done; : >/workspace/up; sleep 1000 & sleep 1000 & wait";
    bench
        .with_sandbox(script, async |room| {
            room.start().await;
            room.wait_for_file("up").await;
            eventually("three processes are counted", async || {
                let stats = bench.stats(room.spec.session).await.expect("there are figures");
                assert!(stats.memory_bytes > 0 && stats.memory_bytes <= room.spec.limits.memory_bytes, "{stats:?}");
                assert!(stats.cpu_us > 0, "{stats:?}");
                // Two sleeps and their shell, and what the driver itself puts beside them.
                (3..=6).contains(&stats.processes)
            })
            .await;
        })
        .await;
}
