//! Takes the server's commands: one turn at a time, beside it one act of the user at a time, each command once.

use std::{
    collections::{HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::FutureExt;
use greenroom_protocol::{
    Action, Event, Observation, ObservationKind,
    link::{AgentCommand, AgentReport, AgentSettings, CommandFrame, ProviderApi, WorkOutcome},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use crate::{
    agent_paths::AgentPaths,
    executed_ids::ExecutedIds,
    outgoing::OutgoingQueue,
    processes::{ChildProcesses, ProcessOwner},
    tools::{self, ToolContext, ToolError},
    turn::{BuiltinDriver, SteerMessage, SteerQueue, TurnContext, TurnDriver, UserActivity, UserMessage},
};

const RESTARTED: &str = "agent_restarted";
const NOT_REPEATED: &str =
    "the agent stopped unexpectedly after it had begun this: whether it was done is not known, so it is not done again";

/// A handle that the link and the workers share.
#[derive(Clone)]
pub struct Dispatcher(Arc<DispatcherShared>);

struct DispatcherShared {
    outgoing: OutgoingQueue,
    processes: ChildProcesses,
    settings: Arc<Mutex<AgentSettings>>,
    driver: tokio::sync::Mutex<BuiltinDriver>,
    /// What the user did beside the agent, for the agent to know at its next step.
    user_activity: Arc<Mutex<UserActivity>>,
    state: Mutex<DispatcherState>,
    work_finished: Notify,
}

struct DispatcherState {
    boot: String,
    /// The history came whole, or a command came without it; one that comes later tells nothing new.
    restored: bool,
    /// Every command of this boot. A session sends a few thousand at most, and an id has 26 bytes.
    seen_command_ids: HashSet<String>,
    executed_ids: ExecutedIds,
    turns: WorkQueue<QueuedPrompt>,
    user_actions: WorkQueue<QueuedUserAction>,
    /// Where a steering message goes: into the newest turn.
    steer_queue: Option<SteerQueue>,
}

/// Things to be done one after the other.
struct WorkQueue<T> {
    waiting: VecDeque<(T, CancellationToken)>,
    running: Option<RunningWork>,
    /// Whether somebody works on it, or is about to begin.
    has_worker: bool,
}

struct RunningWork {
    id: String,
    stop: CancellationToken,
}

struct QueuedPrompt {
    turn: String,
    message: UserMessage,
    /// Open from when the prompt is heard: what is said to this turn may come right behind it.
    steer_queue: SteerQueue,
}

struct QueuedUserAction {
    user_action: String,
    action: Action,
}

impl<T> WorkQueue<T> {
    /// Adds a thing to do, and says whether a worker is to be started for it.
    fn add(&mut self, thing: T) -> bool {
        self.waiting.push_back((thing, CancellationToken::new()));
        !std::mem::replace(&mut self.has_worker, true)
    }

    /// The next thing to do. Where there is none the worker goes home.
    fn take(&mut self) -> Option<(T, CancellationToken)> {
        self.running = None;
        let next = self.waiting.pop_front();
        self.has_worker = next.is_some();
        next
    }

    /// Stops what runs. What waits keeps its place, and finds that it is to stop when its turn comes.
    fn stop(&self) {
        let running = self.running.as_ref().map(|running| &running.stop);
        running.into_iter().chain(self.waiting.iter().map(|(_, stop)| stop)).for_each(CancellationToken::cancel);
    }
}

impl<T> Default for WorkQueue<T> {
    fn default() -> WorkQueue<T> {
        WorkQueue { waiting: VecDeque::new(), running: None, has_worker: false }
    }
}

impl Dispatcher {
    pub fn new(outgoing: OutgoingQueue, processes: ChildProcesses, places: &AgentPaths) -> Dispatcher {
        let settings = AgentSettings {
            model: String::new(),
            api: ProviderApi::Anthropic,
            directory: places.workspace.display().to_string(),
            run_timeout_s: 600,
            max_steps: 100,
        };
        let driver = tokio::sync::Mutex::new(BuiltinDriver::new(places.gateway_socket.clone()));
        let state = DispatcherState {
            boot: String::new(),
            restored: false,
            seen_command_ids: HashSet::new(),
            executed_ids: ExecutedIds::open(&places.executed_ids),
            turns: WorkQueue::default(),
            user_actions: WorkQueue::default(),
            steer_queue: None,
        };
        Dispatcher(Arc::new(DispatcherShared {
            outgoing,
            processes,
            settings: Arc::new(Mutex::new(settings)),
            driver,
            user_activity: Arc::default(),
            state: Mutex::new(state),
            work_finished: Notify::new(),
        }))
    }

    /// The name of this boot, for a connection that begins. One that has not got its history has done nothing yet, and
    /// introduces itself under a new name each time: the server sends the history to a name once, and cannot know whether it
    /// came, nor even its welcome.
    pub fn boot_for_hello(&self) -> String {
        let mut state = self.state();
        if !state.restored {
            state.boot = Ulid::generate().to_string();
        }
        state.boot.clone()
    }

    /// The turn that runs.
    pub fn turn(&self) -> Option<String> {
        self.state().turns.running.as_ref().map(|running| running.id.clone())
    }

    /// Whether a turn or an act of the user is under way, or about to begin.
    pub fn is_busy(&self) -> bool {
        let state = self.state();
        state.turns.has_worker || state.user_actions.has_worker
    }

    /// Waits until the last of a row of turns, or of acts, is done; one that was done since the last call counts.
    pub async fn work_finished(&self) {
        self.0.work_finished.notified().await;
    }

    /// The settings hold from the next step, or the next act, on.
    pub fn apply_settings(&self, settings: AgentSettings) {
        *self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = settings;
    }

    /// The journal follows, from its beginning.
    pub async fn begin_restore(&self) {
        if !self.is_restored() {
            // No turn has begun in this boot, so nobody holds the driver for long.
            self.0.driver.lock().await.reset();
        }
    }

    /// The next part of the journal. A server that lost its memory of this boot sends one that is known; it is passed over.
    pub async fn restore(&self, part: &[Event], complete: bool) {
        if self.is_restored() {
            return;
        }
        self.0.driver.lock().await.restore(part);
        if complete {
            self.state().restored = true;
        }
    }

    fn is_restored(&self) -> bool {
        self.state().restored
    }

    /// Takes a command; one that came before is known, and does nothing.
    pub fn handle_command(&self, CommandFrame { id, command }: CommandFrame) {
        let mut state = self.state();
        state.restored = true;
        if !state.seen_command_ids.insert(id.clone()) {
            return;
        }
        drop(state);
        match command {
            AgentCommand::Prompt { turn, content, attachments } => {
                self.begin_turn(QueuedPrompt {
                    turn,
                    message: UserMessage { content, attachments },
                    steer_queue: SteerQueue::default(),
                });
            }
            AgentCommand::Steer { content, attachments } => {
                self.steer(SteerMessage { command: id, message: UserMessage { content, attachments } });
            }
            AgentCommand::UserAction { user_action: act, action } => {
                self.begin_user_action(QueuedUserAction { user_action: act, action })
            }
            AgentCommand::Cancel {} => self.cancel(),
            AgentCommand::KillProcesses {} => {
                let processes = self.0.processes.clone();
                tokio::spawn(async move { processes.kill_agent_processes().await });
            }
            AgentCommand::Settings(settings) => self.apply_settings(settings),
            AgentCommand::Answer { request, .. } => {
                tracing::warn!(request, "an answer to a question that nobody asked");
            }
        }
    }

    fn steer(&self, steer: SteerMessage) {
        let intake = self.state().steer_queue.clone();
        let left = match intake {
            Some(intake) => intake.offer(steer),
            None => Some(steer),
        };
        if let Some(SteerMessage { command, .. }) = left {
            let outgoing = self.0.outgoing.clone();
            tokio::spawn(async move { outgoing.report(AgentReport::SteerMissed { command }).await });
        }
    }

    fn begin_turn(&self, prompt: QueuedPrompt) {
        let mut state = self.state();
        state.steer_queue = Some(prompt.steer_queue.clone());
        let needs_a_worker = state.turns.add(prompt);
        drop(state);
        if needs_a_worker {
            tokio::spawn(self.clone().run_turns());
        }
    }

    fn begin_user_action(&self, act: QueuedUserAction) {
        if self.state().user_actions.add(act) {
            tokio::spawn(self.clone().run_user_actions());
        }
    }

    fn cancel(&self) {
        let state = self.state();
        state.turns.stop();
        state.user_actions.stop();
    }

    async fn run_turns(self) {
        while let Some((prompt, stage)) = self.next_turn() {
            let turn = prompt.turn.clone();
            // Of one that was stopped before it began nothing is done, so it may come again.
            let is_driven =
                stage.stop.is_cancelled() || self.state().executed_ids.insert_if_new(&turn, &prompt.message.content);
            let outcome = if is_driven {
                self.drive(prompt, &stage).await
            } else {
                self.0.driver.lock().await.record_message(prompt.message, &stage);
                not_repeated()
            };
            // Nothing can be steered into it any more, whatever way it ended.
            for SteerMessage { command, .. } in stage.steer_queue.close() {
                self.0.outgoing.report(AgentReport::SteerMissed { command }).await;
            }
            self.0.outgoing.report(AgentReport::TurnEnded { turn, outcome }).await;
        }
        self.0.work_finished.notify_one();
    }

    async fn drive(&self, prompt: QueuedPrompt, stage: &TurnContext) -> WorkOutcome {
        let mut driver = self.0.driver.lock().await;
        let work = AssertUnwindSafe(driver.run_turn(prompt.message, stage));
        work.catch_unwind().await.unwrap_or_else(|panic| WorkOutcome::Failed {
            code: "agent_panicked".into(),
            detail: format!("the agent has a fault: {}", tools::panic_text(&*panic)),
        })
    }

    fn next_turn(&self) -> Option<(QueuedPrompt, TurnContext)> {
        let mut state = self.state();
        let (prompt, stop) = state.turns.take()?;
        let intake = prompt.steer_queue.clone();
        state.turns.running = Some(RunningWork { id: prompt.turn.clone(), stop: stop.clone() });
        let stage = TurnContext {
            outgoing: self.0.outgoing.clone(),
            processes: self.0.processes.clone(),
            settings: self.0.settings.clone(),
            user_activity: self.0.user_activity.clone(),
            stop,
            steer_queue: intake,
        };
        Some((prompt, stage))
    }

    async fn run_user_actions(self) {
        while let Some((QueuedUserAction { user_action: act, action }, stop)) = self.next_user_action() {
            let outcome = if stop.is_cancelled() {
                WorkOutcome::Cancelled { what: "an act that had not begun".to_owned(), partial: false }
            } else if self.state().executed_ids.insert_if_new(&act, &action.summary_line()) {
                self.perform(&act, &action, stop).await
            } else {
                self.report_not_repeated(&act).await
            };
            self.0.outgoing.report(AgentReport::UserActionEnded { user_action: act, outcome }).await;
        }
        self.0.work_finished.notify_one();
    }

    fn next_user_action(&self) -> Option<(QueuedUserAction, CancellationToken)> {
        let mut state = self.state();
        let (act, stop) = state.user_actions.take()?;
        state.user_actions.running = Some(RunningWork { id: act.user_action.clone(), stop: stop.clone() });
        Some((act, stop))
    }

    /// Why an act failed, its own observation says.
    async fn report_not_repeated(&self, act: &str) -> WorkOutcome {
        let seen = ObservationKind::Error { code: RESTARTED.to_owned(), detail: NOT_REPEATED.to_owned() };
        self.0.outgoing.event(Some(act), Observation { kind: seen, content: String::new() }).await;
        not_repeated()
    }

    async fn perform(&self, act: &str, action: &Action, stop: CancellationToken) -> WorkOutcome {
        let settings = self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let (outgoing, processes) = (&self.0.outgoing, &self.0.processes);
        let bench = ToolContext::new(act, ProcessOwner::User, &settings, outgoing, processes, &stop);
        let (observation, told, outcome) = match tools::perform(action, &bench).await {
            Ok(done) => (Some(done.observation), done.model_text, WorkOutcome::Done),
            Err(ToolError::Failed(detail)) => {
                let code = "tool_failed".to_owned();
                let seen = ObservationKind::Error { code: code.clone(), detail: detail.clone() };
                let observation = Observation { kind: seen, content: String::new() };
                (Some(observation), detail.clone(), WorkOutcome::Failed { code, detail })
            }
            Err(ToolError::Stopped { what, partial_result: Some(done) }) => {
                (Some(done.observation), done.model_text, WorkOutcome::Cancelled { what, partial: true })
            }
            Err(ToolError::Stopped { what, partial_result: None }) => {
                (None, "(stopped)".to_owned(), WorkOutcome::Cancelled { what, partial: false })
            }
        };
        let aside = format!("[The user did this in the sandbox: {}]\n{told}", action.summary_line());
        self.0.user_activity.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(aside);
        match observation {
            Some(observation) => outgoing.event(Some(act), observation).await,
            None => outgoing.forget(act),
        }
        outcome
    }

    fn state(&self) -> MutexGuard<'_, DispatcherState> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// An earlier start of the agent began it, and it may have done all that it was to do.
fn not_repeated() -> WorkOutcome {
    WorkOutcome::Failed { code: RESTARTED.to_owned(), detail: NOT_REPEATED.to_owned() }
}
