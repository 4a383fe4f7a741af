//! Detector of agents that repeat themselves, from the events of any agent. Pure.
//!
//! The first repetition causes a note to the agent. At the next repetition, a person decides about
//! the next tool call. A person's message or decision starts the detection anew. After a restart of
//! the server, the events of the running turn are read again.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use greenroom_protocol::{
    Action, EventBody, EventSource, Observation, ObservationKind,
    action::abbreviate,
    tool::{ToolKind, ToolStatus},
};

use crate::config::LoopLimits;

/// Number of calls that are compared. Larger limits than this are never reached.
const MAX_STEPS: usize = 64;

/// Number of calls without a result that are tracked. When full: the results of further calls are
/// not compared.
const MAX_OPEN_CALLS: usize = 64;

/// Detector of one session.
#[derive(Debug)]
pub(super) struct LoopDetector {
    limits: LoopLimits,
    /// Calls without a result, by item.
    open: HashMap<String, OpenCall>,
    /// Newest calls with their results, oldest first.
    steps: VecDeque<LoopStep>,
    /// Digest of the newest error, and how often it came.
    error: (u64, u32),
    steps_without_change: u32,
    /// Set once the agent has a note.
    is_noted: bool,
    /// Repetition to tell the agent.
    note: Option<String>,
    /// Repetition that a person is asked about, at the next call.
    question: Option<String>,
}

#[derive(Debug)]
struct OpenCall {
    call: u64,
    words: String,
    may_change: bool,
}

#[derive(Debug)]
struct LoopStep {
    call: u64,
    result: u64,
    words: String,
}

impl LoopDetector {
    pub(super) fn new(limits: LoopLimits) -> LoopDetector {
        LoopDetector {
            limits,
            open: HashMap::new(),
            steps: VecDeque::new(),
            error: (0, 0),
            steps_without_change: 0,
            is_noted: false,
            note: None,
            question: None,
        }
    }

    /// Takes a new event of the session.
    pub(super) fn observe(&mut self, source: EventSource, item: Option<&str>, body: &EventBody) {
        match (source, body) {
            (EventSource::User, EventBody::Action(action)) if is_guidance(action) => self.forget(),
            (EventSource::Agent, EventBody::Action(action)) => {
                let (Some(item), true) = (item, self.open.len() < MAX_OPEN_CALLS) else { return };
                let words = abbreviate(&action.summary_line()).into_owned();
                let open = OpenCall { call: digest(action), words, may_change: may_change(action) };
                self.open.insert(item.to_owned(), open);
            }
            (EventSource::Agent, EventBody::Observation(observation)) => {
                let call = item.and_then(|item| self.open.remove(item));
                // A request for approval is not the end of its call.
                match (&observation.kind, call) {
                    (ObservationKind::Confirm { .. }, Some(call)) => {
                        self.open.insert(item.unwrap_or_default().to_owned(), call);
                    }
                    (_, Some(call)) => self.step_ended(call, observation),
                    (_, None) => {}
                }
            }
            // The server's own event, so that the events of a turn restore the detector.
            (EventSource::Server, EventBody::Observation(observation)) if is_note(observation) => {
                (self.note, self.question, self.is_noted) = (None, None, true);
            }
            (EventSource::User | EventSource::Server, _) | (EventSource::Agent, EventBody::Opaque(_)) => {}
        }
    }

    /// Returns the repetition to tell the agent, once.
    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Returns the repetition that a person is asked about, once.
    pub(super) fn take_question(&mut self) -> Option<String> {
        self.question.take()
    }

    /// Starts anew after a person's guidance.
    fn forget(&mut self) {
        *self = LoopDetector::new(self.limits);
    }

    fn step_ended(&mut self, OpenCall { call, words, may_change }: OpenCall, result: &Observation) {
        let is_error = is_error(&result.kind);
        let step = LoopStep { call, result: result_digest(result), words };
        let is_new = !self.steps.iter().any(|earlier| earlier.call == call && earlier.result == step.result);
        // A repeated command with the same result has changed nothing that it shows.
        let has_changed = may_change && !is_error && is_new;
        self.steps_without_change = if has_changed { 0 } else { self.steps_without_change.saturating_add(1) };
        if is_error {
            let (last, count) = self.error;
            self.error = (step.result, if last == step.result { count.saturating_add(1) } else { 1 });
        }
        self.steps.push_back(step);
        if self.steps.len() > MAX_STEPS {
            self.steps.pop_front();
        }
        if let Some(what) = self.repetition(is_error) {
            // The same steps are not counted again.
            self.steps.clear();
            (self.error, self.steps_without_change) = ((0, 0), 0);
            match std::mem::replace(&mut self.is_noted, true) {
                false => self.note = Some(what),
                true => self.question = Some(what),
            }
        }
    }

    /// Names the repetition that the newest step completes.
    fn repetition(&self, is_error: bool) -> Option<String> {
        let LoopLimits { same_call, alternations, same_error, steps_without_change } = self.limits;
        let last = self.steps.back()?;
        let is_last = |step: &LoopStep| step.call == last.call && step.result == last.result;
        if self.ends_with(same_call, 1, |step, _| is_last(step)) {
            return Some(format!("`{}` was called {same_call} times with the same result", last.words));
        }
        let before = self.steps.iter().rev().nth(1)?;
        let alternates = |step: &LoopStep, n: usize| step.call == [last.call, before.call][n % 2];
        if last.call != before.call && self.ends_with(alternations, 2, alternates) {
            let (first, second) = (&before.words, &last.words);
            return Some(format!("`{first}` and `{second}` were called {alternations} times in turn"));
        }
        if is_error && same_error > 0 && self.error.1 >= same_error {
            return Some(format!("the same error came {same_error} times, the last time from `{}`", last.words));
        }
        if steps_without_change > 0 && self.steps_without_change >= steps_without_change {
            return Some(format!("{steps_without_change} tool calls in a row changed nothing"));
        }
        None
    }

    /// Returns true if the newest `rounds` times `per_round` steps fit, counted from the newest.
    fn ends_with(&self, rounds: u32, per_round: usize, fits: impl Fn(&LoopStep, usize) -> bool) -> bool {
        let count = rounds as usize * per_round;
        let newest = self.steps.iter().rev().take(count);
        count > 0 && self.steps.len() >= count && newest.enumerate().all(|(n, step)| fits(step, n))
    }
}

fn is_note(observation: &Observation) -> bool {
    matches!(&observation.kind, ObservationKind::Notice { code, .. } if code == "loop_noted")
}

/// Returns true for a person's action that tells the agent how to go on.
fn is_guidance(action: &Action) -> bool {
    matches!(action, Action::Start { .. } | Action::Message { .. } | Action::Confirm { .. } | Action::SetMode { .. })
}

/// Returns true if the call may change a file. A command may.
fn may_change(action: &Action) -> bool {
    match action {
        Action::Write { .. } | Action::Edit { .. } | Action::Run { .. } => true,
        Action::Tool { kind, .. } => {
            matches!(kind, ToolKind::Edit | ToolKind::Delete | ToolKind::Move | ToolKind::Execute)
        }
        _ => false,
    }
}

fn is_error(kind: &ObservationKind) -> bool {
    match kind {
        ObservationKind::Error { .. } => true,
        ObservationKind::Run { exit_code, .. } => *exit_code != Some(0),
        ObservationKind::Tool { status, .. } => *status == ToolStatus::Failed,
        _ => false,
    }
}

/// Returns the digest by which results are compared: of the text and the outcome, without durations
/// and without what names the call.
fn result_digest(Observation { kind, content }: &Observation) -> u64 {
    match kind {
        ObservationKind::Run { exit_code, signal, .. } => digest(&("run", exit_code, signal, content)),
        ObservationKind::Error { code, detail } => digest(&("error", code, detail, content)),
        kind => digest(&(<&str>::from(kind), content)),
    }
}

/// Returns the digest by which calls are compared.
fn digest(value: &impl serde::Serialize) -> u64 {
    let mut hash = DefaultHasher::new();
    // Invariant: all types of the protocol have string keys and an infallible `Serialize`.
    serde_json::to_vec(value).expect("events serialize without errors").hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LoopLimits = LoopLimits { same_call: 3, alternations: 3, same_error: 5, steps_without_change: 50 };

    /// Feeds calls with their outputs and exit codes. Returns the notes and questions, in order.
    fn feed<'a>(detector: &mut LoopDetector, calls: impl IntoIterator<Item = (&'a str, &'a str, i32)>) -> Vec<String> {
        let mut signals = Vec::new();
        for (n, (command, output, code)) in calls.into_iter().enumerate() {
            let item = format!("i{n}");
            let call = Action::Run { command: command.to_owned() };
            detector.observe(EventSource::Agent, Some(&item), &call.into());
            let kind = ObservationKind::Run {
                command: command.to_owned(),
                exit_code: Some(code),
                signal: None,
                duration_ms: n as u64,
                timed_out: false,
                truncated: None,
            };
            let result = Observation { kind, content: output.to_owned() };
            detector.observe(EventSource::Agent, Some(&item), &result.into());
            signals.extend(detector.take_note().map(|note| format!("note: {note}")));
            signals.extend(detector.take_question().map(|question| format!("question: {question}")));
        }
        signals
    }

    #[track_caller]
    fn check(calls: &[(&str, &str, i32)], expected: &[&str]) {
        let signals = feed(&mut LoopDetector::new(LIMITS), calls.iter().copied());
        assert_eq!(signals.len(), expected.len(), "{signals:?}");
        for (signal, part) in signals.iter().zip(expected) {
            assert!(signal.contains(part), "{signal}");
        }
    }

    #[test]
    fn same_call_with_the_same_result_is_a_loop() {
        check(&[("ls", "a", 0); 2], &[]);
        check(&[("ls", "a", 0); 3], &["note: `Running command: ls` was called 3 times with the same result"]);
        check(&[("ls", "a", 0); 6], &["note", "question: `Running command: ls` was called 3 times"]);
        check(&[("ls", "a", 0), ("ls", "b", 0), ("ls", "a", 0), ("ls", "b", 0)], &[]);
        check(&[("ls", "a", 0), ("ls", "a", 0), ("cat b", "b", 0), ("ls", "a", 0)], &[]);
    }

    #[test]
    fn two_calls_in_alternation_are_a_loop() {
        let round = [("make", "1", 0), ("git stash", "2", 0)];
        check(&[round, round].concat(), &[]);
        check(&[round, round, round].concat(), &["`Running command: make` and `Running command: git stash`"]);
        check(&[&round[..], &[("ls", "", 0)], &round, &round].concat(), &[]);
    }

    #[test]
    fn same_error_of_different_calls_is_a_loop() {
        let calls: Vec<_> = ["a", "b", "c", "d", "e"].map(|command| (command, "no such host", 1)).into();
        check(&calls[..4], &[]);
        check(&calls, &["the same error came 5 times, the last time from `Running command: e`"]);
        let with_another = [&calls[..4], &[("x", "denied", 1)], &calls[4..]].concat();
        check(&with_another, &[]);
    }

    #[test]
    fn many_steps_without_a_change_are_a_loop() {
        let mut detector = LoopDetector::new(LIMITS);
        let mut read = |count: usize| {
            for n in 0..count {
                let item = format!("r{n}");
                let call = Action::Read { path: format!("{n}.rs") };
                detector.observe(EventSource::Agent, Some(&item), &call.into());
                let kind = ObservationKind::Read { path: format!("{n}.rs"), truncated: None };
                let result = Observation { kind, content: n.to_string() };
                detector.observe(EventSource::Agent, Some(&item), &result.into());
            }
            detector.take_note()
        };
        assert_eq!(read(49), None);
        assert_eq!(read(1).as_deref(), Some("50 tool calls in a row changed nothing"));
    }

    #[test]
    fn person_starts_the_detection_anew() {
        let mut detector = LoopDetector::new(LIMITS);
        assert_eq!(feed(&mut detector, [("ls", "a", 0); 3]).len(), 1);
        assert_eq!(feed(&mut detector, [("ls", "a", 0); 2]).len(), 0);
        let message = Action::Message { content: "go on".into(), mode: Default::default(), attachments: Vec::new() };
        detector.observe(EventSource::User, None, &message.into());
        assert_eq!(feed(&mut detector, [("ls", "a", 0); 2]).len(), 0);
        assert!(feed(&mut detector, [("ls", "a", 0); 3])[0].starts_with("note"));
    }

    #[test]
    fn events_of_the_turn_restore_the_detector() {
        let mut detector = LoopDetector::new(LIMITS);
        let kind =
            ObservationKind::Notice { code: "loop_noted".into(), detail: "x".into(), attempts: None, waited_ms: None };
        let notice = Observation { kind, content: String::new() };
        feed(&mut detector, [("ls", "a", 0); 2]);
        detector.observe(EventSource::Server, None, &notice.into());
        assert!(feed(&mut detector, [("ls", "a", 0); 3])[0].starts_with("question"));
    }

    #[test]
    fn limits_of_zero_are_off() {
        let off = LoopLimits { same_call: 0, alternations: 0, same_error: 0, steps_without_change: 0 };
        let mut detector = LoopDetector::new(off);
        assert_eq!(feed(&mut detector, [("false", "no", 1); 100]), Vec::<String>::new());
    }
}
