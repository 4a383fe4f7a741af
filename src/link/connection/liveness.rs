//! Whether an agent that owes a word still lives. One can stand still with its connection open: a command of its own stopped it
//! (`kill -STOP -1`), or its program hangs. From outside that looks as if it were thinking.
//!
//! Of one that owes nothing nothing is asked: it would be woken for that, and has let go of its memory.

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

/// How often is looked. Time counts by looks, so that a server, or a machine, that stood still itself blames nobody for that.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// After so many looks without a word it is asked whether it is there.
const PING_AFTER_CHECKS: u8 = 3;
/// After so many it is given up.
const GIVE_UP_AFTER_CHECKS: u8 = 6;

/// What is to be done about a silence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LivenessAction {
    Ping,
    GiveUp,
}

/// Looks at a silence, once in [`LOOK_EVERY`].
#[derive(Default)]
struct SilenceTimer {
    checks: u8,
    next_check: Option<Pin<Box<Sleep>>>,
}

impl SilenceTimer {
    /// Wakes when it is too long. What stands frozen is silent because it shall be.
    fn poll(&mut self, cx: &mut Context<'_>, frozen: &PauseFlag) -> Poll<LivenessAction> {
        loop {
            let next = self.next_check.get_or_insert_with(|| Box::pin(sleep(CHECK_INTERVAL)));
            ready!(next.as_mut().poll(cx));
            next.as_mut().reset(Instant::now() + CHECK_INTERVAL);
            if frozen.is_set() {
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

/// Waits for what only the agent can bring about, for as long as it is not given up: that it says hello, or takes what it is sent.
pub(super) async fn with_liveness_timeout<T>(
    frozen: &PauseFlag,
    work: impl Future<Output = T>,
) -> Result<T, DisconnectReason> {
    let mut watch = SilenceTimer::default();
    let given_up = async { while poll_fn(|cx| watch.poll(cx, frozen)).await != LivenessAction::GiveUp {} };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = given_up => Err(DisconnectReason::Unresponsive),
    }
}

/// What an agent owes, and how long it has said nothing.
#[derive(Default)]
pub(super) struct LivenessMonitor {
    /// Commands that it has been given over this connection, and has not taken.
    unaccepted_commands: u32,
    has_turn: bool,
    has_user_action: bool,
    timer: SilenceTimer,
}

impl LivenessMonitor {
    /// It is welcome, and the user acts beside it, or does not.
    pub(super) fn greeted(&mut self, has_act: bool) {
        self.has_user_action = has_act;
    }

    /// It has been given this.
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

    /// It has said something: `None` is an answer to being asked.
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

    /// Wakes when it is too long for one that owes something.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, frozen: &PauseFlag) -> Poll<LivenessAction> {
        if !self.owes_reply() {
            self.timer.next_check = None;
            return Poll::Pending;
        }
        self.timer.poll(cx, frozen)
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
        FromAgent::Hello(AgentHello { link_version: 1, boot: "b".into(), agent_version: "1".into(), last_n: 0, turn })
    }

    fn taken() -> FromAgent {
        FromAgent::Taken { command: "c".into() }
    }

    fn prompt() -> AgentCommand {
        AgentCommand::Prompt { turn: "t".into(), content: String::new(), attachments: Vec::new() }
    }

    fn greeted(turn: Option<&str>) -> LivenessMonitor {
        let mut silence = LivenessMonitor::default();
        silence.frame_received(Some(&hello(turn)));
        silence
    }

    async fn next_action(silence: &mut LivenessMonitor, frozen: &PauseFlag) -> LivenessAction {
        poll_fn(|cx| silence.poll(cx, frozen)).await
    }

    /// Whether it stays quiet for an hour of looks.
    async fn stays_silent(silence: &mut LivenessMonitor, frozen: &PauseFlag) -> bool {
        for _ in 0..360 {
            tokio::time::advance(CHECK_INTERVAL).await;
            if poll!(poll_fn(|cx| silence.poll(cx, frozen))).is_ready() {
                return false;
            }
        }
        true
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_owes_a_word_is_asked_and_then_given_up() {
        let mut at_an_act = greeted(None);
        at_an_act.greeted(true);
        for mut silence in [greeted(Some("t")), at_an_act] {
            let since = Instant::now();
            assert_eq!(next_action(&mut silence, &PauseFlag::default()).await, LivenessAction::Ping);
            assert_eq!(since.elapsed().as_secs(), 30);
            assert_eq!(next_action(&mut silence, &PauseFlag::default()).await, LivenessAction::GiveUp);
            assert_eq!(since.elapsed().as_secs(), 60);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answers_when_it_is_asked_is_never_given_up() {
        let mut silence = greeted(Some("t"));
        for _ in 0..100 {
            assert_eq!(next_action(&mut silence, &PauseFlag::default()).await, LivenessAction::Ping);
            silence.frame_received(None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_owes_nothing_is_not_even_asked() {
        let frozen = PauseFlag::default();
        let mut silence = greeted(None);
        assert!(stays_silent(&mut silence, &frozen).await);
        silence.command_sent(&prompt());
        silence.frame_received(Some(&taken()));
        let ended = AgentReport::TurnEnded { turn: "t".into(), outcome: WorkOutcome::Done };
        silence.frame_received(Some(&FromAgent::Report { n: 1, report: ended }));
        assert!(stays_silent(&mut silence, &frozen).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_is_not_taken_is_owed_and_one_that_is_taken_is_not() {
        let frozen = PauseFlag::default();
        let mut silence = greeted(None);
        silence.command_sent(&AgentCommand::Cancel {});
        silence.command_sent(&AgentCommand::Cancel {});
        silence.frame_received(Some(&taken()));
        assert_eq!(next_action(&mut silence, &frozen).await, LivenessAction::Ping);
        silence.frame_received(Some(&taken()));
        assert!(stays_silent(&mut silence, &frozen).await);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_it_stands_frozen_is_not_its_own() {
        let frozen = PauseFlag::default();
        let mut silence = greeted(Some("t"));
        frozen.set(true);
        assert!(stays_silent(&mut silence, &frozen).await);
        frozen.set(false);
        assert_eq!(next_action(&mut silence, &frozen).await, LivenessAction::Ping);
    }

    /// As after a laptop's sleep: the timer is long over, and the agent has had no time at all.
    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_looked_counts_as_one_look() {
        let mut silence = greeted(Some("t"));
        assert!(poll!(poll_fn(|cx| silence.poll(cx, &PauseFlag::default()))).is_pending());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(poll!(poll_fn(|cx| silence.poll(cx, &PauseFlag::default()))).is_pending());
        assert_eq!(silence.timer.checks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_does_not_take_off_the_socket_is_borne_for_as_long() {
        let frozen = PauseFlag::default();
        let since = Instant::now();
        let sent = with_liveness_timeout(&frozen, std::future::pending::<()>()).await;
        assert!(matches!(sent, Err(DisconnectReason::Unresponsive)));
        assert_eq!(since.elapsed().as_secs(), 60);
        assert!(matches!(with_liveness_timeout(&frozen, std::future::ready(7)).await, Ok(7)));
    }
}
