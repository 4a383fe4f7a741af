//! Takes the server's commands: one turn at a time, beside it one act of the user at a time, each command once.

use std::{
    collections::{HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::FutureExt;
use greenroom_protocol::{
    Action, Event, Observation, Seen,
    link::{Api, Command, Numbered, Outcome, Report, Settings},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use crate::{
    acts::Begun,
    outgoing::Outgoing,
    places::Places,
    processes::{By, Processes},
    tools::{self, Bench, Fault},
    turn::{Asides, Driver, Intake, Message, OwnLoop, Stage, Steer},
};

const RESTARTED: &str = "agent_restarted";
const NOT_TWICE: &str =
    "the agent stopped unexpectedly after it had begun this: whether it was done is not known, so it is not done again";

/// A handle that the link and the workers share.
#[derive(Clone)]
pub struct Desk(Arc<Shared>);

struct Shared {
    outgoing: Outgoing,
    processes: Processes,
    settings: Arc<Mutex<Settings>>,
    driver: tokio::sync::Mutex<OwnLoop>,
    /// What the user did beside the agent, for the agent to know at its next step.
    asides: Arc<Mutex<Asides>>,
    state: Mutex<State>,
    work_over: Notify,
}

struct State {
    boot: String,
    /// The history came whole, or a command came without it; one that comes later tells nothing new.
    settled: bool,
    /// Every command of this boot. A session sends a few thousand at most, and an id has 26 bytes.
    seen: HashSet<String>,
    begun: Begun,
    turns: Lane<Prompt>,
    acts: Lane<Act>,
    /// Where a steering message goes: into the newest turn.
    intake: Option<Intake>,
}

/// Things to be done one after the other.
struct Lane<T> {
    waiting: VecDeque<(T, CancellationToken)>,
    running: Option<Running>,
    /// Whether somebody works on it, or is about to begin.
    worked_on: bool,
}

struct Running {
    id: String,
    stop: CancellationToken,
}

struct Prompt {
    turn: String,
    message: Message,
    /// Open from when the prompt is heard: what is said to this turn may come right behind it.
    intake: Intake,
}

struct Act {
    act: String,
    action: Action,
}

impl<T> Lane<T> {
    /// Adds a thing to do, and says whether a worker is to be started for it.
    fn add(&mut self, thing: T) -> bool {
        self.waiting.push_back((thing, CancellationToken::new()));
        !std::mem::replace(&mut self.worked_on, true)
    }

    /// The next thing to do. Where there is none the worker goes home.
    fn take(&mut self) -> Option<(T, CancellationToken)> {
        self.running = None;
        let next = self.waiting.pop_front();
        self.worked_on = next.is_some();
        next
    }

    /// Stops what runs. What waits keeps its place, and finds that it is to stop when its turn comes.
    fn stop(&self) {
        let running = self.running.as_ref().map(|running| &running.stop);
        running.into_iter().chain(self.waiting.iter().map(|(_, stop)| stop)).for_each(CancellationToken::cancel);
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Lane<T> {
        Lane { waiting: VecDeque::new(), running: None, worked_on: false }
    }
}

impl Desk {
    pub fn new(outgoing: Outgoing, processes: Processes, places: &Places) -> Desk {
        let settings = Settings {
            model: String::new(),
            api: Api::Anthropic,
            directory: places.workspace.display().to_string(),
            run_timeout_s: 600,
            max_steps: 100,
        };
        let driver = tokio::sync::Mutex::new(OwnLoop::new(places.gateway_socket.clone()));
        let state = State {
            boot: String::new(),
            settled: false,
            seen: HashSet::new(),
            begun: Begun::open(&places.acts),
            turns: Lane::default(),
            acts: Lane::default(),
            intake: None,
        };
        Desk(Arc::new(Shared {
            outgoing,
            processes,
            settings: Arc::new(Mutex::new(settings)),
            driver,
            asides: Arc::default(),
            state: Mutex::new(state),
            work_over: Notify::new(),
        }))
    }

    /// The name of this boot, for a connection that begins. One that has not got its history has done nothing yet, and
    /// introduces itself under a new name each time: the server sends the history to a name once, and cannot know whether it
    /// came, nor even its welcome.
    pub fn introduce(&self) -> String {
        let mut state = self.state();
        if !state.settled {
            state.boot = Ulid::generate().to_string();
        }
        state.boot.clone()
    }

    /// The turn that runs.
    pub fn turn(&self) -> Option<String> {
        self.state().turns.running.as_ref().map(|running| running.id.clone())
    }

    /// Whether a turn or an act of the user is under way, or about to begin.
    pub fn is_at_work(&self) -> bool {
        let state = self.state();
        state.turns.worked_on || state.acts.worked_on
    }

    /// Waits until the last of a row of turns, or of acts, is done; one that was done since the last call counts.
    pub async fn work_over(&self) {
        self.0.work_over.notified().await;
    }

    /// The settings hold from the next step, or the next act, on.
    pub fn settle(&self, settings: Settings) {
        *self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = settings;
    }

    /// The journal follows, from its beginning.
    pub async fn await_history(&self) {
        if !self.is_settled() {
            // No turn has begun in this boot, so nobody holds the driver for long.
            self.0.driver.lock().await.forget();
        }
    }

    /// The next part of the journal. A server that lost its memory of this boot sends one that is known; it is passed over.
    pub async fn restore(&self, part: &[Event], complete: bool) {
        if self.is_settled() {
            return;
        }
        self.0.driver.lock().await.restore(part);
        if complete {
            self.state().settled = true;
        }
    }

    fn is_settled(&self) -> bool {
        self.state().settled
    }

    /// Takes a command; one that came before is known, and does nothing.
    pub fn take(&self, Numbered { id, command }: Numbered) {
        let mut state = self.state();
        state.settled = true;
        if !state.seen.insert(id.clone()) {
            return;
        }
        drop(state);
        match command {
            Command::Prompt { turn, content, attachments } => {
                self.begin_turn(Prompt { turn, message: Message { content, attachments }, intake: Intake::default() });
            }
            Command::Steer { content, attachments } => {
                self.steer(Steer { command: id, message: Message { content, attachments } });
            }
            Command::Act { act, action } => self.begin_act(Act { act, action }),
            Command::Cancel {} => self.cancel(),
            Command::KillProcesses {} => {
                let processes = self.0.processes.clone();
                tokio::spawn(async move { processes.kill_agents().await });
            }
            Command::Settings(settings) => self.settle(settings),
            Command::Answer { request, .. } => {
                tracing::warn!(request, "an answer to a question that nobody asked");
            }
        }
    }

    fn steer(&self, steer: Steer) {
        let intake = self.state().intake.clone();
        let left = match intake {
            Some(intake) => intake.offer(steer),
            None => Some(steer),
        };
        if let Some(Steer { command, .. }) = left {
            let outgoing = self.0.outgoing.clone();
            tokio::spawn(async move { outgoing.report(Report::SteerMissed { command }).await });
        }
    }

    fn begin_turn(&self, prompt: Prompt) {
        let mut state = self.state();
        state.intake = Some(prompt.intake.clone());
        let needs_a_worker = state.turns.add(prompt);
        drop(state);
        if needs_a_worker {
            tokio::spawn(self.clone().work_on_turns());
        }
    }

    fn begin_act(&self, act: Act) {
        if self.state().acts.add(act) {
            tokio::spawn(self.clone().work_on_acts());
        }
    }

    fn cancel(&self) {
        let state = self.state();
        state.turns.stop();
        state.acts.stop();
    }

    async fn work_on_turns(self) {
        while let Some((prompt, stage)) = self.next_turn() {
            let turn = prompt.turn.clone();
            // Of one that was stopped before it began nothing is done, so it may come again.
            let is_driven = stage.stop.is_cancelled() || self.state().begun.is_first(&turn, &prompt.message.content);
            let outcome = if is_driven {
                self.drive(prompt, &stage).await
            } else {
                self.0.driver.lock().await.hear(prompt.message, &stage);
                not_twice()
            };
            // Nothing can be steered into it any more, whatever way it ended.
            for Steer { command, .. } in stage.intake.close() {
                self.0.outgoing.report(Report::SteerMissed { command }).await;
            }
            self.0.outgoing.report(Report::TurnEnded { turn, outcome }).await;
        }
        self.0.work_over.notify_one();
    }

    async fn drive(&self, prompt: Prompt, stage: &Stage) -> Outcome {
        let mut driver = self.0.driver.lock().await;
        let work = AssertUnwindSafe(driver.turn(prompt.message, stage));
        work.catch_unwind().await.unwrap_or_else(|panic| Outcome::Failed {
            code: "agent_panicked".into(),
            detail: format!("the agent has a fault: {}", tools::panic_text(&*panic)),
        })
    }

    fn next_turn(&self) -> Option<(Prompt, Stage)> {
        let mut state = self.state();
        let (prompt, stop) = state.turns.take()?;
        let intake = prompt.intake.clone();
        state.turns.running = Some(Running { id: prompt.turn.clone(), stop: stop.clone() });
        let stage = Stage {
            outgoing: self.0.outgoing.clone(),
            processes: self.0.processes.clone(),
            settings: self.0.settings.clone(),
            asides: self.0.asides.clone(),
            stop,
            intake,
        };
        Some((prompt, stage))
    }

    async fn work_on_acts(self) {
        while let Some((Act { act, action }, stop)) = self.next_act() {
            let outcome = if stop.is_cancelled() {
                Outcome::Cancelled { what: "an act that had not begun".to_owned(), partial: false }
            } else if self.state().begun.is_first(&act, &action.line()) {
                self.perform(&act, &action, stop).await
            } else {
                self.refuse(&act).await
            };
            self.0.outgoing.report(Report::ActEnded { act, outcome }).await;
        }
        self.0.work_over.notify_one();
    }

    fn next_act(&self) -> Option<(Act, CancellationToken)> {
        let mut state = self.state();
        let (act, stop) = state.acts.take()?;
        state.acts.running = Some(Running { id: act.act.clone(), stop: stop.clone() });
        Some((act, stop))
    }

    /// Why an act failed, its own observation says.
    async fn refuse(&self, act: &str) -> Outcome {
        let seen = Seen::Error { code: RESTARTED.to_owned(), detail: NOT_TWICE.to_owned() };
        self.0.outgoing.event(Some(act), Observation { seen, content: String::new() }).await;
        not_twice()
    }

    async fn perform(&self, act: &str, action: &Action, stop: CancellationToken) -> Outcome {
        let settings = self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let (outgoing, processes) = (&self.0.outgoing, &self.0.processes);
        let bench = Bench::new(act, By::User, &settings, outgoing, processes, &stop);
        let (observation, told, outcome) = match tools::perform(action, &bench).await {
            Ok(done) => (Some(done.observation), done.told, Outcome::Done),
            Err(Fault::Failed(detail)) => {
                let code = "tool_failed".to_owned();
                let seen = Seen::Error { code: code.clone(), detail: detail.clone() };
                let observation = Observation { seen, content: String::new() };
                (Some(observation), detail.clone(), Outcome::Failed { code, detail })
            }
            Err(Fault::Stopped { what, done: Some(done) }) => {
                (Some(done.observation), done.told, Outcome::Cancelled { what, partial: true })
            }
            Err(Fault::Stopped { what, done: None }) => {
                (None, "(stopped)".to_owned(), Outcome::Cancelled { what, partial: false })
            }
        };
        let aside = format!("[The user did this in the sandbox: {}]\n{told}", action.line());
        self.0.asides.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(aside);
        match observation {
            Some(observation) => outgoing.event(Some(act), observation).await,
            None => outgoing.forget(act),
        }
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// An earlier start of the agent began it, and it may have done all that it was to do.
fn not_twice() -> Outcome {
    Outcome::Failed { code: RESTARTED.to_owned(), detail: NOT_TWICE.to_owned() }
}
