//! Built-in turn driver: asks the model, executes its tool calls, returns the results, until the
//! model makes no more calls.

use std::{path::PathBuf, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{
    Action, Event, Observation,
    link::{AgentReport, AgentSettings, ProviderApi, WorkOutcome},
};

use super::{
    SteerMessage, TurnContext, TurnDriver, UserMessage,
    conversation::{self, AgentConversation, AssistantMessage, ToolCallRequest},
    history::{self, HistoryReader},
    model::{ModelClient, ModelError},
    model_step::{self, IncompleteAnswer, IncompleteReason},
};
use crate::{
    clock, gateway,
    processes::ProcessOwner,
    tools::{self, ToolContext, ToolError},
};

/// Retries of a model step after the provider, not the gateway, broke off.
const RETRIES: u32 = 2;
/// Waits for the gateway: doubled from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Limit for a stop to arrive after the gateway has reported the interrupt. The stop may wait
/// behind a long report or a dial.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Smallest conversation that is worth sending, in bytes.
const MIN_BUDGET: usize = 16 * 1024;
/// Number of equal failures in a row after which the error contains a hint to the model.
const REPEAT_HINT_AFTER: u32 = 5;

/// Turn driver that calls a model itself.
pub struct BuiltinDriver {
    conversation: AgentConversation,
    /// Reads the journal into `conversation`.
    reader: HistoryReader,
    model: ModelClient,
    /// Bytes of conversation that the model accepts. Halved when the model reports that the
    /// conversation is too long; reset when the model changes.
    budget: usize,
    /// Model of the last request. A model rejects thoughts that another model signed.
    last_model: Option<(ProviderApi, String)>,
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

impl BuiltinDriver {
    /// Makes a driver with an empty conversation. `gateway` is the path of the gateway's socket.
    pub fn new(gateway: PathBuf) -> BuiltinDriver {
        let (conversation, reader) = (AgentConversation::default(), HistoryReader::default());
        BuiltinDriver {
            conversation,
            reader,
            model: ModelClient::new(gateway),
            budget: conversation::BUDGET,
            last_model: None,
        }
    }

    async fn run_steps(&mut self, context: &TurnContext) -> WorkOutcome {
        let (mut steps, mut repeated) = (0, RepeatedFailure::default());
        loop {
            self.catch_up(context).await;
            let settings = context.settings();
            if steps >= settings.max_steps {
                let detail = format!("the turn reached its limit of {steps} steps; send a message to continue");
                return WorkOutcome::Failed { code: "too_many_steps".into(), detail };
            }
            steps += 1;
            let message = match self.step(&settings, context).await {
                Ok(message) => message,
                Err(outcome) => return outcome,
            };
            let calls = message.calls.clone();
            self.conversation.add_assistant_message(message);
            let mut finished = calls.is_empty();
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
            if finished && context.steer_queue.close_if_empty() {
                return WorkOutcome::Done;
            }
        }
    }

    /// Adds the user's actions and steering messages since the last step.
    async fn catch_up(&mut self, context: &TurnContext) {
        self.add_user_activity(context);
        for SteerMessage { command, message } in context.steer_queue.take() {
            self.conversation.add_user_message(&message);
            context.outgoing.report(AgentReport::Steered { command }).await;
        }
    }

    fn add_user_activity(&mut self, context: &TurnContext) {
        for text in context.take_user_activity() {
            self.conversation.add_user_text(&text);
        }
    }

    /// Requests one answer of the model, with retries.
    async fn step(&mut self, settings: &AgentSettings, context: &TurnContext) -> Result<AssistantMessage, WorkOutcome> {
        let (mut failures, mut wait) = (0, FIRST_WAIT);
        // Also holds the text of an earlier incomplete answer: if no more comes, the user has read
        // that text.
        let (mut text, mut partial) = (String::new(), false);
        loop {
            let incomplete = match self.ask(settings, context).await {
                Ok(message) => return Ok(message),
                Err(incomplete) => incomplete,
            };
            partial |= incomplete.partial;
            if !incomplete.text.is_empty() {
                text = incomplete.text;
            }
            let open_calls = incomplete.calls;
            let forget_calls = |outcome| {
                open_calls.iter().for_each(|item| context.outgoing.forget(item));
                Err(outcome)
            };
            let error = match incomplete.reason {
                IncompleteReason::Stopped => return forget_calls(self.stopped(text, partial)),
                IncompleteReason::Failed(error) => error,
            };
            tracing::warn!(%error, "the model did not answer");
            match error {
                ModelError::Budget(detail) => return forget_calls(failed("budget", detail)),
                ModelError::Rejected(detail) => return forget_calls(failed("model_error", detail)),
                ModelError::TooLong(detail) if self.budget <= MIN_BUDGET => {
                    return forget_calls(failed("model_error", detail));
                }
                ModelError::TooLong(_) => {
                    self.budget /= 2;
                    model_step::fail_unfinished_calls(open_calls, &context.outgoing).await;
                    continue;
                }
                ModelError::Interrupted(detail) => {
                    return forget_calls(tokio::select! {
                        biased;
                        () = context.stop.cancelled() => self.stopped(text, partial),
                        () = clock::sleep(STOP_TIMEOUT) => failed("model_error", detail),
                    });
                }
                ModelError::Unreachable(_) => {}
                ModelError::ProviderFailed(_) | ModelError::Cut(_) => {
                    // A gateway that is gone ends its streams. Such a failure does not count
                    // against the model.
                    if gateway::is_reachable(self.model.socket()).await {
                        failures += 1;
                    }
                    if failures > RETRIES {
                        return forget_calls(failed("model_error", error.to_string()));
                    }
                }
            }
            // The answer is requested again, so readers must not wait for these calls.
            model_step::fail_unfinished_calls(open_calls, &context.outgoing).await;
            tokio::select! {
                biased;
                () = context.stop.cancelled() => return Err(self.stopped(text, partial)),
                () = clock::sleep(wait) => wait = (wait * 2).min(LAST_WAIT),
            }
        }
    }

    /// Records the partial answer that the user stopped, and returns the outcome.
    fn stopped(&mut self, text: String, partial: bool) -> WorkOutcome {
        self.conversation.add_assistant_message(AssistantMessage { text, ..AssistantMessage::default() });
        cancelled("the model's answer", partial)
    }

    async fn ask(
        &mut self,
        settings: &AgentSettings,
        context: &TurnContext,
    ) -> Result<AssistantMessage, IncompleteAnswer> {
        self.select_model((settings.api, settings.model.clone()));
        self.conversation.fit(self.budget);
        let response = tokio::select! {
            biased;
            () = context.stop.cancelled() => Err(IncompleteReason::Stopped),
            answer = self.model.ask(settings, prompt(settings), self.conversation.to_send()) => answer.map_err(IncompleteReason::Failed),
        };
        let answer = response.map_err(|reason| IncompleteAnswer {
            reason,
            text: String::new(),
            partial: false,
            calls: Vec::new(),
        })?;
        model_step::relay_answer(answer, &mut self.conversation, &context.outgoing, &context.stop).await
    }

    /// Sets the model of the next request. Another model may accept more than the one before, so
    /// the budget is reset.
    fn select_model(&mut self, model: (ProviderApi, String)) {
        if self.last_model.as_ref() != Some(&model) {
            self.conversation.drop_thoughts();
            self.budget = conversation::BUDGET;
            self.last_model = Some(model);
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
        let ToolCallRequest { id, name, arguments } = call;
        if context.stop.is_cancelled() {
            context.outgoing.forget(&id);
            return CallOutcome::Stopped(cancelled("the agent between two steps", false));
        }
        let action = match tools::parse(&name, arguments.clone()) {
            Ok(action) => action,
            Err(error) => {
                let detail = repeated.error_text(name, arguments, error);
                self.report_failed_call(&id, tools::error_observation(&detail), &detail, context).await;
                return CallOutcome::Done;
            }
        };
        context.outgoing.event(Some(&id), action.clone()).await;
        if let Action::Finish { .. } = action {
            self.conversation.add_result(&id, "The turn is over.".to_owned());
            return CallOutcome::Finished;
        }
        let tool_context =
            ToolContext::new(&id, ProcessOwner::Agent, settings, &context.outgoing, &context.processes, &context.stop);
        match tools::perform(&action, &tool_context).await {
            Ok(done) => {
                *repeated = RepeatedFailure::default();
                context.outgoing.event(Some(&id), done.observation).await;
                self.conversation.add_result(&id, done.model_text);
                CallOutcome::Done
            }
            Err(ToolError::Failed(detail)) => {
                let detail = repeated.error_text(name, arguments, detail);
                self.report_failed_call(&id, tools::failure(&action, &detail), &detail, context).await;
                CallOutcome::Done
            }
            Err(ToolError::Stopped { what, partial_result: done }) => {
                let partial = done.is_some();
                match done {
                    Some(done) => {
                        context.outgoing.event(Some(&id), done.observation).await;
                        self.conversation.add_result(&id, done.model_text);
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
        self.conversation.fit(conversation::BUDGET);
    }

    fn reset(&mut self) {
        (self.conversation, self.reader) = (AgentConversation::default(), HistoryReader::default());
    }

    fn record_message(&mut self, message: UserMessage, context: &TurnContext) {
        self.reader.flush_user_activity(&mut self.conversation);
        self.add_user_activity(context);
        // A model needs its thoughts back within a turn only.
        self.conversation.drop_thoughts();
        self.conversation.add_user_message(&message);
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

fn prompt(settings: &AgentSettings) -> String {
    include_str!("prompt.md").replace("{directory}", &settings.directory)
}

fn cancelled(what: &str, partial: bool) -> WorkOutcome {
    WorkOutcome::Cancelled { what: what.to_owned(), partial }
}

fn failed(code: &str, detail: String) -> WorkOutcome {
    WorkOutcome::Failed { code: code.to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        outgoing::OutgoingQueue,
        processes::ChildProcesses,
        turn::{ApprovalWaiters, SteerQueue, conversation::ConversationEntry},
    };

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
        };
        TurnContext {
            outgoing: OutgoingQueue::default(),
            processes: ChildProcesses::new(None).expect("the process can become a subreaper"),
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
        let mut driver = BuiltinDriver::new(PathBuf::new());
        driver.restore(&[
            event(r#""action":"read","args":{"path":"f"}"#),
            event(r#""observation":"read","extras":{"path":"f"},"content":"it reads""#),
        ]);
        let context = turn_context();
        context.user_activity.lock().expect("lock is never poisoned: no holder panics").push("it ran".into());
        context.stop.cancel();
        driver.run_turn(UserMessage { content: "go".into(), attachments: Vec::new() }, &context).await;
        let Some(ConversationEntry::User(text)) = driver.conversation.to_send().into_iter().next() else {
            panic!("the first entry is the user's")
        };
        let expected = "[The user did this in the sandbox: Reading file: f]\nit reads\n\nit ran\n\ngo\n\n[";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn other_model_resets_budget() {
        let mut driver = BuiltinDriver::new(PathBuf::new());
        let (small, large) = ((ProviderApi::Openai, "small".to_owned()), (ProviderApi::Openai, "large".to_owned()));
        driver.select_model(small.clone());
        driver.budget = MIN_BUDGET;
        driver.select_model(small);
        assert_eq!(driver.budget, MIN_BUDGET, "the model is the same");
        driver.select_model(large);
        assert_eq!(driver.budget, conversation::BUDGET);
    }
}
