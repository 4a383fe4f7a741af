//! What holds whatever happens, in whatever order.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Whether this can be why the turn of that name is over.
fn ends(input: &SessionInput, ended: &str) -> bool {
    match input {
        SessionInput::TurnEnded { turn, .. } => turn == ended,
        SessionInput::SandboxLost(_)
        | SessionInput::StartFailed { .. }
        | SessionInput::Stop { .. }
        | SessionInput::StopIdle { .. }
        | SessionInput::End
        | SessionInput::EscalationDue
        | SessionInput::EffectFailed { what: "thaw", .. }
        // A second one takes the agent away.
        | SessionInput::Interrupt
        | SessionInput::Message { mode: MessageMode::Interrupt, .. }
        // Of another boot: the agent that had the turn is gone.
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
        Just(lost()),
        Just(SessionInput::StartFailed { why: "w".into(), stderr_tail: None }),
        n().prop_map(move |n| turn_ended(n, failed())),
        n().prop_map(move |n| SessionInput::UserActionEnded { user_action: format!("act-{n}"), outcome: failed() }),
        (0..3).prop_map(|n| SessionInput::ApprovalRequested { request: format!("r{n}") }),
        (0..3).prop_map(|n| SessionInput::Confirm { request: format!("r{n}"), decision: Verdict::Allow, reason: None }),
        Just(SessionInput::StopIdle { reason: None }),
        Just(SessionInput::SetModel { settings: settings(), title: None }),
        prop_oneof![Just("freeze"), Just("thaw"), Just("stop")]
            .prop_map(|what| SessionInput::EffectFailed { what, why: "w".into() }),
    ]
}

proptest! {
    /// Whatever happens, in whatever order: a refusal changes nothing, what is stored comes back the same, the newest
    /// `agent_state_changed` tells the state, no sandbox is said to start whose agent is here, there is one turn
    /// at a time, which ends once and for a reason, and every interrupt has something to stop and gets one receipt.
    #[test]
    fn whatever_happens(inputs in prop::collection::vec(any_input(), 1..60)) {
        let mut world = RulesFixture::after(&[SessionInput::SessionCreated]);
        let (mut told, mut phase) = (AgentState::Starting, None);
        let mut over = BTreeSet::new();
        let turn = |core: &SessionState| core.turn.as_ref().map(|turn| turn.id.clone());
        for input in inputs {
            let before = world.state.clone();
            let greeted = matches!(input, SessionInput::HelloReceived { .. });
            let Ok(decision) = world.feed(input.clone()) else {
                prop_assert_eq!(&world.state, &before);
                continue;
            };
            for draft in &decision.new_events {
                if let EventBody::Observation(Observation { kind: ObservationKind::AgentStateChanged { agent_state, .. }, .. }) = &draft.body {
                    told = *agent_state;
                }
                if let EventBody::Observation(Observation { kind: ObservationKind::Sandbox { phase: said, .. }, .. }) = &draft.body {
                    phase = Some(*said);
                }
            }
            prop_assert!(!greeted || phase != Some(SandboxPhase::Starting), "it is here");
            prop_assert_eq!(told, world.state.visible_state());
            if let Some(ended) = turn(&before).filter(|id| turn(&world.state).as_ref() != Some(id)) {
                prop_assert!(ends(&input, &ended), "{:?} is no reason", input);
                prop_assert!(over.insert(ended));
            }
            prop_assert!(turn(&world.state).is_none_or(|id| !over.contains(&id)), "it was over");
            let prompts = decision.effects.iter().filter(|o| effect_text(o).starts_with("prompt")).count();
            prop_assert!(prompts <= 1);
            let receipts = decision.new_events.iter().filter(|d| event_text(&d.body).starts_with("interrupted")).count();
            let ended = before.interrupting.is_some() && world.state.interrupting.is_none();
            prop_assert!(receipts <= 1 && (!ended || receipts == 1));
            prop_assert!(world.state.interrupting.is_none() || decision.escalation != Some(Escalation::Disarm));
            prop_assert!(world.state.interrupting.is_none() || world.state.is_running(), "somebody must say that it has stopped");
            let stored = serde_json::to_value(&world.state).expect("it is stored");
            prop_assert_eq!(serde_json::from_value::<SessionState>(stored).expect("it comes back"), world.state.clone());
        }
        // However it stands, two rungs of the ladder and the end of the session leave nothing running.
        for input in [SessionInput::EscalationDue, SessionInput::EscalationDue, SessionInput::End] {
            let _ = world.feed(input);
        }
        prop_assert!(world.state.turn.is_none() && world.state.user_action.is_none() && world.state.interrupting.is_none());
        prop_assert!(world.state.outgoing.is_empty());
    }
}
