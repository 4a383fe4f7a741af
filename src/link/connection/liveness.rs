//! Liveness of an agent that owes a reply. An agent can stop while its connection stays open:
//! either a process in the sandbox stopped it (`kill -STOP -1`), or its program hangs. Without a
//! ping, neither differs from an agent that waits for its model.
//!
//! An agent that owes nothing is not pinged. A ping would wake an agent that has released its
//! memory.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use greenroom_protocol::link::{AgentCommand, AgentReport, FromAgent};
use tokio::time::{Instant, Sleep, sleep};

use super::DisconnectReason;
use crate::link::PauseFlag;

/// Interval between checks. Silence is counted in checks, so a suspended server or machine blames
/// no agent.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Checks without a frame after which the server sends a ping: 30 s.
const PING_AFTER_CHECKS: u8 = 3;
/// Checks without a frame after which the agent is given up: 60 s.
const GIVE_UP_AFTER_CHECKS: u8 = 6;

/// Reaction to a silent agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LivenessAction {
    Ping,
    GiveUp,
}

/// Counts an agent's silence, in checks of [`CHECK_INTERVAL`].
#[derive(Default)]
struct SilenceTimer {
    checks: u8,
    next_check: Option<Pin<Box<Sleep>>>,
}

impl SilenceTimer {
    /// Completes when an action is due. Checks while the sandbox is paused do not count.
    fn poll(&mut self, cx: &mut Context<'_>, pause_flag: &PauseFlag) -> Poll<LivenessAction> {
        loop {
            let next = self.next_check.get_or_insert_with(|| Box::pin(sleep(CHECK_INTERVAL)));
            ready!(next.as_mut().poll(cx));
            next.as_mut().reset(Instant::now() + CHECK_INTERVAL);
            if pause_flag.is_set() {
                continue;
            }
            self.checks = self.checks.saturating_add(1);
            match self.checks {
                PING_AFTER_CHECKS => return Poll::Ready(LivenessAction::Ping),
                GIVE_UP_AFTER_CHECKS.. => return Poll::Ready(LivenessAction::GiveUp),
                _ => {}
            }
        }
    }
}

/// Runs work that only the agent can complete: its `hello`, or its reading of a sent frame.
///
/// # Errors
/// `Unresponsive` after 60 s, not counting time while the sandbox is paused.
pub(super) async fn with_liveness_timeout<T>(
    pause_flag: &PauseFlag,
    work: impl Future<Output = T>,
) -> Result<T, DisconnectReason> {
    let mut timer = SilenceTimer::default();
    let given_up = async { while poll_fn(|cx| timer.poll(cx, pause_flag)).await != LivenessAction::GiveUp {} };
    tokio::select! {
        biased;
        output = work => Ok(output),
        () = given_up => Err(DisconnectReason::Unresponsive),
    }
}

/// Tracks what the agent owes and how long it has been silent.
#[derive(Default)]
pub(super) struct LivenessMonitor {
    /// Commands sent over this connection that the agent has not accepted.
    unaccepted_commands: u32,
    has_turn: bool,
    has_user_action: bool,
    timer: SilenceTimer,
}

impl LivenessMonitor {
    /// Records the welcome. `has_user_action` is set if a user action runs in the sandbox.
    pub(super) fn greeted(&mut self, has_user_action: bool) {
        self.has_user_action = has_user_action;
    }

    /// Records a command sent to the agent.
    pub(super) fn command_sent(&mut self, command: &AgentCommand) {
        if !self.owes_reply() {
            self.timer.checks = 0;
        }
        self.unaccepted_commands += 1;
        match command {
            AgentCommand::Prompt { .. } => self.has_turn = true,
            AgentCommand::UserAction { .. } => self.has_user_action = true,
            AgentCommand::Steer { .. }
            | AgentCommand::Cancel {}
            | AgentCommand::KillProcesses {}
            | AgentCommand::Settings(_)
            | AgentCommand::Answer { .. } => {}
        }
    }

    /// Records a frame from the agent. `None` stands for a ping or pong.
    pub(super) fn frame_received(&mut self, frame: Option<&FromAgent>) {
        self.timer.checks = 0;
        match frame {
            Some(FromAgent::Hello(hello)) => self.has_turn = hello.turn.is_some(),
            Some(FromAgent::Taken { .. }) => self.unaccepted_commands = self.unaccepted_commands.saturating_sub(1),
            Some(FromAgent::Report { report: AgentReport::TurnEnded { .. }, .. }) => self.has_turn = false,
            Some(FromAgent::Report { report: AgentReport::UserActionEnded { .. }, .. }) => self.has_user_action = false,
            Some(FromAgent::Report { .. } | FromAgent::Delta(_)) | None => {}
        }
    }

    /// Completes when an action is due for an agent that owes a reply.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, pause_flag: &PauseFlag) -> Poll<LivenessAction> {
        if !self.owes_reply() {
            self.timer.next_check = None;
            return Poll::Pending;
        }
        self.timer.poll(cx, pause_flag)
    }

    fn owes_reply(&self) -> bool {
        self.unaccepted_commands > 0 || self.has_turn || self.has_user_action
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use greenroom_protocol::link::{AgentHello, WorkOutcome};

    use super::*;

    fn hello(turn: Option<&str>) -> FromAgent {
        let turn = turn.map(str::to_owned);
        FromAgent::Hello(AgentHello {
            link_version: 1,
            boot: "b".into(),
            agent_version: "1".into(),
            last_n: 0,
            turn,
            reads_cancel_hints: true,
        })
    }

    fn taken() -> FromAgent {
        FromAgent::Taken { command: "c".into() }
    }

    fn prompt() -> AgentCommand {
        AgentCommand::Prompt { turn: "t".into(), content: String::new(), attachments: Vec::new() }
    }

    fn greeted(turn: Option<&str>) -> LivenessMonitor {
        let mut liveness = LivenessMonitor::default();
        liveness.frame_received(Some(&hello(turn)));
        liveness
    }

    async fn next_action(liveness: &mut LivenessMonitor, pause_flag: &PauseFlag) -> LivenessAction {
        poll_fn(|cx| liveness.poll(cx, pause_flag)).await
    }

    /// Returns true if no action is due within an hour of checks.
    async fn stays_silent(liveness: &mut LivenessMonitor, pause_flag: &PauseFlag) -> bool {
        for _ in 0..360 {
            tokio::time::advance(CHECK_INTERVAL).await;
            if poll!(poll_fn(|cx| liveness.poll(cx, pause_flag))).is_ready() {
                return false;
            }
        }
        true
    }

    #[tokio::test(start_paused = true)]
    async fn silent_agent_owing_reply_is_pinged_then_given_up() {
        let mut in_user_action = greeted(None);
        in_user_action.greeted(true);
        for mut liveness in [greeted(Some("t")), in_user_action] {
            let start = Instant::now();
            assert_eq!(next_action(&mut liveness, &PauseFlag::default()).await, LivenessAction::Ping);
            assert_eq!(start.elapsed().as_secs(), 30);
            assert_eq!(next_action(&mut liveness, &PauseFlag::default()).await, LivenessAction::GiveUp);
            assert_eq!(start.elapsed().as_secs(), 60);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agent_that_answers_pings_is_never_given_up() {
        let mut liveness = greeted(Some("t"));
        for _ in 0..100 {
            assert_eq!(next_action(&mut liveness, &PauseFlag::default()).await, LivenessAction::Ping);
            liveness.frame_received(None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agent_owing_nothing_is_not_pinged() {
        let pause_flag = PauseFlag::default();
        let mut liveness = greeted(None);
        assert!(stays_silent(&mut liveness, &pause_flag).await);
        liveness.command_sent(&prompt());
        liveness.frame_received(Some(&taken()));
        let ended = AgentReport::TurnEnded { turn: "t".into(), outcome: WorkOutcome::Done };
        liveness.frame_received(Some(&FromAgent::Report { n: 1, report: ended }));
        assert!(stays_silent(&mut liveness, &pause_flag).await);
    }

    #[tokio::test(start_paused = true)]
    async fn unaccepted_command_counts_as_owed_reply() {
        let pause_flag = PauseFlag::default();
        let mut liveness = greeted(None);
        liveness.command_sent(&AgentCommand::Cancel {});
        liveness.command_sent(&AgentCommand::Cancel {});
        liveness.frame_received(Some(&taken()));
        assert_eq!(next_action(&mut liveness, &pause_flag).await, LivenessAction::Ping);
        liveness.frame_received(Some(&taken()));
        assert!(stays_silent(&mut liveness, &pause_flag).await);
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_does_not_count_as_silence() {
        let pause_flag = PauseFlag::default();
        let mut liveness = greeted(Some("t"));
        pause_flag.set(true);
        assert!(stays_silent(&mut liveness, &pause_flag).await);
        pause_flag.set(false);
        assert_eq!(next_action(&mut liveness, &pause_flag).await, LivenessAction::Ping);
    }

    /// Covers a laptop's sleep: the timer has elapsed, but the agent had no time to run.
    #[tokio::test(start_paused = true)]
    async fn suspended_server_counts_as_one_check() {
        let mut liveness = greeted(Some("t"));
        assert!(poll!(poll_fn(|cx| liveness.poll(cx, &PauseFlag::default()))).is_pending());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(poll!(poll_fn(|cx| liveness.poll(cx, &PauseFlag::default()))).is_pending());
        assert_eq!(liveness.timer.checks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn blocked_send_times_out_after_sixty_seconds() {
        let pause_flag = PauseFlag::default();
        let start = Instant::now();
        let sent = with_liveness_timeout(&pause_flag, std::future::pending::<()>()).await;
        assert!(matches!(sent, Err(DisconnectReason::Unresponsive)));
        assert_eq!(start.elapsed().as_secs(), 60);
        assert!(matches!(with_liveness_timeout(&pause_flag, std::future::ready(7)).await, Ok(7)));
    }
}
