//! Liveness of an agent that owes a reply: a report, the receipt of a command, its `hello`, or a
//! read. An agent can stop while its connection stays open: either a process in the sandbox stopped
//! it (`kill -STOP -1`), or its program hangs. Without a ping, neither differs from an agent that
//! waits for its model.
//!
//! Silence is counted over all connections of a sandbox. An agent whose socket is gone, or which
//! ends each connection after its `hello`, is given up after the same time.
//!
//! An agent that owes nothing is not pinged. A ping would wake an agent that has released its
//! memory.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use greenroom_protocol::link::FromAgent;
use tokio::time::{Instant, Sleep, sleep};

use super::DisconnectReason;
use crate::link::PauseFlag;

/// Interval between checks. Silence is counted in checks, so a suspended server or machine blames
/// no agent.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Checks without a frame from which on each check sends a ping: 30 s.
const PING_AFTER_CHECKS: u8 = 3;
/// Checks without a frame after which the agent is given up: 60 s.
const GIVE_UP_AFTER_CHECKS: u8 = 6;

/// Reaction to a silent agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LivenessAction {
    Ping,
    GiveUp,
}

/// Tracks what the agent of one sandbox owes and how long it has been silent.
pub(in crate::link) struct LivenessMonitor {
    pause_flag: Arc<PauseFlag>,
    /// Returns true while a turn or a user action runs, so the agent owes the report of its end.
    owes_report: Box<dyn Fn() -> bool>,
    /// Commands sent over this connection that the agent has not accepted.
    unaccepted_commands: u32,
    /// Set from the server's welcome to the end of the connection. Earlier frames are no sign of
    /// life: an agent that only ever greets does no work.
    is_welcomed: bool,
    /// Checks of [`CHECK_INTERVAL`] without a frame.
    silent_checks: u8,
    next_check: Option<Pin<Box<Sleep>>>,
}

impl LivenessMonitor {
    /// Starts without silence. `owes_report` returns true while the session has work for the agent.
    pub(in crate::link) fn new(pause_flag: Arc<PauseFlag>, owes_report: Box<dyn Fn() -> bool>) -> LivenessMonitor {
        LivenessMonitor {
            pause_flag,
            owes_report,
            unaccepted_commands: 0,
            is_welcomed: false,
            silent_checks: 0,
            next_check: None,
        }
    }

    /// Records a new connection. The commands of the last one are sent again.
    pub(super) fn connected(&mut self) {
        (self.unaccepted_commands, self.is_welcomed) = (0, false);
    }

    /// Records the welcome.
    pub(super) fn welcomed(&mut self) {
        self.is_welcomed = true;
    }

    /// Records a command sent to the agent.
    pub(super) fn command_sent(&mut self) {
        self.unaccepted_commands += 1;
    }

    /// Records that the agent has read a large frame.
    pub(super) fn frame_read(&mut self) {
        self.silent_checks = 0;
    }

    /// Records a frame from the agent. `None` stands for a ping or pong.
    pub(super) fn frame_received(&mut self, frame: Option<&FromAgent>) {
        if self.is_welcomed {
            self.silent_checks = 0;
        }
        if let Some(FromAgent::Taken { .. }) = frame {
            self.unaccepted_commands = self.unaccepted_commands.saturating_sub(1);
        }
    }

    /// Completes when an action is due for an agent that owes a reply.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LivenessAction> {
        if !self.owes_reply() {
            (self.silent_checks, self.next_check) = (0, None);
            return Poll::Pending;
        }
        self.poll_check(cx, LivenessMonitor::owes_reply)
    }

    /// Runs work that only the agent can complete: its `hello`, or its reading of a sent frame.
    ///
    /// # Errors
    /// `Unresponsive` after 60 s of silence, not counting time while the sandbox is paused.
    pub(super) async fn with_timeout<T>(&mut self, work: impl Future<Output = T>) -> Result<T, DisconnectReason> {
        tokio::select! {
            biased;
            output = work => Ok(output),
            () = self.given_up(|_| true) => Err(DisconnectReason::Unresponsive),
        }
    }

    /// Completes when an agent without a connection has owed a report for 60 s.
    pub(in crate::link) async fn given_up_without_connection(&mut self) {
        self.connected();
        self.given_up(LivenessMonitor::owes_reply).await;
    }

    async fn given_up(&mut self, owes: fn(&LivenessMonitor) -> bool) {
        while poll_fn(|cx| self.poll_check(cx, owes)).await != LivenessAction::GiveUp {}
    }

    /// Completes when an action is due. Checks while the sandbox is paused do not count.
    fn poll_check(&mut self, cx: &mut Context<'_>, owes: fn(&LivenessMonitor) -> bool) -> Poll<LivenessAction> {
        loop {
            let next = self.next_check.get_or_insert_with(|| Box::pin(sleep(CHECK_INTERVAL)));
            ready!(next.as_mut().poll(cx));
            next.as_mut().reset(Instant::now() + CHECK_INTERVAL);
            if self.pause_flag.is_set() {
                continue;
            }
            self.silent_checks = if owes(self) { self.silent_checks.saturating_add(1) } else { 0 };
            match self.silent_checks {
                GIVE_UP_AFTER_CHECKS.. => return Poll::Ready(LivenessAction::GiveUp),
                PING_AFTER_CHECKS.. => return Poll::Ready(LivenessAction::Ping),
                _ => {}
            }
        }
    }

    fn owes_reply(&self) -> bool {
        self.unaccepted_commands > 0 || (self.owes_report)()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending, rc::Rc};

    use futures::poll;

    use super::*;

    fn taken() -> FromAgent {
        FromAgent::Taken { command: "c".into() }
    }

    struct TestMonitor {
        liveness: LivenessMonitor,
        pause_flag: Arc<PauseFlag>,
        owes_report: Rc<Cell<bool>>,
    }

    /// Returns the monitor of a welcomed agent.
    fn welcomed(owes_report: bool) -> TestMonitor {
        let (pause_flag, owes_report) = (Arc::<PauseFlag>::default(), Rc::new(Cell::new(owes_report)));
        let owes = owes_report.clone();
        let mut liveness = LivenessMonitor::new(pause_flag.clone(), Box::new(move || owes.get()));
        liveness.connected();
        liveness.welcomed();
        TestMonitor { liveness, pause_flag, owes_report }
    }

    impl TestMonitor {
        async fn next_action(&mut self) -> LivenessAction {
            poll_fn(|cx| self.liveness.poll(cx)).await
        }

        /// Returns the seconds until the agent is given up. Each ping before is unanswered.
        async fn seconds_until_given_up(&mut self) -> u64 {
            let start = Instant::now();
            while self.next_action().await != LivenessAction::GiveUp {}
            start.elapsed().as_secs()
        }

        /// Returns true if no action is due within an hour of checks.
        async fn stays_silent(&mut self) -> bool {
            for _ in 0..360 {
                tokio::time::advance(CHECK_INTERVAL).await;
                if poll!(poll_fn(|cx| self.liveness.poll(cx))).is_ready() {
                    return false;
                }
            }
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_agent_owing_report_is_pinged_then_given_up() {
        let mut monitor = welcomed(true);
        let start = Instant::now();
        assert_eq!(monitor.next_action().await, LivenessAction::Ping);
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(monitor.seconds_until_given_up().await, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn agent_that_answers_pings_is_never_given_up() {
        let mut monitor = welcomed(true);
        for _ in 0..100 {
            assert_eq!(monitor.next_action().await, LivenessAction::Ping);
            monitor.liveness.frame_received(None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agent_owing_nothing_is_not_pinged() {
        let mut monitor = welcomed(false);
        assert!(monitor.stays_silent().await);
        monitor.owes_report.set(true);
        assert_eq!(monitor.next_action().await, LivenessAction::Ping);
        monitor.owes_report.set(false);
        assert!(monitor.stays_silent().await);
        monitor.owes_report.set(true);
        assert_eq!(monitor.seconds_until_given_up().await, 60, "silence without a debt does not count");
    }

    #[tokio::test(start_paused = true)]
    async fn unaccepted_command_counts_as_owed_reply() {
        let mut monitor = welcomed(false);
        monitor.liveness.command_sent();
        monitor.liveness.command_sent();
        monitor.liveness.frame_received(Some(&taken()));
        assert_eq!(monitor.next_action().await, LivenessAction::Ping);
        monitor.liveness.frame_received(Some(&taken()));
        assert!(monitor.stays_silent().await);
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_does_not_count_as_silence() {
        let mut monitor = welcomed(true);
        monitor.pause_flag.set(true);
        assert!(monitor.stays_silent().await);
        monitor.pause_flag.set(false);
        assert_eq!(monitor.next_action().await, LivenessAction::Ping);
    }

    /// Covers a laptop's sleep: the timer has elapsed, but the agent had no time to run.
    #[tokio::test(start_paused = true)]
    async fn suspended_server_counts_as_one_check() {
        let mut monitor = welcomed(true);
        assert!(poll!(poll_fn(|cx| monitor.liveness.poll(cx))).is_pending());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(poll!(poll_fn(|cx| monitor.liveness.poll(cx))).is_pending());
        assert_eq!(monitor.liveness.silent_checks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn blocked_send_times_out_after_sixty_seconds_of_silence() {
        for owes_report in [true, false] {
            let mut monitor = welcomed(owes_report);
            let start = Instant::now();
            assert!(matches!(monitor.liveness.with_timeout(std::future::ready(7)).await, Ok(7)));
            if owes_report {
                // The ping is what blocks.
                assert_eq!(monitor.next_action().await, LivenessAction::Ping);
            }
            let sent = monitor.liveness.with_timeout(pending::<()>()).await;
            assert!(matches!(sent, Err(DisconnectReason::Unresponsive)));
            assert_eq!(start.elapsed().as_secs(), 60);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agent_without_connection_is_given_up_once_it_owes_a_report() {
        let mut monitor = welcomed(false);
        monitor.liveness.command_sent();
        let start = Instant::now();
        tokio::select! {
            () = monitor.liveness.given_up_without_connection() => panic!("the agent owes nothing"),
            // Between two checks.
            () = sleep(Duration::from_secs(3605)) => {}
        }
        monitor.owes_report.set(true);
        monitor.liveness.given_up_without_connection().await;
        assert_eq!(start.elapsed().as_secs(), 3660);
    }

    /// Covers an agent that closes each connection, or greets and does nothing else.
    #[tokio::test(start_paused = true)]
    async fn connections_without_work_do_not_end_silence() {
        let mut monitor = welcomed(true);
        let start = Instant::now();
        loop {
            monitor.liveness.connected();
            monitor.liveness.frame_received(None);
            let read = monitor.liveness.with_timeout(sleep(Duration::from_secs(7))).await;
            if read.is_err() {
                break;
            }
            monitor.liveness.welcomed();
            tokio::select! {
                () = monitor.liveness.given_up_without_connection() => break,
                () = sleep(Duration::from_secs(2)) => {}
            }
        }
        assert_eq!(start.elapsed().as_secs(), 60);
    }
}
