//! Built-in turn driver: asks the model, executes its tool calls, returns the results, until the
//! model makes no more calls.

use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{
    Action, Event, Observation,
    link::{AgentReport, AgentSettings, WorkOutcome},
};

use super::{
    SteerMessage, TurnContext, TurnDriver, UserMessage,
    call_approval::{CallDecision, approve_call, denied_observation, denied_text},
    cancelled,
    conversation::{AgentConversation, ToolCallRequest},
    failed,
    history::{self, HistoryReader},
    model_asker::ModelAsker,
    model_step::StandingAnswer,
    pictures::AttachmentOrigin,
};
use crate::{
    agent_paths::AgentPaths,
    processes::ProcessOwner,
    tools::{self, ToolContext, ToolError},
};

/// Size limit of a conversation that is read from the journal, in bytes. The model then summarizes
/// what exceeds its own limit.
const RESTORE_LIMIT: usize = 4 * 1024 * 1024;
/// Number of answers in a row that may reach their limit without a tool call that runs.
const CONTINUATIONS: u32 = 8;
/// Text for the model after an answer that reached its limit, or was paused.
const CONTINUE: &str = "[Your answer ended at its limit of length. Continue exactly where it ended.]";
/// Number of equal failures in a row after which the error contains a hint to the model.
const REPEAT_HINT_AFTER: u32 = 5;

/// Turn driver that calls a model itself.
pub struct BuiltinDriver {
    conversation: AgentConversation,
    /// Reads the journal into `conversation`.
    reader: HistoryReader,
    model: ModelAsker,
}

/// Result of one tool call, as far as the turn is concerned.
enum CallOutcome {
    Done,
    Finished,
    Stopped(WorkOutcome),
}

/// Counts how often the same call failed in a row.
#[derive(Default)]
struct RepeatedFailure {
    call: Option<(String, serde_json::Value)>,
    count: u32,
}

/// Answers in a row that reached their limit, or were paused, without a tool call that runs.
#[derive(Default)]
struct LimitedAnswers {
    count: u32,
    last_text: String,
}

impl LimitedAnswers {
    /// Adds an answer. Returns the reason to end the turn if the model makes no progress.
    fn add(&mut self, text: String) -> Option<String> {
        self.count += 1;
        // A paused answer may have no text, and progress all the same.
        let repeats = !text.is_empty() && text == self.last_text;
        self.last_text = text;
        let times = match self.count {
            count if count > CONTINUATIONS => format!("{count} times in a row"),
            _ if repeats => "twice with the same text".to_owned(),
            _ => return None,
        };
        Some(format!("the model's answer reached its limit of output tokens {times}; send a message to continue"))
    }
}

impl BuiltinDriver {
    /// Makes a driver with an empty conversation.
    pub fn new(paths: &AgentPaths) -> BuiltinDriver {
        let (conversation, reader) = (AgentConversation::default(), HistoryReader::default());
        BuiltinDriver { conversation, reader, model: ModelAsker::new(paths) }
    }

    async fn run_steps(&mut self, context: &TurnContext) -> WorkOutcome {
        let (mut steps, mut limited, mut repeated) = (0, LimitedAnswers::default(), RepeatedFailure::default());
        loop {
            self.catch_up(context).await;
            let settings = context.settings();
            if steps >= settings.max_steps {
                let detail = format!("the turn reached its limit of {steps} steps; send a message to continue");
                return WorkOutcome::Failed { code: "too_many_steps".into(), detail };
            }
            steps += 1;
            let StandingAnswer { message, continues } =
                match self.model.ask(&mut self.conversation, &settings, context).await {
                    Ok(answer) => answer,
                    Err(outcome) => return outcome,
                };
            let (calls, text) = (message.calls.clone(), message.text.clone());
            self.conversation.add_assistant_message(message);
            let stalled = if !continues || calls.iter().any(|call| call.unusable.is_none()) {
                limited = LimitedAnswers::default();
                None
            } else {
                // A call that was cut changes the next answer.
                limited.add(if calls.is_empty() { text } else { String::new() })
            };
            let mut finished = calls.is_empty() && !continues;
            let mut calls = calls.into_iter();
            while let Some(call) = calls.next() {
                match self.call(call, &settings, context, &mut repeated).await {
                    CallOutcome::Done => {}
                    CallOutcome::Finished => finished = true,
                    CallOutcome::Stopped(outcome) => {
                        // The remaining calls never run, so no event ends their items.
                        calls.for_each(|call| context.outgoing.forget(&call.id));
                        return outcome;
                    }
                }
            }
            if let Some(detail) = stalled {
                return failed("model_error", detail);
            }
            if continues && !finished {
                self.conversation.add_user_text(CONTINUE);
            }
            if finished && context.steer_queue.close_if_empty() {
                return WorkOutcome::Done;
            }
        }
    }

    /// Adds the user's actions, the changed plan and the steering messages since the last step.
    async fn catch_up(&mut self, context: &TurnContext) {
        self.add_user_activity(context);
        if let Some(text) = self.reader.plan.check(context).await {
            self.conversation.add_user_text(&text);
        }
        for SteerMessage { command, message } in context.steer_queue.take() {
            self.conversation.add_user_message(&message, AttachmentOrigin::Message);
            context.outgoing.report(AgentReport::Steered { command }).await;
        }
    }

    fn add_user_activity(&mut self, context: &TurnContext) {
        for text in context.take_user_activity() {
            self.conversation.add_user_text(&text);
        }
    }

    async fn call(
        &mut self,
        call: ToolCallRequest,
        settings: &AgentSettings,
        context: &TurnContext,
        repeated: &mut RepeatedFailure,
    ) -> CallOutcome {
        // An answer may hold thousands of calls. The link runs between them.
        tokio::task::yield_now().await;
        let ToolCallRequest { id, name, arguments, unusable } = call;
        if context.stop.is_cancelled() {
            context.outgoing.forget(&id);
            return CallOutcome::Stopped(cancelled("the agent between two steps", false));
        }
        let parsed = unusable.map_or_else(|| tools::parse(&name, arguments.clone()), Err);
        let action = match parsed {
            Ok(action) => action,
            Err(error) => {
                let detail = repeated.error_text(name, arguments, error);
                self.report_failed_call(&id, tools::error_observation(&detail), &detail, context).await;
                return CallOutcome::Done;
            }
        };
        let (action, note) = match approve_call(&id, &name, action, settings.directory.as_ref(), context).await {
            CallDecision::Run { action, note } => (action, note),
            CallDecision::Denied(reason) => {
                let reason = repeated.error_text(name, arguments, reason);
                context.outgoing.event(Some(&id), denied_observation(&reason)).await;
                self.conversation.add_result(&id, denied_text(&reason));
                return CallOutcome::Done;
            }
            CallDecision::Failed(detail) => {
                let detail = repeated.error_text(name, arguments, detail);
                self.report_failed_call(&id, tools::error_observation(&detail), &detail, context).await;
                return CallOutcome::Done;
            }
            CallDecision::Stopped => {
                context.outgoing.forget(&id);
                return CallOutcome::Stopped(cancelled("a call that waited for approval", false));
            }
        };
        if let Action::Finish { .. } = action {
            self.conversation.add_result(&id, "The turn is over.".to_owned());
            return CallOutcome::Finished;
        }
        let tool_context =
            ToolContext::new(&id, ProcessOwner::Agent, settings, context.tool_resources(), &context.stop);
        let performed = match self.reader.plan.outdated(&action, context).await {
            Some(detail) => Err(ToolError::Failed(detail)),
            None => tools::perform(&action, &tool_context).await,
        };
        match performed {
            Ok(done) => {
                self.reader.plan.written(&action);
                *repeated = RepeatedFailure::default();
                context.outgoing.event(Some(&id), done.observation).await;
                self.conversation.add_result(&id, note + &done.model_text);
                CallOutcome::Done
            }
            Err(ToolError::Failed(detail)) => {
                let detail = repeated.error_text(name, arguments, detail);
                let text = note + &detail;
                self.report_failed_call(&id, tools::failure(&action, &detail), &text, context).await;
                CallOutcome::Done
            }
            Err(ToolError::Stopped { what, partial_result: done }) => {
                let partial = done.is_some();
                match done {
                    Some(done) => {
                        context.outgoing.event(Some(&id), done.observation).await;
                        self.conversation.add_result(&id, note + &done.model_text);
                    }
                    None => context.outgoing.forget(&id),
                }
                CallOutcome::Stopped(cancelled(&what, partial))
            }
        }
    }

    /// Reports a failed call to the journal and to the model.
    async fn report_failed_call(&mut self, id: &str, observation: Observation, detail: &str, context: &TurnContext) {
        context.outgoing.event(Some(id), observation).await;
        self.conversation.add_result(id, format!("Error: {detail}"));
    }
}

impl TurnDriver for BuiltinDriver {
    fn restore(&mut self, part: &[Event]) {
        part.iter().for_each(|event| self.reader.read(event, &mut self.conversation));
        self.conversation.fit(RESTORE_LIMIT);
    }

    fn reset(&mut self) {
        (self.conversation, self.reader) = (AgentConversation::default(), HistoryReader::default());
    }

    fn record_message(&mut self, message: UserMessage, context: &TurnContext) {
        self.reader.flush_user_activity(&mut self.conversation);
        self.add_user_activity(context);
        self.conversation.drop_opaque_values_without_calls();
        self.conversation.add_user_message(&message, AttachmentOrigin::Message);
    }

    fn run_turn<'a>(&'a mut self, message: UserMessage, context: &'a TurnContext) -> BoxFuture<'a, WorkOutcome> {
        async move {
            self.record_message(message, context);
            let outcome = if context.stop.is_cancelled() {
                cancelled("a turn that had not begun", false)
            } else {
                self.run_steps(context).await
            };
            if let WorkOutcome::Cancelled { .. } = outcome {
                self.conversation.add_user_text(history::INTERRUPTED);
            }
            // A message that came too late for a step is part of the next turn's conversation.
            self.catch_up(context).await;
            outcome
        }
        .boxed()
    }
}

impl RepeatedFailure {
    /// Returns the error text for the model. After [`REPEAT_HINT_AFTER`] equal failures in a row,
    /// the text contains a hint.
    fn error_text(&mut self, name: String, arguments: serde_json::Value, error: String) -> String {
        let call = Some((name, arguments));
        self.count = if self.call == call { self.count + 1 } else { 1 };
        self.call = call;
        if self.count < REPEAT_HINT_AFTER {
            return error;
        }
        format!("{error}\nThis very call has failed {} times in a row. Do something else.", self.count)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::PathBuf,
        sync::{Arc, Mutex},
    };

    use greenroom_protocol::link::ProviderApi;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        browser::PageBrowser,
        outgoing::OutgoingQueue,
        processes::ChildProcesses,
        turn::{
            ApprovalWaiters, SteerQueue,
            conversation::{ConversationEntry, UserInput},
        },
    };

    fn driver() -> BuiltinDriver {
        let (agent_socket, gateway_socket) = (PathBuf::new(), PathBuf::new());
        BuiltinDriver::new(&AgentPaths {
            agent_socket,
            gateway_socket,
            workspace: "/".into(),
            executed_ids: PathBuf::new(),
        })
    }

    fn turn_context() -> TurnContext {
        let settings = AgentSettings {
            model: "m".into(),
            api: ProviderApi::Openai,
            directory: "/".into(),
            run_timeout_s: 1,
            max_steps: 1,
            program: None,
            effort: None,
            takes_images: false,
            context_limit: None,
            orphan_after_s: None,
            plan_path: None,
            mode: None,
        };
        let processes = ChildProcesses::new(None).expect("the process can become a subreaper");
        TurnContext {
            outgoing: OutgoingQueue::default(),
            browser: PageBrowser::new(processes.clone()),
            processes,
            settings: Arc::new(Mutex::new(settings)),
            user_activity: Arc::default(),
            approvals: ApprovalWaiters::default(),
            stop: CancellationToken::new(),
            steer_queue: SteerQueue::default(),
        }
    }

    #[tokio::test]
    async fn user_actions_around_a_restart_precede_next_message() {
        let event = |body: &str| {
            let json = format!(r#"{{"seq":1,"at":"2026-01-01T00:00:00.000Z","source":"user","item":"a1",{body}}}"#);
            serde_json::from_str::<Event>(&json).expect("an event")
        };
        let mut driver = driver();
        driver.restore(&[
            event(r#""action":"read","args":{"path":"f"}"#),
            event(r#""observation":"read","extras":{"path":"f"},"content":"it reads""#),
        ]);
        let context = turn_context();
        context.user_activity.lock().expect("lock is never poisoned: no holder panics").push("it ran".into());
        context.stop.cancel();
        driver.run_turn(UserMessage { content: "go".into(), attachments: Vec::new() }, &context).await;
        let Some(ConversationEntry::User(UserInput { text, .. })) = driver.conversation.to_send().into_iter().next()
        else {
            panic!("the first entry is the user's")
        };
        let expected = "[The user did this in the sandbox: Reading file: f]\nit reads\n\nit ran\n\ngo\n\n[";
        assert!(text.starts_with(expected), "{text}");
    }
}
