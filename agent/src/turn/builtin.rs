//! Our own loop: ask the model, do what it calls for, tell it the results, until it says no more.

use std::{path::PathBuf, time::Duration};

use greenroom_protocol::{
    Action, Event, Observation, Seen,
    link::{Api, Outcome, Report, Settings},
};

use super::{
    Driver, Message, Stage, Steer,
    conversation::{self, Call, Conversation, Said},
    history::{self, Reader},
    model::{Model, ModelError},
    step::{self, Broken, Why},
};
use crate::{
    clock, gateway,
    processes::By,
    tools::{self, Bench, Fault},
};

/// How often a step is asked again after the model, not the gateway, broke off.
const RETRIES: u32 = 2;
/// How long to wait for the gateway: doubled from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How long a stop may take to come here after the gateway has heard of it. It may wait behind a long report, or a dial.
const STOP_COMES: Duration = Duration::from_secs(5);
/// The smallest conversation that is worth sending, in bytes.
const LEAST_BUDGET: usize = 16 * 1024;
/// After how many equal failures in a row the model is told that it goes round in circles.
const CIRCLES: u32 = 5;

/// The driver that talks to a model itself.
pub struct OwnLoop {
    conversation: Conversation,
    /// Reads the journal into it.
    reader: Reader,
    model: Model,
    /// How many bytes of conversation the model takes; less once it has said that it was too much, until another is asked.
    budget: usize,
    /// The model that was asked last: what one has signed, another refuses.
    asked: Option<(Api, String)>,
}

/// What came of one tool call.
enum Called {
    Done,
    Finished,
    Stopped(Outcome),
}

/// The same call that fails again and again.
#[derive(Default)]
struct Circle {
    call: Option<(String, serde_json::Value)>,
    count: u32,
}

impl OwnLoop {
    pub fn new(gateway: PathBuf) -> OwnLoop {
        let (conversation, reader) = (Conversation::default(), Reader::default());
        OwnLoop { conversation, reader, model: Model::new(gateway), budget: conversation::BUDGET, asked: None }
    }

    async fn work(&mut self, stage: &Stage) -> Outcome {
        let (mut steps, mut circle) = (0, Circle::default());
        loop {
            self.catch_up(stage).await;
            let settings = stage.settings();
            if steps >= settings.max_steps {
                let detail = format!("the turn took {steps} steps, which is its limit; send a message to go on");
                return Outcome::Failed { code: "too_many_steps".into(), detail };
            }
            steps += 1;
            let said = match self.step(&settings, stage).await {
                Ok(said) => said,
                Err(outcome) => return outcome,
            };
            let calls = said.calls.clone();
            self.conversation.assistant(said);
            let mut over = calls.is_empty();
            let mut calls = calls.into_iter();
            while let Some(call) = calls.next() {
                match self.call(call, &settings, stage, &mut circle).await {
                    Called::Done => {}
                    Called::Finished => over = true,
                    Called::Stopped(outcome) => {
                        // The calls behind it never happen, so no event ends their items.
                        calls.for_each(|call| stage.outgoing.forget(&call.id));
                        return outcome;
                    }
                }
            }
            if over && stage.intake.close_if_empty() {
                return Outcome::Done;
            }
        }
    }

    /// Takes in what the user said and did since the last step.
    async fn catch_up(&mut self, stage: &Stage) {
        self.hear_asides(stage);
        for Steer { command, message } in stage.intake.take() {
            self.conversation.message(&message);
            stage.outgoing.report(Report::Steered { command }).await;
        }
    }

    fn hear_asides(&mut self, stage: &Stage) {
        for aside in stage.take_asides() {
            self.conversation.user(&aside);
        }
    }

    /// One answer of the model, asked for as often as it takes.
    async fn step(&mut self, settings: &Settings, stage: &Stage) -> Result<Said, Outcome> {
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
            let error = match broken.why {
                Why::Stopped => return end_with_the_turn(self.stopped(text, partial)),
                Why::Failed(error) => error,
            };
            tracing::warn!(%error, "no answer");
            match error {
                ModelError::Budget(detail) => return end_with_the_turn(failed("budget", detail)),
                ModelError::Refused(detail) => return end_with_the_turn(failed("model_error", detail)),
                ModelError::TooLong(detail) if self.budget <= LEAST_BUDGET => {
                    return end_with_the_turn(failed("model_error", detail));
                }
                ModelError::TooLong(_) => {
                    self.budget /= 2;
                    step::never_made(begun, &stage.outgoing).await;
                    continue;
                }
                ModelError::Interrupted(detail) => {
                    return end_with_the_turn(tokio::select! {
                        biased;
                        () = stage.stop.cancelled() => self.stopped(text, partial),
                        () = clock::sleep(STOP_COMES) => failed("model_error", detail),
                    });
                }
                ModelError::Unreachable(_) => {}
                ModelError::BrokeOff(_) | ModelError::Cut(_) => {
                    // A gateway that is gone takes its streams with it; that is no fault of the model.
                    if gateway::is_there(self.model.socket()).await {
                        failures += 1;
                    }
                    if failures > RETRIES {
                        return end_with_the_turn(failed("model_error", error.to_string()));
                    }
                }
            }
            // It is asked for again, and nobody is to wait for these.
            step::never_made(begun, &stage.outgoing).await;
            tokio::select! {
                biased;
                () = stage.stop.cancelled() => return Err(self.stopped(text, partial)),
                () = clock::sleep(wait) => wait = (wait * 2).min(LAST_WAIT),
            }
        }
    }

    /// The user stopped the model's answer, of which there is this much.
    fn stopped(&mut self, text: String, partial: bool) -> Outcome {
        self.conversation.assistant(Said { text, ..Said::default() });
        cancelled("the model's answer", partial)
    }

    async fn ask(&mut self, settings: &Settings, stage: &Stage) -> Result<Said, Broken> {
        self.turn_to((settings.api, settings.model.clone()));
        self.conversation.fit(self.budget);
        let asked = tokio::select! {
            biased;
            () = stage.stop.cancelled() => Err(Why::Stopped),
            answer = self.model.ask(settings, prompt(settings), self.conversation.to_send()) => answer.map_err(Why::Failed),
        };
        let answer = asked.map_err(|why| Broken { why, text: String::new(), partial: false, calls: Vec::new() })?;
        step::tell(answer, &mut self.conversation, &stage.outgoing, &stage.stop).await
    }

    /// That model is asked next. Another one may take more than the one before it did.
    fn turn_to(&mut self, model: (Api, String)) {
        if self.asked.as_ref() != Some(&model) {
            self.conversation.forget_thoughts();
            self.budget = conversation::BUDGET;
            self.asked = Some(model);
        }
    }

    async fn call(&mut self, call: Call, settings: &Settings, stage: &Stage, circle: &mut Circle) -> Called {
        // An answer may hold thousands, and the link has its turn between them.
        tokio::task::yield_now().await;
        let Call { id, name, arguments } = call;
        if stage.stop.is_cancelled() {
            stage.outgoing.forget(&id);
            return Called::Stopped(cancelled("the agent between two steps", false));
        }
        let action = match tools::parse(&name, arguments.clone()) {
            Ok(action) => action,
            Err(error) => {
                self.refuse(&id, circle.told(name, arguments, error), stage).await;
                return Called::Done;
            }
        };
        stage.outgoing.event(Some(&id), action.clone()).await;
        if let Action::Finish { .. } = action {
            self.conversation.result(&id, "The turn is over.".to_owned());
            return Called::Finished;
        }
        let bench = Bench::new(&id, By::Agent, settings, &stage.outgoing, &stage.processes, &stage.stop);
        match tools::perform(&action, &bench).await {
            Ok(done) => {
                *circle = Circle::default();
                stage.outgoing.event(Some(&id), done.observation).await;
                self.conversation.result(&id, done.told);
                Called::Done
            }
            Err(Fault::Failed(detail)) => {
                self.refuse(&id, circle.told(name, arguments, detail), stage).await;
                Called::Done
            }
            Err(Fault::Stopped { what, done }) => {
                let partial = done.is_some();
                match done {
                    Some(done) => {
                        stage.outgoing.event(Some(&id), done.observation).await;
                        self.conversation.result(&id, done.told);
                    }
                    None => stage.outgoing.forget(&id),
                }
                Called::Stopped(cancelled(&what, partial))
            }
        }
    }

    /// Tells journal and model that a call failed.
    async fn refuse(&mut self, id: &str, detail: String, stage: &Stage) {
        let seen = Seen::Error { code: "tool_failed".into(), detail: detail.clone() };
        stage.outgoing.event(Some(id), Observation { seen, content: String::new() }).await;
        self.conversation.result(id, format!("Error: {detail}"));
    }
}

impl Driver for OwnLoop {
    fn restore(&mut self, part: &[Event]) {
        part.iter().for_each(|event| self.reader.read(event, &mut self.conversation));
        self.conversation.fit(conversation::BUDGET);
    }

    fn forget(&mut self) {
        (self.conversation, self.reader) = (Conversation::default(), Reader::default());
    }

    fn hear(&mut self, message: Message, stage: &Stage) {
        self.reader.tell_asides(&mut self.conversation);
        self.hear_asides(stage);
        // A model wants its thoughts back within a turn, and no longer.
        self.conversation.forget_thoughts();
        self.conversation.message(&message);
    }

    async fn turn(&mut self, message: Message, stage: &Stage) -> Outcome {
        self.hear(message, stage);
        let outcome = if stage.stop.is_cancelled() {
            cancelled("a turn that had not begun", false)
        } else {
            self.work(stage).await
        };
        if let Outcome::Cancelled { .. } = outcome {
            self.conversation.user(history::INTERRUPTED);
        }
        // What was said too late for a step is known to the next turn.
        self.catch_up(stage).await;
        outcome
    }
}

impl Circle {
    /// The error as the model is told it, with a hint where it has had the same one too often.
    fn told(&mut self, name: String, arguments: serde_json::Value, error: String) -> String {
        let call = Some((name, arguments));
        self.count = if self.call == call { self.count + 1 } else { 1 };
        self.call = call;
        if self.count < CIRCLES {
            return error;
        }
        format!("{error}\nThis very call has failed {} times in a row. Do something else.", self.count)
    }
}

fn prompt(settings: &Settings) -> String {
    include_str!("prompt.md").replace("{directory}", &settings.directory)
}

fn cancelled(what: &str, partial: bool) -> Outcome {
    Outcome::Cancelled { what: what.to_owned(), partial }
}

fn failed(code: &str, detail: String) -> Outcome {
    Outcome::Failed { code: code.to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        outgoing::Outgoing,
        processes::Processes,
        turn::{Intake, conversation::Entry},
    };

    fn stage() -> Stage {
        let settings =
            Settings { model: "m".into(), api: Api::Openai, directory: "/".into(), run_timeout_s: 1, max_steps: 1 };
        Stage {
            outgoing: Outgoing::default(),
            processes: Processes::new(None).expect("processes can be seen"),
            settings: Arc::new(Mutex::new(settings)),
            asides: Arc::default(),
            stop: CancellationToken::new(),
            intake: Intake::default(),
        }
    }

    #[tokio::test]
    async fn what_the_user_did_before_a_restart_and_after_it_is_told_before_the_next_message() {
        let act = |body: &str| {
            let json = format!(r#"{{"seq":1,"at":"2026-01-01T00:00:00.000Z","source":"user","item":"a1",{body}}}"#);
            serde_json::from_str::<Event>(&json).expect("an event")
        };
        let mut own = OwnLoop::new(PathBuf::new());
        own.restore(&[
            act(r#""action":"read","args":{"path":"f"}"#),
            act(r#""observation":"read","extras":{"path":"f"},"content":"it reads""#),
        ]);
        let stage = stage();
        stage.asides.lock().expect("nobody panicked").push("it ran".into());
        stage.stop.cancel();
        own.turn(Message { content: "go".into(), attachments: Vec::new() }, &stage).await;
        let Some(Entry::User(told)) = own.conversation.to_send().into_iter().next() else { panic!("it was the user") };
        let expected = "[The user did this in the sandbox: Reading file: f]\nit reads\n\nit ran\n\ngo\n\n[";
        assert!(told.starts_with(expected), "{told}");
    }

    #[test]
    fn another_model_is_told_as_much_as_the_first_was() {
        let mut own = OwnLoop::new(PathBuf::new());
        let (small, large) = ((Api::Openai, "small".to_owned()), (Api::Openai, "large".to_owned()));
        own.turn_to(small.clone());
        own.budget = LEAST_BUDGET;
        own.turn_to(small);
        assert_eq!(own.budget, LEAST_BUDGET, "it is the same one");
        own.turn_to(large);
        assert_eq!(own.budget, conversation::BUDGET);
    }
}
