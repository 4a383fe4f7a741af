//! Our own loop: ask the model, do what it calls for, tell it the results, until it says no more.

use std::{path::PathBuf, time::Duration};

use greenroom_protocol::{
    Action, Event, Observation, ObservationKind,
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

/// How often a step is asked again after the model, not the gateway, broke off.
const RETRIES: u32 = 2;
/// How long to wait for the gateway: doubled from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How long a stop may take to come here after the gateway has heard of it. It may wait behind a long report, or a dial.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The smallest conversation that is worth sending, in bytes.
const MIN_BUDGET: usize = 16 * 1024;
/// After how many equal failures in a row the model is told that it goes round in circles.
const REPEAT_HINT_AFTER: u32 = 5;

/// The driver that talks to a model itself.
pub struct BuiltinDriver {
    conversation: AgentConversation,
    /// Reads the journal into it.
    reader: HistoryReader,
    model: ModelClient,
    /// How many bytes of conversation the model takes; less once it has said that it was too much, until another is asked.
    budget: usize,
    /// The model that was asked last: what one has signed, another refuses.
    last_model: Option<(ProviderApi, String)>,
}

/// What came of one tool call.
enum CallOutcome {
    Done,
    Finished,
    Stopped(WorkOutcome),
}

/// The same call that fails again and again.
#[derive(Default)]
struct RepeatedFailure {
    call: Option<(String, serde_json::Value)>,
    count: u32,
}

impl BuiltinDriver {
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

    async fn run_steps(&mut self, stage: &TurnContext) -> WorkOutcome {
        let (mut steps, mut circle) = (0, RepeatedFailure::default());
        loop {
            self.catch_up(stage).await;
            let settings = stage.settings();
            if steps >= settings.max_steps {
                let detail = format!("the turn took {steps} steps, which is its limit; send a message to go on");
                return WorkOutcome::Failed { code: "too_many_steps".into(), detail };
            }
            steps += 1;
            let said = match self.step(&settings, stage).await {
                Ok(said) => said,
                Err(outcome) => return outcome,
            };
            let calls = said.calls.clone();
            self.conversation.add_assistant_message(said);
            let mut over = calls.is_empty();
            let mut calls = calls.into_iter();
            while let Some(call) = calls.next() {
                match self.call(call, &settings, stage, &mut circle).await {
                    CallOutcome::Done => {}
                    CallOutcome::Finished => over = true,
                    CallOutcome::Stopped(outcome) => {
                        // The calls behind it never happen, so no event ends their items.
                        calls.for_each(|call| stage.outgoing.forget(&call.id));
                        return outcome;
                    }
                }
            }
            if over && stage.steer_queue.close_if_empty() {
                return WorkOutcome::Done;
            }
        }
    }

    /// Takes in what the user said and did since the last step.
    async fn catch_up(&mut self, stage: &TurnContext) {
        self.add_user_activity(stage);
        for SteerMessage { command, message } in stage.steer_queue.take() {
            self.conversation.add_user_message(&message);
            stage.outgoing.report(AgentReport::Steered { command }).await;
        }
    }

    fn add_user_activity(&mut self, stage: &TurnContext) {
        for aside in stage.take_user_activity() {
            self.conversation.add_user_text(&aside);
        }
    }

    /// One answer of the model, asked for as often as it takes.
    async fn step(&mut self, settings: &AgentSettings, stage: &TurnContext) -> Result<AssistantMessage, WorkOutcome> {
        let (mut failures, mut wait) = (0, FIRST_WAIT);
        // Also of an answer that was cut before this one: if there is no more, it is what the person has read.
        let (mut text, mut partial) = (String::new(), false);
        loop {
            let broken = match self.ask(settings, stage).await {
                Ok(said) => return Ok(said),
                Err(broken) => broken,
            };
            partial |= broken.partial;
            if !broken.text.is_empty() {
                text = broken.text;
            }
            let begun = broken.calls;
            let end_with_the_turn = |outcome| {
                begun.iter().for_each(|item| stage.outgoing.forget(item));
                Err(outcome)
            };
            let error = match broken.reason {
                IncompleteReason::Stopped => return end_with_the_turn(self.stopped(text, partial)),
                IncompleteReason::Failed(error) => error,
            };
            tracing::warn!(%error, "no answer");
            match error {
                ModelError::Budget(detail) => return end_with_the_turn(failed("budget", detail)),
                ModelError::Rejected(detail) => return end_with_the_turn(failed("model_error", detail)),
                ModelError::TooLong(detail) if self.budget <= MIN_BUDGET => {
                    return end_with_the_turn(failed("model_error", detail));
                }
                ModelError::TooLong(_) => {
                    self.budget /= 2;
                    model_step::fail_unfinished_calls(begun, &stage.outgoing).await;
                    continue;
                }
                ModelError::Interrupted(detail) => {
                    return end_with_the_turn(tokio::select! {
                        biased;
                        () = stage.stop.cancelled() => self.stopped(text, partial),
                        () = clock::sleep(STOP_TIMEOUT) => failed("model_error", detail),
                    });
                }
                ModelError::Unreachable(_) => {}
                ModelError::ProviderFailed(_) | ModelError::Cut(_) => {
                    // A gateway that is gone takes its streams with it; that is no fault of the model.
                    if gateway::is_reachable(self.model.socket()).await {
                        failures += 1;
                    }
                    if failures > RETRIES {
                        return end_with_the_turn(failed("model_error", error.to_string()));
                    }
                }
            }
            // It is asked for again, and nobody is to wait for these.
            model_step::fail_unfinished_calls(begun, &stage.outgoing).await;
            tokio::select! {
                biased;
                () = stage.stop.cancelled() => return Err(self.stopped(text, partial)),
                () = clock::sleep(wait) => wait = (wait * 2).min(LAST_WAIT),
            }
        }
    }

    /// The user stopped the model's answer, of which there is this much.
    fn stopped(&mut self, text: String, partial: bool) -> WorkOutcome {
        self.conversation.add_assistant_message(AssistantMessage { text, ..AssistantMessage::default() });
        cancelled("the model's answer", partial)
    }

    async fn ask(
        &mut self,
        settings: &AgentSettings,
        stage: &TurnContext,
    ) -> Result<AssistantMessage, IncompleteAnswer> {
        self.select_model((settings.api, settings.model.clone()));
        self.conversation.fit(self.budget);
        let asked = tokio::select! {
            biased;
            () = stage.stop.cancelled() => Err(IncompleteReason::Stopped),
            answer = self.model.ask(settings, prompt(settings), self.conversation.to_send()) => answer.map_err(IncompleteReason::Failed),
        };
        let answer = asked.map_err(|why| IncompleteAnswer {
            reason: why,
            text: String::new(),
            partial: false,
            calls: Vec::new(),
        })?;
        model_step::relay_answer(answer, &mut self.conversation, &stage.outgoing, &stage.stop).await
    }

    /// That model is asked next. Another one may take more than the one before it did.
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
        stage: &TurnContext,
        circle: &mut RepeatedFailure,
    ) -> CallOutcome {
        // An answer may hold thousands, and the link has its turn between them.
        tokio::task::yield_now().await;
        let ToolCallRequest { id, name, arguments } = call;
        if stage.stop.is_cancelled() {
            stage.outgoing.forget(&id);
            return CallOutcome::Stopped(cancelled("the agent between two steps", false));
        }
        let action = match tools::parse(&name, arguments.clone()) {
            Ok(action) => action,
            Err(error) => {
                self.report_failed_call(&id, circle.error_text(name, arguments, error), stage).await;
                return CallOutcome::Done;
            }
        };
        stage.outgoing.event(Some(&id), action.clone()).await;
        if let Action::Finish { .. } = action {
            self.conversation.add_result(&id, "The turn is over.".to_owned());
            return CallOutcome::Finished;
        }
        let bench =
            ToolContext::new(&id, ProcessOwner::Agent, settings, &stage.outgoing, &stage.processes, &stage.stop);
        match tools::perform(&action, &bench).await {
            Ok(done) => {
                *circle = RepeatedFailure::default();
                stage.outgoing.event(Some(&id), done.observation).await;
                self.conversation.add_result(&id, done.model_text);
                CallOutcome::Done
            }
            Err(ToolError::Failed(detail)) => {
                self.report_failed_call(&id, circle.error_text(name, arguments, detail), stage).await;
                CallOutcome::Done
            }
            Err(ToolError::Stopped { what, partial_result: done }) => {
                let partial = done.is_some();
                match done {
                    Some(done) => {
                        stage.outgoing.event(Some(&id), done.observation).await;
                        self.conversation.add_result(&id, done.model_text);
                    }
                    None => stage.outgoing.forget(&id),
                }
                CallOutcome::Stopped(cancelled(&what, partial))
            }
        }
    }

    /// Tells journal and model that a call failed.
    async fn report_failed_call(&mut self, id: &str, detail: String, stage: &TurnContext) {
        let seen = ObservationKind::Error { code: "tool_failed".into(), detail: detail.clone() };
        stage.outgoing.event(Some(id), Observation { kind: seen, content: String::new() }).await;
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

    fn record_message(&mut self, message: UserMessage, stage: &TurnContext) {
        self.reader.flush_user_activity(&mut self.conversation);
        self.add_user_activity(stage);
        // A model wants its thoughts back within a turn, and no longer.
        self.conversation.drop_thoughts();
        self.conversation.add_user_message(&message);
    }

    async fn run_turn(&mut self, message: UserMessage, stage: &TurnContext) -> WorkOutcome {
        self.record_message(message, stage);
        let outcome = if stage.stop.is_cancelled() {
            cancelled("a turn that had not begun", false)
        } else {
            self.run_steps(stage).await
        };
        if let WorkOutcome::Cancelled { .. } = outcome {
            self.conversation.add_user_text(history::INTERRUPTED);
        }
        // What was said too late for a step is known to the next turn.
        self.catch_up(stage).await;
        outcome
    }
}

impl RepeatedFailure {
    /// The error as the model is told it, with a hint where it has had the same one too often.
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
        turn::{SteerQueue, conversation::ConversationEntry},
    };

    fn turn_context() -> TurnContext {
        let settings = AgentSettings {
            model: "m".into(),
            api: ProviderApi::Openai,
            directory: "/".into(),
            run_timeout_s: 1,
            max_steps: 1,
        };
        TurnContext {
            outgoing: OutgoingQueue::default(),
            processes: ChildProcesses::new(None).expect("processes can be seen"),
            settings: Arc::new(Mutex::new(settings)),
            user_activity: Arc::default(),
            stop: CancellationToken::new(),
            steer_queue: SteerQueue::default(),
        }
    }

    #[tokio::test]
    async fn what_the_user_did_before_a_restart_and_after_it_is_told_before_the_next_message() {
        let act = |body: &str| {
            let json = format!(r#"{{"seq":1,"at":"2026-01-01T00:00:00.000Z","source":"user","item":"a1",{body}}}"#);
            serde_json::from_str::<Event>(&json).expect("an event")
        };
        let mut own = BuiltinDriver::new(PathBuf::new());
        own.restore(&[
            act(r#""action":"read","args":{"path":"f"}"#),
            act(r#""observation":"read","extras":{"path":"f"},"content":"it reads""#),
        ]);
        let stage = turn_context();
        stage.user_activity.lock().expect("nobody panicked").push("it ran".into());
        stage.stop.cancel();
        own.run_turn(UserMessage { content: "go".into(), attachments: Vec::new() }, &stage).await;
        let Some(ConversationEntry::User(told)) = own.conversation.to_send().into_iter().next() else {
            panic!("it was the user")
        };
        let expected = "[The user did this in the sandbox: Reading file: f]\nit reads\n\nit ran\n\ngo\n\n[";
        assert!(told.starts_with(expected), "{told}");
    }

    #[test]
    fn another_model_is_told_as_much_as_the_first_was() {
        let mut own = BuiltinDriver::new(PathBuf::new());
        let (small, large) = ((ProviderApi::Openai, "small".to_owned()), (ProviderApi::Openai, "large".to_owned()));
        own.select_model(small.clone());
        own.budget = MIN_BUDGET;
        own.select_model(small);
        assert_eq!(own.budget, MIN_BUDGET, "it is the same one");
        own.select_model(large);
        assert_eq!(own.budget, conversation::BUDGET);
    }
}
