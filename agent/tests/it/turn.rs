//! Turns and user actions that end by themselves.

use greenroom_protocol::{
    Action, DeltaKind, ObservationKind,
    link::{AgentCommand, AgentProgram, AgentReport, CommandFrame, ProviderApi, ToAgent, WorkOutcome},
};
use serde_json::json;

use crate::{
    agent::{AgentProcess, tool_list},
    gateway::{
        ScriptedAnswer::{Breaks, Complete, Frames, Hangs, Status},
        ScriptedPart, call, text,
    },
    session::AgentTestSession,
};

fn failed(outcome: WorkOutcome) -> (String, String) {
    match outcome {
        WorkOutcome::Failed { code, detail } => (code, detail),
        other => panic!("not failed: {other:?}"),
    }
}

async fn full_turn(api: ProviderApi) {
    let mut agent = AgentProcess::start(vec![
        Complete(vec![
            ScriptedPart::Thinking("Hm."),
            text("I write a script."),
            call("c1", "write", json!({ "path": "a/hi.sh", "content": "echo hällo\n" })),
            call("c2", "run", json!({ "command": "sh a/hi.sh; exit 3" })),
        ]),
        Complete(vec![call(
            "c3",
            "edit",
            json!({ "path": "a/hi.sh", "change": "REPLACE", "old": "hällo", "lines": ["du"] }),
        )]),
        Complete(vec![
            call("c4", "read", json!({ "path": "a/hi.sh" })),
            call("c5", "plan", json!({ "content": "- [x] all" })),
        ]),
        Complete(vec![text("Done."), call("c6", "finish", json!({ "message": "It prints." }))]),
    ]);
    agent.settings.api = api;
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", "greet").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(
        session.events(),
        [
            "think _: Hm.",
            "message _: I write a script.",
            "write! c1",
            "write c1: ",
            "run! c2",
            "run c2: [3] hällo\n",
            "edit! c3",
            "edit c3: ",
            "read! c4",
            "read c4: echo du\n",
            "plan! c5",
            "plan c5: - [x] all",
            "message _: Done.",
            "finish! c6",
        ]
    );
    assert_eq!(std::fs::read_to_string(session.agent.file("a/hi.sh")).expect("the file exists"), "echo du\n");
    let requests = session.agent.gateway.requests();
    assert_eq!(requests.len(), 4);
    let last = requests[3]["messages"].to_string();
    assert!(last.contains("Exit code 3"), "{last}");
    assert!(last.contains("1\\techo du"), "{last}");
}

#[tokio::test]
async fn full_turn_in_anthropic_format() {
    full_turn(ProviderApi::Anthropic).await;
}

#[tokio::test]
async fn full_turn_in_openai_format() {
    full_turn(ProviderApi::Openai).await;
}

#[tokio::test]
async fn deltas_precede_their_event() {
    let answers =
        vec![Hangs(vec![ScriptedPart::Thinking("Hm."), text("One two"), call("c1", "run", json!({ "command": "x" }))])];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    let input = json!({ "command": "x" }).to_string();
    session.until(|session| session.deltas.get(&("c1".into(), DeltaKind::ToolInput)) == Some(&input)).await;
    assert_eq!(session.events(), ["think _: Hm."]);
    assert!(session.deltas.iter().any(|((_, kind), text)| *kind == DeltaKind::Text && text == "One two"));
}

#[tokio::test]
async fn signed_thoughts_are_sent_back() {
    let answers = vec![
        Complete(vec![ScriptedPart::Thinking("Hm."), call("c1", "think", json!({ "content": "so" }))]),
        Complete(vec![text("Done.")]),
    ];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let sent = &session.agent.gateway.requests()[1]["messages"][1]["content"][0];
    assert_eq!(*sent, json!({ "type": "thinking", "thinking": "Hm.", "signature": "signed" }));
}

#[tokio::test]
async fn invalid_call_returns_explanation_to_model() {
    let answers = vec![
        Complete(vec![call("c1", "dance", json!({})), call("c2", "run", json!({ "cmd": "ls" }))]),
        Complete(vec![call("c3", "read", json!({ "path": "none.txt" })), call("c4", "run", json!("{\"comm"))]),
        Complete(vec![text("I see.")]),
    ];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(
        session.events(),
        [
            &format!("error c1: there is no tool `dance`; the tools are {}", tool_list()),
            "error c2: the arguments of `run` do not fit: missing field `command`; it takes `command`",
            "read! c3",
            "error c3: there is no `none.txt`",
            "error c4: the arguments of `run` are not valid JSON: EOF while parsing a string at line 1 column 6",
            "message _: I see.",
        ]
    );
}

#[tokio::test]
async fn step_limit_ends_turn_and_repeated_failures_get_hint() {
    let answers = (0..9).map(|_| Complete(vec![call("same", "read", json!({ "path": "none" }))])).collect();
    let mut agent = AgentProcess::start(answers);
    agent.settings.max_steps = 6;
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", "go").await;
    assert_eq!(failed(session.outcome("t1").await).0, "too_many_steps");
    let last = session.agent.gateway.requests().pop().expect("six requests");
    assert!(last["messages"].to_string().contains("has failed 5 times in a row"));
}

#[tokio::test]
async fn rejected_request_ends_turn_with_reason() {
    let check = async |answer, code: &str, words: &str| {
        let mut session = AgentTestSession::open(vec![answer]).await;
        session.prompt("t1", "go").await;
        let outcome = failed(session.outcome("t1").await);
        assert_eq!(outcome.0, code);
        assert!(outcome.1.contains(words), "{}", outcome.1);
    };
    check(Status(402, r#"{"error":{"message":"the budget is spent"}}"#), "budget", "the budget is spent").await;
    check(Status(404, r#"{"error":{"message":"no such model"}}"#), "model_error", "404: no such model").await;
    check(Status(503, "overloaded"), "model_error", "503: overloaded").await;
}

#[tokio::test]
async fn cut_answer_is_kept_and_requested_again() {
    let answers = vec![Breaks(vec![text("Half a")]), Complete(vec![text("Half a loaf.")])];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events(), ["message _: [partial] Half a", "message _: Half a loaf."]);
    let requests = session.agent.gateway.requests();
    assert_eq!(requests[0], requests[1]);
}

#[tokio::test]
async fn answer_cut_in_a_call_is_marked_partial() {
    let parts = || vec![text("Pre."), call("c1", "run", json!({ "command": "echo hi" }))];
    let mut session =
        AgentTestSession::open(vec![Breaks(parts()), Complete(parts()), Complete(vec![text("Done.")])]).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let events = session.events();
    // The call is reported as failed, so readers do not wait for it while the turn goes on.
    let never_made = "error c1: the model's answer was cut before this call was complete";
    assert_eq!(events[..3], ["message _: [partial] Pre.", never_made, "message _: Pre."]);
    assert_eq!(events.iter().filter(|event| event.starts_with("run!")).count(), 1);
}

#[tokio::test]
async fn reused_id_of_cut_call_gets_its_own_item() {
    let run = || call("c1", "run", json!({ "command": "echo hi" }));
    let mut session =
        AgentTestSession::open(vec![Breaks(vec![run()]), Complete(vec![run()]), Complete(vec![text("Done.")])]).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert!(session.deltas.contains_key(&("c1".to_owned(), DeltaKind::ToolInput)), "the cut call had begun");
    let items = session.items();
    assert!(items[0] == "c1" && items[1].starts_with("c1-"), "{items:?}");
    assert!(items[1..].iter().all(|item| *item != "c1"), "the cut item has ended: {items:?}");
}

#[tokio::test]
async fn answer_cut_every_time_ends_turn() {
    let mut session = AgentTestSession::open((0..5).map(|_| Breaks(vec![])).collect()).await;
    session.prompt("t1", "go").await;
    assert_eq!(failed(session.outcome("t1").await).0, "model_error");
    assert_eq!(session.agent.gateway.requests().len(), 3);
}

#[tokio::test]
async fn step_is_retried_until_gateway_returns() {
    let mut session = AgentTestSession::open(vec![Hangs(vec![text("Half a")]), Complete(vec![text("Loaf.")])]).await;
    session.prompt("t1", "go").await;
    session.until(|session| !session.deltas.is_empty()).await;
    session.agent.gateway.die();
    session.until(|session| !session.reports.is_empty()).await;
    assert_eq!(session.events(), ["message _: [partial] Half a"]);
    session.agent.gateway.restart();
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events()[1], "message _: Loaf.");
}

#[tokio::test]
async fn steering_message_joins_next_step() {
    let answers = vec![
        Complete(vec![call("c1", "run", json!({ "command": "echo ready; until [ -e go ]; do sleep 0.01; done" }))]),
        Complete(vec![text("Blue it is.")]),
    ];
    let mut session = AgentTestSession::open(answers).await;
    session.prompt("t1", "paint it").await;
    session.output_after("read").await;
    let steer = AgentCommand::Steer { content: "make it blue".into(), attachments: vec!["b.png".into()] };
    let command = session.send_command(steer).await;
    session.until(|session| session.taken.len() == 2).await;
    std::fs::write(session.agent.file("go"), "").expect("the file is writable");
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert!(session.reports.contains(&AgentReport::Steered { command }));
    let request = session.agent.gateway.requests().pop().expect("two requests");
    let last = request["messages"].as_array().expect("messages").last().expect("one").to_string();
    assert!(last.contains("make it blue") && last.contains("`b.png`") && last.contains("tool_result"), "{last}");
}

/// Both commands arrive at once, as when they waited for an agent that was starting.
#[tokio::test]
async fn steering_right_after_prompt_reaches_its_turn() {
    let mut session = AgentTestSession::open(vec![Complete(vec![text("Blue, then.")])]).await;
    let prompt = AgentCommand::Prompt { turn: "t1".into(), content: "paint it".into(), attachments: vec![] };
    let steer = AgentCommand::Steer { content: "make it blue".into(), attachments: vec![] };
    let both = [("prompt", prompt), ("steer", steer)];
    let both = both.map(|(id, command)| ToAgent::Command(CommandFrame { id: id.into(), command }));
    session.link.send_together(&both).await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert!(session.reports.contains(&AgentReport::Steered { command: "steer".into() }));
}

#[tokio::test]
async fn late_steering_message_is_reported_as_missed() {
    let mut session = AgentTestSession::open(vec![]).await;
    let command = session.send_command(AgentCommand::Steer { content: "hello".into(), attachments: vec![] }).await;
    session.until(|session| session.reports.contains(&AgentReport::SteerMissed { command: command.clone() })).await;
}

#[tokio::test]
async fn user_actions_run_in_order_beside_the_agent() {
    let mut session = AgentTestSession::open(vec![Hangs(vec![text("Hm.")]), Complete(vec![text("I saw that.")])]).await;
    session.prompt("t1", "go").await;
    let run = |command: &str| Action::Run { command: command.into() };
    session.user_action("a1", run("sleep 0.2; echo one > f")).await;
    session.user_action("a2", run("cat f; false")).await;
    session.user_action("a3", Action::Read { path: "f".into() }).await;
    session.user_action("a4", Action::Browse { url: "ftp://x".into() }).await;
    assert_eq!(failed(session.outcome("a4").await).0, "tool_failed");
    assert_eq!(
        session.events(),
        [
            "run a1: [0] ",
            "run a2: [1] one\n",
            "read a3: one\n",
            "error a4: `ftp://x` is not an http or https address; use `read` for a file",
        ]
    );
    session.send_command(AgentCommand::Cancel {}).await;
    session.outcome("t1").await;
    session.prompt("t2", "what did I do?").await;
    session.outcome("t2").await;
    let sent = session.agent.gateway.requests()[1].to_string();
    assert!(sent.contains("cat f; false") && sent.contains("what did I do?"), "{sent}");
}

#[tokio::test]
async fn background_process_survives_and_does_not_block_run() {
    let mut session = AgentTestSession::open(vec![]).await;
    let command = "(while :; do echo x; sleep 0.02; done) & echo pid=$!";
    session.user_action("a1", Action::Run { command: command.into() }).await;
    assert_eq!(session.outcome("a1").await, WorkOutcome::Done);
    let pid =
        session.observations()[0].content.lines().find_map(|line| line.strip_prefix("pid=")).expect("a pid").to_owned();
    session.user_action("a2", Action::Run { command: format!("sleep 0.2; kill -0 {pid} && kill {pid}") }).await;
    session.outcome("a2").await;
    let observations = session.observations();
    let ended = observations.iter().rev().find(|observation| observation.name() == "run").expect("a result");
    assert!(matches!(ended.kind, ObservationKind::Run { exit_code: Some(0), .. }));
}

#[tokio::test]
async fn programs_reach_model_through_loopback_port() {
    let mut session = AgentTestSession::open(vec![Status(402, "spent")]).await;
    let command = "exec 3<>/dev/tcp/127.0.0.1/${GREENROOM_GATEWAY_URL##*:}; \
                   printf 'POST /openai/v1/x HTTP/1.1\\r\\ncontent-length: 2\\r\\n\\r\\n{}' >&3; cat <&3";
    session.user_action("a1", Action::Run { command: command.into() }).await;
    session.outcome("a1").await;
    let answer = &session.observations()[0].content;
    assert!(answer.starts_with("HTTP/1.1 402") && answer.ends_with("spent"), "{answer}");
}

#[tokio::test]
async fn large_output_is_reported_in_pieces_with_head_and_tail() {
    let mut session = AgentTestSession::open(vec![]).await;
    session
        .user_action(
            "a1",
            Action::Run { command: "echo BEGIN; head -c 9000000 /dev/zero | tr '\\0' x; echo END".into() },
        )
        .await;
    session.outcome("a1").await;
    let observation = session.observations()[0];
    let ObservationKind::Run { truncated: Some(truncated), .. } = &observation.kind else {
        panic!("not marked as truncated: {:?}", observation.kind)
    };
    assert_eq!(truncated.bytes, 9_000_010);
    assert!(observation.content.starts_with("BEGIN\nxx") && observation.content.ends_with("xxEND\n"));
    assert!(observation.content.contains("\n… 8934474 bytes left out …\n"), "the omission line is missing");
    assert!(observation.content.len() < 70_000);
    assert!(
        session.pieces("a1") == format!("BEGIN\n{}END\n", "x".repeat(9_000_000)),
        "the pieces differ from the whole"
    );
}

#[tokio::test]
async fn output_over_limit_is_reported_with_beginning_and_end() {
    let mut session = AgentTestSession::open(vec![]).await;
    let command = "echo BEGIN; head -c 80000000 /dev/zero | tr '\\0' x; echo END";
    session.user_action("a1", Action::Run { command: command.into() }).await;
    session.outcome("a1").await;
    let whole = session.pieces("a1");
    let limit = greenroom_protocol::FULL_TEXT_LIMIT as usize;
    assert!(whole.len() <= limit && whole.len() > limit - 2_000_000, "{} bytes", whole.len());
    assert!(whole.starts_with("BEGIN\nxx") && whole.ends_with("xxEND\n"));
    let number =
        whole.split(" bytes left out …").next().and_then(|text| text.rsplit("… ").next()).expect("an omission line");
    let omitted: usize = number.parse().expect("a number");
    let line = format!("\n… {omitted} bytes left out …\n");
    assert_eq!(whole.len() - line.len() + omitted, 80_000_010);
}

#[tokio::test]
async fn large_file_is_read_whole() {
    let mut session = AgentTestSession::open(vec![]).await;
    let text: String = (0..400_000).map(|n| format!("line {n} ä\n")).collect();
    std::fs::write(session.agent.file("large"), &text).expect("a file");
    session.user_action("a1", Action::Read { path: "large".into() }).await;
    session.outcome("a1").await;
    assert!(session.pieces("a1") == text, "the pieces differ from the whole");
    assert!(session.observations()[0].content.starts_with("line 0 ä\n"));
}
#[tokio::test]
async fn too_long_conversation_is_shortened_for_any_wording() {
    let exceeded = r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
    let answers = vec![
        Status(500, exceeded),
        Status(400, r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#),
        Frames(vec![json!({ "error": { "message": "no", "type": "exceed_context_size_error" } })]),
        Complete(vec![text("Done.")]),
        Complete(vec![text("Done again.")]),
    ];
    let mut agent = AgentProcess::start(answers);
    agent.settings.api = ProviderApi::Openai;
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", &format!("BEGIN{}END", "x".repeat(900_000))).await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    session.prompt("t2", "and now?").await;
    assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
    let sizes: Vec<usize> =
        session.agent.gateway.requests().iter().map(|body| body["messages"].to_string().len()).collect();
    assert!(sizes[0] < 500 << 10 && sizes[1] < 250 << 10 && sizes[2] < 130 << 10 && sizes[3] < 70 << 10, "{sizes:?}");
    assert!(sizes[4] > 20 << 10, "{sizes:?}");
}

#[tokio::test]
async fn unknown_program_fails_turn_and_names_existing() {
    let mut agent = AgentProcess::start(Vec::new());
    agent.settings.program = Some(AgentProgram { driver: "marvin".into() });
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    for turn in ["t1", "t2"] {
        session.prompt(turn, "go").await;
        let (code, detail) = failed(session.outcome(turn).await);
        assert_eq!(code, "unknown_program");
        assert_eq!(detail, "this agent has no turn driver `marvin`; it has `builtin`");
    }
    assert!(session.agent.gateway.requests().is_empty());
}
