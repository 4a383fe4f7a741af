//! Takes the server's commands. Runs one turn at a time, one user action at a time beside it, and
//! each command once.

use std::{
    collections::{HashSet, VecDeque},
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::FutureExt;
use greenroom_protocol::{
    Action, Event, Observation, ObservationKind,
    link::{AgentCommand, AgentReport, AgentSettings, CancelHint, CommandFrame, ProviderApi, WorkOutcome},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use crate::{
    agent_paths::AgentPaths,
    browser::PageBrowser,
    executed_ids::ExecutedIds,
    outgoing::OutgoingQueue,
    processes::{ChildProcesses, ProcessOwner},
    tools::{self, ToolContext, ToolError, ToolResources},
    turn::{
        ApprovalAnswer, ApprovalWaiters, SteerMessage, SteerQueue, TurnContext, TurnDriver, TurnDrivers, UserActivity,
        UserMessage,
    },
};

/// Time without a server after which the agent ends, in seconds, until the server's settings come.
const ORPHAN_AFTER_S: u64 = 24 * 60 * 60;
const RESTARTED: &str = "agent_restarted";
const NOT_REPEATED: &str =
    "the agent stopped unexpectedly after it had begun this; it may or may not be done, and is not repeated";

/// Shared handle of the link and the workers.
#[derive(Clone)]
pub struct Dispatcher(Arc<DispatcherShared>);

struct DispatcherShared {
    outgoing: OutgoingQueue,
    processes: ChildProcesses,
    browser: PageBrowser,
    settings: Arc<Mutex<AgentSettings>>,
    drivers: TurnDrivers,
    /// Driver of the session, once its program is known.
    driver: tokio::sync::Mutex<Option<Box<dyn TurnDriver>>>,
    /// User actions beside the agent, for the agent's next model step.
    user_activity: Arc<Mutex<UserActivity>>,
    /// Requests of the running turn that wait for a person.
    approvals: ApprovalWaiters,
    state: Mutex<DispatcherState>,
    work_finished: Notify,
}

struct DispatcherState {
    boot: String,
    /// Set when the history is complete, or when a command arrives without a history. A later
    /// history adds nothing.
    restored: bool,
    /// Ids of all commands of this boot. A session sends a few thousand at most; an id has 26
    /// bytes.
    seen_command_ids: HashSet<String>,
    executed_ids: ExecutedIds,
    turns: WorkQueue<QueuedPrompt>,
    user_actions: WorkQueue<QueuedUserAction>,
    /// Steer queue of the newest turn, which takes the steering messages.
    steer_queue: Option<SteerQueue>,
}

/// Jobs that run one after the other.
struct WorkQueue<T> {
    waiting: VecDeque<(T, CancellationToken)>,
    running: Option<RunningWork>,
    /// Set while a worker runs or is about to start.
    has_worker: bool,
}

struct RunningWork {
    id: String,
    stop: CancellationToken,
}

struct QueuedPrompt {
    turn: String,
    message: UserMessage,
    /// Open from the prompt's arrival: a steering message for this turn may follow the prompt at
    /// once.
    steer_queue: SteerQueue,
}

struct QueuedUserAction {
    user_action: String,
    action: Action,
}

impl<T> WorkQueue<T> {
    /// Queues `work` and returns `true` if the caller must start a worker.
    fn add(&mut self, work: T) -> bool {
        self.waiting.push_back((work, CancellationToken::new()));
        !std::mem::replace(&mut self.has_worker, true)
    }

    /// Returns the next job. Without one, the worker ends.
    fn take(&mut self) -> Option<(T, CancellationToken)> {
        self.running = None;
        let next = self.waiting.pop_front();
        self.has_worker = next.is_some();
        next
    }

    /// Cancels the running job and all queued ones. Queued jobs keep their place and end as
    /// cancelled when they are taken.
    fn stop(&self) {
        let running = self.running.as_ref().map(|running| &running.stop);
        running.into_iter().chain(self.waiting.iter().map(|(_, stop)| stop)).for_each(CancellationToken::cancel);
    }

    /// Cancels the job named `id`, running or queued, and no other.
    fn stop_one(&self, id: &str, id_of: impl Fn(&T) -> &str) {
        let running = self.running.as_ref().filter(|running| running.id == id).map(|running| &running.stop);
        let queued = self.waiting.iter().filter(|(work, _)| id_of(work) == id).map(|(_, stop)| stop);
        running.into_iter().chain(queued).for_each(CancellationToken::cancel);
    }
}

impl<T> Default for WorkQueue<T> {
    fn default() -> WorkQueue<T> {
        WorkQueue { waiting: VecDeque::new(), running: None, has_worker: false }
    }
}

impl DispatcherShared {
    /// Returns the session's driver. The settings of the first call choose the driver.
    fn opened<'a>(&self, driver: &'a mut Option<Box<dyn TurnDriver>>) -> &'a mut dyn TurnDriver {
        let driver = driver.get_or_insert_with(|| {
            let settings = self.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.drivers.open(settings.program.as_ref())
        });
        driver.as_mut()
    }
}

impl Dispatcher {
    /// Makes a dispatcher without a history. Its settings hold until the server's arrive. `drivers`
    /// are the turn drivers that the settings may name.
    pub fn new(
        outgoing: OutgoingQueue,
        processes: ChildProcesses,
        paths: &AgentPaths,
        drivers: TurnDrivers,
    ) -> Dispatcher {
        let settings = AgentSettings {
            model: String::new(),
            api: ProviderApi::Anthropic,
            directory: paths.workspace.display().to_string(),
            run_timeout_s: 600,
            max_steps: 100,
            program: None,
            effort: None,
            takes_images: false,
            context_limit: None,
            orphan_after_s: Some(ORPHAN_AFTER_S),
            plan_path: None,
            mode: None,
        };
        let state = DispatcherState {
            boot: String::new(),
            restored: false,
            seen_command_ids: HashSet::new(),
            executed_ids: ExecutedIds::open(&paths.executed_ids),
            turns: WorkQueue::default(),
            user_actions: WorkQueue::default(),
            steer_queue: None,
        };
        Dispatcher(Arc::new(DispatcherShared {
            outgoing,
            browser: PageBrowser::new(processes.clone()),
            processes,
            settings: Arc::new(Mutex::new(settings)),
            drivers,
            driver: tokio::sync::Mutex::default(),
            user_activity: Arc::default(),
            approvals: ApprovalWaiters::default(),
            state: Mutex::new(state),
            work_finished: Notify::new(),
        }))
    }

    /// Returns the boot id for the `hello` of a new connection. Each call makes a new id until the
    /// history is complete.
    ///
    /// The server sends the history once for each boot id. It cannot detect that the history, or
    /// its welcome, was lost. An agent without its history has done nothing yet, so a new id loses
    /// nothing. Reports of an earlier start go first, under the id of that start.
    pub fn boot_for_hello(&self) -> String {
        let mut state = self.state();
        if !state.restored {
            state.boot = self.0.outgoing.earlier_boot().unwrap_or_else(|| Ulid::generate().to_string());
        }
        state.boot.clone()
    }

    /// Returns the boot id of the newest `hello`.
    pub fn boot(&self) -> String {
        self.state().boot.clone()
    }

    /// Returns the id of the running turn.
    pub fn turn(&self) -> Option<String> {
        self.state().turns.running.as_ref().map(|running| running.id.clone())
    }

    /// Returns `true` if a turn or a user action runs or is about to start.
    pub fn is_busy(&self) -> bool {
        let state = self.state();
        state.turns.has_worker || state.user_actions.has_worker
    }

    /// Returns when all queued turns, or all queued user actions, are done. Such an end since the
    /// last call counts.
    pub async fn work_finished(&self) {
        self.0.work_finished.notified().await;
    }

    /// Returns the time without a server after which the agent ends. `None`: never.
    pub fn orphan_after(&self) -> Option<Duration> {
        let settings = self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        settings.orphan_after_s.map(Duration::from_secs)
    }

    /// Returns the working directory of the session.
    pub fn directory(&self) -> PathBuf {
        let settings = self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        PathBuf::from(&settings.directory)
    }

    /// Replaces the settings. They apply from the next model step or user action on.
    pub fn apply_settings(&self, settings: AgentSettings) {
        *self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = settings;
    }

    /// Prepares the driver for the journal, which follows from its beginning.
    pub async fn begin_restore(&self) {
        if !self.is_restored() {
            // No turn has begun in this boot, so the lock is free soon.
            self.0.opened(&mut *self.0.driver.lock().await).reset();
        }
    }

    /// Passes the next part of the journal to the driver. Ignored if the history is complete: a
    /// server that lost its state of this boot sends the history again.
    pub async fn restore(&self, part: &[Event], complete: bool) {
        if self.is_restored() {
            return;
        }
        self.0.opened(&mut *self.0.driver.lock().await).restore(part);
        if complete {
            self.state().restored = true;
        }
    }

    fn is_restored(&self) -> bool {
        self.state().restored
    }

    /// Executes a command. A command id that came before is ignored.
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
            AgentCommand::UserAction { user_action, action } => {
                self.begin_user_action(QueuedUserAction { user_action, action })
            }
            AgentCommand::Cancel {} => self.cancel(),
            AgentCommand::KillProcesses {} => {
                let processes = self.0.processes.clone();
                tokio::spawn(async move { processes.kill_agent_processes().await });
            }
            AgentCommand::KillProcess { pid } => {
                let processes = self.0.processes.clone();
                tokio::spawn(async move { processes.kill_leftover(pid).await });
            }
            AgentCommand::KillLeftovers {} => {
                let processes = self.0.processes.clone();
                tokio::spawn(async move { processes.kill_leftovers().await });
            }
            AgentCommand::Settings(settings) => self.apply_settings(settings),
            AgentCommand::Answer { request, decision, reason, input } => {
                if !self.0.approvals.answer(&request, ApprovalAnswer::Decided { decision, reason, input }) {
                    tracing::warn!(request, "ignored an answer that belongs to no request");
                }
            }
        }
    }

    fn steer(&self, steer: SteerMessage) {
        let steer_queue = self.state().steer_queue.clone();
        let missed = match steer_queue {
            Some(steer_queue) => steer_queue.offer(steer),
            None => Some(steer),
        };
        if let Some(SteerMessage { command, .. }) = missed {
            let outgoing = self.0.outgoing.clone();
            tokio::spawn(async move { outgoing.report(AgentReport::SteerMissed { command }).await });
        }
    }

    fn begin_turn(&self, prompt: QueuedPrompt) {
        let mut state = self.state();
        state.steer_queue = Some(prompt.steer_queue.clone());
        let needs_worker = state.turns.add(prompt);
        drop(state);
        if needs_worker {
            tokio::spawn(self.clone().run_turns());
        }
    }

    fn begin_user_action(&self, user_action: QueuedUserAction) {
        if self.state().user_actions.add(user_action) {
            tokio::spawn(self.clone().run_user_actions());
        }
    }

    /// Closes the browser of the tools, if it runs.
    pub(crate) async fn close_browser(&self) {
        self.0.browser.close().await;
    }

    /// Stops all turns and user actions.
    pub(crate) fn cancel(&self) {
        let state = self.state();
        state.turns.stop();
        state.user_actions.stop();
    }

    /// Stops the work that a hint names. The command `cancel` follows.
    pub fn cancel_hinted(&self, CancelHint { turn, user_action }: &CancelHint) {
        let state = self.state();
        if let Some(turn) = turn {
            state.turns.stop_one(turn, |prompt| &prompt.turn);
        }
        if let Some(user_action) = user_action {
            state.user_actions.stop_one(user_action, |queued| &queued.user_action);
        }
    }

    async fn run_turns(self) {
        while let Some((prompt, context)) = self.next_turn() {
            let turn = prompt.turn.clone();
            // A turn that was stopped before its begin does nothing. Its id is not recorded, so the
            // turn may come again.
            let may_begin =
                context.stop.is_cancelled() || self.state().executed_ids.insert_if_new(&turn, &prompt.message.content);
            let outcome = if may_begin {
                self.drive(prompt, &context).await
            } else {
                self.0.opened(&mut *self.0.driver.lock().await).record_message(prompt.message, &context);
                not_repeated()
            };
            // The turn has ended, so messages that still wait in its steer queue are reported as
            // missed.
            for SteerMessage { command, .. } in context.steer_queue.close() {
                self.0.outgoing.report(AgentReport::SteerMissed { command }).await;
            }
            self.0.outgoing.report(AgentReport::TurnEnded { turn, outcome }).await;
        }
        self.0.work_finished.notify_one();
    }

    /// Runs the turn. A panic of the driver fails the turn.
    async fn drive(&self, prompt: QueuedPrompt, context: &TurnContext) -> WorkOutcome {
        let work = AssertUnwindSafe(async {
            let mut driver = self.0.driver.lock().await;
            self.0.opened(&mut driver).run_turn(prompt.message, context).await
        });
        work.catch_unwind().await.unwrap_or_else(|panic| WorkOutcome::Failed {
            code: "agent_panicked".into(),
            detail: format!("the agent panicked: {}", tools::panic_text(&*panic)),
        })
    }

    fn next_turn(&self) -> Option<(QueuedPrompt, TurnContext)> {
        let mut state = self.state();
        let (prompt, stop) = state.turns.take()?;
        let steer_queue = prompt.steer_queue.clone();
        state.turns.running = Some(RunningWork { id: prompt.turn.clone(), stop: stop.clone() });
        let context = TurnContext {
            outgoing: self.0.outgoing.clone(),
            processes: self.0.processes.clone(),
            browser: self.0.browser.clone(),
            settings: self.0.settings.clone(),
            user_activity: self.0.user_activity.clone(),
            approvals: self.0.approvals.clone(),
            stop,
            steer_queue,
        };
        Some((prompt, context))
    }

    async fn run_user_actions(self) {
        while let Some((QueuedUserAction { user_action, action }, stop)) = self.next_user_action() {
            let outcome = if stop.is_cancelled() {
                WorkOutcome::Cancelled { what: "a user action that had not begun".to_owned(), partial: false }
            } else if self.state().executed_ids.insert_if_new(&user_action, &action.summary_line()) {
                self.perform(&user_action, &action, stop).await
            } else {
                self.report_not_repeated(&user_action).await
            };
            self.0.outgoing.report(AgentReport::UserActionEnded { user_action, outcome }).await;
        }
        self.0.work_finished.notify_one();
    }

    fn next_user_action(&self) -> Option<(QueuedUserAction, CancellationToken)> {
        let mut state = self.state();
        let (queued, stop) = state.user_actions.take()?;
        state.user_actions.running = Some(RunningWork { id: queued.user_action.clone(), stop: stop.clone() });
        Some((queued, stop))
    }

    /// Reports an error observation with the reason, and returns the outcome.
    async fn report_not_repeated(&self, user_action: &str) -> WorkOutcome {
        let kind = ObservationKind::Error { code: RESTARTED.to_owned(), detail: NOT_REPEATED.to_owned() };
        self.0.outgoing.event(Some(user_action), Observation { kind, content: String::new() }).await;
        not_repeated()
    }

    async fn perform(&self, user_action: &str, action: &Action, stop: CancellationToken) -> WorkOutcome {
        let settings = self.0.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let DispatcherShared { outgoing, processes, browser, .. } = &*self.0;
        let tools = ToolResources { outgoing, processes, browser };
        let tool_context = ToolContext::new(user_action, ProcessOwner::User, &settings, tools, &stop);
        let (observation, model_text, outcome) = match tools::perform(action, &tool_context).await {
            Ok(done) => (Some(done.observation), done.model_text, WorkOutcome::Done),
            Err(ToolError::Failed(detail)) => {
                let observation = tools::failure(action, &detail);
                (Some(observation), detail.clone(), WorkOutcome::Failed { code: "tool_failed".to_owned(), detail })
            }
            Err(ToolError::Stopped { what, partial_result: Some(done) }) => {
                (Some(done.observation), done.model_text, WorkOutcome::Cancelled { what, partial: true })
            }
            Err(ToolError::Stopped { what, partial_result: None }) => {
                (None, "(stopped)".to_owned(), WorkOutcome::Cancelled { what, partial: false })
            }
        };
        let text = format!("[The user did this in the sandbox: {}]\n{model_text}", action.summary_line());
        self.0.user_activity.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(text);
        match observation {
            Some(observation) => outgoing.event(Some(user_action), observation).await,
            None => outgoing.forget(user_action),
        }
        outcome
    }

    fn state(&self) -> MutexGuard<'_, DispatcherState> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the outcome of work that an earlier start of the agent began and may have completed.
fn not_repeated() -> WorkOutcome {
    WorkOutcome::Failed { code: RESTARTED.to_owned(), detail: NOT_REPEATED.to_owned() }
}
