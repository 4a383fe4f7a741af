//! Contract of [`SandboxDriver`](super::SandboxDriver), as tests that each driver runs.
//!
//! [`suite!`] makes one test of each promise.
//!
//! ```ignore
//! contract::suite!(fixture);                                   // in the driver's own tests
//! async fn fixture() -> Option<contract::DriverFixture> { … }  // `None` skips the tests
//! ```
//!
//! The agent of these tests is a `sh` script. It reports through files in its workspace.
//! [`isolation`] tests what an agent can reach from inside. [`probes`] is a longer list that needs
//! the tools of an ordinary system.

use std::time::Duration;

use futures::future::join_all;

use super::{SandboxError, SandboxPresence};

mod fixture;
mod isolation;
mod probes;
mod quotas;

pub(crate) use fixture::DriverFixture;
use fixture::SandboxFixture;
pub(crate) use fixture::eventually;
pub(crate) use isolation::*;
pub(crate) use probes::{ProbeTargets, check_probes};
pub(crate) use quotas::greedy_sandbox_leaves_quotas_to_its_neighbour;

/// Defines a `#[tokio::test]` for each promise, with the fixture that `$fixture` returns.
macro_rules! suite {
    ($fixture:path) => {
        $crate::sandbox::contract::suite!(@ $fixture:
            start_leaves_running_sandbox_alone
            concurrent_starts_create_one_sandbox
            exited_sandbox_starts_again
            pause_stops_and_unpause_continues_processes
            last_of_concurrent_pauses_and_unpauses_holds
            start_leaves_paused_sandbox_paused
            paused_sandbox_can_be_stopped_and_removed
            workspace_and_home_outlive_the_sandbox
            wait_returns_exit_code_and_stderr_tail
            wait_returns_signal_as_exit_code
            wait_returns_after_stop_and_removal
            missing_sandbox_is_reported_as_not_found
            reopened_driver_finds_and_controls_sandbox
            reopened_driver_returns_exit
            logs_return_newest_bytes
            stats_cover_this_sandbox
            agent_has_no_privileges
            agent_reaches_no_network
            agent_environment_is_clean
            agent_sees_nothing_of_host
            agent_writes_only_to_its_directories
            agent_sees_rebound_gateway_socket
            fork_bomb_stays_within_pid_limit
            memory_hog_is_killed
        );
    };
    (@ $fixture:path: $($promise:ident)*) => {$(
        #[tokio::test]
        async fn $promise() {
            if let Some(fixture) = $fixture().await {
                $crate::sandbox::contract::$promise(&fixture).await;
            }
        }
    )*};
}
pub(crate) use suite;

/// Script that appends a line to `runs` in workspace and home at each start. Then `up` appears.
const COUNT_STARTS: &str = "echo run >>/workspace/runs; echo run >>$HOME/runs; : >/workspace/up; exec sleep 1000";
const TICKS: &str = "n=0; while :; do n=$((n+1)); echo $n >/workspace/tick; sleep 0.05; done";

pub(crate) async fn start_leaves_running_sandbox_alone(fixture: &DriverFixture) {
    fixture.check().await.expect("driver is available");
    fixture
        .with_sandbox(COUNT_STARTS, async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("up").await;
            sandbox.start().await;
            assert_eq!(sandbox.presence().await, Some(SandboxPresence::Running));
            assert_eq!(sandbox.read("runs"), "run\n", "the second start starts no second process");
        })
        .await;
}

pub(crate) async fn concurrent_starts_create_one_sandbox(fixture: &DriverFixture) {
    fixture
        .with_sandbox(COUNT_STARTS, async |sandbox| {
            join_all((0..6).map(|_| sandbox.start())).await;
            sandbox.wait_for_file("up").await;
            let found = fixture.list().await.expect("list succeeds");
            assert_eq!(found.iter().filter(|found| found.session == sandbox.spec.session).count(), 1);
            assert_eq!(sandbox.read("runs"), "run\n");
        })
        .await;
}

pub(crate) async fn exited_sandbox_starts_again(fixture: &DriverFixture) {
    fixture
        .with_sandbox("echo run >>/workspace/runs; exit 3", async |sandbox| {
            for runs in 1..=3 {
                sandbox.start().await;
                assert_eq!(sandbox.exit().await.code, Some(3));
                assert_eq!(sandbox.presence().await, Some(SandboxPresence::Exited));
                assert_eq!(sandbox.read("runs").lines().count(), runs);
            }
        })
        .await;
}

pub(crate) async fn pause_stops_and_unpause_continues_processes(fixture: &DriverFixture) {
    fixture
        .with_sandbox(TICKS, async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("tick").await;
            fixture.pause(sandbox.spec.session).await.expect("pause succeeds");
            fixture.pause(sandbox.spec.session).await.expect("second pause is no error");
            assert_eq!(sandbox.presence().await, Some(SandboxPresence::Paused));
            let before = sandbox.read("tick");
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert_eq!(sandbox.read("tick"), before, "a paused script writes nothing");
            fixture.unpause(sandbox.spec.session).await.expect("unpause succeeds");
            fixture.unpause(sandbox.spec.session).await.expect("second unpause is no error");
            assert_eq!(sandbox.presence().await, Some(SandboxPresence::Running));
            eventually("the script continues", async || sandbox.read("tick") != before).await;
        })
        .await;
}

/// A start ends with a pause or an unpause, and the session may order another one at the same time.
pub(crate) async fn last_of_concurrent_pauses_and_unpauses_holds(fixture: &DriverFixture) {
    fixture
        .with_sandbox(TICKS, async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("tick").await;
            let session = sandbox.spec.session;
            // Docker also sets a container's state from late events of its runtime. Such an event
            // may belong to the call before.
            let reaches = async |state| {
                eventually("the state is reported", async || sandbox.presence().await == Some(state)).await
            };
            let is_paused = async || {
                let before = sandbox.read("tick");
                tokio::time::sleep(Duration::from_millis(200)).await;
                sandbox.read("tick") == before
            };
            fixture.unpause(session).await.expect("unpause of a running sandbox is no error");
            for _ in 0..5 {
                let (first, second) = tokio::join!(fixture.pause(session), fixture.pause(session));
                first.and(second).expect("both pauses succeed");
                fixture.unpause(session).await.expect("unpause succeeds");
                reaches(SandboxPresence::Running).await;
                let before = sandbox.read("tick");
                eventually("the script continues", async || sandbox.read("tick") != before).await;

                let (first, second) = tokio::join!(fixture.pause(session), fixture.unpause(session));
                first.and(second).expect("both calls succeed");
                fixture.pause(session).await.expect("pause succeeds");
                reaches(SandboxPresence::Paused).await;
                assert!(is_paused().await);
                let (first, second) = tokio::join!(fixture.unpause(session), fixture.pause(session));
                first.and(second).expect("both calls succeed");
                fixture.unpause(session).await.expect("unpause succeeds");
                assert!(!is_paused().await);
            }
        })
        .await;
}

pub(crate) async fn start_leaves_paused_sandbox_paused(fixture: &DriverFixture) {
    fixture
        .with_sandbox(COUNT_STARTS, async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("up").await;
            fixture.pause(sandbox.spec.session).await.expect("pause succeeds");
            sandbox.start().await;
            assert_eq!(sandbox.presence().await, Some(SandboxPresence::Paused));
            assert_eq!(sandbox.read("runs"), "run\n");
        })
        .await;
}

pub(crate) async fn paused_sandbox_can_be_stopped_and_removed(fixture: &DriverFixture) {
    fixture
        .with_sandbox(TICKS, async |sandbox| {
            sandbox.start().await;
            fixture.pause(sandbox.spec.session).await.expect("pause succeeds");
            fixture.stop(sandbox.spec.session).await.expect("stop succeeds");
            assert_eq!(sandbox.presence().await, Some(SandboxPresence::Exited));
            sandbox.start().await;
            assert_eq!(sandbox.presence().await, Some(SandboxPresence::Running));
            fixture.pause(sandbox.spec.session).await.expect("pause succeeds");
            fixture.remove(sandbox.spec.session).await.expect("remove succeeds");
            assert_eq!(sandbox.presence().await, None);
        })
        .await;
}

pub(crate) async fn workspace_and_home_outlive_the_sandbox(fixture: &DriverFixture) {
    fixture
        .with_sandbox(COUNT_STARTS, async |sandbox| {
            for runs in 1..=3 {
                sandbox.start().await;
                sandbox.wait_for_file("up").await;
                sandbox.remove_file("up");
                assert_eq!(sandbox.read("runs").lines().count(), runs);
                assert_eq!(sandbox.read_home("runs").lines().count(), runs);
                fixture.stop(sandbox.spec.session).await.expect("stop succeeds");
                fixture.stop(sandbox.spec.session).await.expect("second stop is no error");
                if runs == 2 {
                    fixture.remove(sandbox.spec.session).await.expect("remove succeeds");
                }
            }
        })
        .await;
}

pub(crate) async fn wait_returns_exit_code_and_stderr_tail(fixture: &DriverFixture) {
    let script = "echo to-stdout; yes nonsense | head -c 100000 >&2; echo 'no model, no agent' >&2; exit 7";
    fixture
        .with_sandbox(script, async |sandbox| {
            sandbox.start().await;
            // The first call may find the sandbox running. The second call finds an exited one.
            for _ in 0..2 {
                let exit = sandbox.exit().await;
                assert_eq!(exit.code, Some(7));
                assert!(!exit.out_of_memory);
                assert!(exit.stderr_tail.ends_with("no model, no agent\n"), "{}", exit.stderr_tail);
                assert!(exit.stderr_tail.len() <= 4096);
                assert!(!exit.stderr_tail.contains("to-stdout"));
            }
        })
        .await;
}

pub(crate) async fn wait_returns_signal_as_exit_code(fixture: &DriverFixture) {
    fixture
        .with_sandbox("kill -9 $$", async |sandbox| {
            sandbox.start().await;
            assert_eq!(sandbox.exit().await.code, Some(137));
        })
        .await;
}

pub(crate) async fn wait_returns_after_stop_and_removal(fixture: &DriverFixture) {
    fixture
        .with_sandbox(COUNT_STARTS, async |sandbox| {
            sandbox.start().await;
            let (_, stopped) = tokio::join!(sandbox.exit(), fixture.stop(sandbox.spec.session));
            stopped.expect("stop succeeds");
            sandbox.start().await;
            let (_, removed) = tokio::join!(sandbox.exit(), fixture.remove(sandbox.spec.session));
            removed.expect("remove succeeds");
            assert_eq!(sandbox.exit().await.code, None, "a removed sandbox has no exit record");
        })
        .await;
}

pub(crate) async fn missing_sandbox_is_reported_as_not_found(fixture: &DriverFixture) {
    fixture
        .with_sandbox(COUNT_STARTS, async |sandbox| {
            let session = sandbox.spec.session;
            fixture.stop(session).await.expect("stop of a missing sandbox is no error");
            fixture.remove(session).await.expect("remove of a missing sandbox is no error");
            assert_eq!(sandbox.presence().await, None);
            for result in [
                fixture.pause(session).await,
                fixture.unpause(session).await,
                fixture.logs(session, 100).await.map(drop),
                fixture.stats(session).await.map(drop),
            ] {
                assert!(
                    matches!(result, Err(SandboxError::NotFound { session: missing }) if missing == session),
                    "{result:?}"
                );
            }
            sandbox.start().await;
            fixture.stop(session).await.expect("stop succeeds");
            for result in [fixture.pause(session).await, fixture.unpause(session).await] {
                assert!(
                    matches!(result, Err(SandboxError::NotFound { .. })),
                    "an exited sandbox cannot be paused: {result:?}"
                );
            }
        })
        .await;
}

/// A restarted server finds the running sandbox, whose process is not disturbed.
pub(crate) async fn reopened_driver_finds_and_controls_sandbox(fixture: &DriverFixture) {
    fixture
        .with_sandbox("echo run >>/workspace/runs; : >/workspace/up; sleep 1000; exit 4", async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("up").await;
            let reopened = &fixture.reopened;
            let found = reopened.list().await.expect("list succeeds");
            assert!(
                found
                    .iter()
                    .any(|found| found.session == sandbox.spec.session && found.presence == SandboxPresence::Running)
            );
            assert_eq!(sandbox.presence_after_reopen().await, Some(SandboxPresence::Running));
            reopened.start(&sandbox.spec, &|_, _| ()).await.expect("start of a running sandbox is no error");
            reopened.pause(sandbox.spec.session).await.expect("pause succeeds");
            assert_eq!(sandbox.presence_after_reopen().await, Some(SandboxPresence::Paused));
            fixture.unpause(sandbox.spec.session).await.expect("unpause succeeds");
            assert_eq!(sandbox.read("runs"), "run\n");
            let (exit, stopped) = tokio::join!(reopened.wait(sandbox.spec.session), fixture.stop(sandbox.spec.session));
            stopped.expect("stop succeeds");
            exit.expect("wait returns in time");
            reopened.remove(sandbox.spec.session).await.expect("remove succeeds");
            assert_eq!(sandbox.presence().await, None);
        })
        .await;
}

/// A restarted server reports an exit that no server observed, with the same details.
pub(crate) async fn reopened_driver_returns_exit(fixture: &DriverFixture) {
    let script = "echo to-stdout; echo 'last line' >&2; [ -e /workspace/ran ] && kill -9 $$; : >/workspace/ran; exit 3";
    fixture
        .with_sandbox(script, async |sandbox| {
            assert_eq!(sandbox.presence_after_reopen().await, None, "the sandbox has never run");
            for code in [3, 137] {
                sandbox.start().await;
                eventually("the sandbox exits", async || sandbox.presence().await == Some(SandboxPresence::Exited))
                    .await;
                assert_eq!(sandbox.presence_after_reopen().await, Some(SandboxPresence::Exited));
                for _ in 0..2 {
                    let exit = fixture.reopened.wait(sandbox.spec.session).await.expect("exit is reported");
                    assert_eq!((exit.code, exit.out_of_memory), (Some(code), false), "each call returns the same exit");
                    assert!(exit.stderr_tail.ends_with("last line\n"), "{}", exit.stderr_tail);
                    assert!(!exit.stderr_tail.contains("to-stdout"));
                }
            }
            fixture.remove(sandbox.spec.session).await.expect("remove succeeds");
            assert_eq!(sandbox.presence_after_reopen().await, None);
        })
        .await;
}

pub(crate) async fn logs_return_newest_bytes(fixture: &DriverFixture) {
    fixture
        .with_sandbox("echo first; yes word | head -c 50000; echo 'to stderr' >&2; echo last", async |sandbox| {
            sandbox.start().await;
            sandbox.exit().await;
            let all = fixture.logs(sandbox.spec.session, 100_000).await.expect("log is readable");
            assert!(all.contains("first\n") && all.contains("to stderr\n"));
            let newest = fixture.logs(sandbox.spec.session, 40).await.expect("log is readable");
            assert!(newest.len() <= 40 && newest.contains("last\n") && !newest.contains("first"), "{newest}");
        })
        .await;
}

pub(crate) async fn stats_cover_this_sandbox(fixture: &DriverFixture) {
    let script = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done; : >/workspace/up; sleep 1000 & sleep 1000 & wait";
    fixture
        .with_sandbox(script, async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("up").await;
            eventually("three processes are counted", async || {
                let stats = fixture.stats(sandbox.spec.session).await.expect("stats are reported");
                assert!(
                    stats.memory_bytes > 0 && stats.memory_bytes <= sandbox.spec.limits.memory.as_u64(),
                    "{stats:?}"
                );
                assert!(stats.cpu_us > 0, "{stats:?}");
                // Two sleeps, their shell, and the processes that the driver adds.
                (3..=6).contains(&stats.processes)
            })
            .await;
        })
        .await;
}
