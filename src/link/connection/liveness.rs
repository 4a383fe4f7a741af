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

use greenroom_protocol::link::{Command, FromAgent, Report};
use tokio::time::{Instant, Sleep, sleep};

use super::Broken;
use crate::link::Frozen;

/// How often is looked. Time counts by looks, so that a server, or a machine, that stood still itself blames nobody for that.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// After so many looks without a word it is asked whether it is there.
const ASKED_AFTER: u8 = 3;
/// After so many it is given up.
const GIVEN_UP_AFTER: u8 = 6;

/// What is to be done about a silence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lapse {
    Ask,
    GiveUp,
}

/// Looks at a silence, once in [`LOOK_EVERY`].
#[derive(Default)]
struct Watch {
    looks: u8,
    next: Option<Pin<Box<Sleep>>>,
}

impl Watch {
    /// Wakes when it is too long. What stands frozen is silent because it shall be.
    fn poll(&mut self, cx: &mut Context<'_>, frozen: &Frozen) -> Poll<Lapse> {
        loop {
            let next = self.next.get_or_insert_with(|| Box::pin(sleep(LOOK_EVERY)));
            ready!(next.as_mut().poll(cx));
            next.as_mut().reset(Instant::now() + LOOK_EVERY);
            if frozen.is() {
                continue;
            }
            self.looks = self.looks.saturating_add(1);
            match self.looks {
                ASKED_AFTER => return Poll::Ready(Lapse::Ask),
                GIVEN_UP_AFTER.. => return Poll::Ready(Lapse::GiveUp),
                _ => {}
            }
        }
    }
}

/// Waits for what only the agent can bring about, for as long as it is not given up: that it says hello, or takes what it is sent.
pub(super) async fn bear<T>(frozen: &Frozen, work: impl Future<Output = T>) -> Result<T, Broken> {
    let mut watch = Watch::default();
    let given_up = async { while poll_fn(|cx| watch.poll(cx, frozen)).await != Lapse::GiveUp {} };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = given_up => Err(Broken::Silent),
    }
}

/// What an agent owes, and how long it has said nothing.
#[derive(Default)]
pub(super) struct Silence {
    /// Commands that it has been given over this connection, and has not taken.
    untaken: u32,
    has_turn: bool,
    has_act: bool,
    watch: Watch,
}

impl Silence {
    /// It is welcome, and the user acts beside it, or does not.
    pub(super) fn greeted(&mut self, has_act: bool) {
        self.has_act = has_act;
    }

    /// It has been given this.
    pub(super) fn ordered(&mut self, command: &Command) {
        if !self.is_owed() {
            self.watch.looks = 0;
        }
        self.untaken += 1;
        match command {
            Command::Prompt { .. } => self.has_turn = true,
            Command::Act { .. } => self.has_act = true,
            Command::Steer { .. }
            | Command::Cancel {}
            | Command::KillProcesses {}
            | Command::Settings(_)
            | Command::Answer { .. } => {}
        }
    }

    /// It has said something: `None` is an answer to being asked.
    pub(super) fn heard(&mut self, frame: Option<&FromAgent>) {
        self.watch.looks = 0;
        match frame {
            Some(FromAgent::Hello(hello)) => self.has_turn = hello.turn.is_some(),
            Some(FromAgent::Taken { .. }) => self.untaken = self.untaken.saturating_sub(1),
            Some(FromAgent::Report { report: Report::TurnEnded { .. }, .. }) => self.has_turn = false,
            Some(FromAgent::Report { report: Report::ActEnded { .. }, .. }) => self.has_act = false,
            Some(FromAgent::Report { .. } | FromAgent::Delta(_)) | None => {}
        }
    }

    /// Wakes when it is too long for one that owes something.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, frozen: &Frozen) -> Poll<Lapse> {
        if !self.is_owed() {
            self.watch.next = None;
            return Poll::Pending;
        }
        self.watch.poll(cx, frozen)
    }

    fn is_owed(&self) -> bool {
        self.untaken > 0 || self.has_turn || self.has_act
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use greenroom_protocol::link::{Hello, Outcome};

    use super::*;

    fn hello(turn: Option<&str>) -> FromAgent {
        let turn = turn.map(str::to_owned);
        FromAgent::Hello(Hello { link_version: 1, boot: "b".into(), agent_version: "1".into(), last_n: 0, turn })
    }

    fn taken() -> FromAgent {
        FromAgent::Taken { command: "c".into() }
    }

    fn prompt() -> Command {
        Command::Prompt { turn: "t".into(), content: String::new(), attachments: Vec::new() }
    }

    fn greeted(turn: Option<&str>) -> Silence {
        let mut silence = Silence::default();
        silence.heard(Some(&hello(turn)));
        silence
    }

    async fn lapse(silence: &mut Silence, frozen: &Frozen) -> Lapse {
        poll_fn(|cx| silence.poll(cx, frozen)).await
    }

    /// Whether it stays quiet for an hour of looks.
    async fn is_borne(silence: &mut Silence, frozen: &Frozen) -> bool {
        for _ in 0..360 {
            tokio::time::advance(LOOK_EVERY).await;
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
            assert_eq!(lapse(&mut silence, &Frozen::default()).await, Lapse::Ask);
            assert_eq!(since.elapsed().as_secs(), 30);
            assert_eq!(lapse(&mut silence, &Frozen::default()).await, Lapse::GiveUp);
            assert_eq!(since.elapsed().as_secs(), 60);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answers_when_it_is_asked_is_never_given_up() {
        let mut silence = greeted(Some("t"));
        for _ in 0..100 {
            assert_eq!(lapse(&mut silence, &Frozen::default()).await, Lapse::Ask);
            silence.heard(None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_owes_nothing_is_not_even_asked() {
        let frozen = Frozen::default();
        let mut silence = greeted(None);
        assert!(is_borne(&mut silence, &frozen).await);
        silence.ordered(&prompt());
        silence.heard(Some(&taken()));
        let ended = Report::TurnEnded { turn: "t".into(), outcome: Outcome::Done };
        silence.heard(Some(&FromAgent::Report { n: 1, report: ended }));
        assert!(is_borne(&mut silence, &frozen).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_is_not_taken_is_owed_and_one_that_is_taken_is_not() {
        let frozen = Frozen::default();
        let mut silence = greeted(None);
        silence.ordered(&Command::Cancel {});
        silence.ordered(&Command::Cancel {});
        silence.heard(Some(&taken()));
        assert_eq!(lapse(&mut silence, &frozen).await, Lapse::Ask);
        silence.heard(Some(&taken()));
        assert!(is_borne(&mut silence, &frozen).await);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_it_stands_frozen_is_not_its_own() {
        let frozen = Frozen::default();
        let mut silence = greeted(Some("t"));
        frozen.set(true);
        assert!(is_borne(&mut silence, &frozen).await);
        frozen.set(false);
        assert_eq!(lapse(&mut silence, &frozen).await, Lapse::Ask);
    }

    /// As after a laptop's sleep: the timer is long over, and the agent has had no time at all.
    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_looked_counts_as_one_look() {
        let mut silence = greeted(Some("t"));
        assert!(poll!(poll_fn(|cx| silence.poll(cx, &Frozen::default()))).is_pending());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(poll!(poll_fn(|cx| silence.poll(cx, &Frozen::default()))).is_pending());
        assert_eq!(silence.watch.looks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_does_not_take_off_the_socket_is_borne_for_as_long() {
        let frozen = Frozen::default();
        let since = Instant::now();
        let sent = bear(&frozen, std::future::pending::<()>()).await;
        assert!(matches!(sent, Err(Broken::Silent)));
        assert_eq!(since.elapsed().as_secs(), 60);
        assert!(matches!(bear(&frozen, std::future::ready(7)).await, Ok(7)));
    }
}
