//! Notes for the agent about restores.

use greenroom_protocol::checkpoint::{CheckpointKind, WorkspaceCheckpoint};

use super::*;

fn taken(checkpoint_kind: CheckpointKind) -> Vec<SessionInput> {
    let checkpoint = WorkspaceCheckpoint {
        checkpoint: "restore-1".to_owned(),
        checkpoint_kind,
        of: Some("turn-1".to_owned()),
        files: 0,
        bytes: 0,
        partial: false,
        left_out: Vec::new(),
        left_out_more: 0,
    };
    let observations = vec![ObservationKind::Checkpoint(checkpoint)];
    let checkpoint = "restore-1".to_owned();
    let begun = CaptureChange::RestoreBegun { checkpoint: checkpoint.clone() };
    [begun, CaptureChange::Ended { checkpoint, observations }].map(SessionInput::Capture).to_vec()
}

/// Returns the effects of a message after `more`.
fn prompt_after(kind: CheckpointKind, more: &[SessionInput]) -> String {
    let mut rules = RulesFixture::after(&[SessionInput::SessionCreated, up()]);
    for input in taken(kind).iter().chain(more).cloned() {
        rules.feed(input).expect("the input is accepted");
    }
    let stored = rules.state.to_opaque_state();
    rules.state = serde_json::from_str(stored.as_str()).expect("the next server reads the state");
    let transition = rules.feed(say("next")).expect("the message is accepted");
    transition.effects.iter().map(effect_text).collect::<Vec<_>>().join("\n")
}

#[test]
fn next_prompt_tells_the_running_agent() {
    let prompt = prompt_after(CheckpointKind::Restore, &[]);
    let note = "next\n\n[The user put files of the workspace back to checkpoint `turn-1`.";
    assert!(prompt.starts_with("prompt") && prompt.contains(note), "{prompt}");
    let plain = prompt_after(CheckpointKind::BeforeRestore, &[]);
    assert!(plain.ends_with("next"), "{plain}");
}

#[test]
fn new_agent_reads_the_restore_in_its_history() {
    let prompt = prompt_after(CheckpointKind::Restore, &[SessionInput::HelloReceived { boot: "b2".into() }]);
    assert!(prompt.ends_with("next"), "{prompt}");
}
