//! Driver that follows a script itself. The suite's rules are tested with it, those about approvals
//! and panics too.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use greenroom_protocol::{
    Action, DeltaKind, Event, EventBody, Observation, ObservationKind,
    action::ApprovalDecision,
    approval::Verdict,
    link::{AgentReport, WorkOutcome},
};

use super::{DriverUnderTest, ScriptedTurn, contract};
use crate::turn::{ApprovalAnswer, ApprovalRequest, SteerMessage, TurnContext, TurnDriver, UserMessage, lock};

/// Driver without a program. Its "program" is a script and a record of everything that it read.
struct ScriptedDriver {
    turns: Arc<Mutex<VecDeque<ScriptedTurn>>>,
    heard: Arc<Mutex<String>>,
    /// Texts for the program that wait for the next turn.
    untold: Vec<String>,
    directory: PathBuf,
}

impl ScriptedDriver {
    async fn play(&mut self, turn: ScriptedTurn, context: &TurnContext) -> WorkOutcome {
        match turn {
            ScriptedTurn::Says(text) => say(text, context).await,
            ScriptedTurn::Asks(actions) => {
                let answers = join_all(actions.iter().map(|action| ask(action, context))).await;
                say(&answers.join(", "), context).await;
            }
            ScriptedTurn::WorksOn(text) => {
                context.outgoing.delta(DeltaKind::Text, "work", text).await;
                context.stop.cancelled().await;
                let kind = ObservationKind::Message { partial: true };
                context.outgoing.event(Some("work"), Observation { kind, content: text.to_owned() }).await;
            }
            ScriptedTurn::Makes(file) => make_file(&self.directory.join(file), context).await,
            ScriptedTurn::Panics => panic!("a scripted panic"),
        }
        if context.stop.is_cancelled() { cancelled() } else { WorkOutcome::Done }
    }
}

impl TurnDriver for ScriptedDriver {
    fn restore(&mut self, part: &[Event]) {
        let text = |event: &Event| match &event.body {
            EventBody::Observation(observation) => Some(observation.content.clone()),
            EventBody::Action(_) | EventBody::Opaque(_) => None,
        };
        self.untold.extend(part.iter().filter_map(text));
    }

    fn reset(&mut self) {
        self.untold.clear();
    }

    fn record_message(&mut self, message: UserMessage, _: &TurnContext) {
        self.untold.push(message.content);
    }

    fn run_turn<'a>(&'a mut self, message: UserMessage, context: &'a TurnContext) -> BoxFuture<'a, WorkOutcome> {
        async move {
            self.record_message(message, context);
            if context.stop.is_cancelled() {
                return cancelled();
            }
            for SteerMessage { command, message } in context.steer_queue.take() {
                self.record_message(message, context);
                context.outgoing.report(AgentReport::Steered { command }).await;
            }
            lock(&self.heard).extend(self.untold.drain(..).map(|text| text + "\n"));
            let turn = lock(&self.turns).pop_front().expect("the script has another turn");
            self.play(turn, context).await
        }
        .boxed()
    }
}

async fn say(text: &str, context: &TurnContext) {
    let kind = ObservationKind::Message { partial: false };
    context.outgoing.event(None, Observation { kind, content: text.to_owned() }).await;
}

async fn ask(action: &str, context: &TurnContext) -> String {
    let call = Action::Run { command: action.to_owned() };
    let request = ApprovalRequest { item: action.to_owned(), call, editable: false, diff: None };
    match context.ask(request).await {
        ApprovalAnswer::Decided { decision, reason, input: _ } => {
            format!("{action}: {decision:?} {}", reason.unwrap_or_default())
        }
        ApprovalAnswer::Cancelled => format!("{action}: cancelled"),
    }
}

async fn make_file(file: &Path, context: &TurnContext) {
    let call = Action::Write { path: file.display().to_string(), content: String::new() };
    let allowed = match context.review("c1", &call).await {
        Some(Verdict::Allow) => true,
        Some(Verdict::Ask) => {
            let request = ApprovalRequest { item: "c1".to_owned(), call, editable: false, diff: None };
            let answer = context.ask(request).await;
            matches!(answer, ApprovalAnswer::Decided { decision: ApprovalDecision::Allow, .. })
        }
        Some(Verdict::Deny { .. }) | None => false,
    };
    if allowed {
        std::fs::write(file, "").expect("the file is writable");
    }
}

fn cancelled() -> WorkOutcome {
    WorkOutcome::Cancelled { what: "the script".to_owned(), partial: false }
}

fn make(dir: &Path, turns: &[ScriptedTurn]) -> DriverUnderTest {
    let turns = Arc::new(Mutex::new(turns.iter().copied().collect()));
    let heard = Arc::new(Mutex::new(String::new()));
    let (read, directory) = (heard.clone(), dir.to_owned());
    let open = move || -> Box<dyn TurnDriver> {
        let (turns, heard, directory) = (turns.clone(), heard.clone(), directory.clone());
        Box::new(ScriptedDriver { turns, heard, untold: Vec::new(), directory })
    };
    DriverUnderTest { open: Box::new(open), heard: Box::new(move || lock(&read).clone()) }
}

contract!(make, and
    panic_fails_turn_and_agent_continues, answer_reaches_turn_once, two_requests_are_open_at_once,
    stop_cancels_requests, denied_call_never_runs, asked_call_runs_only_after_allow,
    interrupt_withdraws_review, interrupt_withdraws_question, reconnect_repeats_review
);
