//! Interrupts: everything that runs is gone afterwards, and its partial output is kept.

use greenroom_protocol::{
    Action, DeltaKind,
    link::{AgentCommand, AgentSettings, CancelHint, ProviderApi, ToAgent, WorkOutcome},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use crate::{
    agent::AgentProcess,
    gateway::{
        ScriptedAnswer::{Breaks, Complete, Frames, Hangs, Status},
        call, text,
    },
    session::AgentTestSession,
};

fn cancelled(what: &str, partial: bool) -> WorkOutcome {
    WorkOutcome::Cancelled { what: what.into(), partial }
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a number")).expect("not zero")
}

fn run(command: &str) -> Action {
    Action::Run { command: command.into() }
}

#[tokio::test]
async fn interrupt_cuts_model_stream_and_keeps_text() {
    let mut session =
        AgentTestSession::open(vec![Hangs(vec![text("I was about")]), Complete(vec![text("Yes?")])]).await;
    session.prompt("t1", "go").await;
    session.until(|session| session.deltas.values().any(|text| text == "I was about")).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert_eq!(session.outcome("t1").await, cancelled("the model's answer", true));
    assert_eq!(session.events(), ["message _: [partial] I was about"]);
    session.prompt("t2", "sorry").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let messages = session.agent.gateway.requests()[1]["messages"].clone();
    assert_eq!(messages[1], json!({ "role": "assistant", "content": [{ "type": "text", "text": "I was about" }] }));
    assert!(messages[2].to_string().contains("interrupted you here.]\\n\\nsorry"), "{messages}");
}

/// A hint may arrive in the turn after the one that it is for.
#[tokio::test]
async fn cancel_hint_stops_only_the_named_work() {
    let mut session = AgentTestSession::open(vec![
        Hangs(vec![text("I was about")]),
        Complete(vec![call("c", "run", json!({ "command": "until [ -e go ]; do sleep 0.01; done" }))]),
        Complete(vec![text("Over.")]),
    ])
    .await;
    let hint = |turn: &str, user_action: &str| {
        ToAgent::CancelHint(CancelHint { turn: Some(turn.into()), user_action: Some(user_action.into()) })
    };
    session.prompt("t1", "go").await;
    session.until(|session| session.deltas.values().any(|text| text == "I was about")).await;
    session.link.send(&hint("t1", "a1")).await;
    assert_eq!(session.outcome("t1").await, cancelled("the model's answer", true));
    session.send_command(AgentCommand::Cancel {}).await;
    session.prompt("t2", "go on").await;
    session.until(|session| session.events().iter().any(|event| event.starts_with("run!"))).await;
    session.link.send(&hint("t1", "a1")).await;
    session.user_action("a2", run("touch go")).await;
    assert_eq!(session.outcome("a2").await, WorkOutcome::Done);
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
}

/// The agent receives prompt and stop at once. The same happens after an unpause, or when a message
/// is sent at the moment of the interrupt.
#[tokio::test]
async fn message_interrupted_before_its_turn_reaches_model() {
    let mut session = AgentTestSession::open(vec![Complete(vec![text("Yes?")])]).await;
    let agent_pid = Pid::from_raw(session.agent.process.id() as i32).expect("not zero");
    kill_process(agent_pid, Signal::STOP).expect("the agent is a child");
    session.prompt("t1", "go").await;
    session.send_command(AgentCommand::Cancel {}).await;
    kill_process(agent_pid, Signal::CONT).expect("the agent is a child");
    assert_eq!(session.outcome("t1").await, cancelled("a turn that had not begun", false));
    session.prompt("t2", "or rather stay").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let requests = session.agent.gateway.requests();
    let sent = requests[0]["messages"].to_string();
    assert!(
        requests.len() == 1 && sent.contains(r"go\n\n[The user interrupted you here.]\n\nor rather stay"),
        "{sent}"
    );
}

/// The gateway's cut and the stop command travel different ways.
#[tokio::test]
async fn interrupt_seen_by_gateway_first_is_no_failure() {
    let cut = r#"{"error":{"type":"interrupted","message":"the session interrupted this call"}}"#;
    let json = |text| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let half = json!({ "choices": [{ "index": 0, "delta": { "content": "Half a" }, "finish_reason": null }] });
    let call =
        json!([{ "index": 0, "id": "c1", "type": "function", "function": { "name": "run", "arguments": "{\"co" } }]);
    let begun = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": call }, "finish_reason": null }] });
    for (api, answers, partial_text) in [
        (ProviderApi::Openai, vec![Frames(vec![begun, json(cut)])], ""),
        (ProviderApi::Anthropic, vec![Status(403, cut)], ""),
        (ProviderApi::Openai, vec![Status(402, cut)], ""),
        (ProviderApi::Openai, vec![Frames(vec![half, json(cut)])], "Half a"),
        (ProviderApi::Anthropic, vec![Breaks(vec![text("Half a")]), Status(402, cut)], "Half a"),
    ] {
        let asked = answers.len();
        let mut agent = AgentProcess::start(answers.into_iter().chain([Complete(vec![text("Yes?")])]).collect());
        agent.settings.api = api;
        let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
        session.prompt("t1", "go").await;
        while session.agent.gateway.requests().len() < asked {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // The agent receives the answer soon after the gateway has the request.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        session.send_command(AgentCommand::Cancel {}).await;
        assert_eq!(
            session.outcome("t1").await,
            cancelled("the model's answer", !partial_text.is_empty()),
            "{api:?} {partial_text}"
        );
        let events = session.events();
        assert!(!events.iter().any(|event| event.starts_with("error")), "an error was reported: {events:?}");
        session.prompt("t2", "sorry").await;
        assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
        let sent = session.agent.gateway.requests()[asked]["messages"].to_string();
        assert!(sent.contains(r"[The user interrupted you here.]\n\nsorry") && sent.contains(partial_text), "{sent}");
    }
}

#[tokio::test]
async fn interrupt_forgets_call_that_is_still_streamed() {
    let answers =
        vec![Hangs(vec![call("c1", "write", json!({ "path": "x", "content": "y" }))]), Complete(vec![text("Over.")])];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    session.until(|session| session.deltas.contains_key(&("c1".into(), DeltaKind::ToolInput))).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert_eq!(session.outcome("t1").await, cancelled("the model's answer", false));
    session.deltas.clear();
    session.redial().await;
    session.prompt("t2", "go").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    assert_eq!(session.deltas.get(&("c1".into(), DeltaKind::ToolInput)), None);
}

#[tokio::test]
async fn calls_after_stopped_call_are_forgotten_and_answered() {
    let calls = vec![
        call("c1", "run", json!({ "command": "echo go; sleep 1000" })),
        call("c2", "run", json!({ "command": "touch never" })),
    ];
    let mut session = AgentTestSession::open(vec![Complete(calls), Complete(vec![text("Well.")])]).await;
    session.prompt("t1", "go").await;
    session.output_after("g").await;
    session.send_command(AgentCommand::Cancel {}).await;
    session.outcome("t1").await;
    assert_eq!(session.events(), ["run! c1", "run c1: [killed] go\n"]);
    session.deltas.clear();
    session.redial().await;
    session.prompt("t2", "and now?").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    assert!(!session.deltas.contains_key(&("c2".into(), DeltaKind::ToolInput)));
    assert!(!session.agent.file("never").exists());
    let messages = session.agent.gateway.requests()[1]["messages"].clone();
    let results: Vec<&str> = messages[2]["content"]
        .as_array()
        .expect("results and a message")
        .iter()
        .filter_map(|part| part["tool_use_id"].as_str())
        .collect();
    assert_eq!(results, ["c1", "c2"]);
}

/// The same text as after a restart, when it comes from the journal. A model without it does the
/// same again.
#[tokio::test]
async fn model_receives_output_of_stopped_command() {
    let run_and_wait = |word: &str| json!({ "command": format!("echo {word}; sleep 1000") });
    let mut session = AgentTestSession::open(vec![
        Complete(vec![call("c1", "run", run_and_wait("agents"))]),
        Complete(vec![text("Well.")]),
    ])
    .await;
    session.user_action("a1", run("echo users; sleep 1000")).await;
    session.prompt("t1", "go").await;
    session.until(|session| session.deltas.values().filter(|received| received.ends_with("s\n")).count() == 2).await;
    session.send_command(AgentCommand::Cancel {}).await;
    session.outcome("t1").await;
    session.outcome("a1").await;
    session.prompt("t2", "and now?").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let messages = session.agent.gateway.requests()[1]["messages"].clone();
    let result = &messages[2]["content"][0];
    assert_eq!(result["content"], "agents\n[It was killed: the user stopped it.]", "{messages}");
    assert!(messages.to_string().contains(r"sleep 1000]\nusers\n[It was killed: the user stopped it.]"), "{messages}");
}

#[tokio::test]
async fn interrupt_kills_every_descendant_of_a_command() {
    let command = "sleep 1000 & echo child=$!; \
                   setsid sh -c 'echo session=$$; exec sleep 1000' & sleep 0.1; \
                   (setsid sh -c 'echo orphan=$$; exec sleep 1000' &) ; sleep 0.1; \
                   (setsid env -i sh -c 'echo bare=$$; exec sleep 1000' &) ; sleep 0.1; \
                   echo all=; sleep 1000";
    let mut session = AgentTestSession::open(vec![Complete(vec![
        text("Running."),
        call("c1", "run", json!({ "command": command })),
    ])])
    .await;
    session.prompt("t1", "go").await;
    session.output_after("all").await;
    let mut pids = Vec::new();
    for name in ["child=", "session=", "orphan=", "bare="] {
        pids.push(pid(&session.output_after(name).await));
    }
    session.send_command(AgentCommand::Cancel {}).await;
    assert_eq!(session.outcome("t1").await, cancelled(&format!("the command `{command}`"), true));
    for pid in pids {
        assert!(test_kill_process(pid).is_err(), "{pid:?} is left");
    }
    let last = session.events().pop().expect("events");
    assert!(last.starts_with("run c1: [killed] child="), "{last}");
}

#[tokio::test]
async fn interrupt_stops_flood_of_output() {
    let mut session =
        AgentTestSession::open(vec![Complete(vec![call("c1", "run", json!({ "command": "yes" }))])]).await;
    session.prompt("t1", "go").await;
    session.until(|session| session.deltas.values().any(|output| output.len() > 4_000_000)).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert_eq!(session.outcome("t1").await, cancelled("the command `yes`", true));
}

#[tokio::test]
async fn flood_blocks_until_server_reads() {
    let mut session = AgentTestSession::open(vec![]).await;
    session.user_action("a1", run("yes | head -c 30000000; echo; echo END")).await;
    session.output_after("y").await;
    // While the test reads nothing, the command can end only if the agent keeps its output in
    // memory.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", session.agent.process.id())).expect("the agent runs");
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size").replace("kB", "");
    assert!(rss.trim().parse::<u64>().expect("a number") < 64 * 1024, "{rss} KiB");
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    let received = session.deltas.get(&("a1".into(), DeltaKind::Output)).map_or(0, String::len);
    assert!(received > 29_000_000, "only {received} bytes arrived");
}

#[tokio::test]
async fn interrupt_ends_wait_for_gateway() {
    let mut session = AgentTestSession::open(vec![]).await;
    session.agent.gateway.die();
    session.prompt("t1", "go").await;
    session.until(|session| session.taken.len() == 1).await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert_eq!(session.outcome("t1").await, cancelled("the model's answer", false));
}

#[tokio::test]
async fn interrupt_stops_running_and_queued_user_actions() {
    let mut session = AgentTestSession::open(vec![]).await;
    session.user_action("a1", run("echo go; sleep 1000")).await;
    session.user_action("a2", run("touch never")).await;
    session.output_after("g").await;
    session.send_command(AgentCommand::Cancel {}).await;
    assert_eq!(session.outcome("a1").await, cancelled("the command `echo go; sleep 1000`", true));
    assert_eq!(session.outcome("a2").await, cancelled("a user action that had not begun", false));
    assert!(!session.agent.file("never").exists());
}

#[tokio::test]
async fn kill_processes_leaves_user_processes() {
    let answers = vec![
        Complete(vec![call("c1", "run", json!({ "command": "echo at=$$; sleep 1000" }))]),
        Complete(vec![text("Oh.")]),
    ];
    let mut session = AgentTestSession::open(answers).await;
    session.user_action("a1", run("echo user=$$; sleep 1000")).await;
    let users = pid(&session.output_after("user=").await);
    session.prompt("t1", "go").await;
    let agents = pid(&session.output_after("at=").await);
    session.send_command(AgentCommand::KillProcesses {}).await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert!(test_kill_process(agents).is_err());
    assert!(test_kill_process(users).is_ok());
}

#[tokio::test]
async fn command_is_killed_at_its_timeout() {
    let mut agent = AgentProcess::start(vec![]);
    agent.settings.run_timeout_s = 1;
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.user_action("a1", run("echo before; sleep 1000")).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    assert_eq!(session.events(), ["run a1: [timed out] before\n"]);
}

#[tokio::test]
async fn hidden_descendants_are_killed_and_other_commands_stay() {
    let hidden = |name: &str| format!("setsid env -i sh -c 'echo {name}=$$; exec sleep 1000' & sleep 1000");
    let mut session =
        AgentTestSession::open(vec![Complete(vec![call("c1", "run", json!({ "command": hidden("agents") }))])]).await;
    session.prompt("t1", "go").await;
    let agents = pid(&session.output_after("agents=").await);
    let settings = AgentSettings { run_timeout_s: 1, ..session.agent.settings.clone() };
    session.send_command(AgentCommand::Settings(settings)).await;
    session.user_action("a1", run(&hidden("users"))).await;
    let users = pid(&session.output_after("users=").await);
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    assert!(test_kill_process(users).is_err(), "outlives its command");
    assert!(test_kill_process(agents).is_ok(), "belongs to another command");
    session.send_command(AgentCommand::Cancel {}).await;
    session.outcome("t1").await;
    assert!(test_kill_process(agents).is_err(), "outlives its stopped command");
}

#[tokio::test]
async fn pause_does_not_count_towards_timeout() {
    let mut agent = AgentProcess::start(vec![]);
    agent.settings.run_timeout_s = 2;
    let agent_pid = Pid::from_raw(agent.process.id() as i32).expect("not zero");
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.user_action("a1", run("echo go; until [ -e unpaused ]; do sleep 0.01; done; echo survived")).await;
    session.output_after("g").await;
    kill_process(agent_pid, Signal::STOP).expect("the agent is a child");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    kill_process(agent_pid, Signal::CONT).expect("the agent is a child");
    // The agent has run for a while after SIGCONT, so a timeout that was due then has fired.
    for _ in 0..3 {
        session.link.ping().await;
    }
    std::fs::write(session.agent.file("unpaused"), "").expect("the file is writable");
    session.outcome("a1").await;
    assert_eq!(session.events(), ["run a1: [0] go\nsurvived\n"]);
}

#[tokio::test]
async fn sigterm_kills_all_processes() {
    let mut session = AgentTestSession::open(vec![]).await;
    session.user_action("a1", run("setsid sh -c 'echo pid=$$; exec sleep 1000' & sleep 1000")).await;
    let child = pid(&session.output_after("pid=").await);
    let agent_pid = Pid::from_raw(session.agent.process.id() as i32).expect("not zero");
    kill_process(agent_pid, Signal::TERM).expect("the agent is a child");
    let status = session.agent.process.wait().expect("the agent ends");
    assert_eq!(status.code(), Some(0));
    // The new parent reaps the process at some later time.
    let gone = || match std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    assert!(gone());
}
