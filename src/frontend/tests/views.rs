//! Views of a session: without deltas, the classic view, and a chat that continues.

use greenroom_protocol::{
    Action, Delta, DeltaKind, Observation, ObservationKind, RetryFrame, RetryFrameKind, link::AgentReport,
};
use serde_json::{Value, json};

use super::fixture::{TestClient, fixture, report, send_message, turn_ended};
use crate::{
    frontend::AttachQuery,
    gateway::GatewayNotice,
    session::{messages::NoticeReceived, testkit},
    store::{SessionId, Store},
};

fn message(content: &str) -> AgentReport {
    let body = Observation { kind: ObservationKind::Message { partial: false }, content: content.into() }.into();
    AgentReport::Event { item: Some(format!("item {content}")), body }
}

fn classic() -> AttachQuery {
    AttachQuery { view: Some("classic".to_owned()), ..AttachQuery::default() }
}

#[actix::test]
async fn client_without_deltas_receives_everything_else() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let accepted = session.send(testkit::hello("b")).await.expect("the session runs").expect("the hello is accepted");
    let without = AttachQuery { deltas: Some("off".to_owned()), ..AttachQuery::default() };
    let mut without = TestClient::attach_with(&fixture.services, Some(id), without).await;
    let mut full = TestClient::attach(&fixture.services, Some(id)).await;
    let mut first = without.until(|frame| frame["status"] == "synced").await;
    let mut all = full.until(|frame| frame["status"] == "synced").await;
    let delta = Delta { kind: DeltaKind::Text, item: "item Hello.".to_owned(), offset: 0, content: "Hel".to_owned() };
    accepted.broadcast.append_delta(delta);
    let retry = RetryFrame {
        kind: RetryFrameKind::Retry,
        call: 1,
        provider: "p".to_owned(),
        attempt: 2,
        max_attempts: 3,
        wait_ms: 1,
        why: "busy".to_owned(),
    };
    let notice = NoticeReceived { notice: GatewayNotice::Retrying(retry), permit: None };
    session.send(notice).await.expect("the session runs");
    all.extend(full.until(|frame| frame["delta"] == "text").await);
    if all.iter().all(|frame| frame["delta"] != "retry") {
        all.extend(full.until(|frame| frame["delta"] == "retry").await);
    }
    report(&session, 1, message("Hello.")).await;
    all.extend(full.until(|frame| frame["content"] == "Hello.").await);
    first.extend(without.until(|frame| frame["content"] == "Hello.").await);
    all.retain(|frame| frame.get("delta").is_none());
    let comparable =
        |frames: Vec<Value>| -> Vec<Value> { frames.into_iter().filter(|frame| frame["status"] != "hello").collect() };
    assert_eq!(comparable(first), comparable(all));
}

#[actix::test]
async fn wrong_parameter_of_the_address_closes_with_4400() {
    let fixture = fixture();
    let (id, _) = fixture.session().await;
    let query = AttachQuery::default;
    let value = |value: &str| Some(value.to_owned());
    for wrong in [
        AttachQuery { deltas: value("no"), ..query() },
        AttachQuery { view: value("modern"), ..query() },
        AttachQuery { after: value("-1"), ..query() },
        AttachQuery { after: value("all"), ..classic() },
    ] {
        let mut client = TestClient::attach_with(&fixture.services, Some(id), wrong.clone()).await;
        assert_eq!(client.closed().await, Some(4400), "{wrong:?}");
    }
    assert_eq!(TestClient::chat_after(&fixture.services, id, Some("x")).await.closed().await, Some(4400));
}

/// Receives the next frame of a classic client, and checks its fields.
async fn classic_frame(client: &mut TestClient) -> Value {
    let frame = client.receive().await.expect("the socket stays open");
    let keys: Vec<_> = frame.as_object().expect("a frame is an object").keys().map(String::as_str).collect();
    let known =
        [&["action", "args", "message"][..], &["observation", "content", "extras", "message"], &["error", "message"]];
    assert!(known.contains(&keys.as_slice()), "{frame}");
    assert!(frame["message"].as_str().is_some_and(|message| !message.is_empty()), "{frame}");
    frame
}

/// Receives the frames of a classic client up to this state, and returns their names.
async fn classic_until(client: &mut TestClient, state: &str) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let frame = classic_frame(client).await;
        let name = frame["action"].as_str().or(frame["observation"].as_str()).expect("a name").to_owned();
        let agent_state = frame["extras"]["agent_state"].as_str().map(str::to_owned);
        names.push(agent_state.clone().unwrap_or(name));
        if agent_state.as_deref() == Some(state) {
            return names;
        }
    }
}

#[actix::test]
async fn classic_client_lives_through_a_session() {
    let fixture = fixture();
    let mut client = TestClient::attach_with(&fixture.services, None, classic()).await;
    client.send_json(json!({ "action": "initialize", "args": { "modle": "m", "speed": 9 }, "id": "a" }));
    let rejected = classic_frame(&mut client).await;
    assert_eq!(rejected["error"], true);
    let words = rejected["message"].as_str().expect("words");
    assert!(words.contains("`modle`") && words.contains("`speed`"), "{words}");

    client.send_json(json!({ "action": "initialize", "args": {}, "id": "b" }));
    let initialized = classic_frame(&mut client).await;
    assert_eq!((&initialized["action"], &initialized["args"]), (&json!("initialize"), &json!({})));
    assert_eq!(classic_frame(&mut client).await["extras"], json!({ "agent_state": "loading" }));
    let words = initialized["message"].as_str().expect("words");
    let id = words.split([' ', '.']).find_map(|word| word.parse::<SessionId>().ok()).expect("the session's id");

    let session = fixture.session_of(id).await;
    session.send(testkit::hello("b")).await.expect("the session runs").expect("the hello is accepted");
    assert_eq!(classic_until(&mut client, "init").await, ["init"]);
    client.send_json(json!({ "action": "start", "args": { "task": "go" } }));
    assert_eq!(classic_until(&mut client, "running").await, ["start", "chat", "running"]);
    report(&session, 1, message("Done.")).await;
    let turn = fixture.turn(id).await;
    report(&session, 2, turn_ended(turn)).await;
    assert_eq!(classic_until(&mut client, "awaiting_user_input").await, ["message", "awaiting_user_input"]);
    client.send_json(json!({ "action": "change_agent_state", "args": { "agent_state": "paused" } }));
    assert_eq!(classic_until(&mut client, "paused").await, ["pause", "paused"]);
    client.send_json(json!({ "action": "change_agent_state", "args": { "agent_state": "running" } }));
    let resumed = classic_until(&mut client, "awaiting_user_input").await;
    assert_eq!(resumed.first().map(String::as_str), Some("resume"));
    client.send_json(json!({ "action": "change_agent_state", "args": { "agent_state": "finished" } }));
    assert_eq!(classic_frame(&mut client).await["error"], true);
    client.send_json(json!({ "action": "dance" }));
    assert_eq!(classic_frame(&mut client).await["error"], true);

    // The session has had a turn, also for a client that has not received it.
    let after = AttachQuery { after: Some("tail".to_owned()), ..classic() };
    let mut late = TestClient::attach_with(&fixture.services, Some(id), after).await;
    late.send_json(json!({ "action": "initialize", "args": { "title": "t" } }));
    assert_eq!(classic_until(&mut late, "awaiting_user_input").await, ["initialize", "awaiting_user_input"]);
}

#[actix::test]
async fn chat_continues_after_any_frame() {
    let fixture = fixture();
    let (id, session) = fixture.session().await;
    let event = |item: &str, body| AgentReport::Event { item: Some(item.to_owned()), body };
    let run = ObservationKind::Run {
        command: "ls".into(),
        exit_code: Some(0),
        duration_ms: 1,
        timed_out: false,
        signal: None,
        truncated: None,
    };
    let partial = Observation { kind: ObservationKind::Message { partial: true }, content: "It wo".into() };
    send_message(&session, "one").await;
    let first = fixture.turn(id).await;
    for (n, reported) in (1..).zip([
        event("c", Action::Run { command: "ls".into() }.into()),
        message("Meanwhile."),
        event("c", Observation { kind: run, content: "LICENSE".into() }.into()),
        event("m", partial.into()),
        message("It works."),
        turn_ended(first.clone()),
    ]) {
        report(&session, n, reported).await;
    }
    send_message(&session, "two").await;
    report(&session, 7, message("Again.")).await;
    let second = fixture.turn(id).await;
    report(&session, 8, turn_ended(second.clone())).await;

    let tail = fixture.store.get(id).await.expect("the store is readable").expect("the session exists").tail;
    let until_second_end = async |after: u64| {
        let mut chat = TestClient::chat_after(&fixture.services, id, Some(&after.to_string())).await;
        let frames = chat.until(|frame| frame["turn"] == json!(second)).await;
        frames.into_iter().filter(|frame| frame["seq"].is_u64()).collect::<Vec<_>>()
    };
    let all = until_second_end(0).await;
    let kinds: Vec<_> = all.iter().filter_map(|frame| frame["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "tool_use_start",
            "text_delta",
            "tool_result",
            "text_delta",
            "text_reset",
            "text_delta",
            "done",
            "text_delta",
            "done"
        ]
    );
    assert_eq!(all[6]["turn"], json!(first));
    let last = all.last().and_then(|frame| frame["seq"].as_u64()).expect("the end is durable");
    for after in 0..last {
        let expected: Vec<_> = all.iter().filter(|frame| frame["seq"].as_u64() > Some(after)).cloned().collect();
        assert_eq!(until_second_end(after).await, expected, "after {after}");
    }
    // A number beyond the end stands for the end.
    for after in [last.to_string(), tail.to_string(), u64::MAX.to_string(), "tail".to_owned(), String::new()] {
        let mut chat = TestClient::chat_after(&fixture.services, id, Some(&after)).await;
        assert_eq!(chat.so_far().await, [] as [&str; 0], "after {after:?}");
    }
}
