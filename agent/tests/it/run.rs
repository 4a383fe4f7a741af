//! The tool `run`: any command starts, its output is live and kept, and its end is reported.

use greenroom_protocol::{
    Action, DeltaKind, Observation, ObservationKind,
    link::{AgentCommand, WorkOutcome},
};
use serde_json::json;

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, call, text},
    session::AgentTestSession,
};

fn run(command: &str) -> Action {
    Action::Run { command: command.to_owned() }
}

/// Runs the command as a user action and returns its observation.
async fn ran(command: &str) -> Observation {
    let mut session = AgentTestSession::open(vec![]).await;
    session.user_action("a1", run(command)).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    session.observations()[0].clone()
}

/// Runs the command as a call of the model, and returns the result that the model receives.
async fn told(command: &str) -> String {
    let answers = vec![Complete(vec![call("c1", "run", json!({ "command": command }))]), Complete(vec![text("Done.")])];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let messages = &session.agent.gateway.requests()[1]["messages"];
    messages[2]["content"][0]["content"].as_str().expect("a result").to_owned()
}

#[tokio::test]
async fn signal_that_ends_a_command_is_reported() {
    for (command, expected_code, expected) in [
        ("kill -SEGV $$", 139, Some("SIGSEGV")),
        ("kill -ABRT $$", 134, Some("SIGABRT")),
        ("true; sh -c 'kill -KILL $$'", 137, Some("SIGKILL")),
        ("sh -c 'kill -SEGV $$'; exit $?", 139, Some("SIGSEGV")),
        ("sh -c 'kill -SEGV $$'; true", 0, None),
        ("exit 129", 129, None),
    ] {
        let Observation { kind: ObservationKind::Run { exit_code, signal, .. }, .. } = ran(command).await else {
            panic!("`{command}` has no result")
        };
        assert_eq!((exit_code, signal.as_deref()), (Some(expected_code), expected), "{command}");
    }
    assert!(told("kill -SEGV $$").await.ends_with("[Exit code 139: ended by SIGSEGV.]"));
}

#[tokio::test]
async fn command_as_long_as_a_frame_starts() {
    let line = "y".repeat(79);
    for lines in [800, 2000, 12_000] {
        let document = format!("{line}\n").repeat(lines);
        let command = format!("cat > big <<'X'\n{document}X\nwc -c < big; cat; echo \"$0\"; (exit 7)");
        let done = ran(&command).await;
        let ObservationKind::Run { exit_code, command: recorded, .. } = &done.kind else { panic!("no result") };
        assert_eq!((done.content.as_str(), *exit_code), (format!("{}\nbash\n", document.len()).as_str(), Some(7)));
        assert!(recorded.starts_with("cat > big"));
    }
}

#[tokio::test]
async fn command_with_nul_is_rejected() {
    for length in [1, 100_000] {
        let mut session = AgentTestSession::open(vec![]).await;
        session.user_action("a1", run(&format!("echo {}\0", "x".repeat(length)))).await;
        let outcome = session.outcome("a1").await;
        assert!(matches!(&outcome, WorkOutcome::Failed { detail, .. } if detail.contains("NUL")), "{outcome:?}");
    }
}

/// Programs collect output for a pipe. Each of these would show nothing until its end.
#[tokio::test]
async fn output_of_programs_that_buffer_is_live_and_kept() {
    for program in [
        "awk 'BEGIN { print \"first\"; while (1) {} }'",
        "yes first | head -n 1 | (cat; sleep 1000) | grep first",
        "perl -e 'print \"first\\n\"; sleep 1000'",
        "python3 -c 'import time; print(\"first\"); time.sleep(1000)'",
        "python3 -c 'import time; print(\"first\"); time.sleep(1000)' | cat",
    ] {
        let name = program.split(' ').next().unwrap_or_default();
        if std::process::Command::new(name).arg("--version").output().is_err() {
            continue;
        }
        let mut session = AgentTestSession::open(vec![]).await;
        session.user_action("a1", run(program)).await;
        session
            .until(|session| {
                session.deltas.get(&("a1".into(), DeltaKind::Output)).is_some_and(|text| text == "first\n")
            })
            .await;
        session.send_command(AgentCommand::Cancel {}).await;
        session.outcome("a1").await;
        assert_eq!(session.events(), ["run a1: [killed] first\n"], "{program}");
    }
}

#[tokio::test]
async fn output_arrives_as_written() {
    let done = ran("printf 'a\\tb\\r\\nc\\033[1m'; echo e >&2; tty < /dev/stdout || true").await;
    assert!(done.content.starts_with("a\tb\r\nc\u{1b}[1me\n"), "{:?}", done.content);
    let reopened = ran("echo one > /dev/stdout; echo two > /dev/stderr").await;
    assert_eq!(reopened.content, "one\ntwo\n");
}

/// Editors and pagers read keys from the terminal of their output.
#[tokio::test]
async fn program_that_waits_for_a_key_gets_an_error() {
    let asked = ran("read answer <&1; echo \"$? $answer\"").await;
    assert!(asked.content.ends_with("1 \n"), "{:?}", asked.content);
    if std::process::Command::new("python3").arg("--version").output().is_ok() {
        let waits = ran("python3 -c 'import select; print(select.select([2], [], [])[0])'").await;
        assert_eq!(waits.content, "[2]\n");
    }
}

#[tokio::test]
async fn model_reads_last_state_of_lines() {
    let progress = told("printf '\\rstep %s' $(seq 1 4000); echo; printf '\\033[31mred\\033[0m\\n'").await;
    assert_eq!(progress, "step 4000\nred\n[Exit code 0.]");
    let action = "printf 'half\\rwhole\\033[K\\n'";
    let mut session = AgentTestSession::open(vec![Complete(vec![text("Done.")])]).await;
    session.user_action("a1", run(action)).await;
    session.outcome("a1").await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let sent = session.agent.gateway.requests()[0]["messages"].to_string();
    assert!(sent.contains(r"]\nwhole\n[Exit code 0.]"), "{sent}");
}

/// An agent that was restarted reads the output from the journal.
#[tokio::test]
async fn model_reads_last_state_of_lines_after_restart() {
    let events = [
        json!({ "source": "user", "observation": "chat", "extras": {}, "content": "go" }),
        json!({ "source": "agent", "item": "c1", "action": "run", "args": { "command": "x" } }),
        json!({ "source": "agent", "item": "c1", "observation": "run", "content": "\r1 %\r2 %\n\u{1b}[31mred\n",
            "extras": { "command": "x", "exit_code": 139, "signal": "SIGSEGV", "duration_ms": 1 } }),
    ];
    let events = events.into_iter().enumerate().map(|(index, mut event)| {
        (event["seq"], event["at"]) = ((index + 1).into(), "2026-01-01T00:00:00.000Z".into());
        serde_json::from_value(event).expect("an event")
    });
    let agent = AgentProcess::start(vec![Complete(vec![text("Done.")])]);
    let mut session = AgentTestSession::with_history(agent, events.collect()).await;
    session.prompt("t1", "and now?").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let sent = session.agent.gateway.requests()[0]["messages"].to_string();
    assert!(sent.contains(r"2 %\nred\n\n[Exit code 139: ended by SIGSEGV.]") && !sent.contains("1 %"), "{sent}");
}
