//! Invariants under any inputs in any order.

use std::collections::BTreeSet;

use greenroom_protocol::approval::ApprovalMode;
use proptest::prelude::*;

use super::*;

/// Returns true if `input` can end the turn named `ended`.
fn ends(input: &SessionInput, ended: &str) -> bool {
    match input {
        SessionInput::TurnEnded { turn, .. } => turn == ended,
        SessionInput::SandboxLost(_)
        | SessionInput::SandboxFailed { .. }
        | SessionInput::Stop { .. }
        | SessionInput::StopIdle { .. }
        | SessionInput::End
        | SessionInput::EscalationDue
        | SessionInput::EffectFailed { what: "unpause", .. }
        // A second interrupt restarts the agent.
        | SessionInput::Interrupt
        | SessionInput::Message { mode: MessageMode::Interrupt, .. }
        // A new boot id: the agent that had the turn is gone.
        | SessionInput::HelloReceived { .. } => true,
        _ => false,
    }
}

fn any_input() -> impl Strategy<Value = SessionInput> {
    prop_oneof![60 => any_but_the_end(), 1 => Just(SessionInput::End)]
}

fn any_but_the_end() -> impl Strategy<Value = SessionInput> {
    let n = || 1u64..30;
    let failed = || WorkOutcome::Failed { code: "model_error".into(), detail: "why".into() };
    prop_oneof![
        Just(start("t")),
        (prop_oneof![Just(MessageMode::Queue), Just(MessageMode::Steer), Just(MessageMode::Interrupt)])
            .prop_map(|mode| say_as(mode, "m")),
        Just(run()),
        Just(SessionInput::Interrupt),
        Just(SessionInput::Pause),
        Just(SessionInput::Resume),
        Just(SessionInput::Stop { reason: None }),
        n().prop_map(|n| SessionInput::EditQueue { item: format!("message-{n}"), content: None, remove: true }),
        Just(SessionInput::PauseIdle { reason: "r".into() }),
        Just(starting()),
        (0..3).prop_map(|n| SessionInput::HelloReceived { boot: format!("b{n}") }),
        n().prop_map(|n| SessionInput::CommandAccepted { command: format!("command-{n}") }),
        n().prop_map(|n| turn_ended(n, WorkOutcome::Done)),
        n().prop_map(|n| turn_ended(n, cancelled("x"))),
        n().prop_map(|n| SessionInput::UserActionEnded { user_action: format!("act-{n}"), outcome: WorkOutcome::Done }),
        n().prop_map(|n| SessionInput::Steered { command: format!("command-{n}") }),
        n().prop_map(|n| SessionInput::SteerMissed { command: format!("command-{n}") }),
        Just(SessionInput::EscalationDue),
        Just(SessionInput::BudgetSpent { why: "spent".to_owned() }),
        Just(lost()),
        Just(SessionInput::SandboxFailed { why: "w".into(), stderr_tail: None }),
        n().prop_map(move |n| turn_ended(n, failed())),
        n().prop_map(move |n| SessionInput::UserActionEnded { user_action: format!("act-{n}"), outcome: failed() }),
        approval_input(),
        n().prop_map(|n| SessionInput::KillProcess { pid: n as i32 }),
        prop::collection::vec(1..30i32, 0..3).prop_map(|pids| SessionInput::LeftoversReported { pids }),
        Just(SessionInput::StopIdle { reason: None }),
        prop_oneof![
            Just(SessionInput::StartForTerminal),
            Just(SessionInput::PlanSaved { path: "p".into(), markdown: "- [ ] a".into() }),
            Just(SessionInput::TerminalsListed { names: vec!["main".into()] }),
        ],
        Just(set_model()),
        prop_oneof![Just(None), Just(Some(1.0)), Just(Some(-1.0))].prop_map(|usd| SessionInput::SetBudget { usd }),
        prop_oneof![Just("pause"), Just("unpause"), Just("stop")]
            .prop_map(|what| SessionInput::EffectFailed { what, why: "w".into() }),
    ]
}

/// Returns inputs about approval requests, modes and repetitions.
fn approval_input() -> impl Strategy<Value = SessionInput> {
    let answers = || prop::collection::vec((0..3).prop_map(|n| approvals::policy_allows(&format!("r{n}"))), 0..3);
    let change = move || answers().prop_map(|answers| ModeChange { mode: ApprovalMode::Edits, answers });
    prop_oneof![
        (0..3).prop_map(|n| approvals::asks(&format!("r{n}"))),
        (0..3).prop_map(|n| approvals::answer(&format!("r{n}"))),
        answers().prop_map(SessionInput::PolicyAnswered),
        (0..300i64).prop_map(|timeout_ms| SessionInput::ApprovalsDue { timeout_ms }),
        prop::sample::select(vec!["git push *", "make"])
            .prop_map(|command| SessionInput::RemoveRule { rule: approvals::rule(command) }),
        (change(), prop::option::of(Just("m".to_owned()))).prop_map(|(change, message)| SessionInput::SetMode {
            settings: settings(),
            change,
            message
        }),
        Just(SessionInput::LoopNoted { what: "w".to_owned() }),
    ]
}

proptest! {
    /// Checks the invariants after each of a random series of inputs.
    ///
    /// - A rejected input changes nothing.
    /// - The stored state reads back the same.
    /// - The newest `agent_state_changed` has the current state.
    /// - No sandbox start is reported while the agent is connected.
    /// - At most one turn runs. A turn ends once and for a reason.
    /// - Every interrupt has something to stop and gets one receipt.
    /// - Every approval request that is no longer open has one `confirmed`, and is open in a turn.
    #[test]
    fn invariants_hold_for_any_inputs(inputs in prop::collection::vec(any_input(), 1..60)) {
        let mut rules = RulesFixture::after(&[SessionInput::SessionCreated]);
        let (mut reported, mut phase) = (AgentState::Starting, None);
        let mut over = BTreeSet::new();
        let turn = |state: &SessionState| state.turn.as_ref().map(|turn| turn.id.clone());
        for input in inputs {
            let before = rules.state.clone();
            let is_hello = matches!(input, SessionInput::HelloReceived { .. });
            let Ok(transition) = rules.feed(input.clone()) else {
                prop_assert_eq!(&rules.state, &before);
                continue;
            };
            for new_event in &transition.new_events {
                if let EventBody::Observation(Observation { kind: ObservationKind::AgentStateChanged { agent_state, .. }, .. }) = &new_event.body {
                    reported = *agent_state;
                }
                if let EventBody::Observation(Observation { kind: ObservationKind::Sandbox { phase: sandbox_phase, .. }, .. }) = &new_event.body {
                    phase = Some(*sandbox_phase);
                }
            }
            prop_assert!(!is_hello || phase != Some(SandboxPhase::Starting), "no start is reported while the agent is connected");
            prop_assert_eq!(reported, rules.state.visible_state());
            if let Some(ended) = turn(&before).filter(|id| turn(&rules.state).as_ref() != Some(id)) {
                prop_assert!(ends(&input, &ended), "{:?} cannot end a turn", input);
                prop_assert!(over.insert(ended));
            }
            prop_assert!(turn(&rules.state).is_none_or(|id| !over.contains(&id)), "an ended turn does not run again");
            let prompts = transition.effects.iter().filter(|o| effect_text(o).starts_with("prompt")).count();
            prop_assert!(prompts <= 1);
            let receipts = transition.new_events.iter().filter(|d| event_text(&d.body).starts_with("interrupted")).count();
            let ended = before.interrupting.is_some() && rules.state.interrupting.is_none();
            prop_assert!(receipts <= 1 && (!ended || receipts == 1));
            prop_assert!(rules.state.interrupting.is_none() || transition.escalation != Some(Escalation::Disarm));
            let reports_its_end = rules.state.is_running() || !rules.state.leftovers.is_empty();
            prop_assert!(rules.state.interrupting.is_none() || reports_its_end, "an interrupt needs work that reports its end");
            let open = |state: &SessionState| state.open_approvals().iter().map(|open| open.request.clone()).collect::<BTreeSet<_>>();
            let ended_requests = transition.new_events.iter().filter_map(|new_event| match &new_event.body {
                EventBody::Observation(Observation { kind: ObservationKind::Confirmed { request, .. }, .. }) => Some(request.clone()),
                _ => None,
            });
            let ended_requests: Vec<_> = ended_requests.filter(|request| open(&before).contains(request)).collect();
            let gone: Vec<_> = open(&before).difference(&open(&rules.state)).cloned().collect();
            prop_assert_eq!(ended_requests.iter().cloned().collect::<BTreeSet<_>>(), gone.iter().cloned().collect());
            prop_assert!(ended_requests.len() == gone.len() && (open(&rules.state).is_empty() || rules.state.is_turn_active()));
            let stored = serde_json::to_value(&rules.state).expect("session state serializes");
            prop_assert_eq!(serde_json::from_value::<SessionState>(stored).expect("session state deserializes"), rules.state.clone());
        }
        // From any state, two escalation steps and the end of the session leave nothing running.
        for input in [SessionInput::EscalationDue, SessionInput::EscalationDue, SessionInput::End] {
            let _ = rules.feed(input);
        }
        prop_assert!(rules.state.turn.is_none() && rules.state.user_action.is_none() && rules.state.interrupting.is_none());
        prop_assert!(rules.state.outgoing.is_empty());
    }
}
