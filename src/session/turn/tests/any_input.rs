//! What holds whatever happens, in whatever order.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Whether this can be why the turn of that name is over.
fn ends(input: &Input, ended: &str) -> bool {
    match input {
        Input::TurnEnded { turn, .. } => turn == ended,
        Input::Lost(_)
        | Input::StartFailed { .. }
        | Input::Stop { .. }
        | Input::StopResting { .. }
        | Input::End
        | Input::LadderDue
        | Input::OrderFailed { what: "thaw", .. }
        // A second one takes the agent away.
        | Input::Interrupt
        | Input::Message { mode: Mode::Interrupt, .. }
        // Of another boot: the agent that had the turn is gone.
        | Input::Greeted { .. } => true,
        _ => false,
    }
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![60 => any_but_the_end(), 1 => Just(Input::End)]
}

fn any_but_the_end() -> impl Strategy<Value = Input> {
    let n = || 1u64..30;
    let failed = || Outcome::Failed { code: "model_error".into(), detail: "why".into() };
    prop_oneof![
        Just(start("t")),
        (prop_oneof![Just(Mode::Queue), Just(Mode::Steer), Just(Mode::Interrupt)]).prop_map(|mode| say_as(mode, "m")),
        Just(run()),
        Just(Input::Interrupt),
        Just(Input::Pause),
        Just(Input::Resume),
        Just(Input::Stop { reason: None }),
        n().prop_map(|n| Input::EditQueue { item: format!("message-{n}"), content: None, remove: true }),
        Just(Input::Rest { reason: "r".into() }),
        Just(starting()),
        (0..3).prop_map(|n| Input::Greeted { boot: format!("b{n}") }),
        n().prop_map(|n| Input::Took { command: format!("command-{n}") }),
        n().prop_map(|n| turn_ended(n, Outcome::Done)),
        n().prop_map(|n| turn_ended(n, cancelled("x"))),
        n().prop_map(|n| Input::ActEnded { act: format!("act-{n}"), outcome: Outcome::Done }),
        n().prop_map(|n| Input::Steered { command: format!("command-{n}") }),
        n().prop_map(|n| Input::SteerMissed { command: format!("command-{n}") }),
        Just(Input::LadderDue),
        Just(lost()),
        Just(Input::StartFailed { why: "w".into(), stderr_tail: None }),
        n().prop_map(move |n| turn_ended(n, failed())),
        n().prop_map(move |n| Input::ActEnded { act: format!("act-{n}"), outcome: failed() }),
        (0..3).prop_map(|n| Input::Asked { request: format!("r{n}") }),
        (0..3).prop_map(|n| Input::Confirm { request: format!("r{n}"), decision: Verdict::Allow, reason: None }),
        Just(Input::StopResting { reason: None }),
        Just(Input::SetModel { settings: settings(), title: None }),
        prop_oneof![Just("freeze"), Just("thaw"), Just("stop")]
            .prop_map(|what| Input::OrderFailed { what, why: "w".into() }),
    ]
}

proptest! {
    /// Whatever happens, in whatever order: a refusal changes nothing, what is stored comes back the same, the newest
    /// `agent_state_changed` tells the state, no sandbox is said to start whose agent is here, there is one turn
    /// at a time, which ends once and for a reason, and every interrupt has something to stop and gets one receipt.
    #[test]
    fn whatever_happens(inputs in prop::collection::vec(any_input(), 1..60)) {
        let mut world = World::after(&[Input::Born]);
        let (mut told, mut phase) = (State::Starting, None);
        let mut over = BTreeSet::new();
        let turn = |core: &Core| core.turn.as_ref().map(|turn| turn.id.clone());
        for input in inputs {
            let before = world.core.clone();
            let greeted = matches!(input, Input::Greeted { .. });
            let Ok(decision) = world.feed(input.clone()) else {
                prop_assert_eq!(&world.core, &before);
                continue;
            };
            for draft in &decision.drafts {
                if let Body::Observation(Observation { seen: Seen::AgentStateChanged { agent_state, .. }, .. }) = &draft.body {
                    told = *agent_state;
                }
                if let Body::Observation(Observation { seen: Seen::Sandbox { phase: said, .. }, .. }) = &draft.body {
                    phase = Some(*said);
                }
            }
            prop_assert!(!greeted || phase != Some(Phase::Starting), "it is here");
            prop_assert_eq!(told, world.core.state());
            if let Some(ended) = turn(&before).filter(|id| turn(&world.core).as_ref() != Some(id)) {
                prop_assert!(ends(&input, &ended), "{:?} is no reason", input);
                prop_assert!(over.insert(ended));
            }
            prop_assert!(turn(&world.core).is_none_or(|id| !over.contains(&id)), "it was over");
            let prompts = decision.orders.iter().filter(|o| order(o).starts_with("prompt")).count();
            prop_assert!(prompts <= 1);
            let receipts = decision.drafts.iter().filter(|d| event(&d.body).starts_with("interrupted")).count();
            let ended = before.interrupting.is_some() && world.core.interrupting.is_none();
            prop_assert!(receipts <= 1 && (!ended || receipts == 1));
            prop_assert!(world.core.interrupting.is_none() || decision.ladder != Some(Ladder::Disarm));
            prop_assert!(world.core.interrupting.is_none() || world.core.runs(), "somebody must say that it has stopped");
            let stored = serde_json::to_value(&world.core).expect("it is stored");
            prop_assert_eq!(serde_json::from_value::<Core>(stored).expect("it comes back"), world.core.clone());
        }
        // However it stands, two rungs of the ladder and the end of the session leave nothing running.
        for input in [Input::LadderDue, Input::LadderDue, Input::End] {
            let _ = world.feed(input);
        }
        prop_assert!(world.core.turn.is_none() && world.core.act.is_none() && world.core.interrupting.is_none());
        prop_assert!(world.core.outgoing.is_empty());
    }
}
