//! Sandboxes that start, exit or are lost.

use greenroom_protocol::DeltaKind;

use super::*;
use crate::sandbox::{SandboxIsolation, VolumeWarning};

#[test]
fn lost_sandbox_is_reported_and_next_message_starts_a_fresh_one() {
    let events = ["sandbox Lost", "interrupted the turn by Sandbox", "is failed"];
    check(&working(), lost(), AgentState::Failed, &events, &["abort streams"]);
    let failed = with(working(), &[lost()]);
    check(&failed, say("m"), AgentState::Starting, &["message!", "queue 1", "is starting"], &["start"]);
    let never = SessionInput::SandboxFailed { why: "no image".into(), stderr_tail: None };
    check(
        &[SessionInput::SessionCreated, start("t")],
        never.clone(),
        AgentState::Failed,
        &["sandbox Failed", "is failed"],
        &["abort streams"],
    );
    let back = [SessionInput::SessionCreated, start("t"), never];
    check(&back, SessionInput::Resume, AgentState::Starting, &["resume!", "is starting"], &["start"]);
    let events = ["sandbox Ready", "chat t", "queue 0", "is running"];
    check(&with(back.to_vec(), &[SessionInput::Resume]), up(), AgentState::Running, &events, &["prompt turn-2 t"]);
}

#[test]
fn partial_text_is_kept_when_sandbox_is_lost() {
    let mut rules = RulesFixture::after(&working());
    rules.open = vec![
        OpenItem { item: "i".into(), kind: DeltaKind::Text, start: 0, text: "Once upon".into() },
        OpenItem { item: "j".into(), kind: DeltaKind::ToolInput, start: 0, text: "{".into() },
    ];
    let transition = rules.feed(lost()).expect("the input is accepted");
    let got: Vec<String> = transition.new_events.iter().map(|new_event| event_text(&new_event.body)).collect();
    assert_eq!(got, ["sandbox Lost", "partial Once upon", "interrupted the turn by Sandbox partial", "is failed"]);
}

#[test]
fn sandbox_exit_is_reported_with_code_cause_and_stderr() {
    for (code, out_of_memory, reason) in [
        (Some(137), true, "the sandbox ran out of memory"),
        (Some(3), false, "the sandbox died with exit code 3"),
        (None, false, "the sandbox is gone"),
    ] {
        let mut rules = RulesFixture::after(&working());
        let exit = SandboxExit { code, out_of_memory, stderr_tail: "last words".into() };
        let transition = rules.feed(SessionInput::SandboxLost(exit)).expect("the input is always accepted");
        let expected = ObservationKind::Sandbox {
            phase: SandboxPhase::Lost,
            exit_code: code,
            out_of_memory,
            stderr_tail: Some("last words".into()),
            isolation: None,
        };
        assert_eq!(transition.new_events[0].body, Observation { kind: expected, content: reason.to_owned() }.into());
        assert_eq!((rules.state.visible_state(), rules.state.reason().as_deref()), (AgentState::Failed, Some(reason)));
    }
}

#[test]
fn start_reports_warnings_about_volumes_as_notices() {
    let warnings = vec![VolumeWarning { code: "volume_not_writable", text: "agents cannot write to `/srv`".into() }];
    let isolation = SandboxIsolation { driver: "process", uid: 7, description: "walls".into(), warnings };
    let input = SessionInput::SandboxPhaseChanged {
        phase: SandboxPhase::Starting,
        detail: String::new(),
        isolation: Some(isolation),
    };
    let transition = RulesFixture::after(&[]).feed(input).expect("the input is always accepted");
    let expected = ObservationKind::Notice {
        code: "volume_not_writable".into(),
        detail: "agents cannot write to `/srv`".into(),
        attempts: None,
        waited_ms: None,
    };
    let notices: Vec<_> = transition.new_events[1..].iter().map(|event| event.body.clone()).collect();
    assert_eq!(notices, [Observation { kind: expected, content: String::new() }.into()]);
}
